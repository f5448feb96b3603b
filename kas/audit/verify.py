"""
Verification of audit logs, with the files and the public key alone.

Files are read once, line by line; the memory depends on the number of chains and of
requests that have not ended, not on the number of lines.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from hashlib import sha256
from typing import Any

import attrs

from kas.audit.chain import (
    CHAINS,
    CHECKPOINT,
    CONTINUE,
    START,
    STOP,
    checkpoint_line,
    origin_of,
)
from kas.audit.files import MAX_LINE
from kas.audit.fragments import MARK, MAX_FRAGMENTS, Fragments, Torn
from kas.audit.notes import Checkpoint, NoteError, NoteKey
from kas.audit.tree import MerkleTree

__all__ = ["ChainReport", "LogFinding", "LogReport", "Verdict", "Verifier"]


#: Maximum number of checkpoints of one chain that are remembered.
MAX_CHECKPOINTS = 10_000

#: Maximum number of chains: a year of hourly restarts.
MAX_CHAINS = 10_000

#: Maximum number of requests without an end that are remembered for one chain.
MAX_BEGUN = 100_000

_LINE = re.compile(
    rb'\{"v":1,"seq":(0|[1-9][0-9]{0,17}),"kas":"([0-9a-f]{1,64})",'
    rb'"prev":"([0-9a-f]{64}|)",(?:"torn":\[([0-9a-f",]*)\],)?"stage":"([a-z]+)",'
    rb'"id":"([0-9a-f-]{36})","time":"([0-9T:.+-]{20,40})",'
    rb'(?:"module":"[^"\\]*",)?"action":"([^"\\]*)"'
)

_BEGUN, _ENDED = b"begun", b"ended"
_ACTIONS = frozenset(
    one.encode() for one in (START, STOP, CONTINUE, CHECKPOINT, CHAINS)
)


class Verdict(IntEnum):
    """The result for a log, which is also the status of `kasctl`; see `worst`."""

    GOOD = 0
    #: Lines were changed, inserted, reordered or removed.
    TAMPERED = 1
    #: Nothing is wrong, but the files do not prove that nothing is missing.
    INCOMPLETE = 2

    @staticmethod
    def worst(verdicts: Iterable[Verdict]) -> Verdict:
        """Return the most important of *verdicts*; `GOOD` without any."""
        found = set(verdicts)
        for one in (Verdict.TAMPERED, Verdict.INCOMPLETE):
            if one in found:
                return one
        return Verdict.GOOD


@attrs.frozen
class LogFinding:
    """
    Something that a reader of the log has to know.

    :ivar place: ``file:line``; empty if it is not about one line.
    """

    verdict: Verdict
    place: str
    text: str

    def __str__(self) -> str:
        return f"{self.place}: {self.text}" if self.place else self.text


@attrs.frozen
class ChainReport:
    """
    The result for one chain.

    :ivar lines: number of its lines in the files.
    :ivar signed: number of lines, from the first one, that a checkpoint proves.
    :ivar state: ``ended``, ``open``, or ``wrong``.
    :ivar unfinished: places of requests that have not ended.
    """

    kas: str
    lines: int
    signed: int
    state: str
    unfinished: Sequence[str]


@attrs.frozen
class LogReport:
    """The result for a log."""

    findings: Sequence[LogFinding]
    chains: Sequence[ChainReport]
    lines: int

    @property
    def verdict(self) -> Verdict:
        """The result for all findings together."""
        return Verdict.worst(one.verdict for one in self.findings)


class _Chain:
    """One chain, as far as it was read."""

    __slots__ = (
        "at",
        "begun",
        "checkpoints",
        "expected",
        "found",
        "kas",
        "lines",
        "next",
        "prev",
        "sealed",
        "signed",
        "since",
        "stopped",
        "time",
        "torn",
        "tree",
        "wrong",
    )

    def __init__(self, kas: str) -> None:
        self.kas = kas
        #: Number and ``prev`` of the next line.
        self.next = 0
        self.prev = b""
        #: None while the lines before are unknown.
        self.tree: MerkleTree | None = None
        self.lines = 0
        #: Number of lines that are proven, and number of lines that end with a
        #: checkpoint.
        self.signed = self.sealed = 0
        self.stopped = False
        self.wrong = False
        #: Places of requests that have not ended, by id.
        self.begun: dict[bytes, str] = {}
        #: Roots of checkpoints in the chain, by size.
        self.checkpoints: dict[int, bytes] = {}
        #: Roots that the chain must have, by size.
        self.expected: dict[int, bytes] = {}
        self.found: list[LogFinding] = []
        #: Time of the first line, and of the last one.
        self.since = ""
        self.time = b""
        #: Place of the last line in all files; see `Torn`.
        self.at = 0
        #: Incomplete lines that lines name that are not proven yet.
        self.torn: list[Torn] = []


class Verifier:
    """
    Verifier that reads the lines of a log in order.

    kas signs each checkpoint of a chain as a note.

    :param key: the public key of kas.
    :param checkpoints: notes that were stored elsewhere; the log must contain their
        chains.
    :param known: notes of chains of any log.  If such a chain is in this log, it must
        match its note.
    :param partial: whether retention may have removed earlier files.
    :param own: the newest notes of this log; the log must contain their chains, unless
        *partial* is set and retention removed them.
    :raises NoteError: if the key has not signed a checkpoint.
    """

    def __init__(
        self,
        key: NoteKey,
        checkpoints: Iterable[str] = (),
        known: Iterable[str] = (),
        partial: bool = False,
        own: Iterable[str] = (),
    ) -> None:
        self._key = key
        self._partial = partial
        self._chains: dict[bytes, _Chain] = {}
        self._findings: list[LogFinding] = []
        self._fragments = Fragments(MAX_LINE)
        self._is_full = False
        #: Number of lines of all files before the file that is read.
        self._lines = 0
        self._legacy = 0
        self._first_legacy = ""
        #: Folders of the files before that contain lines of a chain.
        self._folders: set[str] = set()
        self._folder = ""
        #: Whether no line of the folder was read.
        self._is_first = False
        #: Roots, by the origin and size of the checkpoints.
        self._outside: dict[str, dict[int, bytes]] = {}
        #: Time of the newest note of each chain that must be here; empty if the chain
        #: must be here even if earlier files are missing.
        self._wanted: dict[str, str] = {}
        for notes in (known, own, checkpoints):
            for note in notes:
                one = Checkpoint.parse(key.read(note))
                self._outside.setdefault(one.origin, {})[one.size] = one.root
                if notes is checkpoints:
                    self._wanted[one.origin] = ""
                elif notes is own:
                    self._wanted[one.origin] = _time_of(one)
        #: Times and places of the checkpoints that lines of other chains name, by
        #: origin, size and root.
        self._named: dict[tuple[str, int, bytes], tuple[str, str]] = {}
        #: Origins of missing chains that were reported.
        self._missing: set[str] = set()
        #: Sizes of the chains that the first line of each folder names, by origin: if
        #: earlier files were removed, the lines before were in these files.  None if
        #: such a line names nothing, or lines after it were written before it.
        self._removed: dict[str, int] | None = {}
        #: Sizes of the checkpoints that first lines of other chains name, by origin.
        self._succeeded: dict[str, int] = {}

    def read(self, name: str, lines: Iterable[bytes]) -> None:
        """
        Read the lines of one file.

        :param name: the name of the file, for findings.
        :param lines: each with its line feed; the last one may have none.
        """
        number = 0
        self._folder = os.path.dirname(name)
        self._is_first = self._folder not in self._folders
        before = sum(one.lines for one in self._chains.values())
        for number, line in enumerate(lines, 1):
            found = _LINE.match(line)
            if (
                found is not None
                and line.endswith(b"}\n")
                and line.find(MARK, 1) < 0
                and len(line) <= MAX_LINE
            ):
                self._line(line[:-1], found, name, number)
            else:
                self._odd_line(line, name, number)
        self._lines += number
        if sum(one.lines for one in self._chains.values()) > before:
            self._folders.add(self._folder)

    def _odd_line(self, line: bytes, name: str, number: int) -> None:
        """
        Read a line that is incomplete, or begins with an incomplete line of another
        process.
        """
        whole = line.endswith(b"\n")
        line = line.rstrip(b"\n")
        if line.startswith(b'{"time":') and line.endswith(b"}") and MARK not in line:
            # An older kas may write to the same file until its clients have left.
            self._legacy += 1
            self._first_legacy = self._first_legacy or f"{name}:{number}"
            return
        pieces = line.split(MARK)
        for place, piece in enumerate(pieces):
            text = piece if place == 0 else MARK + piece
            if place == 0 and not text and len(pieces) > 1:
                continue
            found = _LINE.match(text)
            last = place == len(pieces) - 1
            if found is None or not text.endswith(b"}") or len(text) >= MAX_LINE:
                self._fragment(text, found, name, number)
            elif last and whole:
                self._line(text, found, name, number)
            elif _is_whole(text):
                # The disk was full before the line feed.
                self._line(text, found, name, number)
                self._fragment(b"", None, name, number)
            else:
                self._fragment(text, found, name, number)

    def _fragment(
        self, text: bytes, found: re.Match[bytes] | None, name: str, number: int
    ) -> None:
        chain, seq = None, 0
        if found is not None:
            chain, seq = self._chains.get(found[2]), int(found[1])
            if chain is not None and (chain.next, chain.prev) != (seq, found[3]):
                chain = None

        def is_last() -> bool:
            return chain is not None and chain.next == seq

        place = f"{name}:{number}"
        has_room = self._fragments.add(text, place, self._lines + number, is_last)
        if not has_room and not self._is_full:
            self._is_full = True
            why = "too many incomplete lines"
            self._findings.append(LogFinding(Verdict.TAMPERED, place, why))

    def _line(
        self, line: bytes, found: re.Match[bytes], name: str, number: int
    ) -> None:
        parts: tuple[Any, ...] = found.groups()
        seq_text, kas, prev, torn, stage, event_id, time, action = parts
        seq = int(seq_text)
        chain = self._chains.get(kas)
        if chain is None:
            if len(self._chains) >= MAX_CHAINS:
                self._fragment(line, None, name, number)
                return
            chain = self._chains[kas] = self._new_chain(
                kas, seq, prev, action, name, number
            )
            chain.since = time.decode()
        if chain.wrong:
            return
        if seq != chain.next or prev != chain.prev:
            self._wrong(chain, f"{name}:{number}", _why(chain, seq))
            return
        at = self._lines + number
        if torn is not None and len(chain.torn) < MAX_FRAGMENTS:
            digests = torn.decode().replace('"', "").split(",")
            chain.torn += [Torn(one, chain.at, at) for one in digests]
        chain.at, chain.time = at, time
        chain.lines += 1
        if action in _ACTIONS:
            if not self._read_own(chain, line, action, f"{name}:{number}"):
                return
        elif stage == _BEGUN:
            if len(chain.begun) < MAX_BEGUN:
                chain.begun[event_id] = f"{name}:{number}"
        elif stage == _ENDED:
            chain.begun.pop(event_id, None)
        if self._is_first:
            self._is_first = False
            if action != START.encode() and b'"before":[' not in line:
                self._removed = None
        leaf = sha256(b"\x00" + line)
        chain.next = seq + 1
        chain.prev = leaf.hexdigest().encode()
        tree = chain.tree
        if tree is not None:
            tree.append(leaf.digest())
            if chain.expected:
                root = chain.expected.pop(chain.next, None)
                if root is not None:
                    self._check_expected(chain, root, f"{name}:{number}")

    def _check_expected(self, chain: _Chain, root: bytes, place: str) -> None:
        """Compare the lines so far with a checkpoint from elsewhere."""
        assert chain.tree is not None
        if root == chain.tree.root():
            self._proven(chain, chain.next)
        else:
            self._wrong(chain, place, "a checkpoint from elsewhere has other lines")

    def _proven(self, chain: _Chain, size: int) -> None:
        """Accept the first lines of a chain, and the fragments that they name."""
        chain.signed = max(chain.signed, size)
        for torn in chain.torn:
            self._fragments.name(torn)
        chain.torn.clear()

    def _new_chain(
        self, kas: bytes, seq: int, prev: bytes, action: bytes, name: str, number: int
    ) -> _Chain:
        chain = _Chain(kas.decode())
        chain.next, chain.prev = seq, prev
        chain.expected = dict(self._outside.get(origin_of(chain.kas), {}))
        place = f"{name}:{number}"
        if self._removed and seq < self._removed.get(origin_of(chain.kas), 0):
            self._removed = None
        if seq == 0:
            chain.tree = MerkleTree()
            if prev or action != START.encode():
                self._wrong(chain, place, "not the first line of a chain")
        elif action == CONTINUE.encode() and self._folder not in self._folders:
            verdict = Verdict.GOOD if self._partial else Verdict.INCOMPLETE
            why = f"lines 0 to {seq - 1} of chain {chain.kas} are in no file here"
            chain.found.append(LogFinding(verdict, place, why))
        elif action == CONTINUE.encode():
            # Each chain writes a line to each file.
            why = (
                f"lines 0 to {seq - 1} of chain {chain.kas} are missing, although an "
                "earlier file of this folder is here"
            )
            chain.found.append(LogFinding(Verdict.INCOMPLETE, place, why))
        else:
            why = (
                f"lines 0 to {seq - 1} of chain {chain.kas} are missing; without them, "
                "nothing proves the lines from here to the next audit.continue"
            )
            chain.found.append(LogFinding(Verdict.INCOMPLETE, place, why))
        return chain

    def _wrong(self, chain: _Chain, place: str, why: str) -> None:
        chain.wrong = True
        text = f"chain {chain.kas}: {why}"
        chain.found.append(LogFinding(Verdict.TAMPERED, place, text))

    def _read_own(self, chain: _Chain, line: bytes, action: bytes, place: str) -> bool:
        """
        Read a line that the chain itself has written; return whether it is right.
        """
        try:
            event = json.loads(line)
            if action in (START.encode(), CHAINS.encode()):
                self._read_names(event, place, action == START.encode())
            elif action == CONTINUE.encode():
                self._read_continue(chain, event, place)
            elif action == CHECKPOINT.encode():
                self._read_checkpoint(chain, event, line)
            else:
                chain.stopped = True
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            self._wrong(chain, place, "a line of the chain itself is malformed")
        except NoteError as error:
            self._wrong(chain, place, str(error))
        return not chain.wrong

    def _read_names(self, event: Mapping[str, Any], place: str, is_start: bool) -> None:
        """Read the checkpoints of other chains that a line names."""
        for one in event["before"]:
            text = f"{one['origin']}\n{one['size']}\n{one['root']}\n"
            found = Checkpoint.parse(text)
            key = (found.origin, found.size, found.root)
            self._named.setdefault(key, (str(one["time"]), place))
            if self._is_first and self._removed is not None:
                self._removed[found.origin] = found.size
            if is_start:
                size = self._succeeded.get(found.origin, 0)
                self._succeeded[found.origin] = max(size, found.size)

    def _read_continue(
        self, chain: _Chain, event: Mapping[str, Any], place: str
    ) -> None:
        if "before" in event:
            self._read_names(event, place, False)
        hashes = map(bytes.fromhex, event["hashes"])
        tree = MerkleTree(chain.next, hashes)
        if chain.tree is None:
            # The next checkpoint proves that the hashes are right.
            chain.tree = tree
        elif chain.tree.hashes != tree.hashes:
            raise NoteError("the hashes of the lines in earlier files are wrong")

    def _read_checkpoint(
        self, chain: _Chain, event: Mapping[str, Any], line: bytes
    ) -> None:
        found = Checkpoint.parse(self._key.read(event["note"]))
        expected = checkpoint_line(
            chain.next, chain.kas, chain.prev.decode(), event["note"]
        )
        if line != expected[:-1]:
            raise NoteError("the line of a checkpoint was changed")
        if found.origin != origin_of(chain.kas) or found.size != chain.next:
            raise NoteError("a checkpoint of another line")
        # Its note determines the line of the checkpoint, too.
        chain.sealed = chain.next + 1
        if chain.tree is not None:
            if found.root != chain.tree.root():
                raise NoteError("a checkpoint does not match the lines before it")
            self._proven(chain, chain.sealed)
        chain.checkpoints[found.size] = found.root
        if len(chain.checkpoints) > MAX_CHECKPOINTS:
            del chain.checkpoints[next(iter(chain.checkpoints))]

    # The end of all files.

    def finish(self) -> LogReport:
        """Return the result, after the last file."""
        if not self._chains:
            why = "the files contain no line of a chain"
            self._findings.append(LogFinding(Verdict.INCOMPLETE, "", why))
        if self._legacy:
            why = f"{self._legacy} lines of an earlier version of kas are not protected"
            place = self._first_legacy
            self._findings.append(LogFinding(Verdict.INCOMPLETE, place, why))
        self._check_named()
        self._check_outside()
        for chain in self._chains.values():
            self._check_end(chain)
            self._findings += chain.found
        for place, is_incomplete, why in self._fragments.findings():
            verdict = Verdict.INCOMPLETE if is_incomplete else Verdict.TAMPERED
            self._findings.append(LogFinding(verdict, place, why))
        chains = [
            ChainReport(
                chain.kas,
                chain.lines,
                chain.signed,
                "wrong" if chain.wrong else "ended" if chain.stopped else "open",
                list(chain.begun.values()),
            )
            for chain in self._chains.values()
        ]
        return LogReport(self._findings, chains, self._lines)

    def _by_origin(self, origin: str) -> _Chain | None:
        return self._chains.get(origin.rpartition("/")[2].encode())

    def _check_named(self) -> None:
        """Check the checkpoints that lines of other chains name."""
        missing: dict[str, tuple[int, str, str]] = {}
        for (origin, size, root), (time, place) in self._named.items():
            chain = self._by_origin(origin)
            if chain is None:
                most, newest, first = missing.get(origin, (0, "", place))
                missing[origin] = (max(most, size), max(newest, time), first)
            elif not chain.wrong:
                if chain.next < size:
                    self._wrong(chain, place, _missing(chain, size))
                elif chain.checkpoints.get(size, root) != root:
                    self._wrong(chain, place, "this line names another history of it")
        for origin, (size, time, place) in missing.items():
            self._report_missing(origin, size, time, place)

    def _was_removed(self, origin: str, size: int, time: str) -> bool:
        """
        Tell whether retention removed every line of a chain.

        The first line of each file lists the chains of the earlier files.  Files from
        earlier versions of kas have no such list: then a chain counts as removed if its
        last checkpoint is older than every remaining chain.
        """
        if self._removed is not None:
            return self._removed.get(origin) == size
        chains = self._chains.values()
        return time < min((one.since for one in chains), default="")

    def _report_missing(self, origin: str, size: int, time: str, place: str) -> None:
        """
        Report a chain without any line here.

        :param time: the time of the chain's last checkpoint; empty if the chain must be
            here even if earlier files are missing.
        """
        chains = self._chains.values()
        if self._partial and time and self._was_removed(origin, size, time):
            return
        if origin in self._missing:
            return
        self._missing.add(origin)
        why = f"all {size} lines of {origin} are missing"
        newest = max((one.time.decode() for one in chains), default="")
        if not place and time > newest:
            why += (
                "; its checkpoint is newer than the log: the newest file is missing, "
                "or the log is an older copy"
            )
        self._findings.append(LogFinding(Verdict.INCOMPLETE, place, why))

    def _check_outside(self) -> None:
        for origin, sizes in self._outside.items():
            chain = self._by_origin(origin)
            size = max(sizes)
            if chain is None:
                if origin in self._wanted:
                    self._report_missing(origin, size, self._wanted[origin], "")
            elif not chain.wrong and chain.next < size:
                self._wrong(chain, "", _missing(chain, size))

    def _check_end(self, chain: _Chain) -> None:
        if chain.wrong:
            return
        tail = chain.next - chain.signed
        if chain.stopped:
            if chain.sealed == chain.next:
                if chain.begun:
                    why = f"chain {chain.kas}: {len(chain.begun)} requests have no end"
                    chain.found.append(LogFinding(Verdict.INCOMPLETE, "", why))
                return
            why = f"chain {chain.kas}: its last lines are not signed"
        elif tail and self._is_succeeded(chain):
            why = (
                f"chain {chain.kas}: its last {tail} lines are not signed, and a later "
                "chain began after them; kas was killed, or the lines were added"
            )
        elif chain.signed and origin_of(chain.kas) in self._outside:
            # The chain is complete up to this checkpoint; kas may be running.
            if tail > 0:
                why = f"chain {chain.kas}: the last {tail} lines are not signed yet"
                chain.found.append(LogFinding(Verdict.GOOD, "", why))
            return
        else:
            why = (
                f"chain {chain.kas} has no end: kas is running or was killed, or the "
                "last lines are missing; compare it with a checkpoint"
            )
        chain.found.append(LogFinding(Verdict.INCOMPLETE, "", why))

    def _is_succeeded(self, chain: _Chain) -> bool:
        """
        Tell whether another chain began after the last checkpoint of *chain*.

        A kas that still runs signs its next lines within a second.
        """
        size = self._succeeded.get(origin_of(chain.kas))
        return size is not None and chain.signed <= size + 1


def _time_of(checkpoint: Checkpoint) -> str:
    """Return the time of a checkpoint; empty if it has none."""
    for one in checkpoint.extensions:
        if one.startswith("time "):
            return one.removeprefix("time ")
    return ""


def _is_whole(text: bytes) -> bool:
    """Tell whether a line without its line feed is complete."""
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _why(chain: _Chain, seq: int) -> str:
    if seq < chain.next:
        return f"line {seq} is repeated or inserted; expected line {chain.next}"
    if seq > chain.next:
        return f"lines {chain.next} to {seq - 1} are missing"
    return f"line {seq - 1}, or the hash of it in line {seq}, was changed"


def _missing(chain: _Chain, size: int) -> str:
    return f"lines {chain.next} to {size - 1} are missing; a checkpoint proves them"
