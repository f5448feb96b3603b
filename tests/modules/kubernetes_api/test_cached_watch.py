"""Aggregated watches from the cache of an agent, and the API server as the fallback."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qsl

import attrs
import pytest
from twisted.logger import capturedLogs
from zope.interface.verify import verifyObject

from modules.kubernetes_api.cached_watch import ANSWER_SECONDS
from modules.kubernetes_api.watch_api import MAX_EVENTS
from tests.modules.kubernetes_api.pair import ALICE, World
from tests.modules.kubernetes_api.test_watch_api import (
    BOOKMARK,
    PODS,
    PROTOCOL,
    STREAM,
    UPGRADE,
    Page,
    event,
)
from tests.tunnel.http1.wire import Wire
from tunnel.api import AuditLevel, ICachedWatches
from tunnel.errors import CallError, Status
from tunnel.testing import FakeCachedWatch, FakeCachedWatches

REFUSED = CallError(Status.FAILED_PRECONDITION, "the cache does not have this kind")
LOST = CallError(Status.UNAVAILABLE, "the agent's connection was lost")


def lines(*events: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(one).encode() + b"\n" for one in events)


class CachedStand:
    """A page, and an agent whose cache the test is."""

    def __init__(self, *fields: bytes, **options: Any) -> None:
        self.world = World(**options)
        self.cache = FakeCachedWatches()
        assert verifyObject(ICachedWatches, self.cache)
        self.world.server_api.capabilities.provide(ICachedWatches, self.cache)
        self.page = Page(self.world, *UPGRADE, PROTOCOL, *fields)

    def watch(self, name: str = "pods", **params: Any) -> FakeCachedWatch:
        """Begin a watch; return the request to the cache."""
        message = {"watch_id": name, "watch_params": {**PODS, **params}}
        self.page.say(type="watch", **message)
        return self.cache.watches[-1]

    @property
    def requests(self) -> list[Wire]:
        """The connections to the API server."""
        return self.world.cluster.connections.wires

    def pass_time(self, seconds: float = 0.0) -> None:
        self.world.clock.advance(seconds)
        self.world.run()

    def kinds(self) -> list[tuple[str, str]]:
        """Return the types and uids of the events."""
        return self.page.events()

    def plain(self, *events: dict[str, Any]) -> dict[str, str]:
        """Let the API server answer; return the query of the plain watch."""
        self.pass_time()
        wire = self.world.origin
        target = wire.taken().split(b" ")[1].decode()
        wire.receive(STREAM)
        for one in events:
            line = lines(one)
            wire.receive(b"%x\r\n%b\r\n" % (len(line), line))
        self.world.run()
        return dict(parse_qsl(target.partition("?")[2]))


@pytest.fixture
def stand() -> Iterator[CachedStand]:
    stand = CachedStand()
    yield stand
    stand.page.wire.lose()
    stand.world.run()
    for wire in stand.requests:
        wire.settle()
    stand.world.run()
    assert {k: v for k, v in stand.world.counts().items() if v} == {}
    assert stand.world.link.errors == []
    assert all(one.closed for one in stand.cache.watches)
    assert "CachedWatch" not in str(stand.world.clock.getDelayedCalls())


def test_from_the_cache(stand: CachedStand) -> None:
    """The API server gets no request; a bookmark ends the objects at the beginning."""
    watch = stand.watch(label_selector="app=x")
    target, _, query = watch.target.partition("?")
    assert target == "/api/v1/namespaces/apps/pods"
    assert dict(parse_qsl(query)) == {
        "watch": "true",
        "allowWatchBookmarks": "true",
        "labelSelector": "app=x",
        "sendInitialEvents": "true",
        "resourceVersionMatch": "NotOlderThan",
    }
    assert watch.access == ALICE
    watch.send(b"", lines(event("ADDED", "a"), event("ADDED", "b"))[:-9])
    assert stand.kinds() == [("ADDED", "a")]
    watch.send(lines(event("ADDED", "b"))[-9:], lines(BOOKMARK))
    assert stand.kinds() == [("ADDED", "b")]
    watch.send(lines(event("MODIFIED", "a", "9"), event("DELETED", "b", "10")))
    assert stand.kinds() == [("MODIFIED", "a"), ("DELETED", "b")]
    stand.page.say(type="unwatch", watch_id="pods")
    assert watch.closed
    assert stand.requests == []


@pytest.mark.parametrize("late", [False, True], ids=["refused", "no answer"])
def test_the_cache_does_not_answer(stand: CachedStand, late: bool) -> None:
    """The watch is a plain one, without what kas added for the cache."""
    watch = stand.watch()
    if late:
        stand.pass_time(ANSWER_SECONDS)
    else:
        watch.send(REFUSED)
    assert stand.plain(event("ADDED")) == {
        "watch": "true",
        "allowWatchBookmarks": "true",
    }
    assert stand.kinds() == [("ADDED", "a")]
    assert watch.closed


@pytest.mark.parametrize("how", ["error", "event"])
def test_the_cache_stops(stand: CachedStand, how: str) -> None:
    """The API server continues at the position of the cache."""
    watch = stand.watch()
    watch.send(b"", lines(event("ADDED", "a", "3"), BOOKMARK))
    status = {"type": "ERROR", "object": {"kind": "Status", "code": 503}}
    watch.send(LOST if how == "error" else lines(status))
    assert stand.plain(event("MODIFIED", "a", "9"))["resourceVersion"] == "8"
    assert stand.kinds() == [("ADDED", "a"), ("MODIFIED", "a")]
    assert watch.closed
    # The cache is asked again after the regular end of the plain watch.
    assert len(stand.cache.watches) == 1
    stand.world.origin.receive(b"0\r\n\r\n")
    stand.pass_time()
    again = stand.cache.watches[-1]
    assert "resourceVersion=9" in again.target
    again.send(REFUSED)
    assert stand.plain()["resourceVersion"] == "9"


def test_the_cache_stops_in_the_middle(stand: CachedStand) -> None:
    """Objects without a position are no beginning for a plain watch: an error."""
    stand.watch().send(b"", lines(event("ADDED", "a", "9")), LOST)
    told = stand.page.told()
    assert [one["type"] for one in told] == ["event", "error", "stop"]
    assert "connection was lost" in told[1]["error"]["message"]
    assert stand.requests == []


def test_the_cache_stops_before_any_object(stand: CachedStand) -> None:
    """A version that the cache has forgotten, for instance: the API server answers."""
    watch = stand.watch(resource_version="5")
    assert "sendInitialEvents" not in watch.target
    status = {"type": "ERROR", "object": {"kind": "Status", "code": 410}}
    watch.send(b"", lines(status))
    assert stand.plain(event("MODIFIED"))["resourceVersion"] == "5"


def test_the_regular_end(stand: CachedStand) -> None:
    """Each watch of the cache ends after a while, and goes on in the cache."""
    watch = stand.watch()
    watch.send(b"", lines(event("ADDED", "a", "3"), BOOKMARK), None)
    stand.pass_time()
    again = stand.cache.watches[-1]
    assert again is not watch
    assert "resourceVersion=8" in again.target
    assert "sendInitialEvents" not in again.target
    again.send(b"", lines(event("MODIFIED", "a", "9")))
    assert stand.kinds() == [("ADDED", "a"), ("MODIFIED", "a")]
    assert stand.requests == []


def test_a_slow_page(stand: CachedStand) -> None:
    """The cache is read as fast as the page reads."""
    watch = stand.watch()
    connection = next(iter(stand.world.server.watches))
    watch.send(b"", lines(event("ADDED", "a"), BOOKMARK))
    connection.pauseProducing()
    watch.send(*(lines(event("MODIFIED", "a", str(9 + n))) for n in range(5)))
    stand.world.run()
    # One part waits in kas.
    assert watch.taken == 3
    assert stand.kinds() == [("ADDED", "a")]
    connection.resumeProducing()
    stand.world.run()
    assert watch.taken == 7
    assert stand.kinds() == 5 * [("MODIFIED", "a")]


def test_many_events(stand: CachedStand) -> None:
    """A big part does not hold up others, and its ERROR counts only at its turn."""
    watch = stand.watch()
    many = [event("ADDED", f"u{number}") for number in range(2 * MAX_EVENTS)]
    status = {"type": "ERROR", "object": {"kind": "Status", "code": 503}}
    watch.send(b"", lines(*many, BOOKMARK, status), None)
    stand.world.run()
    stand.pass_time()
    assert len(stand.kinds()) == 2 * MAX_EVENTS
    assert stand.plain()["resourceVersion"] == "8"
    assert len(stand.requests) == 1


def test_another_user() -> None:
    """A watch of a user that the client names is not for the cache."""
    stand = CachedStand(b"Impersonate-User: bob")
    stand.page.say(type="watch", watch_id="pods", watch_params=PODS)
    assert stand.cache.watches == []


def test_read_only(stand: CachedStand) -> None:
    """What a credential may not read, it does not read from the cache."""
    access = stand.world.server_api.access
    access["looker"] = attrs.evolve(ALICE, read_only=True)
    page = Page(stand.world, token=b"user:1:looker")
    secrets = {**PODS, "resource": "secrets"}
    page.say(type="watch", watch_id="x", watch_params=secrets)
    assert "may not read Secrets" in page.told()[0]["error"]["message"]
    assert stand.cache.watches == []
    page.wire.lose()


def test_audit() -> None:
    """The watch of the cache and the plain one that continues it have events."""
    stand = CachedStand(audit_level=AuditLevel.ALL)
    watch = stand.watch()
    watch.send(b"", lines(event("ADDED", "a", "3"), BOOKMARK), LOST)
    stand.plain()
    events = stand.world.server_api.audit.events
    assert [(one.stage.value, one.outcome) for one in events] == [
        ("answered", "101"),
        ("begun", ""),
        ("ended", "200"),
        ("begun", ""),
    ]
    assert "connection was lost" in str(events[2].details["reason"])


def test_a_fault_of_the_cache(stand: CachedStand) -> None:
    """It is logged, and the API server answers."""
    watch = stand.watch()
    with capturedLogs() as logs:
        watch.send("not bytes")  # type: ignore[arg-type]
        watch.send(7)  # type: ignore[arg-type]
        stand.plain(event("ADDED"))
    assert stand.kinds() == [("ADDED", "a")]
    assert "a watch from a cache failed" in str(logs)
    stand.world.cluster.connections.wires[-1].settle()
