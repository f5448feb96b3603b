"""The files of an API server's audit log: the one that it writes, and rotated ones."""

from __future__ import annotations

import glob
import gzip
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

import attrs

from modules.cluster_audit.agent.events import EventReader, InvalidEvent
from modules.cluster_audit.wire import cluster_audit_pb2 as wire

__all__ = ["ClusterLogFile", "LogFiles", "LogGone", "LogRenamed", "Piece"]

#: Maximum number of files that are looked at, the newest ones: API servers keep 10 by
#: default in most installations.
MAX_FILES = 32

#: Bytes at the beginning of a file that identify it: they have the audit id of the
#: first event, which no other file has.
MARK_BYTES = 4096

#: Maximum bytes of one read; a longer line is left out.
READ_BYTES = 4 * 1024**2

#: Maximum number of events of one read, and their bytes, because a message to kas has
#: at most 4 MiB.
MAX_EVENTS, MAX_BYTES = 500, 1024**2


class LogGone(Exception):
    """Error for a file that was removed before it was read to its end."""


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
        found: dict[str, ClusterLogFile] = {}
        for path in (*paths, self.path):
            with suppress(FileNotFoundError, EOFError, gzip.BadGzipFile):
                if mark := _mark(path):
                    # Between two looks, a file may have been renamed: keep one of them.
                    found[mark] = ClusterLogFile(mark, path)
        return list(found.values())

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
        """
        files = self.all()
        file = self._find(mark, files)
        after = files[files.index(file) + 1 :]
        newer = after[0].mark if after else ""
        with _opened(file) as log:
            log.seek(start)
            text = log.read(READ_BYTES)
        if b"\n" not in text and len(text) == READ_BYTES:
            return Piece(mark, start, start + len(text), [], 1, newer)
        return _parsed(mark, start, text, reader, newer)

    def _find(self, mark: str, files: list[ClusterLogFile]) -> ClusterLogFile:
        for one in files:
            if one.mark == mark:
                return one
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
        if _mark_of(found) != file.mark:
            raise LogRenamed(str(file.path))
        yield found


def _open(path: Path) -> BinaryIO:
    if path.suffix == ".gz":
        found: BinaryIO = gzip.open(path, "rb")  # type: ignore[assignment]
        return found
    return path.open("rb")


def _mark(path: Path) -> str:
    """Return the mark of a file; empty if its first line is not whole."""
    with _open(path) as file:
        return _mark_of(file)


def _mark_of(file: BinaryIO) -> str:
    head = file.read(MARK_BYTES)
    line, feed, _ = head.partition(b"\n")
    if not feed and len(head) < MARK_BYTES:
        return ""
    return f"file:{hashlib.sha256(line).hexdigest()[:32]}"
