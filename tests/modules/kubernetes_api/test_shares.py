"""Shares by themselves: what weights, turns and memory come to."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.task import Clock
from twisted.logger import capturedLogs, formatEvent

from modules.kubernetes_api.shares import (
    FAST_SECONDS,
    REMEMBERED,
    REMEMBERED_SECONDS,
    Shares,
    TooMany,
    room_of,
)
from tunnel.api import Access

#: Of a person.
ROOM = room_of(4)


class Request:
    """One request of a credential; counts how often it began."""

    def __init__(
        self, shares: Shares[Request], who: str, weight: int = 4, agent: str = "1"
    ) -> None:
        self.access = Access(f"user:{who}", agent, f"agent-{agent}", weight=weight)
        self.shares = shares
        self.over = False
        self.begun = 0
        self.fails = self.failed = False

    def begin(self) -> None:
        """See `Sharing`."""
        self.begun += 1
        if self.fails:
            raise ValueError("surrogates not allowed")

    def begin_failed(self) -> None:
        """See `Sharing`."""
        self.failed = True
        self.leave()

    def enter(self, now: float = 0.0) -> Request:
        """Come, and begin if it may."""
        try:
            self.shares.admit(self, self.access, now)
        except TooMany:
            self.leave()
            raise
        if self.shares.admits(self, self.access):
            self.begin()
        return self

    def leave(self) -> None:
        """Be over."""
        self.over = True
        self.shares.leave(self, self.access)


class Stand:
    """Shares with a clock."""

    def __init__(
        self, per_credential: int = 10_000, per_agent: int = 100_000, **more: Any
    ) -> None:
        self.clock = Clock()
        self.shares: Shares[Request] = Shares(
            self.clock, per_credential, per_agent, **more
        )

    def come(self, count: int, who: str, weight: int = 4) -> list[Request]:
        """*count* requests in one turn."""
        return [Request(self.shares, who, weight).enter() for _ in range(count)]


def test_alone() -> None:
    """Nothing is held back while there is one."""
    stand = Stand()
    assert sum(one.begun for one in stand.come(1_000, "alice")) == 1_000
    assert stand.clock.getDelayedCalls() == []


def test_weights() -> None:
    """Beside others a job has half as many under way as a person."""
    stand = Stand()
    stand.come(1, "bob")
    people, jobs = stand.come(100, "alice"), stand.come(100, "job", weight=2)
    for _ in range(10):
        under_way = [
            sum(one.begun and not one.over for one in ones) for ones in (people, jobs)
        ]
        assert under_way == [ROOM, room_of(2)]
        for ones in (people, jobs):
            next(one for one in ones if not one.over).leave()
        stand.clock.advance(0)


def test_slow_ones_do_not_count() -> None:
    """What waits for the cluster keeps nobody from beginning more."""
    stand = Stand()
    stand.come(1, "bob")
    slow = stand.come(3 * ROOM, "alice")
    for number in range(1, 4):
        assert sum(one.begun for one in slow) == ROOM * number
        stand.clock.advance(FAST_SECONDS)
    stand.clock.advance(FAST_SECONDS)
    # One that comes now does not wait for a clock.
    assert stand.come(1, "alice")[0].begun == 1


def test_beside_a_flood() -> None:
    """What another one sends begins at once, at any time."""
    stand = Stand()
    stand.come(1, "bob")[0].leave()
    flood = stand.come(500, "alice")
    for number in range(50):
        once = stand.come(1, "bob")[0]
        assert once.begun == 1
        once.leave()
        flood[number].leave()
        stand.clock.advance(0)
    assert not flood[-1].begun


def test_remembered_for_a_while() -> None:
    """One who asks again and again is not forgotten between two questions."""
    stand = Stand()
    stand.come(1, "bob")[0].leave()
    first = stand.come(100, "alice")
    assert sum(one.begun for one in first) == ROOM
    for one in first:
        one.leave()
    stand.clock.pump([REMEMBERED_SECONDS] * 2)
    assert all(one.begun for one in stand.come(100, "alice"))


def test_memory_is_bounded() -> None:
    """Of credentials that come once each, some are remembered, and then none."""
    stand = Stand()
    for number in range(2 * REMEMBERED):
        stand.come(1, f"n{number}")[0].leave()
    assert stand.shares.counts == (0, 0)
    assert len(stand.shares._idle) == REMEMBERED
    stand.clock.pump([REMEMBERED_SECONDS] * 2)
    assert stand.shares._idle == {}
    assert stand.clock.getDelayedCalls() == []


def test_given_up_while_it_waited() -> None:
    """It does not begin, and takes no place."""
    stand = Stand()
    stand.come(1, "bob")
    flood = stand.come(3 * ROOM, "alice")
    second = flood[ROOM : 2 * ROOM]
    for one in second:
        one.leave()
    stand.clock.advance(FAST_SECONDS)
    assert not any(one.begun for one in second)
    assert all(one.begun == 1 for one in flood[2 * ROOM :])


def test_all_fail_at_once() -> None:
    """Each turn begins what there is room for, however soon it fails."""

    class Failing(Request):
        def begin(self) -> None:
            super().begin()
            if self.begun and not self.over:
                self.leave()

    stand = Stand()
    stand.come(1, "bob")
    first = stand.come(ROOM, "alice")
    failing = [Failing(stand.shares, "alice").enter() for _ in range(5_000)]
    first[0].leave()
    stand.clock.advance(0)
    assert all(one.begun == 1 and one.over for one in failing)
    assert stand.shares.counts == (2, 1)


def fill(stand: Stand, who: str, weight: int = 4) -> int:
    """As many requests as one credential may have at the agent; how many."""
    taken = 0
    with pytest.raises(TooMany, match="are in progress"):
        while True:
            Request(stand.shares, who, weight).enter()
            taken += 1
    return taken


def test_floods_leave_room() -> None:
    """However many floods an agent has, one more credential is served there."""
    stand = Stand(per_agent=1_000)
    taken = [fill(stand, f"flood-{number}") for number in range(8)]
    assert taken == [500, 250, 125, 62, 31, 16, 8, 4]


def test_floods_become_equal() -> None:
    """As requests end, those who want more come to shares by their weights."""
    stand = Stand(per_agent=900)
    weights = {"early": 4, "late": 4, "job": 2}
    have: dict[str, list[Request]] = {who: [] for who in weights}
    for _ in range(300):
        for who, weight in weights.items():
            for one in have[who][:20]:
                one.leave()
            del have[who][:20]
            with pytest.raises(TooMany):
                while True:
                    have[who].append(Request(stand.shares, who, weight).enter())
    early, late, job = (len(have[who]) for who in weights)
    assert abs(early - late) <= 20
    assert abs(2 * job - late) <= 40


def test_rate() -> None:
    """A burst of one second's worth, and then as they come."""
    stand = Stand(per_second=10)
    done = stand.come(10, "alice")
    with pytest.raises(TooMany, match="10 in a second"):
        Request(stand.shares, "alice").enter(0.05)
    Request(stand.shares, "alice").enter(0.1)
    for one in done:
        one.leave()
    assert stand.shares.counts == (1, 1)


def test_rate_of_requests_that_waited() -> None:
    """They enter in any order, each with the time at which it came."""
    stand = Stand(per_second=10)
    for came in (2.0, 0.0, 1.0):
        Request(stand.shares, "alice").enter(came)


def test_stop() -> None:
    """Nothing begins after it."""
    stand = Stand()
    stand.come(1, "bob")
    flood = stand.come(100, "alice")
    stand.shares.stop()
    stand.clock.advance(60)
    assert sum(one.begun for one in flood) == ROOM
    assert stand.clock.getDelayedCalls() == []


def test_one_share_for_all_credentials_of_a_person() -> None:
    """A token that is renewed, or is one of many, brings no room of its own."""
    stand = Stand(per_credential=3)
    Request(stand.shares, "bob").enter()

    def of_ann(token: str) -> Request:
        request = Request(stand.shares, "")
        request.access = Access(f"user:ann:{token}", "1", "agent-1", owner="user:ann")
        return request.enter()

    first, second, _ = of_ann("1"), of_ann("2"), of_ann("2")
    with pytest.raises(TooMany):
        of_ann("3")
    assert stand.shares.counts == (2, 1)
    assert stand.shares.credentials() == {"user:bob", "user:ann:1", "user:ann:2"}
    # A credential that is revoked takes its own requests along, and no others.
    assert stand.shares.of("user:ann:1") == [first]
    first.leave()
    assert stand.shares.of("user:ann:1") == []
    assert second in stand.shares.of("user:ann:2")


def test_one_that_cannot_begin() -> None:
    """A request that fails as it begins ends; those of all callers go on."""
    stand = Stand()
    stand.come(1, "carol")
    for who in ("alice", "bob"):
        stand.come(ROOM, who)
    bad = [Request(stand.shares, "alice").enter() for _ in range(2)]
    good = [Request(stand.shares, who).enter() for who in ("alice", "bob", "bob")]
    for one in bad:
        one.fails = True
    with capturedLogs() as events:
        for _ in range(3):
            stand.clock.advance(FAST_SECONDS)
    assert [one.failed for one in bad] == [True, True]
    assert [one.begun for one in good] == [1, 1, 1]
    said = [formatEvent(one) for one in events]
    assert said == ["cannot begin a request that waited"] * 2


def test_end_of_one_that_cannot_begin() -> None:
    """The end of such a request may fail, too."""
    stand = Stand()
    stand.come(1, "carol")
    stand.come(ROOM, "alice")
    bad, good = (Request(stand.shares, "alice").enter() for _ in range(2))
    bad.fails = True
    bad.leave = lambda: 1 / 0  # type: ignore[method-assign, assignment]
    with capturedLogs() as events:
        for _ in range(3):
            stand.clock.advance(FAST_SECONDS)
    assert good.begun == 1
    assert len(events) == 2
