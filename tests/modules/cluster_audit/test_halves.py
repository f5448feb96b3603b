"""Both halves: nothing is lost or stored twice."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from modules.cluster_audit.agent import log_files
from modules.cluster_audit.server.files import AgentLog
from modules.cluster_audit.server.module import CLUSTER_AUDIT, MAX_MARK
from modules.cluster_audit.wire import cluster_audit_pb2 as wire
from tests.agentk.policy.world import PolicyWorld
from tests.modules.cluster_audit.pair import (
    AGENTK,
    AuditPair,
    event,
    in_one_thread,
    text_of,
)
from tunnel.errors import CallError, Status


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[AuditPair]:
    """A log with an event that was there before, and both halves."""
    in_one_thread(monkeypatch)
    found = AuditPair(tmp_path)
    found.write(event("before"))
    yield found
    found.stop()


def test_an_event(pair: AuditPair) -> None:
    """kas stores neither bodies nor the query."""
    pair.start()
    user = {"username": AGENTK}
    as_alice = {"username": "alice"}
    pair.write(event("1", user=user, impersonatedUser=as_alice))
    pair.later()
    (line,) = pair.lines()
    assert line.pop("log").startswith("file:")
    assert line.pop("offset") == pair.log.stat().st_size
    assert line == {
        "v": 1,
        "time": "2026-05-01T12:00:00.204106+00:00",
        "action": "cluster.request",
        "stage": "ended",
        "id": "1",
        "agent_id": "1",
        "agent": "agent-1",
        "user": AGENTK,
        "as": "alice",
        "by_agentk": True,
        "verb": "patch",
        "version": "v1",
        "resource": "configmaps",
        "namespace": "a",
        "name": "x",
        "outcome": "200",
        "client": "192.0.2.7",
        "user_agent": "kubectl/v1.36.3 (linux/amd64)",
    }


def test_restarts(pair: AuditPair) -> None:
    """Events of the time in which agentk or kas was away are stored once."""
    pair.start()
    pair.write(event("1"), event("2"))
    pair.later()
    pair.stop()
    pair.write(event("3"))
    pair.start()
    pair.write(event("4"))
    pair.later()
    assert pair.ids() == ["1", "2", "3", "4"]


def test_a_restart_before_the_first_event(pair: AuditPair) -> None:
    pair.start()
    pair.stop()
    pair.write(event("1"))
    pair.start()
    assert pair.ids() == ["1"]


@pytest.mark.parametrize("compressed", [False, True], ids=["plain", "gzip"])
def test_rotations(pair: AuditPair, compressed: bool) -> None:
    """While agentk reads, and while it is away."""
    pair.start()
    pair.write(event("1"))
    pair.later()
    pair.write(event("2"))
    pair.rotate("2026-05-01T12-00-00.000")
    pair.write(event("3"))
    pair.later()
    pair.stop()
    pair.write(event("4"))
    rotated = pair.rotate("2026-05-01T13-00-00.000")
    if compressed:
        with gzip.open(rotated.with_name(f"{rotated.name}.gz"), "wb") as file:
            file.write(rotated.read_bytes())
        rotated.unlink()
    pair.write(event("5"))
    pair.rotate("2026-05-01T14-00-00.000")
    pair.start()
    pair.write(event("6"))
    pair.later()
    assert pair.ids() == ["1", "2", "3", "4", "5", "6"]


def test_files_that_begin_alike(pair: AuditPair) -> None:
    """A client chooses the begin of a line, and its own audit id."""
    pair.log.unlink()
    times = [f"2026-05-01T12:00:0{second}.204106Z" for second in range(2)]
    first, second = (
        event("1", requestURI="/" + "x" * 5000, requestReceivedTimestamp=time)
        for time in times
    )
    pair.write(first)
    pair.start()
    pair.write(event("2"), event("3"))
    pair.later()
    pair.rotate("2026-05-01T12-00-00.000")
    pair.write(second, event("4"))
    pair.later()
    assert pair.ids() == ["2", "3", "1", "4"]


@pytest.mark.parametrize("restart", [False, True], ids=["running", "restarted"])
def test_files_with_the_same_first_line(pair: AuditPair, restart: bool) -> None:
    """agentk reads both from their begin, and counts the conflict."""
    pair.start()
    pair.write(event("1"))
    pair.later()
    if restart:
        pair.stop()
    pair.rotate("2026-05-01T12-00-00.000")
    pair.write(event("before"), event("2"))
    if restart:
        pair.start()
    pair.later()
    assert pair.ids() == ["1", "before", "1", "before", "2"]
    assert restart or pair.agent._follower.left_out == 1


def test_a_first_line_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The inode is part of the mark, because the rest of the line is unknown."""
    monkeypatch.setattr(log_files, "MAX_LINE", 1000)
    monkeypatch.setattr(log_files, "_PART_BYTES", 100)
    first, second = tmp_path / "audit-1.log", tmp_path / "audit.log"
    for path in (first, second):
        path.write_text("x" * 2000 + path.name + "\n")
    files = log_files.LogFiles(second)
    assert [one.path for one in files.all()] == [first, second]
    marks = {one.mark for one in files.all()}
    assert len(marks) == 2
    assert max(map(len, marks)) <= MAX_MARK
    assert files.end(files.all()[1].mark) == 2010


def test_marks_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client can make first lines large, so unchanged files are not read again."""
    files = log_files.LogFiles(tmp_path / "audit.log")
    for name in ("audit-1.log", "audit.log"):
        (tmp_path / name).write_text(f"{name}\n")
    before = files.all()
    monkeypatch.setattr(log_files, "_mark_of", lambda file: "changed")
    assert files.all() == before
    (tmp_path / "audit.log").write_text("another\n")
    assert [one.mark for one in files.all()] == [before[0].mark, "changed"]


def test_a_file_that_was_removed(pair: AuditPair) -> None:
    """The other events are stored, and the loss is counted."""
    pair.start()
    pair.write(event("1"))
    pair.later()
    pair.rotate("2026-05-01T12-00-00.000").unlink()
    pair.write(event("2"))
    pair.later()
    assert pair.ids() == ["1", "2"]


def test_a_line_that_is_being_written(pair: AuditPair) -> None:
    pair.start()
    text = text_of(event("1"))
    for part in (text[:100], text[100:]):
        with pair.log.open("a") as file:
            file.write(part)
        pair.later()
    assert pair.ids() == ["1"]


def test_lines_that_are_not_events(pair: AuditPair) -> None:
    """They are left out, and their number is in the file."""
    pair.start()
    pair.write(event("1"))
    with pair.log.open("a") as file:
        file.write("{\n[]\n{}\n")
    pair.write(event("2"))
    pair.later()
    lines = pair.lines()
    assert [one["id"] for one in lines if "id" in one] == ["1", "2"]
    left_out = [one for one in lines if one["action"] == "cluster.left_out"]
    assert sum(one["count"] for one in left_out) == 3


def test_long_lines(pair: AuditPair, monkeypatch: pytest.MonkeyPatch) -> None:
    """The body of a request hides neither that request nor others."""
    monkeypatch.setattr(log_files, "READ_BYTES", 4096)
    monkeypatch.setattr(log_files, "_PART_BYTES", 1000)
    pair.start()
    pair.write(event("1"))
    text = text_of(event("2", requestObject={"data": "x" * 10_000}))
    for part in (text[:7000], text[7000:]):
        with pair.log.open("a") as file:
            file.write(part)
        pair.later(2)
    pair.write(event("3"))
    pair.later(2)
    assert pair.ids() == ["1", "2", "3"]
    assert [one["offset"] for one in pair.lines()][-1] == pair.log.stat().st_size
    assert pair.agent._follower.left_out == 0


def test_a_line_above_the_limit(
    pair: AuditPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log continues after it."""
    monkeypatch.setattr(log_files, "READ_BYTES", 4096)
    monkeypatch.setattr(log_files, "_PART_BYTES", 1000)
    monkeypatch.setattr(log_files, "MAX_LINE", 8000)
    pair.start()
    pair.write(event("1", requestObject={"data": "x" * 10_000}), event("2"))
    pair.later(4)
    assert [one["id"] for one in pair.lines() if "id" in one] == ["2"]
    assert pair.agent._follower.left_out == 2


def test_many_events(pair: AuditPair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_files, "MAX_EVENTS", 7)
    pair.start()
    pair.write(*(event(str(number)) for number in range(50)))
    pair.later(10)
    assert pair.ids() == [str(number) for number in range(50)]


def test_kas_that_was_killed(pair: AuditPair) -> None:
    """kas has written the events, but not their place, and not the last line."""
    pair.start()
    pair.write(event("1"))
    pair.later()
    pair.write(event("2"), event("3"))
    pair.stop()
    log = AgentLog(pair.folder / "clusters", "1", 2**20, 8)
    offset = len(text_of(event("before"), event("1"), event("2")))
    (mark,) = {one["log"] for one in pair.lines()}
    line = {**pair.lines()[0], "id": "2", "log": mark, "offset": offset}
    log.append([json.dumps(line).encode() + b"\n"])
    with log.path.open("a") as file:
        file.write('{"id": "3", "lo')
    pair.start()
    assert pair.ids() == ["1", "2", "3"]


def test_a_store_that_is_down(pair: AuditPair) -> None:
    pair.start()
    pair.write(event("1"))
    pair.store.down = True
    pair.later(5)
    pair.write(event("2"))
    pair.store.down = False
    pair.later(90)
    assert pair.ids() == ["1", "2"]


def test_a_full_disk(pair: AuditPair) -> None:
    """agentk sends the events again when kas can write again."""
    pair.start()
    folder = pair.folder / "clusters"
    pair.write(event("1"))
    for one in folder.glob("*"):
        one.unlink()
    folder.rmdir()
    folder.write_text("in the way")
    pair.later(5)
    folder.unlink()
    pair.later(90)
    assert pair.ids() == ["1"]


def test_files_of_kas(pair: AuditPair) -> None:
    """kas begins new files, and removes old ones."""
    pair.settings = {"file_size": 2**20, "files": 3}
    pair.start()
    log = AgentLog(pair.folder / "clusters", "1", 1000, 3)
    for number in range(20):
        line = json.dumps({"id": str(number), "log": "other", "offset": number})
        log.append([(line + " " * 300).encode() + b"\n"])
    files = sorted(one.name for one in log.directory.glob("*.jsonl*"))
    assert files == ["1.jsonl", "1.jsonl.1", "1.jsonl.2"]
    assert log.last_place() == ("other", 19)
    assert os.stat(log.path).st_mode & 0o007 == 0
    ids = [int(one) for one in pair.ids()]
    assert ids == list(range(ids[0], 20))


def test_a_hostile_agent(pair: AuditPair) -> None:
    """An agent can write to its own files only, and only well-formed lines."""
    pair.start()
    client = pair.pair.agent.client(CLUSTER_AUDIT)
    for request in (
        wire.StoreRequest(log="", start=0, end=1),
        wire.StoreRequest(log="x" * 100, start=0, end=1),
        wire.StoreRequest(log="x", start=2, end=1),
        wire.StoreRequest(log="x", start=0, end=1, events=[wire.Event(end=5)]),
        wire.StoreRequest(log="x", start=0, end=1, events=[wire.Event()] * 501),
    ):
        with pytest.raises(CallError) as caught:
            pair.pair.run(client.call("Store", request))
        assert caught.value.status is Status.INVALID_ARGUMENT
    hostile = wire.Event(
        audit_id="1\n{}", user="\x1b[2J" + "u" * 5000, code=7, time=2**62, end=1
    )
    request = wire.StoreRequest(log="x", start=0, end=1, events=[hostile])
    pair.pair.run(client.call("Store", request))
    (line,) = pair.lines()
    assert line["id"] == "1?{}"
    assert len(line["user"]) == 300
    log = AgentLog(pair.folder, "../../etc/x", 1000, 3)
    assert log.path.parent == pair.folder


def test_the_policy_of_the_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing leaves agentk unless a rule permits it."""
    in_one_thread(monkeypatch)
    (tmp_path / "policy").mkdir()
    world = PolicyWorld(tmp_path / "policy", "kind: AgentPolicy\n")
    world.start()
    pair = AuditPair(tmp_path, world.guard, world.clock)
    pair.write(event("before"))
    pair.start()
    pair.write(event("1"))
    pair.later(5)
    assert pair.lines() == []
    rule = "{name: audit, allow: [list], resources: [events.audit.k8s.io]}"
    world.write(f"kind: AgentPolicy\nrules: [{rule}]\n")
    world.later(10)
    pair.later(90)
    pair.write(event("2"))
    pair.later(5)
    assert pair.ids() == ["2"]
    pair.stop()
