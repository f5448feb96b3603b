"""
The hash chain of one process of kas.

Each line has its number in the chain (``seq``), the process (``kas``), and the hash of
the line before (``prev``).  The lines are the leaves of a Merkle tree, whose root kas
signs from time to time.  The signed checkpoint is a line of the chain, too.

All methods run in the thread that writes the log, so a line that is dropped before has
no number.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

from kas.audit.last import LastCheckpoints
from kas.audit.notes import Checkpoint, NoteError, NoteSigner
from kas.audit.tree import MerkleTree, leaf_hash
from tunnel.program.log_writer import FileSink

__all__ = [
    "CHAINS",
    "CHECKPOINT",
    "CONTINUE",
    "MAX_TORN",
    "MAX_UNSIGNED",
    "START",
    "STOP",
    "Chain",
    "checkpoint_line",
    "origin_of",
    "rfc3339",
]

#: Actions of the lines that the chain itself writes.
START, STOP = "audit.start", "audit.stop"
CONTINUE, CHECKPOINT = "audit.continue", "audit.checkpoint"
CHAINS = "audit.chains"

#: Maximum number of lines without a signed checkpoint.  A checkpoint costs a signature
#: (50 microseconds) and a wait for the disk (milliseconds).
MAX_UNSIGNED = 256

#: Maximum number of incomplete lines that the next line names.  There is one if the
#: disk becomes full, and at most one each time some bytes become free.
MAX_TORN = 32


def rfc3339(time: float) -> str:
    """Return a time of day, from seconds since 1970, as each line has it."""
    return datetime.fromtimestamp(time, UTC).isoformat(timespec="microseconds")


def origin_of(kas: str) -> str:
    """Return the name of the chain of the process *kas*, for its checkpoints."""
    return f"txkas-audit/{kas}"


def _process_of(named: Mapping[str, Any]) -> str:
    """Return the process of a chain that a line names."""
    return str(named["origin"]).rpartition("/")[2]


def _line(seq: int, kas: str, prev: str, torn: str, body: bytes) -> bytes:
    """Return *body* with the fields of the chain."""
    return b'{"v":1,"seq":%d,"kas":"%b","prev":"%b",%b%b' % (
        seq,
        kas.encode(),
        prev.encode(),
        torn.encode(),
        body[1:],
    )


def checkpoint_line(seq: int, kas: str, prev: str, note: str) -> bytes:
    """
    Return the line with a checkpoint.

    The note determines all fields of the line.  Otherwise the last line of a file,
    whose hash no other line has, could be changed unnoticed.
    """
    time = note.split("\n")[3].removeprefix("time ")
    text = sha256(note.encode()).hexdigest()
    # UUID version 8: the bits are those of a hash.
    event_id = f"{text[:8]}-{text[8:12]}-8{text[13:16]}-8{text[17:20]}-{text[20:32]}"
    event = {
        "stage": "changed",
        "id": event_id,
        "time": time,
        "action": CHECKPOINT,
        "note": note,
    }
    body = json.dumps(event, separators=(",", ":")) + "\n"
    return _line(seq, kas, prev, "", body.encode())


class Chain:
    """
    Sink that links the lines of one process, and writes them to a file.

    The lines of several processes may be in one file.

    :param kas: identifies the process; no other process ever has the same.
    :param body: returns a line with an action and fields, without the chain's fields.
    :param about: fields of the first line.
    :param now: returns the time of day, in seconds since 1970.
    """

    def __init__(
        self,
        file: FileSink,
        kas: str,
        signer: NoteSigner,
        last: LastCheckpoints,
        body: Callable[[str, Mapping[str, Any]], str],
        about: Mapping[str, Any],
        now: Callable[[], float],
    ) -> None:
        self._file = file
        self._kas = kas
        self._signer = signer
        self._last = last
        self._body = body
        self._about = about
        self._now = now
        self._tree = MerkleTree()
        self._prev = ""
        #: Number of lines that are signed, or are signatures.
        self._signed = 0
        #: Number of lines after which kas signs next.
        self._due = MAX_UNSIGNED
        self._torn: list[str] = []
        #: Numbers of lines of the other chains that lines of this chain name, in the
        #: file that is open.
        self._named: dict[str, int] = {}
        #: Whether the open file needs a line with the hashes of the tree.
        self._moved = False
        #: Number of checkpoints that were signed.
        self.checkpoints = 0
        #: Time of the last checkpoint, in seconds since 1970; None before the first.
        self.signed_at: float | None = None

    def begin(self) -> None:
        """
        Write the first line, unless it is written.

        It names the last checkpoints of other chains, such as the chains of this kas
        before a restart, so that a verifier notices missing lines at their ends.
        """
        if self._tree.size:
            return
        before = self._name(None)
        self._append(self._body(START, {**self._about, "before": before}).encode())
        self._have_named(before)
        # The other workers of this kas name this chain from now on.  Otherwise a chain
        # without a checkpoint could be removed unnoticed.
        with suppress(OSError):
            self._file.sync()
            self._last.write(self._kas, self._checkpoint())
        self._last.remove_old()

    def _name(self, chains: Collection[str] | None) -> list[dict[str, Any]]:
        """
        Return the last checkpoints of other chains, for a line that names them.

        :param chains: the names of these chains; None for all.
        """
        before = []
        own = origin_of(self._kas)
        for time, note in self._last.read(chains):
            with suppress(NoteError):
                found = Checkpoint.parse(note.partition("\n\n")[0] + "\n")
                if found.origin == own:
                    continue
                root = base64.b64encode(found.root).decode()
                before.append(
                    {
                        "origin": found.origin,
                        "size": found.size,
                        "root": root,
                        "time": rfc3339(time),
                    }
                )
        return before

    def _have_named(self, before: Iterable[Mapping[str, Any]]) -> None:
        for one in before:
            self._named[_process_of(one)] = one["size"]

    def _name_others(self, *, again: bool = False) -> None:
        """
        Write a line that names the chains that this chain has not named, such as those
        of workers that started later, so that no chain can be removed as a whole.

        :param again: whether to name longer chains again.
        """
        chains = self._last.chains()
        self._named = {one: self._named[one] for one in self._named if one in chains}
        new = chains if again else chains - self._named.keys()
        if not new - {self._kas}:
            return
        before = [
            one
            for one in self._name(new)
            if self._named.get(_process_of(one)) != one["size"]
        ]
        if before:
            self._append(self._body(CHAINS, {"before": before}).encode())
            self._have_named(before)

    def write(self, data: bytes) -> None:
        """
        Write *data*, the body of one line.

        :raises OSError: if the file cannot be written; the chain does not contain the
            line.
        """
        self.begin()
        self._continue()
        self._append(data)
        if self._tree.size >= self._due:
            # The next lines try again.
            self._due = self._tree.size + MAX_UNSIGNED
            with suppress(OSError):
                self.sign()

    def _append(self, body: bytes) -> None:
        torn = ""
        if self._torn:
            torn = '"torn":["' + '","'.join(self._torn) + '"],'
        self._put(_line(self._tree.size, self._kas, self._prev, torn, body))
        self._torn.clear()

    def _put(self, line: bytes) -> None:
        try:
            self._file.write(line)
        except OSError:
            # The file may contain a part of the line.  The next line names this part,
            # so that a verifier can distinguish it from an insertion.
            fragment = self._file.take_fragment()
            # If only the line feed is missing, the line is complete, and the next write
            # begins with the line feed.
            if fragment != line[:-1]:
                if fragment:
                    self._torn.append(sha256(fragment).hexdigest())
                    del self._torn[:-MAX_TORN]
                raise
        leaf = leaf_hash(line[:-1])
        self._tree.append(leaf)
        self._prev = leaf.hex()

    def sync(self) -> None:
        """
        Wait until all lines are on disk.

        :raises OSError: if the disk does not accept them.
        """
        self._file.sync()

    def sign(self) -> None:
        """
        Write a signed checkpoint of all lines, unless the last line is a checkpoint.

        :raises OSError: if the disk does not accept the lines.
        """
        if self._tree.size == self._signed:
            return
        self._continue()
        self._name_others()
        # The lines must be on disk before a signature says that they exist: after a
        # power failure, the log would seem to be cut.
        self._file.sync()
        size, note = self._tree.size, self._checkpoint()
        self._put(checkpoint_line(size, self._kas, self._prev, note))
        self._signed = size + 1
        self._due = self._signed + MAX_UNSIGNED
        self.checkpoints += 1
        self.signed_at = self._now()
        self._last.write(self._kas, note)

    def _checkpoint(self) -> str:
        """Return a signed checkpoint of all lines."""
        time = f"time {rfc3339(self._now())}"
        root = self._tree.root()
        checkpoint = Checkpoint(origin_of(self._kas), self._tree.size, root, (time,))
        return self._signer.sign(str(checkpoint))

    def end(self) -> None:
        """Write the last line, and sign all lines."""
        self.begin()
        self._continue()
        self._name_others(again=True)
        self._append(self._body(STOP, {}).encode())
        self.sign()

    def reopen(self) -> None:
        """
        Continue in another file with the same name.

        The first line there has the hashes of the tree, so that the lines can be
        verified without the earlier files.
        """
        with suppress(OSError):
            self.sign()
        self._file.reopen()
        self._go_on()

    def rotate(self) -> None:
        """Rename the file, and continue in a new one."""
        with suppress(OSError):
            self.sign()
        self._file.rotate()
        self._go_on()

    def _go_on(self) -> None:
        self._moved = self._tree.size > 0
        # The earlier files may be deleted, with the lines that name other chains.
        self._named.clear()
        self._continue()

    def _continue(self) -> None:
        """Write the first line of a file, unless it is written."""
        if self._moved:
            hashes = [one.hex() for one in self._tree.hashes]
            # If earlier files were removed, `before` shows which chains had ended in
            # them.  Chains that still run are named again soon, with their new lines.
            fields = {"hashes": hashes, "before": self._name(None)}
            self._append(self._body(CONTINUE, fields).encode())
            self._moved = False
