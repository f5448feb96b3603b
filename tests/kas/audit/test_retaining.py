"""The removal of old files, as a part of kas."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
from prometheus_client import CollectorRegistry
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import Clock

from kas.audit.retaining import PRUNE_SECONDS, AuditRetention
from kas.config.schema import Audit, AuditKeep
from tests.kas.audit.test_retention import OldLog
from tunnel.api import AuditEvent
from tunnel.errors import ConfigurationError
from tunnel.program.runtime import Runtime


class RetainingWorld(OldLog):
    """A log with old files, and parts of two workers."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.clock = Clock()
        self.events: list[AuditEvent] = []
        self.settings = Audit(file=self.path, keep=AuditKeep(days=3))
        self.error: Exception | None = None
        self.first, self.second = self.part(), self.part()
        self.registry = CollectorRegistry()
        self.registry.register(self.first)

    def part(self) -> AuditRetention:
        return AuditRetention(
            self.settings,
            Runtime(reactor=self.clock, now=lambda: self.now),
            self.state,
            self.events.append,
            self.in_thread,
        )

    def in_thread(self, act: Callable[..., Any], *arguments: Any) -> Deferred[Any]:
        if self.error is not None:
            return fail(self.error)
        return succeed(act(*arguments))

    def metric(self, name: str) -> float | None:
        return self.registry.get_sample_value(name)


@pytest.fixture
def world(tmp_path: Path) -> RetainingWorld:
    return RetainingWorld(tmp_path)


def test_one_worker_removes_files(world: RetainingWorld) -> None:
    """An event has the name and the hash of the file."""
    world.first.start()
    world.second.start()
    assert not world.events
    world.clock.advance(PRUNE_SECONDS)
    (event,) = world.events
    assert (event.action, event.details["file"]) == ("audit.drop", "audit.jsonl.3")
    assert len(str(event.details["sha256"])) == 64
    assert world.metric("kas_audit_files_removed_total") == 1
    assert world.metric("kas_audit_retention_blocked") == 0
    # The other worker continues.
    world.first.stop()
    world.now += 86400
    world.clock.advance(PRUNE_SECONDS)
    assert len(world.events) == 2
    world.second.stop()
    assert not world.clock.getDelayedCalls()


def test_a_hold_is_visible(world: RetainingWorld) -> None:
    hold = world.hold()
    world.first.start()
    world.clock.advance(PRUNE_SECONDS)
    assert world.metric("kas_audit_retention_blocked") == 1
    world.holds.remove(hold.id)
    world.clock.advance(PRUNE_SECONDS)
    assert world.metric("kas_audit_retention_blocked") == 0
    assert len(world.events) == 1
    world.first.stop()


@pytest.mark.parametrize(
    "error",
    [OSError(5, "the disk is broken"), ConfigurationError(["too large"])],
    ids=["disk", "state"],
)
def test_an_error_is_visible(world: RetainingWorld, error: Exception) -> None:
    """The next look tries again."""
    world.error = error
    world.first.start()
    world.clock.advance(PRUNE_SECONDS)
    assert world.metric("kas_audit_retention_blocked") == 1
    world.error = None
    world.clock.advance(PRUNE_SECONDS)
    assert world.metric("kas_audit_retention_blocked") == 0
    assert len(world.events) == 1
    world.first.stop()


def test_without_limits(world: RetainingWorld) -> None:
    for settings in (None, attrs.evolve(world.settings, keep=None)):
        world.settings = settings  # type: ignore[assignment]
        part = world.part()
        part.start()
        assert not world.clock.getDelayedCalls()
        assert not list(part.collect())
        part.stop()
