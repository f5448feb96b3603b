"""The hash chain in the audit log."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from twisted.internet.task import Clock

from kas.audit import log as audit
from kas.audit.chain import MAX_TORN, MAX_UNSIGNED, Chain
from kas.audit.key import KEY_FILE, read_signer
from kas.audit.last import MAX_CHAINS, LastCheckpoints
from kas.audit.log import AuditLog
from kas.audit.notes import Checkpoint, NoteSigner
from kas.config.schema import Audit
from kas.state.directory import StateDirectory
from tests.kas.audit.test_tree import root_of
from tunnel.api import AuditEvent
from tunnel.errors import ConfigurationError
from tunnel.program.log_writer import MAX_QUEUED, FileSink, LogWriter
from tunnel.program.runtime import Runtime

SIGNER = NoteSigner("txkas-audit", Ed25519PrivateKey.from_private_bytes(b"k" * 32))


def body(action: str, fields: Mapping[str, Any] | None = None) -> str:
    return json.dumps({"stage": "changed", "action": action, **(fields or {})}) + "\n"


class ChainWorld:
    """A chain, and its file."""

    def __init__(self, folder: Path) -> None:
        self.state = StateDirectory.open(folder / "state")
        self.path = folder / "audit.jsonl"
        self.file = FileSink(self.path)
        self.last = LastCheckpoints(self.state, self.path)
        self.chain = self.another("a1")

    def another(self, kas: str) -> Chain:
        return Chain(
            self.file, kas, SIGNER, self.last, body, {"host": "h"}, lambda: 0.0
        )

    def write(self, action: str) -> None:
        self.chain.write(body(action).encode())

    def raw(self) -> list[bytes]:
        return self.path.read_bytes().splitlines()

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(one) for one in self.raw()]

    def actions(self) -> list[str]:
        return [one["action"] for one in self.lines()]


@pytest.fixture
def world(tmp_path: Path) -> ChainWorld:
    return ChainWorld(tmp_path)


def test_each_line_has_the_hash_of_the_line_before(world: ChainWorld) -> None:
    for number in range(3):
        world.write(f"event {number}")
    raw, prev = world.raw(), ""
    for number, line in enumerate(raw):
        found = json.loads(line)
        assert (found["v"], found["seq"], found["kas"]) == (1, number, "a1")
        assert found["prev"] == prev
        prev = sha256(b"\x00" + line).hexdigest()
    assert world.actions() == ["audit.start", "event 0", "event 1", "event 2"]


def test_a_checkpoint(world: ChainWorld) -> None:
    world.write("event")
    world.chain.sign()
    *before, last = world.raw()
    note = json.loads(last)["note"]
    found = Checkpoint.parse(SIGNER.key.read(note))
    time = ("time 1970-01-01T00:00:00.000000+00:00",)
    assert found == Checkpoint("txkas-audit/a1", 2, root_of(before), time)
    (path,) = world.last.folder.iterdir()
    assert path.read_text() == note
    # Nothing is new.
    world.chain.sign()
    assert len(world.raw()) == 3


def test_many_lines_are_signed_without_waiting(world: ChainWorld) -> None:
    for _ in range(2 * MAX_UNSIGNED):
        world.write("event")
    places = [n for n, one in enumerate(world.actions()) if one == "audit.checkpoint"]
    assert places == [MAX_UNSIGNED, 2 * MAX_UNSIGNED + 1]


def test_lines_are_on_disk_before_they_are_signed(
    world: ChainWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a power failure would look like a cut."""

    def fail(descriptor: int) -> None:
        raise OSError(5, "the disk is broken")

    world.write("event")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", fail)
        with pytest.raises(OSError, match="broken"):
            world.chain.sign()
        assert world.actions() == ["audit.start", "event"]
        ((_, note),) = world.last.read()
        assert Checkpoint.parse(SIGNER.key.read(note)).size == 1
        # Events go on.
        for _ in range(2 * MAX_UNSIGNED):
            world.write("event")
    world.chain.sign()
    assert world.actions()[-1] == "audit.checkpoint"


def test_another_file(world: ChainWorld) -> None:
    """Its first line has the hashes with which the tree continues."""
    world.write("event")
    moved = world.path.with_name("audit.jsonl.1")
    world.path.rename(moved)
    world.chain.reopen()
    world.write("later")
    assert (
        json.loads(moved.read_bytes().splitlines()[-1])["action"] == "audit.checkpoint"
    )
    first, second = world.lines()
    assert (first["action"], first["seq"], len(first["hashes"])) == (
        "audit.continue",
        3,
        2,
    )
    assert second["seq"] == 4


def test_the_first_line_names_other_chains(world: ChainWorld) -> None:
    world.write("event")
    world.chain.end()
    again = world.another("b2")
    again.begin()
    before = world.lines()[-1]["before"]
    assert [(one["origin"], one["size"]) for one in before] == [("txkas-audit/a1", 3)]


def test_a_limited_number_of_other_chains(world: ChainWorld) -> None:
    for number in range(MAX_CHAINS + 5):
        note = SIGNER.sign(
            str(Checkpoint(f"txkas-audit/{number:032x}", 9**9, b"r" * 32))
        )
        world.last.write(f"{number:032x}", note)
        (path,) = world.last.folder.glob(f"*-{number:032x}.checkpoint")
        os.utime(path, (number, number))
    world.last.write("bad", "nonsense")
    world.chain.begin()
    (line,) = world.raw()
    assert len(line) < 16 * 1024
    assert len(json.loads(line)["before"]) == MAX_CHAINS - 1
    assert len(list(world.last.folder.iterdir())) == MAX_CHAINS


def test_the_chains_of_workers_name_each_other(world: ChainWorld) -> None:
    """Also a chain that has no checkpoint in the file yet."""
    other = world.another("b2")
    world.chain.begin()
    other.begin()
    for one in (world.chain, other, world.chain):
        one.write(body("event").encode())
        one.sign()
    named = [
        (line["kas"], [one["origin"] for one in line["before"]])
        for line in world.lines()
        if line["action"] == "audit.chains"
    ]
    assert named == [("a1", ["txkas-audit/b2"])]
    first = world.lines()[1]
    assert [one["size"] for one in first["before"]] == [1]


@pytest.mark.parametrize("act", ["end", "reopen"])
def test_other_chains_are_named_again(world: ChainWorld, act: str) -> None:
    """At the end, and in each file."""
    other = world.another("b2")
    other.begin()
    world.chain.begin()
    other.end()
    count = len(world.lines())
    getattr(world.chain, act)()
    world.write("event")
    world.chain.sign()
    (line,) = [one for one in world.lines()[count:] if one["action"] == "audit.chains"]
    assert [(one["origin"], one["size"]) for one in line["before"]] == [
        ("txkas-audit/b2", 3)
    ]


class FullDisk:
    """A disk with little room, in place of `os.write`."""

    def __init__(self) -> None:
        self.room = 10**6
        self._write = os.write

    def __call__(self, descriptor: int, data: bytes) -> int:
        if self.room == 0:
            raise OSError(28, "No space left on device")
        written = self._write(descriptor, bytes(data)[: self.room])
        self.room -= written
        return written


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> FullDisk:
    disk = FullDisk()
    monkeypatch.setattr(os, "write", disk)
    return disk


def test_a_full_disk(world: ChainWorld, full: FullDisk) -> None:
    """The next line names each incomplete line, and the chain has no gap."""
    world.write("first")
    for room in (10, 0, 20):
        full.room = room
        with pytest.raises(OSError, match="No space"):
            world.write("lost")
    full.room = 10**6
    world.write("second")
    world.write("third")
    start, first, one, two, second, third = world.raw()
    assert [json.loads(line)["seq"] for line in (start, first, second, third)] == [
        *range(4)
    ]
    torn = [sha256(line).hexdigest() for line in (one, two)]
    assert json.loads(second)["torn"] == torn
    assert "torn" not in json.loads(third)
    assert json.loads(second)["prev"] == sha256(b"\x00" + first).hexdigest()


def test_a_limited_number_of_incomplete_lines(
    world: ChainWorld, full: FullDisk
) -> None:
    world.write("first")
    for _ in range(2 * MAX_TORN):
        full.room = 2
        with pytest.raises(OSError, match="No space"):
            world.write("lost")
    full.room = 10**6
    world.write("second")
    assert len(json.loads(world.raw()[-1])["torn"]) == MAX_TORN


def test_a_disk_without_room_for_a_line_feed(world: ChainWorld, full: FullDisk) -> None:
    """The line is complete, and the next line begins with the line feed."""
    world.write("first")
    full.room = len(world.raw()[-1])
    world.write("again")
    assert not world.path.read_bytes().endswith(b"\n")
    full.room = 10**6
    world.write("third")
    assert world.actions() == ["audit.start", "first", "again", "third"]
    assert [one["seq"] for one in world.lines()] == [*range(4)]
    assert "torn" not in world.lines()[-1]


def test_a_full_disk_during_a_rotation(world: ChainWorld, full: FullDisk) -> None:
    """The hashes of the tree are written later."""
    world.write("first")
    world.path.rename(world.path.with_name("audit.jsonl.1"))
    full.room = 0
    with pytest.raises(OSError, match="No space"):
        world.chain.reopen()
    full.room = 10**6
    world.write("second")
    world.chain.sign()
    assert world.actions() == ["audit.continue", "second", "audit.checkpoint"]


def test_dropped_lines_have_no_number(world: ChainWorld) -> None:
    writer = LogWriter(
        world.chain, lambda count: body("audit.dropped", {"count": count})
    )
    writer._thread = object()  # type: ignore[assignment]
    long = body("x" * 1000)
    for _ in range(MAX_QUEUED // len(long) + 5):
        writer.write(long)
    assert writer.dropped == 5
    writer._thread = None
    for item in writer._queue:
        assert isinstance(item, str)
        writer._put(item)
    writer._say_dropped()
    assert [one["seq"] for one in world.lines()] == [*range(len(world.lines()))]
    assert world.lines()[-1]["count"] == 5


# The log.


def test_an_event_is_signed_after_a_second(tmp_path: Path) -> None:
    clock = Clock()
    clock.addSystemEventTrigger = lambda *args: None  # type: ignore[attr-defined]
    log = AuditLog(
        Audit(file=tmp_path / "x"),
        Runtime(reactor=clock, now=clock.seconds, instance_id=b"\xa1"),
        StateDirectory.open(tmp_path / "state"),
    )

    def actions() -> list[str]:
        assert log._writer is not None
        log._writer._patience = 30.0
        log._writer.flush()
        text = (tmp_path / "x").read_text()
        return [json.loads(one)["action"] for one in text.splitlines()]

    log.start()
    clock.advance(audit.CHECKPOINT_SECONDS)
    assert actions() == ["audit.start", "audit.checkpoint"]
    log.record("echo", AuditEvent("one"))
    clock.advance(audit.CHECKPOINT_SECONDS / 2)
    log.record("echo", AuditEvent("two"))
    assert actions()[2:] == ["one", "two"]
    clock.advance(audit.CHECKPOINT_SECONDS / 2)
    assert actions()[2:] == ["one", "two", "audit.checkpoint"]
    # An idle kas writes nothing.
    clock.advance(3600)
    assert clock.getDelayedCalls() == []
    log._last_words()
    assert actions()[5:] == ["audit.stop", "audit.checkpoint"]


def test_the_key(tmp_path: Path) -> None:
    state = StateDirectory.open(tmp_path)
    with pytest.raises(ConfigurationError, match="does not exist"):
        read_signer(state)
    key = read_signer(state, create=True).key
    assert read_signer(state).key == read_signer(state, create=True).key == key
    assert state.file(KEY_FILE).stat().st_mode & 0o077 == 0
    state.write(KEY_FILE, b"nonsense")
    with pytest.raises(ConfigurationError, match="not an Ed25519 key"):
        read_signer(state, create=True)


def test_logs_with_one_state_directory(world: ChainWorld, tmp_path: Path) -> None:
    """Each log names its own chains only."""
    (tmp_path / "other").mkdir()
    other = LastCheckpoints(world.state, tmp_path / "other" / "audit.jsonl")
    other.write("b2", SIGNER.sign(str(Checkpoint("txkas-audit/b2", 1, b"r" * 32))))
    world.chain.end()
    assert world.lines()[0]["before"] == []
    assert len(LastCheckpoints(world.state).read()) == 2
    again = LastCheckpoints(world.state, world.path)
    assert len(again.read()) == 1
