"""The files with the events of one agent; all functions block."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import attrs

__all__ = ["AgentLog"]

#: Names of agents' ids that are names of files.
_PLAIN = re.compile("[A-Za-z0-9][A-Za-z0-9_-]{0,99}")

#: Maximum bytes of the end of a file that are read for its last line: longer than any
#: line.
TAIL = 64 * 1024


@attrs.frozen
class AgentLog:
    """
    Files of one agent: the newest has no number, and the oldest has the highest one.

    Several workers of kas, and several kas on one machine, may write to them.

    :param size: bytes after which a new file begins.
    :param files: maximum number of files; the oldest ones are removed.
    """

    directory: Path
    agent_id: str
    size: int
    files: int

    @property
    def path(self) -> Path:
        """The newest file."""
        name = self.agent_id
        if _PLAIN.fullmatch(name) is None:
            name = hashlib.sha256(name.encode()).hexdigest()
        return self.directory / f"{name}.jsonl"

    def append(self, lines: Iterable[bytes]) -> None:
        """
        Write lines to the disk.

        :raises OSError: if this fails; then some of the lines may have been written.
        """
        text = b"".join(lines)
        with self._locked():
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o640)
            try:
                size = _whole(descriptor)
                if size and size + len(text) > self.size:
                    self._rotate()
                    os.close(descriptor)
                    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND
                    descriptor = os.open(self.path, flags, 0o640)
                _write(descriptor, text)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def last_place(self) -> tuple[str, int] | None:
        """
        Return the log and the offset of the last line; None without one.

        The line may be newer than the place that kas has stored, if kas was killed in
        between.
        """
        with self._locked():
            for path in (self.path, self._rotated(1)):
                with suppress(FileNotFoundError), path.open("rb") as file:
                    size = file.seek(0, os.SEEK_END)
                    file.seek(max(0, size - TAIL))
                    whole = file.read(TAIL).rpartition(b"\n")[0]
                    if whole:
                        return _place(whole.rpartition(b"\n")[2])
        return None

    def _rotated(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}")

    def _rotate(self) -> None:
        for number in range(self.files - 1, 0, -1):
            older = self._rotated(number)
            newer = self.path if number == 1 else self._rotated(number - 1)
            with suppress(FileNotFoundError):
                newer.rename(older)
        if self.files == 1:
            self.path.unlink()

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self.directory.mkdir(mode=0o750, parents=True, exist_ok=True)
        lock = self.path.with_suffix(".lock")
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o640)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def _whole(descriptor: int) -> int:
    """Remove an incomplete last line, and return the size of the file."""
    size = os.lseek(descriptor, 0, os.SEEK_END)
    begin = max(0, size - TAIL)
    tail = os.pread(descriptor, TAIL, begin)
    if tail and not tail.endswith(b"\n"):
        size = begin + tail.rfind(b"\n") + 1
        os.ftruncate(descriptor, size)
    return size


def _write(descriptor: int, text: bytes) -> None:
    left = memoryview(text)
    while left:
        left = left[os.write(descriptor, left) :]


def _place(line: bytes) -> tuple[str, int] | None:
    try:
        found = json.loads(line)
        return str(found["log"]), int(found["offset"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
