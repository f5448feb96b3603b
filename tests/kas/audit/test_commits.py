"""Events that must be on disk before kas continues."""

from __future__ import annotations

import errno
import json
import os
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.python.failure import Failure

from kas.audit import log as audit
from kas.audit.commits import COMMIT_SECONDS, GROUP_SECONDS, MAX_WAITING, AuditCommits
from kas.audit.log import AuditLog
from kas.config.schema import Audit
from kas.state.directory import StateDirectory
from tests.kas.audit.test_chain import ChainWorld, body
from tests.kas.audit.test_log import ALICE, runtime
from tunnel.api import AuditEvent, EnforcedEvents
from tunnel.errors import CallError, Status


class SteppedWriter:
    """A `LogWriter` whose thread runs when the test says so."""

    def __init__(self) -> None:
        self.queue: deque[Callable[[], None]] = deque()
        self.is_running, self.is_dead = True, False

    def do(self, act: Callable[[], None]) -> None:
        self.queue.append(act)

    def run(self, most: int = 10_000) -> None:
        while self.queue and most:
            most -= 1
            self.queue.popleft()()


class CommitWorld(ChainWorld):
    """AuditCommits of a chain."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.clock, self.writer = Clock(), SteppedWriter()
        self.syncs = 0
        self.error: OSError | None = None
        written: Any = self.writer
        self.commits = AuditCommits(
            written, self.chain, self.clock, lambda act, *more: act(*more), self.seconds
        )
        self.now = 0.0

    def seconds(self) -> float:
        return self.now

    def commit(self, action: str = "event") -> list[Any]:
        """Return a list that gets the result."""
        results: list[Any] = []
        self.commits.commit(body(action)).addBoth(results.append)
        return results


@pytest.fixture
def commits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommitWorld:
    world = CommitWorld(tmp_path)
    real = os.fdatasync

    def sync(descriptor: int) -> None:
        if world.error is not None:
            raise world.error
        world.syncs += 1
        real(descriptor)

    monkeypatch.setattr(os, "fdatasync", sync)
    # The first line is written once.
    world.chain.begin()
    world.syncs = 0
    return world


def reason(results: list[Any]) -> str:
    (failure,) = results
    assert isinstance(failure, Failure)
    error = failure.value
    assert isinstance(error, CallError)
    assert error.status is Status.UNAVAILABLE
    return error.message


def test_lines_that_arrive_together_wait_once(commits: CommitWorld) -> None:
    results = [commits.commit(f"event {number}") for number in range(64)]
    assert not any(results)
    commits.writer.run()
    assert results == [[None]] * 64
    assert commits.syncs == 1
    assert len(commits.actions()) == 65


def test_a_caller_waits_for_the_disk(commits: CommitWorld) -> None:
    """A line that is written but perhaps not on disk has no result."""
    first, second = commits.commit(), commits.commit()
    commits.writer.run(1)
    assert commits.actions()[-1] == "event"
    assert not first
    commits.writer.run(1)
    assert first == second == [None]


def test_a_stream_of_lines_does_not_delay_the_first(commits: CommitWorld) -> None:
    first = commits.commit()
    for _ in range(10):
        commits.commit()
        commits.writer.run(1)
        commits.now += GROUP_SECONDS / 4
    assert first == [None]


def test_a_full_disk(commits: CommitWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each caller gets the reason; the next one tries again."""

    def full(descriptor: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        results = [commits.commit() for _ in range(2)]
        commits.writer.run()
        for one in results:
            assert "cannot be written: No space left on device" in reason(one)
    assert commits.commits.problem == "No space left on device"
    again = commits.commit()
    commits.writer.run()
    assert again == [None]
    assert commits.commits.problem == ""
    assert commits.actions() == ["audit.start", "event"]


def test_a_disk_that_does_not_keep_the_lines(commits: CommitWorld) -> None:
    commits.error = OSError(errno.EIO, os.strerror(errno.EIO))
    results = [commits.commit() for _ in range(2)]
    commits.writer.run()
    assert all("Input/output error" in reason(one) for one in results)


def test_one_line_that_cannot_be_written(
    commits: CommitWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lines before it are on disk."""
    first, second = commits.commit(), commits.commit()
    commits.writer.run(1)

    def full(descriptor: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        commits.writer.run()
    assert first == [None]
    assert "No space" in reason(second)


def test_a_disk_that_hangs(commits: CommitWorld) -> None:
    """Callers wait for a limited time, later ones not at all, until a line is done."""
    first = commits.commit()
    commits.clock.advance(COMMIT_SECONDS)
    assert "the disk does not respond" in reason(first)
    queued = len(commits.writer.queue)
    assert "the disk does not respond" in reason(commits.commit())
    assert len(commits.writer.queue) == queued
    commits.writer.run()
    # Its request was refused, so the line is not needed.
    assert commits.actions() == ["audit.start"]
    again = commits.commit()
    commits.writer.run()
    assert again == [None]
    assert not commits.clock.getDelayedCalls()


def test_too_many_lines_wait(commits: CommitWorld) -> None:
    results = [commits.commit() for _ in range(MAX_WAITING)]
    assert "1000 events wait" in reason(commits.commit())
    commits.writer.run()
    assert results == [[None]] * MAX_WAITING


def test_a_dead_writer(commits: CommitWorld) -> None:
    commits.writer.is_dead = True
    assert "restart kas" in reason(commits.commit())


def test_a_rotation_between_a_line_and_its_commit(commits: CommitWorld) -> None:
    """The old file is on disk before the new one begins."""
    first, _second = commits.commit(), commits.commit()
    commits.writer.run(1)
    commits.commits.settle()
    assert first == [None]
    assert commits.syncs == 1
    commits.writer.run()
    commits.commits.settle()
    assert commits.syncs == 2


class ThreadedClock(Clock):
    """A reactor with a queue for other threads."""

    def __init__(self) -> None:
        super().__init__()
        self.threads: deque[Callable[[], None]] = deque()

    def addSystemEventTrigger(self, phase: str, event: str, call: Any) -> None:
        self.stopped = call

    def callFromThread(self, act: Callable[..., None], *arguments: Any) -> None:
        self.threads.append(lambda: act(*arguments))

    def run_calls(self) -> None:
        while self.threads:
            self.threads.popleft()()


class ThreadedLog:
    """An audit log with its thread."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.file, self.clock = folder / "audit.jsonl", ThreadedClock()
        self.log = AuditLog(
            Audit(file=self.file, **settings),
            runtime(self.clock),
            StateDirectory.open(folder / "state"),
        )
        self.log.start()

    def settle(self) -> None:
        """Wait until the thread has done everything."""
        writer: Any = self.log._writer
        writer._patience = 30.0
        writer.flush()
        writer._patience = 0.0
        self.clock.run_calls()

    def actions(self) -> list[str]:
        return [json.loads(one)["action"] for one in self.file.read_text().splitlines()]

    def commit(self) -> list[Any]:
        results: list[Any] = []
        done: Deferred[None] = self.log.commit("echo", AuditEvent("echo.say", ALICE))
        done.addBoth(results.append)
        return results


@pytest.fixture
def threaded(tmp_path: Path) -> ThreadedLog:
    return ThreadedLog(tmp_path)


def test_the_log_commits(threaded: ThreadedLog) -> None:
    results = threaded.commit()
    assert not results
    threaded.settle()
    assert results == [None]
    assert threaded.actions() == ["audit.start", "echo.say"]
    registry = CollectorRegistry()
    registry.register(threaded.log)
    for name, count in (("enforced", 1), ("best_effort", 0)):
        labels = {"class": name}
        assert registry.get_sample_value("kas_audit_events_total", labels) == count
    threaded.clock.stopped()


def test_refused_requests_are_in_the_log_later(
    threaded: ThreadedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log has their number as soon as it can be written, without a restart."""
    threaded.settle()
    registry = CollectorRegistry()
    registry.register(threaded.log)
    real = os.write

    def full(descriptor: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        for _ in range(3):
            results = threaded.commit()
            threaded.settle()
            assert "No space left" in reason(results)
        for _ in range(3):
            threaded.clock.advance(audit.PROBE_SECONDS)
            threaded.settle()
        assert registry.get_sample_value("kas_audit_writable") == 0
        assert registry.get_sample_value("kas_audit_refused_total") == 3
    assert os.write is real
    threaded.clock.advance(audit.PROBE_SECONDS)
    threaded.settle()
    assert registry.get_sample_value("kas_audit_writable") == 1
    last = json.loads(threaded.file.read_text().splitlines()[-1])
    assert (last["action"], last["count"]) == ("audit.refused", 3)
    assert last["reason"] == "No space left on device"
    results = threaded.commit()
    threaded.settle()
    assert results == [None]
    threaded.clock.stopped()


def test_nothing_is_enforced_without_a_log(tmp_path: Path) -> None:
    log = AuditLog(None, runtime(), StateDirectory.open(tmp_path / "state"))
    assert log.enforced == frozenset()
    results: list[Any] = []
    log.commit("echo", AuditEvent("echo.say")).addBoth(results.append)
    assert results == [None]


def test_the_default(threaded: ThreadedLog) -> None:
    """Sessions are enforced; a full disk does not stop other requests."""
    assert threaded.log.enforced == {EnforcedEvents.SESSIONS}
    threaded.clock.stopped()
