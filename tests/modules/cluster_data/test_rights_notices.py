"""Notices of changed rights, from agents that send many."""

from __future__ import annotations

from twisted.internet.task import Clock

from modules.cluster_data.server.rights_notices import NOTICE_SECONDS, RightsNotices


def test_rate() -> None:
    """The first one counts at once, others together, and none is lost."""
    clock, passed = Clock(), list[tuple[float, str]]()
    notices = RightsNotices(clock, lambda one: passed.append((clock.seconds(), one)))
    for _ in range(10_000):
        notices.received("1")
    notices.received("2")
    assert passed == [(0.0, "1"), (0.0, "2")]
    clock.advance(NOTICE_SECONDS)
    assert passed[2:] == [(NOTICE_SECONDS, "1")]
    clock.advance(NOTICE_SECONDS)
    assert len(passed) == 3
    assert not clock.getDelayedCalls()
    notices.received("1")
    assert passed[3:] == [(2 * NOTICE_SECONDS, "1")]
    notices.received("1")
    notices.stop()
    assert not clock.getDelayedCalls()
