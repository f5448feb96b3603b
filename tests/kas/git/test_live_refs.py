"""Refs of a copy: which of them a new copy gets, and groups that cannot be fetched."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from kas.git.live_refs import FOLLOWED, MAX_FAILURES, MAX_LIVE, LiveRefs
from kas.git.ref_resolver import MAX_TOGETHER
from tunnel.errors import CallError, Status

NAMES = [f"refs/heads/b{number}" for number in range(MAX_TOGETHER)]


@attrs.define(eq=False)
class Server:
    """A server of which no group with a *bad* ref can be fetched."""

    bad: Sequence[str] = ()
    status: Status = Status.RESOURCE_EXHAUSTED
    fetched: list[str] = attrs.Factory(list)
    failures: int = 0

    async def fetch(self, group: Sequence[str]) -> None:
        """Fetch all refs of *group*, or none."""
        assert 0 < len(group) <= MAX_TOGETHER
        if set(group) & set(self.bad):
            self.failures += 1
            raise CallError(self.status, "too much")
        self.fetched += group

    def all(
        self, refs: Sequence[str], live: LiveRefs | None = None
    ) -> dict[str, CallError]:
        """Fetch *refs*, and return the errors."""
        live = live or LiveRefs(Clock().seconds)
        found: list[dict[str, CallError]] = []
        fetching = live.fetch(refs, self.fetch, lambda: True)
        Deferred.fromCoroutine(fetching).addCallback(found.append)
        return found[0]


@pytest.mark.parametrize(
    "status", [Status.RESOURCE_EXHAUSTED, Status.DEADLINE_EXCEEDED]
)
@pytest.mark.parametrize("at", [0, 77, MAX_TOGETHER - 1])
def test_one_bad_ref(at: int, status: Status) -> None:
    """Few fetches fail, and few refs are left to be fetched alone."""
    server = Server([NAMES[at]], status)
    assert server.all(NAMES) == {}
    assert server.failures == MAX_FAILURES
    left = set(NAMES) - set(server.fetched)
    assert NAMES[at] in left
    assert len(left) <= 13
    assert len(server.fetched) == len(set(server.fetched))


def test_a_bad_ref_of_few() -> None:
    """It has its own error, and is left out next time."""
    live = LiveRefs(Clock().seconds)
    server = Server(NAMES[2:3])
    errors = server.all(NAMES[:4], live)
    assert {ref: error.status for ref, error in errors.items()} == {
        NAMES[2]: Status.RESOURCE_EXHAUSTED
    }
    assert sorted(server.fetched) == [NAMES[0], NAMES[1], NAMES[3]]
    live.asked(NAMES[:4], NAMES[:4])
    assert live.good(NAMES[1:4]) == [NAMES[1], NAMES[3]]
    assert NAMES[2] not in live.followed()
    live.fetched(NAMES[2], failed=False)
    assert live.good(NAMES[1:4]) == NAMES[1:4]
    assert NAMES[2] in live.followed()


def test_bad_refs_everywhere() -> None:
    """The number of failed fetches is limited."""
    server = Server(NAMES)
    assert server.all(NAMES) == {}
    assert server.failures == MAX_FAILURES


def test_a_bad_group_among_others() -> None:
    """Its halves come after the other groups."""
    refs = [f"refs/heads/{number}" for number in range(MAX_LIVE)]
    server = Server(refs[:1])
    server.all(refs)
    assert set(refs[MAX_TOGETHER:]) <= set(server.fetched)


def test_no_room() -> None:
    server, live = Server(), LiveRefs(Clock().seconds)
    refs = [f"refs/heads/{number}" for number in range(3 * MAX_TOGETHER)]
    fetching = live.fetch(
        refs, server.fetch, lambda: len(server.fetched) <= MAX_TOGETHER
    )
    Deferred.fromCoroutine(fetching)
    assert server.fetched == refs[: 2 * MAX_TOGETHER]


def test_followed() -> None:
    """Refs that callers request now, the last first; others are forgotten."""
    clock = Clock()
    live = LiveRefs(clock.seconds)
    live.asked(["a", "b", "c", "missing"], ["a", "b", "c"])
    assert live.followed() == ["c", "b", "a"]
    clock.advance(FOLLOWED - 1)
    live.asked(["b"], ["b"])
    assert live.followed() == ["b", "c", "a"]
    clock.advance(2)
    assert live.followed() == ["b"]
    # The server does not have it any more.
    live.asked(["b"], [])
    assert live.followed() == []


def test_most_refs() -> None:
    """The tables are limited; a ref that is in use keeps its place."""
    live = LiveRefs(Clock().seconds)
    refs = [f"refs/heads/{number}" for number in range(MAX_LIVE + 10)]
    for ref in refs:
        live.asked(["used", ref], ["used", ref])
        live.fetched(f"bad/{ref}", failed=True)
    followed = live.followed()
    assert len(followed) == MAX_LIVE
    assert "used" in followed
    assert len(live.good([f"bad/{ref}" for ref in refs])) == 10
