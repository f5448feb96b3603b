"""
Retention: the removal of old files of an audit log.

Only whole files are removed, the oldest first, so that the other files can still be
verified (``kasctl audit verify --partial``).  Before, their last checkpoints are stored
in the state directory: they prove which lines existed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import attrs

from kas.audit.chain import CHECKPOINT, rfc3339
from kas.audit.exports.cursor import CursorFile, first_digest
from kas.audit.exports.reader import LogReader, NamedFile
from kas.audit.files import MAX_LINE, lines_of, open_log
from kas.audit.holds import Holds
from kas.audit.last import FOLDER
from kas.state.directory import StateDirectory
from tunnel.errors import ConfigurationError

__all__ = ["DROPPED", "Dropped", "Retention"]

#: Name of the file with the checkpoints of removed files, in the folder of the state
#: directory for the audit log.
DROPPED = "dropped.jsonl"

_CHECKPOINT = f'"action":"{CHECKPOINT}"'.encode()


@attrs.frozen
class Dropped:
    """
    A file that was removed.

    :ivar digest: SHA-256 of its content, without compression.
    :ivar notes: the last checkpoint of each chain in it.
    """

    name: str
    digest: str
    lines: int
    since: str
    until: str
    why: str
    notes: Mapping[str, str]

    def details(self) -> dict[str, str | int | bool]:
        """Return fields for an event of the audit log."""
        return {
            "file": self.name,
            "sha256": self.digest,
            "lines": self.lines,
            "since": self.since,
            "until": self.until,
            "reason": self.why,
        }


class Retention:
    """
    The limits of one log; all methods block.

    :param seconds: age at which a file is removed; None for no limit.
    :param size: maximum bytes of all files; None for no limit.
    :param cursors: the places of the exports by their names: a file is not removed
        before all exports have sent it.
    :param now: returns the time of day, in seconds since 1970.
    """

    def __init__(
        self,
        log: Path,
        seconds: float | None,
        size: int | None,
        state: StateDirectory,
        cursors: Mapping[str, CursorFile],
        now: Callable[[], float],
    ) -> None:
        self._log = log
        self._seconds = seconds
        self._size = size
        self._state = state
        self._cursors = cursors
        self._now = now
        self._reader = LogReader(log, now)
        self._holds = Holds(state)
        #: Whether files of a hold have an event that it keeps, by id and file.
        self._kept: dict[tuple[str, str], bool] = {}
        #: The holds that keep no event of the next file.
        self._checked: frozenset[str] = frozenset()
        #: Why the next file is not removed although a limit is exceeded; empty if none
        #: is exceeded.
        self.problem = ""

    def prune(self) -> Iterator[Dropped]:
        """
        Remove files beyond the limits, and yield each of them.

        :raises OSError: if a file cannot be read or removed.
        :raises ConfigurationError: if the holds cannot be read any more.
        """
        files = self._reader.files()
        sizes = {one.path: one.path.stat() for one in files}
        total = sum(found.st_size for found in sizes.values())
        sent = self._sent(files)
        self.problem = ""
        for number, one in enumerate(files[:-1]):
            found = sizes[one.path]
            if one.path == self._log:
                return
            if self._seconds and self._now() - found.st_mtime > self._seconds:
                why = f"older than {self._seconds / 86400:g} days"
            elif self._size and total > self._size:
                why = f"all files have more than {self._size} bytes"
            else:
                return
            self.problem = self._why_not(one, number, sent)
            if self.problem:
                return
            dropped = self._drop(one, why)
            if dropped is None:
                return
            total -= found.st_size
            yield dropped

    def _sent(self, files: Sequence[NamedFile]) -> dict[str, int]:
        """Return, for each export, the number of the first file that is not sent."""
        numbers = {one.first: number for number, one in enumerate(files)}
        sent = {}
        for name, cursors in self._cursors.items():
            cursor = cursors.read()
            sent[name] = 0 if cursor is None else numbers.get(cursor.first, 0)
        return sent

    def _why_not(self, one: NamedFile, number: int, sent: Mapping[str, int]) -> str:
        for name, first in sent.items():
            if first <= number:
                return f"export {name} has not sent {one.path.name}"
        try:
            holds = self._holds.read()
        except ConfigurationError as error:
            return str(error)
        now = rfc3339(self._now())
        for hold in holds:
            if not hold.is_over(now) and self._keeps(hold.id, one, hold.keeps):
                return f"hold {hold.id} keeps {one.path.name}"
        self._checked = frozenset(hold.id for hold in holds)
        return ""

    def _keeps(
        self, hold_id: str, one: NamedFile, keeps: Callable[[Path], bool]
    ) -> bool:
        key = (hold_id, one.first)
        if key not in self._kept:
            # Only the oldest file is of interest.
            self._kept = {k: v for k, v in self._kept.items() if k[1] == one.first}
            self._kept[key] = keeps(one.path)
        return self._kept[key]

    def _drop(self, one: NamedFile, why: str) -> Dropped | None:
        """
        Store the proof, and remove the file; return None if the file was renamed, or
        if there are further holds.
        """
        digest, lines, since, until = sha256(), 0, "", ""
        notes: dict[str, str] = {}
        with open_log(one.path) as file:
            if first_digest(file.readline(MAX_LINE)) != one.first:
                return None
            file.seek(0)
            last = b""
            for line in lines_of(file):
                digest.update(line)
                lines += 1
                if lines == 1:
                    since = _time_of(line)
                if _CHECKPOINT in line:
                    notes.update(_note_of(line))
                last = line
            until = _time_of(last)
            dropped = Dropped(
                one.path.name, digest.hexdigest(), lines, since, until, why, notes
            )
            # Reading the file takes long enough for an operator to add a hold, which
            # keeps events as soon as it is stored.
            with self._state.lock():
                if not self._checked.issuperset(hold.id for hold in self._holds.read()):
                    return None
                self._store(dropped)
                found = os.fstat(file.fileno())
                named = one.path.stat()
                if (found.st_dev, found.st_ino) != (named.st_dev, named.st_ino):
                    return None
                one.path.unlink()
        return dropped

    def _store(self, dropped: Dropped) -> None:
        folder = self._state.file(FOLDER)
        folder.mkdir(mode=0o700, exist_ok=True)
        line = json.dumps({"dropped": rfc3339(self._now()), **attrs.asdict(dropped)})
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
        descriptor = os.open(folder / DROPPED, flags, 0o600)
        try:
            os.write(descriptor, line.encode() + b"\n")
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _event(line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _time_of(line: bytes) -> str:
    return str(_event(line).get("time", ""))


def _note_of(line: bytes) -> dict[str, str]:
    event = _event(line)
    if event.get("action") == CHECKPOINT and isinstance(event.get("note"), str):
        return {str(event.get("kas", "")): event["note"]}
    return {}
