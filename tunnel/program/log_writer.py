"""
A writer of log lines that never blocks the reactor.

A pipe whose reader stalls, a stopped terminal, or a hanging disk block a program that
writes to them. So lines go through a queue of limited size to a separate thread. Lines
that do not fit into the queue are dropped and counted, and a later line contains their
number.
"""

from __future__ import annotations

import atexit
import errno
import os
import select
import stat
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Protocol

__all__ = ["MAX_QUEUED", "FileSink", "LogWriter", "Sink", "StreamSink"]

#: Maximum number of characters that wait to be written: two or three thousand lines,
#: more than an incident causes in a second; agentk must need little memory.
MAX_QUEUED = 512 * 1024

#: Maximum number of seconds that the end of the process waits for a blocked reader.
LAST_WORDS = 1.0


class Sink(Protocol):
    """The destination of log lines; each call may block for any time."""

    def write(self, data: bytes) -> None:
        """
        Write *data*.

        :raises OSError: if the file cannot be written.
        """

    def reopen(self) -> None:
        """Open the path again, because it may name another file now."""

    def rotate(self) -> None:
        """Rename the file, and start a new one."""


class StreamSink:
    """
    Sink for a file descriptor that was open at the start, such as standard output.

    After an incomplete write, the next write begins on a new line.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        #: Whether the last line is incomplete, because the disk was full.
        self._is_partial = False
        self._fragment = b""

    def write(self, data: bytes) -> None:
        if self._is_partial and not self._is_empty():
            data = b"\n" + data
        rest = memoryview(data)
        try:
            while rest:
                try:
                    rest = rest[os.write(self._descriptor, rest) :]
                except BlockingIOError:
                    # Another process that shares the descriptor has made it
                    # non-blocking.
                    select.select([], [self._descriptor], [])
        finally:
            written = len(data) - len(rest)
            self._written(written)
            if written:
                self._is_partial = bool(rest) and data[written - 1 : written] != b"\n"
            if rest:
                self._fragment = bytes(data[:written]).strip(b"\n")

    def take_fragment(self) -> bytes:
        """
        Return the part of the last line that a failed write has written, once; empty
        if no write failed.
        """
        fragment, self._fragment = self._fragment, b""
        return fragment

    def _is_empty(self) -> bool:
        """
        Tell whether the sink is a file that was truncated, for example by logrotate.
        """
        status = os.fstat(self._descriptor)
        return stat.S_ISREG(status.st_mode) and status.st_size == 0

    def _written(self, count: int) -> None:
        """Count bytes that were written."""

    def reopen(self) -> None:
        """Do nothing: the stream has no name to open."""

    def rotate(self) -> None:
        """Do nothing: the stream cannot be renamed."""


class FileSink(StreamSink):
    """
    Sink for a log file.

    :param rotate_at: size in bytes at which the file is renamed, as by twistd: to
        ``kas.log.1``, while the file with that name becomes ``kas.log.2``.
    :raises OSError: if the file cannot be opened.
    """

    def __init__(self, path: Path, rotate_at: int | None = None) -> None:
        # twistd changes the working directory later.
        self._path = path.absolute()
        self._rotate_at = rotate_at
        self._size = 0
        # Whether the folder may not have the file's name on disk yet.
        self._is_new = True
        super().__init__(-1)
        self._descriptor = self._open()

    def _open(self) -> int:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        descriptor = os.open(self._path, flags, 0o666)
        self._size = os.fstat(descriptor).st_size
        self._is_new = True
        # The disk may have been full for an earlier process.
        self._is_partial = _ends_within_line(self._path)
        return descriptor

    def write(self, data: bytes) -> None:
        if self._rotate_at is not None and self._size >= self._rotate_at:
            with suppress(OSError):
                self.rotate()
        super().write(data)

    def _written(self, count: int) -> None:
        self._size += count

    def sync(self) -> None:
        """
        Wait until all lines are on disk, and the name of the file.

        :raises OSError: if the disk does not accept them.
        """
        try:
            os.fdatasync(self._descriptor)
            if self._is_new:
                _sync_folder(self._path.parent)
                self._is_new = False
        except OSError as error:
            # Pipes and devices have no disk.
            if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EROFS):
                raise

    def reopen(self) -> None:
        """
        Open the path again, after `logrotate` has moved the file.

        :raises OSError: if the path cannot be opened; the moved file stays in use.
        """
        old, self._descriptor = self._descriptor, self._open()
        os.close(old)

    def rotate(self) -> None:
        """
        Rename the file, and start a new one.

        :raises OSError: the directory is not writable.
        """
        numbers = (
            path.name.removeprefix(f"{self._path.name}.")
            for path in self._path.parent.glob(f"{self._path.name}.*")
        )
        for number in sorted((int(n) for n in numbers if n.isdecimal()), reverse=True):
            self._numbered(number).rename(self._numbered(number + 1))
        self._path.rename(self._numbered(1))
        self.reopen()

    def _numbered(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")


def _sync_folder(path: Path) -> None:
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _ends_within_line(path: Path) -> bool:
    """Tell whether the last line of a file is incomplete; False if that is unknown."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            return False
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - 1))
            return file.read(1) not in (b"", b"\n")
    except OSError:
        # The file may be writable but not readable.
        return False


class LogWriter:
    """
    A queue of lines, and after `start` a thread that empties it.

    Before `start`, lines are written at once, because twistd forks when it becomes a
    daemon, and threads do not survive a fork.

    :param note: returns a line with the number of dropped lines.
    :param max_queued: maximum number of characters that wait.
    """

    def __init__(
        self, sink: Sink, note: Callable[[int], str], max_queued: int = MAX_QUEUED
    ) -> None:
        self._sink = sink
        self._note = note
        self._max_queued = max_queued
        self._changed = threading.Condition()
        self._queue: deque[str | Callable[[], None]] = deque()
        self._queued = 0
        self._busy = False
        self._unsaid = 0
        self._patience = 0.0
        self._thread: threading.Thread | None = None
        #: The number of lines that were never written.
        self.dropped = 0

    def start(self) -> None:
        """
        Start the thread, so that from now on no caller waits for the sink.

        Repeated calls do nothing.
        """
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._run, name="log writer", daemon=True
            )
            self._thread.start()
            # If the start fails, the process ends before the reactor runs.
            atexit.register(self.last_words)

    @property
    def is_running(self) -> bool:
        """Whether the thread was started."""
        return self._thread is not None

    @property
    def is_dead(self) -> bool:
        """Whether the thread has ended, because of an error in this program."""
        return self._thread is not None and not self._thread.is_alive()

    def write(self, line: str) -> None:
        """Write *line*, which ends with a line feed; if the queue is full, drop it."""
        if self._thread is None:
            self._put(line)
            return
        with self._changed:
            if self._queued + len(line) > self._max_queued:
                self.dropped += 1
                self._unsaid += 1
                return
            self._queued += len(line)
            self._queue.append(line)
            self._changed.notify_all()
        if self._patience:
            self.flush()

    def reopen(self) -> None:
        """Reopen files after the earlier lines were written."""
        self.do(self._sink.reopen)

    def rotate(self) -> None:
        self.do(self._sink.rotate)

    def last_words(self) -> None:
        """
        Wait until all queued lines are written, and from now on after each line,
        because the process ends soon.

        Each wait takes at most `LAST_WORDS` seconds; after a wait that times out, later
        lines do not wait.
        """
        self._patience = LAST_WORDS
        self.do(self._say_dropped)
        self.flush()

    def flush(self) -> None:
        """Wait until all queued lines are written; see `last_words`."""
        with self._changed:
            done = self._changed.wait_for(
                lambda: not self._queue and not self._busy, self._patience
            )
            if not done:
                # The sink is blocked; do not wait for it again.
                self._patience = 0.0

    def do(self, act: Callable[[], None]) -> None:
        """
        Call a function of the sink after the earlier lines were written; an `OSError`
        is ignored.
        """
        if self._thread is None:
            self._attempt(act)
            return
        with self._changed:
            self._queue.append(act)
            self._changed.notify_all()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._busy = False
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._queue)
                self._busy = True
                item = self._queue.popleft()
                if isinstance(item, str):
                    self._queued -= len(item)
                says = not self._queue and self._unsaid > 0
            if isinstance(item, str):
                self._put(item)
            else:
                self._attempt(item)
            if says:
                self._say_dropped()

    def _put(self, line: str) -> None:
        if not self._sent(line):
            with self._changed:
                self.dropped += 1
                self._unsaid += 1

    def _say_dropped(self) -> None:
        """Write the number of lines that were dropped since the last note."""
        with self._changed:
            unsaid, self._unsaid = self._unsaid, 0
        if unsaid and not self._sent(self._note(unsaid)):
            with self._changed:
                self._unsaid += unsaid

    def _sent(self, line: str) -> bool:
        """Write *line*; return whether it was written."""
        try:
            self._sink.write(line.encode("utf-8", "replace"))
        except (OSError, ValueError):
            # The disk is full, a pipe has no reader, or a file could not be reopened:
            # errors of the log itself cannot be logged.
            return False
        return True

    def _attempt(self, act: Callable[[], None]) -> None:
        with suppress(OSError):
            act()
