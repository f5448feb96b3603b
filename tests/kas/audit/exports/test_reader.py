"""Reader of the events after a place in a log."""

from __future__ import annotations

import gzip
import os
import shutil
from pathlib import Path

import pytest

from kas.audit.exports import reader as module
from kas.audit.exports.cursor import Cursor, CursorFile
from kas.audit.exports.reader import (
    MAX_BYTES,
    MAX_EVENTS,
    SETTLED_SECONDS,
    Batch,
    LogReader,
)
from kas.state.directory import StateDirectory


def line(seq: int, kas: str = "a1", more: str = "") -> bytes:
    text = (
        f'{{"v":1,"seq":{seq},"kas":"{kas}","prev":"","stage":"changed",'
        f'"id":"{seq}","time":"2026-05-01T00:00:{seq % 60:02}+00:00",'
        f'"action":"say"{more}}}\n'
    )
    return text.encode()


class ReadWorld:
    """A log, and the place up to which it was read."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "audit.jsonl"
        self.now = 1000.0
        self.reader = LogReader(self.file, lambda: self.now)
        self.cursor: Cursor | None = None
        self.last: Batch | None = None

    def write(self, *seqs: int, kas: str = "a1") -> None:
        self.append(b"".join(line(one, kas) for one in seqs))

    def append(self, data: bytes, path: Path | None = None) -> None:
        path = path or self.file
        with path.open("ab") as file:
            file.write(data)
        os.utime(path, (self.now, self.now))

    def read(self) -> list[int]:
        """Return the numbers of the new events."""
        self.last = batch = self.reader.read(self.cursor)
        self.cursor = batch.after
        return [one.event["seq"] for one in batch.events]

    def rotate(self) -> Path:
        moved = self.file.with_name("audit.jsonl.1")
        if moved.exists():
            moved.rename(self.file.with_name("audit.jsonl.2"))
        self.file.rename(moved)
        return moved


@pytest.fixture
def world(tmp_path: Path) -> ReadWorld:
    return ReadWorld(tmp_path)


def test_new_events(world: ReadWorld) -> None:
    assert world.read() == []
    world.write(0, 1)
    assert world.read() == [0, 1]
    assert world.read() == []
    world.write(2)
    assert world.read() == [2]
    assert world.last is not None
    assert (world.last.events[0].line, world.last.lag) == (line(2)[:-1], len(line(2)))


def test_a_line_that_is_not_complete(world: ReadWorld) -> None:
    world.append(line(0) + line(1)[:20])
    assert world.read() == [0]
    assert world.read() == []
    world.append(line(1)[20:])
    assert world.read() == [1]


def test_limits_of_a_batch(world: ReadWorld) -> None:
    world.append(b"".join(line(n) for n in range(MAX_EVENTS + 1)))
    assert world.read() == list(range(MAX_EVENTS))
    assert world.read() == [MAX_EVENTS]
    large = f',"x":"{"x" * 12_000}"'
    world.append(b"".join(line(n, more=large) for n in range(200)))
    numbers = world.read()
    assert world.last is not None
    assert sum(len(one.line) + 1 for one in world.last.events) <= MAX_BYTES
    assert 70 < len(numbers) < 100
    assert numbers + world.read() + world.read() == list(range(200))


@pytest.mark.parametrize("way", ["renamed", "compressed", "copied"])
def test_a_rotation(world: ReadWorld, way: str) -> None:
    """The place survives it, also in the middle of the old file."""
    world.write(0, 1)
    assert world.read() == [0, 1]
    world.write(2)
    if way == "copied":
        moved = world.file.with_name("audit.jsonl.1")
        shutil.copyfile(world.file, moved)
        world.file.write_bytes(b"")
    else:
        moved = world.rotate()
    world.write(3)
    if way == "compressed":
        data = moved.read_bytes()
        moved.unlink()
        with gzip.open(f"{moved}.gz", "wb") as file:
            file.write(data)
        moved = moved.with_name("audit.jsonl.1.gz")
    os.utime(moved, (world.now, world.now))
    assert world.read() == [2]
    world.now += SETTLED_SECONDS
    assert world.read() == [3]
    assert world.read() == []
    assert world.last is not None
    assert world.last.lag == 0


def test_another_worker_writes_to_the_old_file(world: ReadWorld) -> None:
    """It reopens the log a little later."""
    world.write(0)
    moved = world.rotate()
    world.write(1)
    assert world.read() == [0]
    world.append(line(0, "b2"), moved)
    world.now += SETTLED_SECONDS / 2
    assert world.read() == [0]
    world.now += SETTLED_SECONDS
    assert world.read() == [1]


def test_several_rotations_while_kas_was_stopped(world: ReadWorld) -> None:
    world.write(0)
    assert world.read() == [0]
    world.rotate()
    world.write(1)
    world.rotate()
    world.write(2)
    world.now += 2 * SETTLED_SECONDS
    assert world.read() == [1, 2]


def test_a_file_that_was_removed(world: ReadWorld) -> None:
    """The oldest file that is left follows, and the batch says so."""
    world.write(0)
    assert world.read() == [0]
    world.file.unlink()
    world.write(5)
    assert world.read() == [5]
    assert world.last is not None and world.last.is_lost
    assert world.read() == []
    assert not world.last.is_lost


def test_lines_that_are_not_events(world: ReadWorld) -> None:
    """Incomplete lines, also before a line of another worker."""
    world.append(line(0)[:30] + b"\n" + line(1)[:30] + line(0, "b2") + b"\xff\n[]\n")
    assert world.read() == [0]
    assert world.last is not None
    assert world.last.events[0].event["kas"] == "b2"
    assert world.read() == []


def test_two_events_in_one_line(world: ReadWorld) -> None:
    """The place is never between them."""
    world.append(line(0)[:-1] + line(1, "b2"))
    assert world.read() == [0, 1]
    assert world.last is not None
    first, second = world.last.events
    assert (first.after.offset, second.after.offset) == (0, len(line(0) + line(1)) - 1)


def test_an_empty_file(world: ReadWorld) -> None:
    world.write(0)
    assert world.read() == [0]
    world.rotate()
    world.file.touch()
    world.now += SETTLED_SECONDS
    assert world.read() == []
    world.write(1)
    assert world.read() == [1]


def test_an_unreadable_file_is_an_error(
    world: ReadWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.write(0)
    world.reader.files()

    def fail(path: Path) -> None:
        raise OSError(5, "the disk is broken")

    monkeypatch.setattr(module, "open_log", fail)
    with pytest.raises(OSError, match="broken"):
        world.read()


def test_a_compressed_file_that_cannot_be_read(world: ReadWorld) -> None:
    """Its events are not left out silently."""
    world.write(0)
    assert world.read() == [0]
    world.write(1)
    moved = world.rotate()
    world.write(2)
    data = moved.read_bytes()
    moved.write_bytes(b"\x28\xb5\x2f\xfd compressed")
    for _ in range(2):
        with pytest.raises(OSError, match="zstd"):
            world.read()
    moved.write_bytes(data)
    os.utime(moved, (world.now, world.now))
    world.now += SETTLED_SECONDS
    assert world.read() == [1, 2]
    # An older file does not matter.
    old = world.file.with_name("audit.jsonl.9.zst")
    old.write_bytes(b"\x28\xb5\x2f\xfd compressed")
    os.utime(old, (1.0, 1.0))
    world.now += 1.0
    world.write(3)
    assert world.read() == [3]


def test_the_folder_is_listed_only_after_a_change(
    world: ReadWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if it has a file without a line."""
    world.write(0)
    world.rotate()
    world.file.touch()
    assert world.read() == [0]

    def fail(*arguments: object) -> None:
        raise AssertionError

    with monkeypatch.context() as patch:
        patch.setattr(module, "in_order", fail)
        assert world.read() == []
    world.write(1)
    world.now += SETTLED_SECONDS
    assert world.read() == [1]


def test_a_cursor(tmp_path: Path) -> None:
    state = StateDirectory.open(tmp_path / "state")
    (tmp_path / "audit.jsonl").touch()
    first = CursorFile(state, tmp_path / "audit.jsonl", "siem")
    second = CursorFile(state, tmp_path / "audit.jsonl", "siem")
    other = CursorFile(state, tmp_path / "audit.jsonl", "other")
    assert first.lock() and first.lock() and other.lock()
    assert not second.lock()
    assert first.read() is None
    first.write(Cursor("ab", 7))
    first.unlock()
    assert second.lock()
    assert second.read() == Cursor("ab", 7)
    assert other.read() is None
    for path in state.file("audit").glob("*siem.cursor"):
        path.write_text("[]")
    assert second.read() is None
    second.unlock()
    other.unlock()
