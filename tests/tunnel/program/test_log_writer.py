"""Lines on their way to a file or to a reader that may stall."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import stat
import tempfile
import threading
from pathlib import Path

import pytest
from twisted.trial.unittest import SynchronousTestCase

from tunnel.program import log_writer
from tunnel.program.log_writer import MAX_QUEUED, FileSink, LogWriter, StreamSink


def _note(count: int) -> str:
    return f"{count} dropped\n"


class _Stalling:
    """Takes nothing until it is let."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.asked = threading.Event()
        self.lines: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.asked.set()
        self.go.wait(30)
        self.lines.append(data)

    def reopen(self) -> None:
        self.lines.append(b"reopened")

    def rotate(self) -> None:
        self.lines.append(b"rotated")


class StallTests(SynchronousTestCase):
    """A reader that does not read."""

    def setUp(self) -> None:
        self.sink = _Stalling()
        self.writer = LogWriter(self.sink, _note)
        self.addCleanup(self.sink.go.set)

    def finish(self) -> list[bytes]:
        self.sink.go.set()
        self.writer._patience = 30.0
        self.writer.flush()
        return self.sink.lines

    def test_before_the_start(self) -> None:
        """Lines are written at once: a daemon is still to fork."""
        self.sink.go.set()
        self.writer.write("one\n")
        self.writer.reopen()
        self.writer.rotate()
        self.assertEqual(self.sink.lines, [b"one\n", b"reopened", b"rotated"])

    def test_another_limit(self) -> None:
        """The audit log has room for more."""
        self.writer = LogWriter(self.sink, _note, 2000)
        self.writer.start()
        line = "x" * 999 + "\n"
        self.writer.write(line)
        self.assertTrue(self.sink.asked.wait(30))
        for _ in range(5):
            self.writer.write(line)
        self.assertEqual(self.writer.dropped, 3)
        self.finish()

    def test_dropped(self) -> None:
        """What fits waits; the rest is counted, and told of once it goes on."""
        self.writer.start()
        line = "x" * 1023 + "\n"
        self.writer.write(line)
        self.assertTrue(self.sink.asked.wait(30))
        fit = MAX_QUEUED // len(line)
        for _ in range(fit + 5):
            self.writer.write(line)
        self.assertEqual(self.writer.dropped, 5)
        lines = self.finish()
        self.assertEqual(lines[: fit + 1], [line.encode()] * (fit + 1))
        self.assertEqual(lines[fit + 1 :], [b"5 dropped\n"])
        self.writer.write("again\n")
        self.assertEqual(self.finish()[-1], b"again\n")
        self.assertEqual(self.writer.dropped, 5)

    def test_order(self) -> None:
        """Reopening waits for what came before."""
        self.writer.start()
        self.writer.write("before\n")
        self.writer.reopen()
        self.writer.write("behind\n")
        self.assertEqual(self.finish(), [b"before\n", b"reopened", b"behind\n"])

    def test_last_words(self) -> None:
        """The end of the process waits, but not for long."""
        self.patch(log_writer, "LAST_WORDS", 0.01)
        self.writer.start()
        self.writer.write("stalled\n")
        self.writer.last_words()
        self.writer.write("last\n")
        self.assertEqual(self.sink.lines, [])
        self.assertEqual(self.finish(), [b"stalled\n", b"last\n"])

    def test_last_words_arrive(self) -> None:
        """Where somebody reads, each line is written when `write` returns."""
        self.sink.go.set()
        self.writer.start()
        self.writer.last_words()
        self.writer.write("last\n")
        self.assertEqual(self.sink.lines, [b"last\n"])


class SinkTests(SynchronousTestCase):
    """Files and pipes."""

    def setUp(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        self.path = self.folder / "kas.log"

    def names(self) -> list[str]:
        return sorted(path.name for path in self.folder.iterdir())

    def test_reopen(self) -> None:
        """What logrotate moved away is left alone."""
        sink = FileSink(self.path)
        sink.write(b"one")
        self.path.rename(self.folder / "old")
        sink.write(b"two")
        sink.reopen()
        sink.write(b"three")
        self.assertEqual((self.folder / "old").read_bytes(), b"onetwo")
        self.assertEqual(self.path.read_bytes(), b"three")

    def test_reopen_fails(self) -> None:
        """The old file stays in use."""
        sink = FileSink(self.path)
        gone = self.folder.with_name(self.folder.name + ".gone")
        self.folder.rename(gone)
        writer = LogWriter(sink, _note)
        writer.reopen()
        writer.write("still\n")
        gone.rename(self.folder)
        self.assertEqual(self.path.read_text(), "still\n")

    def test_rotate(self) -> None:
        """By size, as twistd does; every old file keeps its content."""
        sink = FileSink(self.path, rotate_at=4)
        for data in (b"aaaa", b"bbbb", b"cc", b"cc", b"d"):
            sink.write(data)
        self.assertEqual(
            {name: (self.folder / name).read_bytes() for name in self.names()},
            {
                "kas.log": b"d",
                "kas.log.1": b"cccc",
                "kas.log.2": b"bbbb",
                "kas.log.3": b"aaaa",
            },
        )

    def test_full_disk(self) -> None:
        """A line that cannot be written is counted, and raises nothing."""
        writer = LogWriter(FileSink(Path("/dev/full")), _note)
        writer.write("lost\n")
        self.assertEqual(writer.dropped, 1)

    def test_no_reader(self) -> None:
        """Nor does a pipe that nobody will read again."""
        read, write = os.pipe()
        os.close(read)
        self.addCleanup(os.close, write)
        writer = LogWriter(StreamSink(write), _note)
        writer.write("lost\n")
        self.assertEqual(writer.dropped, 1)

    def test_pipe_that_does_not_block(self) -> None:
        """Another process that shares it made it so: all of a line arrives."""
        read, write = os.pipe()
        os.set_blocking(write, False)
        size = fcntl.fcntl(write, fcntl.F_GETPIPE_SZ)
        writer = LogWriter(StreamSink(write), _note)
        writer.start()
        writer.write("x" * 3 * size + "\n")
        with open(read, "rb") as source:
            got = source.read(3 * size + 1)
        self.addCleanup(os.close, write)
        self.assertEqual(len(got), 3 * size + 1)


class FullDisk:
    """
    A disk with room for *room* bytes, which takes the beginning of a write.

    :param monkeypatch: replaces `os.write` for the writer.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, room: int) -> None:
        self.room = room
        self._write = os.write
        monkeypatch.setattr(os, "write", self.write)

    def write(self, descriptor: int, data: bytes) -> int:
        if not self.room:
            raise OSError(errno.ENOSPC, "no space")
        written = self._write(descriptor, data[: self.room])
        self.room -= written
        return written


def test_a_line_after_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not continue the line that was cut off."""
    file = tmp_path / "kas.log"
    disk = FullDisk(monkeypatch, 10)
    writer = LogWriter(FileSink(file), _note)
    for name in ("first", "second", "third"):
        writer.write(f"{name}\n")
    disk.room = 100
    writer.write("fourth\n")
    writer.write("fifth\n")
    assert file.read_text() == "first\nseco\nfourth\nfifth\n"
    assert writer.dropped == 2


def test_a_disk_that_is_full_at_the_end_of_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "kas.log"
    disk = FullDisk(monkeypatch, 6)
    writer = LogWriter(FileSink(file), _note)
    for name in ("first", "second"):
        writer.write(f"{name}\n")
    disk.room = 100
    writer.write("third\n")
    assert file.read_text() == "first\nthird\n"


def test_a_pipe_after_a_full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same for standard output."""
    read, write = os.pipe()
    disk = FullDisk(monkeypatch, 3)
    writer = LogWriter(StreamSink(write), _note)
    writer.write("first\n")
    disk.room = 100
    writer.write("second\n")
    os.close(write)
    with open(read) as source:
        assert source.read() == "fir\nsecond\n"


def test_a_file_that_was_truncated_or_moved_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new file does not begin with an empty line."""
    file = tmp_path / "kas.log"
    disk = FullDisk(monkeypatch, 3)
    writer = LogWriter(FileSink(file), _note)
    writer.write("first\n")
    os.truncate(file, 0)
    disk.room = 10
    writer.write("second\n")
    assert file.read_text() == "second\n"
    writer.write("third\n")
    file.rename(tmp_path / "old")
    writer.reopen()
    disk.room = 100
    writer.write("fourth\n")
    assert file.read_text() == "fourth\n"


def test_a_file_of_an_earlier_process(tmp_path: Path) -> None:
    """The disk was full when it ended."""
    file = tmp_path / "kas.log"
    file.write_text("whole\nhal")
    LogWriter(FileSink(file), _note).write("first\n")
    assert file.read_text() == "whole\nhal\nfirst\n"
    LogWriter(FileSink(file), _note).write("second\n")
    assert file.read_text() == "whole\nhal\nfirst\nsecond\n"


def test_lost_lines_are_counted_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A note that cannot be written is no line, and its number is told later."""
    file = tmp_path / "kas.log"
    disk = FullDisk(monkeypatch, 0)
    writer = LogWriter(FileSink(file), _note)
    writer.start()
    writer._patience = 30.0
    for number in range(5):
        writer.write(f"{number}\n")
    assert writer.dropped == 5
    disk.room = 100
    writer.write("there\n")
    assert file.read_text() == "there\n5 dropped\n"
    assert writer.dropped == 5


def test_lost_lines_are_told_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "kas.log"
    disk = FullDisk(monkeypatch, 0)
    writer = LogWriter(FileSink(file), _note)
    writer.start()
    writer.write("lost\n")
    writer._patience = 30.0
    writer.flush()
    disk.room = 100
    writer.last_words()
    assert file.read_text() == "1 dropped\n"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_the_state_of_the_thread(tmp_path: Path) -> None:
    """An error in this program ends the thread, and callers can notice that."""
    writer = LogWriter(FileSink(tmp_path / "log"), lambda count: f"{count}\n")
    assert (writer.is_running, writer.is_dead) == (False, False)
    writer.start()
    assert (writer.is_running, writer.is_dead) == (True, False)

    def fail() -> None:
        raise SystemExit

    writer.do(fail)
    assert writer._thread is not None
    writer._thread.join(30.0)
    assert (writer.is_running, writer.is_dead) == (True, True)


def test_the_name_of_a_new_file_is_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once for each file."""
    synced: list[bool] = []
    real = os.fsync

    def sync(descriptor: int) -> None:
        synced.append(stat.S_ISDIR(os.fstat(descriptor).st_mode))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", sync)
    sink = FileSink(tmp_path / "log")
    for _ in range(2):
        sink.write(b"line\n")
        sink.sync()
        sink.sync()
        assert synced == [True]
        synced.clear()
        sink.rotate()
