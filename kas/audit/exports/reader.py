"""Reader of the events after a place in an audit log; all methods block."""

from __future__ import annotations

import glob
import json
import os
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import attrs

from kas.audit.exports.cursor import Cursor, first_digest
from kas.audit.files import MAX_LINE, in_order, lines_of, open_log
from kas.audit.search import is_event, pieces_of

__all__ = ["MAX_BYTES", "MAX_EVENTS", "Batch", "Exported", "LogReader", "log_files"]

#: Maximum number of events of a batch, and of their bytes, as receivers of webhooks
#: accept them.
MAX_EVENTS, MAX_BYTES = 500, 1024 * 1024

#: Seconds after which no process writes to a renamed file any more: each worker reopens
#: the log when it gets SIGHUP.
SETTLED_SECONDS = 10.0


@attrs.frozen
class Exported:
    """
    An event of a log.

    :ivar line: the bytes of the line, without its line feed.
    :ivar after: the place after it.
    """

    line: bytes
    event: Mapping[str, Any]
    after: Cursor


@attrs.frozen
class Batch:
    """
    The events after a place, in order.

    :ivar after: the place after the events and after incomplete lines; None if the log
        is empty.
    :ivar lag: number of bytes after the place at which the batch begins.
    :ivar is_lost: whether the file with the place is missing, so that the batch begins
        with the oldest file.
    """

    events: Sequence[Exported]
    after: Cursor | None
    lag: int = 0
    is_lost: bool = False


@attrs.frozen
class NamedFile:
    """A file of a log, and its `first_digest`."""

    path: Path
    first: str


def log_files(log: Path) -> list[Path]:
    """Return the file of a log and its rotated files, in any order."""
    found = []
    for path in log.parent.glob(f"{glob.escape(log.name)}*"):
        with suppress(OSError):
            if stat.S_ISREG(path.stat().st_mode):
                found.append(path)
    return found


class LogReader:
    """
    Reader of a log and its rotated files.

    :param log: the file to which kas writes.
    :param now: returns the time of day, in seconds since 1970.
    """

    def __init__(self, log: Path, now: Callable[[], float]) -> None:
        self._log = log
        self._now = now
        self._files: list[NamedFile] = []
        #: Files that cannot be read, and why.
        self._unreadable: dict[Path, OSError] = {}
        #: Names of files without a line, and of files that cannot be read.
        self._odd: frozenset[str] = frozenset()
        #: The state of the folder for which the other attributes are valid.
        self._seen: frozenset[tuple[object, ...]] | None = None

    def files(self) -> list[NamedFile]:
        """
        Return the files that have a line, oldest first.

        :raises OSError: if the folder cannot be read.
        """
        paths = log_files(self._log)
        if self._state(paths) == self._seen:
            return self._files
        files: list[NamedFile] = []
        self._unreadable = {}
        odd = set()
        with in_order(paths, self._unreadable.__setitem__) as logs:
            for one in logs:
                line = one.file.readline(MAX_LINE)
                if line.endswith(b"\n"):
                    files.append(NamedFile(one.path, first_digest(line)))
                else:
                    odd.add(one.path.name)
        self._odd = frozenset(odd.union(one.name for one in self._unreadable))
        self._files = files
        self._seen = self._state(paths)
        return files

    def _state(self, paths: Iterable[Path]) -> frozenset[tuple[object, ...]]:
        """
        Return a value that changes if a file is added, renamed or removed, or if a file
        gets its first line or can be read again.
        """
        state = set()
        for path in paths:
            with suppress(OSError):
                found = path.stat()
                is_odd = path.name in self._odd
                changes = (found.st_size, found.st_ctime_ns) if is_odd else ()
                state.add((path.name, found.st_dev, found.st_ino, *changes))
        return frozenset(state)

    def place(self, cursor: Cursor | None) -> tuple[list[NamedFile], int]:
        """
        Return the files, and the number of the file with a place; -1 if it is missing.
        """
        files = self.files()
        for number, one in enumerate(files):
            if cursor is not None and one.first == cursor.first:
                return files, number
        return files, -1

    def read(self, cursor: Cursor | None) -> Batch:
        """
        Return the events after *cursor*; None is the beginning of the oldest file.

        :raises OSError: if a file cannot be read.
        """
        for _ in range(3):
            files, number = self.place(cursor)
            if cursor is not None:
                self._check_readable(files, number)
            is_lost = cursor is not None and number < 0 and bool(files)
            if number < 0:
                number = 0
            batch = self._read(files[number:], None if is_lost else cursor)
            if batch is not None:
                return attrs.evolve(batch, is_lost=is_lost)
            # A file was renamed or truncated.
            self._seen = None
        return Batch((), cursor)

    def _check_readable(self, files: Sequence[NamedFile], number: int) -> None:
        """
        Check that all files with events that were not sent can be read.

        A file that is older than the file with the place was sent, or was never
        readable.

        :raises OSError: if one of them cannot be read.
        """
        if not self._unreadable:
            return
        since = files[number].path.stat().st_mtime if number >= 0 else 0.0
        for path, error in self._unreadable.items():
            if path.stat().st_mtime >= since:
                raise error

    def _read(self, files: Sequence[NamedFile], cursor: Cursor | None) -> Batch | None:
        filling = _Filling(cursor)
        lag = 0
        for number, one in enumerate(files):
            is_last = number == len(files) - 1
            with open_log(one.path) as file:
                found = os.fstat(file.fileno())
                if first_digest(file.readline(MAX_LINE)) != one.first:
                    return None
                start = 0
                if cursor is not None and cursor.first == one.first:
                    start = cursor.offset
                lag += max(0, found.st_size - start)
                if filling.is_full:
                    continue
                file.seek(start)
                is_settled = (
                    not is_last and self._now() - found.st_mtime >= SETTLED_SECONDS
                )
                filling.fill(one.first, start, lines_of(file), is_settled)
                if not filling.is_full and not is_settled:
                    # The next file is read as soon as this one is complete.
                    filling.is_full = True
        return Batch(filling.events, filling.after, lag)


class _Filling:
    """A batch that is being filled."""

    def __init__(self, cursor: Cursor | None) -> None:
        self.events: list[Exported] = []
        self.after = cursor
        self.is_full = False
        self._size = 0

    def fill(self, first: str, start: int, lines: Any, is_settled: bool) -> None:
        """Add the lines of one file, from the offset *start*."""
        offset = start
        for raw in lines:
            if not raw.endswith(b"\n") and len(raw) < MAX_LINE and not is_settled:
                # kas has not written the rest yet.
                return
            if self._size and self._size + len(raw) > MAX_BYTES:
                self.is_full = True
                return
            before = Cursor(first, offset)
            offset += len(raw)
            self._add(raw, before, Cursor(first, offset))
            if len(self.events) >= MAX_EVENTS:
                self.is_full = True
                return
        self.after = Cursor(first, offset)

    def _add(self, raw: bytes, before: Cursor, after: Cursor) -> None:
        found = []
        # The disk may have been full for another worker.
        for piece in pieces_of(raw):
            line = piece.rstrip(b"\n")
            try:
                event = json.loads(line)
            except (ValueError, RecursionError):
                # An incomplete line, which is not an event.
                continue
            if is_event(event):
                found.append((line, event))
        for number, (line, event) in enumerate(found):
            # A line with two events is sent again as a whole.
            place = after if number == len(found) - 1 else before
            self.events.append(Exported(line, event, place))
            self._size += len(line) + 1
        self.after = after
