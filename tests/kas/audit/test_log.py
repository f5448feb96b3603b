"""The audit log: lines that a program can read."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from twisted.internet.task import Clock

from kas.audit import log as audit
from kas.audit.log import MAX_TEXT, AuditLog
from kas.config.schema import Audit, AuditKeep
from kas.state.directory import StateDirectory
from tunnel.api import Access, AuditEvent, AuditLevel, Impersonation
from tunnel.errors import ConfigurationError
from tunnel.program.runtime import Runtime

ALICE = Access("user:alice", "7", "edge", Impersonation("alice@example.org"))


def runtime(clock: Clock | None = None) -> Runtime:
    clock = clock or Clock()
    return Runtime(reactor=clock, now=clock.seconds, instance_id=b"\xa1")


def make(settings: Audit | None, folder: Path, clock: Clock | None = None) -> AuditLog:
    return AuditLog(settings, runtime(clock), StateDirectory.open(folder / "state"))


def lines(file: Path) -> list[dict[str, Any]]:
    """Return the events, without the lines of the chain itself."""
    events = [json.loads(line) for line in file.read_text().splitlines()]
    chain = ("audit.start", "audit.continue", "audit.checkpoint", "audit.stop")
    return [one for one in events if one["action"] not in chain]


def test_one_line_for_each_event(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    log = make(Audit(file=file), tmp_path)
    assert log.level is AuditLevel.CHANGES
    details: dict[str, str | int | bool] = {
        "verb": "create",
        "name": "x\n\x1b[2J",
        "dry": True,
        "module": "other",
        "prev": "forged",
    }
    log.record("echo", AuditEvent("echo.say", ALICE, "201", details))
    log.record("echo", AuditEvent("echo.say", None, "401"))
    first, second = lines(file)
    assert len({first.pop("id"), second["id"]}) == 2
    assert (first.pop("seq"), second["seq"]) == (1, 2)
    assert len(first.pop("prev")) == 64
    assert first == {
        "v": 1,
        "stage": "changed",
        "time": "1970-01-01T00:00:00.000000+00:00",
        "kas": "a1",
        "module": "echo",
        "action": "echo.say",
        "credential": "user:alice",
        "agent_id": "7",
        "agent": "edge",
        "as": "alice@example.org",
        "outcome": "201",
        "verb": "create",
        "name": "x??[2J",
        "dry": True,
    }
    assert "credential" not in second
    assert file.stat().st_mode & 0o007 == 0


def test_long_texts(tmp_path: Path) -> None:
    """What a client chose cannot fill the disk with one request."""
    file = tmp_path / "audit.jsonl"
    log = make(Audit(file=file), tmp_path)
    log.record("echo", AuditEvent("say", details={"path": "/" * 60_000}))
    (line,) = lines(file)
    assert len(line["path"]) == MAX_TEXT
    assert line["cut"] is True


@pytest.mark.parametrize("text", ["\U0001f512", "\\", '"', "\x7f", "x"])
def test_a_line_with_many_long_texts(tmp_path: Path, text: str) -> None:
    file = tmp_path / "audit.jsonl"
    log = make(Audit(file=file), tmp_path)
    details = {f"text{number}": text * 60_000 for number in range(20)}
    log.record("echo", AuditEvent("say", ALICE, "200", details))
    line = file.read_bytes().splitlines(keepends=True)[-1]
    assert len(line) <= 16 * 1024
    found = json.loads(line)
    assert found["cut"] is True
    assert found["credential"] == "user:alice"
    assert len(found["text19"]) > 50


@pytest.mark.parametrize("text", ["\r\n", "\n", "\x1b[2J", "\u2028", "\x85", "\ud800"])
def test_no_text_begins_another_record(tmp_path: Path, text: str) -> None:
    """However a program splits the file into lines."""
    file = tmp_path / "audit.jsonl"
    log = make(Audit(file=file), tmp_path)
    forged = f'x{text}{{"action":"forged"}}'
    log.record("echo", AuditEvent("say", None, forged, {"name": forged}))
    written = file.read_text().splitlines()
    assert [json.loads(one)["action"] for one in written] == ["audit.start", "say"]


def test_off(tmp_path: Path) -> None:
    """Without the section nothing is written, and modules need not make events."""
    log = make(None, tmp_path)
    assert log.level is AuditLevel.NONE
    log.record("echo", AuditEvent("say"))
    log.reopen()


def test_a_moved_file(tmp_path: Path) -> None:
    """As logrotate does it."""
    file = tmp_path / "audit.jsonl"
    log = make(Audit(file=file, events="all"), tmp_path)
    log.record("echo", AuditEvent("first"))
    file.rename(tmp_path / "audit.jsonl.1")
    log.reopen()
    log.record("echo", AuditEvent("second"))
    assert [one["action"] for one in lines(file)] == ["second"]


def test_a_file_that_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as raised:
        make(Audit(file=tmp_path / "none" / "x"), tmp_path)
    (problem,) = raised.value.problems
    assert problem.startswith("observability.audit.file: ")
    assert "No such file" in problem


def test_metrics(tmp_path: Path) -> None:
    registry = CollectorRegistry()
    log = make(Audit(file=tmp_path / "x"), tmp_path)
    registry.register(log)
    log.record("echo", AuditEvent("say"))
    labels = {"class": "best_effort"}
    assert registry.get_sample_value("kas_audit_events_total", labels) == 1
    assert registry.get_sample_value("kas_audit_events_dropped_total") == 0


REFUSAL = AuditEvent(
    "kubernetes.request", None, "401", {"path": "/" * 5000}, stranger=True
)


def test_strangers_cannot_fill_the_disk(tmp_path: Path) -> None:
    """Their events are limited in number and size, and counted."""
    file, clock = tmp_path / "audit.jsonl", Clock()
    log = make(Audit(file=file), tmp_path, clock)
    for _ in range(audit.STRANGER_BURST + 50):
        log.record("kubernetes_api", REFUSAL)
    clock.advance(1.0)
    for _ in range(50):
        log.record("kubernetes_api", REFUSAL)
    found = lines(file)
    assert len(found) == audit.STRANGER_BURST + audit.STRANGERS_PER_SECOND
    assert {len(one["path"]) for one in found} == {audit.MAX_STRANGER_TEXT}
    assert max(map(len, file.read_text().splitlines())) < 3000
    registry = CollectorRegistry()
    registry.register(log)
    value = registry.get_sample_value
    assert value("kas_audit_events_left_out_total") == 90
    assert value("kas_audit_events_total", {"class": "best_effort"}) == len(found)


def test_a_flood_of_strangers_hides_no_user(tmp_path: Path) -> None:
    file, clock = tmp_path / "audit.jsonl", Clock()
    log = make(Audit(file=file), tmp_path, clock)
    for number in range(1000):
        log.record("kubernetes_api", REFUSAL)
        log.record("kubernetes_api", AuditEvent("deleted", ALICE, "403"))
        # Without an access too: an operator's.
        log.record("gitops", AuditEvent("gitops.approve", None, "OK", {"n": number}))
    actions = [one["action"] for one in lines(file)]
    assert actions.count("deleted") == actions.count("gitops.approve") == 1000


class StoppableClock(Clock):
    """A reactor that can be stopped."""

    def addSystemEventTrigger(self, phase: str, event: str, call: Any) -> None:
        self.stopped = call


def test_the_number_of_refusals_left_out(tmp_path: Path) -> None:
    """The file has it after a while, and when kas stops."""
    file, clock = tmp_path / "audit.jsonl", StoppableClock()
    log = make(Audit(file=file), tmp_path, clock)
    log.start()
    for _ in range(audit.STRANGER_BURST + 7):
        log.record("kubernetes_api", REFUSAL)
    clock.advance(audit.NOTE_SECONDS)
    for _ in range(audit.STRANGER_BURST + 3):
        log.record("kubernetes_api", REFUSAL)
    clock.stopped()
    notes = [one for one in lines(file) if one["action"] == "audit.left_out"]
    assert [one["count"] for one in notes] == [7, 3]


def test_exports_need_a_file(tmp_path: Path) -> None:
    """A pipe cannot be read again, so its events would be left out silently."""
    pipe, file = tmp_path / "pipe", tmp_path / "file"
    os.mkfifo(pipe)
    keep = AuditKeep(days=1)
    (problem,) = audit.file_problems(Audit(file=pipe, keep=keep), "kas.yaml")
    assert problem.startswith("kas.yaml: observability.audit.file: ")
    assert "is not a regular file" in problem
    assert not audit.file_problems(Audit(file=pipe), "kas.yaml")
    for _ in range(2):
        assert not audit.file_problems(Audit(file=file, keep=keep), "kas.yaml")
        file.touch()
