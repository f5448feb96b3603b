"""Rows for other modules of kas, as agents send them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from zope.interface import implementer
from zope.interface.verify import verifyObject

from modules.cluster_data.server.row_feed import RowFeed
from modules.cluster_data.server.store.row_store import Publication
from modules.cluster_data.wire import cluster_data_pb2 as wire
from tests.modules.cluster_data.pair import LivePair, deployment, node
from tunnel.api import IClusterRows, IRowFollower, PublishingAgent


@implementer(IRowFollower)
class Follower:
    """A follower that remembers its calls."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def began(self, agent: PublishingAgent, views: Collection[str]) -> None:
        self.calls.append(("began", agent.agent_name, "nodes" in views))

    def changed(
        self,
        agent: PublishingAgent,
        view: str,
        put: Mapping[str, Mapping[str, Any]],
        deleted: Collection[str],
    ) -> None:
        names = {key: row["name"] for key, row in put.items()}
        self.calls.append(("changed", view, names, list(deleted)))

    def replaced(self, agent: PublishingAgent, view: str) -> None:
        self.calls.append(("replaced", view))

    def ended(self, agent: PublishingAgent) -> None:
        self.calls.append(("ended", agent.agent_name))

    def take(self) -> list[Any]:
        """Return the calls since the last one."""
        calls, self.calls = self.calls, []
        return calls


@pytest.fixture
def live(tmp_path: Path) -> Iterator[LivePair]:
    live = LivePair(tmp_path)
    live.add(node("a"), deployment("web"))
    yield live
    live.close()


def feed_of(live: LivePair) -> RowFeed:
    found: RowFeed = live.pair.server.capabilities.get(IClusterRows)
    assert verifyObject(IClusterRows, found)
    return found


def test_changes(live: LivePair) -> None:
    """A follower gets the rows of its views, and nothing else."""
    follower = Follower()
    feed = feed_of(live)
    unfollow = feed.follow(["nodes"], follower)
    live.lead()
    live.advance(12)
    assert follower.take() == [("began", "agent-1", True), ("replaced", "nodes")]
    agent = PublishingAgent("1", "agent-1")
    found = live.pair.run(_read(feed, agent))
    assert list(found) == ["1//Node//a/"]
    row = found["1//Node//a/"]
    assert (row["cluster"], row["name"], row["health"]) == ("agent-1", "a", "current")

    live.add(node("b"), deployment("db"))
    live.advance(0.5)
    assert follower.take() == [("changed", "nodes", {"1//Node//b/": "b"}, [])]
    live.objects.remove("v1", "Node", "b")
    live.advance(0.5)
    assert follower.take() == [("changed", "nodes", {}, ["1//Node//b/"])]
    live.follow()
    assert follower.take() == [("ended", "agent-1")]

    unfollow()
    live.lead()
    live.advance(12)
    assert follower.take() == []
    assert feed.views == frozenset()


def test_a_late_follower(live: LivePair) -> None:
    """It gets the agents that publish already."""
    live.lead()
    live.advance(1)
    follower = Follower()
    feed_of(live).follow(["nodes", "events"], follower)
    assert follower.take() == [("began", "agent-1", True)]
    assert feed_of(live).views == {"nodes", "events"}


def test_more_rows_than_a_page(live: LivePair, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are not read in parts, because they may change in between."""
    monkeypatch.setattr("modules.cluster_data.server.row_feed.MAX_LIMIT", 1)
    live.add(node("b"))
    live.lead()
    live.advance(1)
    agent = PublishingAgent("1", "agent-1")
    assert live.pair.run(_read(feed_of(live), agent)) is None


async def _read(feed: RowFeed, agent: PublishingAgent) -> Any:
    return await feed.read(agent, "nodes")


def _row(name: str) -> wire.Row:
    key = wire.RowKey(kind="Node", name=name)
    return wire.Row(key=key, resource="nodes", columns=b"{}")


def test_a_newer_publication(live: LivePair) -> None:
    """The changes and the end of the one before it do not count any more."""
    feed, follower = feed_of(live), Follower()
    feed.follow(["nodes"], follower)
    old, new = (Publication("1", "agent-1", bytes([one])) for one in range(2))
    feed.began(old, ["nodes"])
    feed.began(new, ["nodes"])
    follower.take()
    feed.stored(old, wire.Delta(view="nodes", put=[_row("a")]))
    feed.ended(old)
    assert follower.take() == []
    deleted = [wire.RowKey(kind="Node", name=one) for one in ("a", "b")]
    feed.stored(new, wire.Delta(view="nodes", put=[_row("a")], deleted=deleted))
    # A row that is deleted and put by one message exists afterwards.
    changed = ("changed", "nodes", {"1//Node//a/": "a"}, ["1//Node//b/"])
    assert follower.take() == [changed]
    feed.stored(new, wire.Snapshot(view="nodes", first=True))
    assert follower.take() == []
    feed.stored(new, wire.Snapshot(view="nodes", last=True))
    feed.ended(new)
    assert follower.take() == [("replaced", "nodes"), ("ended", "agent-1")]


def test_a_follower_that_fails(live: LivePair) -> None:
    """The others get the rows anyway."""
    feed, follower = feed_of(live), Follower()
    feed.follow(["nodes"], object())  # type: ignore[arg-type]
    feed.follow(["nodes"], follower)
    feed.began(Publication("1", "agent-1", b""), ["nodes"])
    assert follower.take() == [("began", "agent-1", True)]
