"""The files of an API server's audit log: the one that it writes, and rotated ones."""

from __future__ import annotations

import glob
import gzip
import hashlib
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

import attrs

from modules.cluster_audit.agent.event_filter import EventFilter
from modules.cluster_audit.agent.events import EventReader, InvalidEvent
from modules.cluster_audit.wire import cluster_audit_pb2 as wire

__all__ = [
    "ClusterLogFile",
    "LogConflict",
    "LogFiles",
    "LogGone",
    "LogRenamed",
    "Piece",
]

#: Maximum number of files that are looked at, the newest ones: API servers keep 10 by
#: default in most installations.
MAX_FILES = 32

#: Maximum bytes of a line; the rest of a longer one is left out.  A line with both
#: bodies is shorter: API servers limit a body to 3 MiB, and JSON has at most six bytes
#: for one.  The first line identifies a file: the time of the request is at its end,
#: and a client chooses most of the rest.
MAX_LINE = 64 * 1024**2

#: Bytes of a long line in memory.
_PART_BYTES = 256 * 1024

#: Maximum bytes of one read; a longer line is read in parts.
READ_BYTES = 4 * 1024**2

#: Maximum number of events of one read, and their bytes, because a message to kas has
#: at most 4 MiB.
MAX_EVENTS, MAX_BYTES = 500, 1024**2


class LogGone(Exception):
    """Error for a file that was removed before it was read to its end."""


class LogConflict(Exception):
    """Error for files with the same first line."""


class LogRenamed(Exception):
    """Error for a file that was renamed a moment ago; another attempt finds it."""


@attrs.frozen
class ClusterLogFile:
    """
    A file of the log.

    :ivar mark: identifies the file, also after it was renamed or compressed.
    """

    mark: str
    path: Path


@attrs.frozen
class Piece:
    """
    A part of a file, with whole lines.

    :ivar left_out: number of lines that are not events.
    :ivar newer: the mark of the next file; empty if the file is the newest one.
    """

    mark: str
    start: int
    end: int
    events: list[wire.Event]
    left_out: int = 0
    newer: str = ""


@attrs.frozen
class LogFiles:
    """
    Files of a log, which the API server rotates; all methods block.

    The API server renames ``audit.log`` to ``audit-TIME.log``, and may compress it.
    """

    path: Path
    #: Marks by the state of the file, from the last call of `all`.
    _marks: dict[tuple[int, ...], str] = attrs.field(
        factory=dict, init=False, eq=False, repr=False
    )

    def all(self) -> list[ClusterLogFile]:
        """Return the files that have at least one whole line, oldest first."""
        stem, suffix = glob.escape(self.path.stem), glob.escape(self.path.suffix)
        rotated = {
            one.name.removesuffix(".gz"): one
            # The uncompressed file replaces the compressed one in this order.
            for pattern in (f"{stem}-*{suffix}.gz", f"{stem}-*{suffix}")
            for one in self.path.parent.glob(pattern)
        }
        paths = [rotated[name] for name in sorted(rotated)][-MAX_FILES + 1 :]
        found: dict[tuple[int, ...], ClusterLogFile] = {}
        marks: dict[tuple[int, ...], str] = {}
        for path in (*paths, self.path):
            with (
                suppress(FileNotFoundError, EOFError, gzip.BadGzipFile),
                _open(path) as file,
            ):
                state = _state(file)
                marks[state] = self._marks.get(state) or _mark_of(file)
                if mark := marks[state]:
                    # Between two looks, a file may have been renamed: keep one of them.
                    found[state[:2]] = ClusterLogFile(mark, path)
        self._marks.clear()
        self._marks.update(marks)
        counts = Counter(one.mark for one in found.values())
        return [
            # kas has a place of one of these files, but it is unknown of which.
            attrs.evolve(one, mark=_of_inode(one.mark, inode))
            if counts[one.mark] > 1
            else one
            for inode, one in found.items()
        ]

    def end(self, mark: str) -> int:
        """Return the offset after the last whole line of a file."""
        with _opened(self._find(mark, self.all())) as file:
            size = file.seek(0, os.SEEK_END)
            while size > 0:
                begin = max(0, size - 64 * 1024)
                file.seek(begin)
                found = file.read(size - begin).rfind(b"\n")
                if found >= 0:
                    return begin + found + 1
                size = begin
        return 0

    def read(self, mark: str, start: int, reader: EventReader) -> Piece:
        """
        Read whole lines of a file.

        :param start: the offset of the first line.
        :raises LogGone: if the file does not exist any more.
        :raises LogConflict: if another file has the same first line now.
        """
        files = self.all()
        file = self._find(mark, files)
        after = files[files.index(file) + 1 :]
        newer = after[0].mark if after else ""
        with _opened(file) as log:
            log.seek(start)
            text = log.read(READ_BYTES)
            if b"\n" not in text and len(text) == READ_BYTES:
                log.seek(start)
                return _long(mark, start, log, reader, newer)
        return _parsed(mark, start, text, reader, newer)

    def _find(self, mark: str, files: list[ClusterLogFile]) -> ClusterLogFile:
        for one in files:
            if one.mark == mark:
                return one
        if any(one.mark.startswith(f"{mark}:") for one in files):
            raise LogConflict(f"{self.path}: several files have the same first line")
        raise LogGone(f"{self.path}: a file was removed before agentk had read it")


def _parsed(
    mark: str, start: int, text: bytes, reader: EventReader, newer: str
) -> Piece:
    events: list[wire.Event] = []
    place = left_out = size = 0
    while len(events) < MAX_EVENTS and size < MAX_BYTES:
        end = text.find(b"\n", place)
        if end < 0:
            break
        line, place = text[place:end], end + 1
        try:
            event = reader.read(line)
        except InvalidEvent:
            left_out += 1
            continue
        if event is not None:
            event.end = start + place
            size += event.ByteSize()
            events.append(event)
    return Piece(mark, start, start + place, events, left_out, newer)


def _long(
    mark: str, start: int, log: BinaryIO, reader: EventReader, newer: str
) -> Piece:
    """Return the piece of one line, of which only what `EventFilter` keeps is read."""
    kept: list[bytes] = []
    line, end = EventFilter(1), start
    while end - start < MAX_LINE:
        part = log.readline(_PART_BYTES)
        if not part:
            # The API server is writing the line.
            return Piece(mark, start, start, [], 0, newer)
        end += len(part)
        kept.append(line.feed(part))
        if part.endswith(b"\n"):
            break
    else:
        return Piece(mark, start, end, [], 1, newer)
    found = _parsed(mark, start, b"".join(kept), reader, newer)
    for event in found.events:
        event.end = end
    return attrs.evolve(found, end=end)


@contextmanager
def _opened(file: ClusterLogFile) -> Iterator[BinaryIO]:
    """
    Open a file.

    :raises LogRenamed: if another file has its name now.
    """
    try:
        found = _open(file.path)
    except FileNotFoundError:
        raise LogRenamed(str(file.path)) from None
    with found:
        mark = _mark_of(found)
        if file.mark not in (mark, _of_inode(mark, _state(found)[:2])):
            raise LogRenamed(str(file.path))
        yield found


def _state(file: BinaryIO) -> tuple[int, ...]:
    """Return the device and the inode of a file, and what changes with its content."""
    found = os.fstat(file.fileno())
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _open(path: Path) -> BinaryIO:
    if path.suffix == ".gz":
        found: BinaryIO = gzip.open(path, "rb")  # type: ignore[assignment]
        return found
    return path.open("rb")


def _mark_of(file: BinaryIO) -> str:
    """Return the mark of a file; empty if its first line is not whole."""
    digest, size = hashlib.sha256(), 0
    while size < MAX_LINE:
        part = file.readline(_PART_BYTES)
        if not part:
            return ""
        size += len(part)
        digest.update(part.removesuffix(b"\n"))
        if part.endswith(b"\n"):
            return f"file:{digest.hexdigest()[:32]}"
    return _of_inode(f"file:{digest.hexdigest()[:32]}", _state(file)[:2])


def _of_inode(mark: str, inode: tuple[int, ...]) -> str:
    return ":".join((mark, *(f"{one:x}" for one in inode)))
