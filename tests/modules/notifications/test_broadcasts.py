"""Broadcasts of rows to the browsers of a Rails server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from twisted.internet.task import Clock
from twisted.internet.testing import EventLoggingObserver
from twisted.logger import formatEvent, globalLogPublisher
from zope.interface.verify import verifyObject

from modules.notifications import broadcasts as broadcasts_module
from modules.notifications.broadcast_settings import BroadcastSettings
from modules.notifications.broadcasts import (
    MAX_MESSAGE_BYTES,
    PAUSE,
    RETRY,
    BroadcastMetrics,
    Broadcasts,
)
from modules.notifications.server import NotificationsServer, NotificationsSettings
from tests.modules.cluster_data.pair import LivePair, node
from tunnel.api import IRowFollower, PublishingAgent
from tunnel.config import RedisConnection, RedisServer, read
from tunnel.errors import ConfigurationError
from tunnel.testing import FakeClusterRows
from tunnel.testing.network import FakeRedisPublisher

REDIS = RedisConnection(server=RedisServer(address="rails.example:6379"))
ONE, TWO = PublishingAgent("1", "berlin"), PublishingAgent("2", "paris")
VIEWS = ("summary", "nodes")


def settings(**more: Any) -> BroadcastSettings:
    given = {"channel_prefix": "gitlab", "broadcasting": "kas:{view}:{agent_id}"}
    return BroadcastSettings(redis=REDIS, **{**given, "views": VIEWS, **more})


class Stand:
    """Broadcasts between rows that a test changes, and a Redis in memory."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.rows = FakeClusterRows()
        epochs = iter("abcdefgh")
        self.broadcasts = Broadcasts(
            settings(), lambda: self.rows, self.clock, lambda: next(epochs)
        )
        self.redis = FakeRedisPublisher(REDIS, self.broadcasts.available)
        self.broadcasts.start(self.redis)
        self.broadcasts.began(ONE, VIEWS)
        self.broadcasts.began(TWO, VIEWS)

    def messages(self) -> list[Any]:
        """Return the messages since the last call, without what they have in common."""
        found, self.redis.published = self.redis.published, []
        messages = []
        for channel, text in found:
            message = json.loads(text)
            view, agent = message.pop("view"), message.pop("agent")
            assert channel == f"gitlab:kas:{view}:{agent}"
            messages.append(message)
        return messages


@pytest.fixture
def stand() -> Stand:
    return Stand()


def test_interface(stand: Stand) -> None:
    assert verifyObject(IRowFollower, stand.broadcasts)


def test_changes(stand: Stand) -> None:
    """The first message has all rows, each further one the changes."""
    stand.rows.put(ONE, "nodes", a={"state": "Ready"}, b={"state": "Ready"})
    (message,) = stand.messages()
    rows = {"a": {"state": "Ready"}, "b": {"state": "Ready"}}
    assert message == {"e": "b", "s": 1, "snapshot": rows}
    stand.clock.advance(PAUSE)
    stand.rows.put(ONE, "nodes", a={"state": "NotReady"}, b=None)
    (second,) = stand.messages()
    assert second == {
        "e": "b",
        "s": 2,
        "put": {"a": {"state": "NotReady"}},
        "delete": ["b"],
    }
    stand.rows.put(TWO, "summary", nodes={"total": 3})
    (other,) = stand.messages()
    assert other["s"] == 1 and other["snapshot"] == {"nodes": {"total": 3}}


def test_the_latest_value_wins(stand: Stand) -> None:
    """Changes within the pause are one message, with the last row of each key."""
    stand.rows.put(ONE, "nodes", a={"n": 1})
    stand.messages()
    for number in range(2, 9):
        stand.rows.put(ONE, "nodes", a={"n": number}, b={"n": number}, c={"n": number})
    stand.rows.put(ONE, "nodes", b=None)
    stand.rows.put(ONE, "nodes", c=None)
    stand.rows.put(ONE, "nodes", c={"n": 10})
    assert stand.messages() == []
    stand.clock.advance(PAUSE)
    (message,) = stand.messages()
    assert message["put"] == {"a": {"n": 8}, "c": {"n": 10}}
    assert message["delete"] == ["b"]
    stand.clock.advance(PAUSE)
    assert stand.messages() == []
    assert stand.clock.getDelayedCalls() == []


def test_one_message_at_a_time(stand: Stand) -> None:
    """Changes wait for the response of Redis."""
    stand.redis.answers = False
    stand.rows.put(ONE, "nodes", a={"n": 1})
    stand.rows.put(ONE, "nodes", a={"n": 2})
    stand.rows.put(TWO, "nodes", a={"n": 3})
    assert len(stand.messages()) == 1
    assert stand.broadcasts.waiting == 2
    stand.redis.respond()
    stand.clock.advance(PAUSE)
    assert [one.get("put", one.get("snapshot")) for one in stand.messages()] == [
        {"a": {"n": 3}},
        {"a": {"n": 2}},
    ]


def test_an_outage_loses_only_old_values(stand: Stand) -> None:
    stand.rows.put(ONE, "nodes", a={"n": 1}, b={"n": 1})
    stand.messages()
    stand.clock.advance(PAUSE)
    stand.redis.set_up(False)
    for number in range(2, 9):
        stand.rows.put(ONE, "nodes", a={"n": number})
        stand.clock.advance(PAUSE)
    assert stand.messages() == []
    assert stand.clock.getDelayedCalls() == []
    assert not stand.broadcasts.is_up
    assert stand.broadcasts._bytes.count == 0
    stand.redis.set_up(True)
    (message,) = stand.messages()
    rows = {"a": {"n": 8}, "b": {"n": 1}}
    assert (message["s"], message["snapshot"]) == (2, rows)


def test_a_view_without_changes_in_an_outage(stand: Stand) -> None:
    """Its next message has all rows: Rails may have missed the last one."""
    stand.rows.put(ONE, "nodes", a={"n": 1}, b={"n": 1})
    stand.clock.advance(PAUSE)
    stand.redis.set_up(False)
    stand.redis.set_up(True)
    assert len(stand.messages()) == 1
    stand.rows.put(ONE, "nodes", a={"n": 2})
    (message,) = stand.messages()
    assert message["snapshot"] == {"a": {"n": 2}, "b": {"n": 1}}


def test_a_message_that_may_be_lost(stand: Stand) -> None:
    """All rows follow, because subscribers may lack the message."""
    stand.rows.put(ONE, "nodes", a={"n": 1}, b={"n": 1})
    stand.clock.advance(PAUSE)
    stand.messages()
    stand.redis.answers = False
    stand.rows.put(ONE, "nodes", a={"n": 2})
    stand.redis.set_up(False)
    stand.rows.put(TWO, "nodes", a={"n": 3})
    stand.redis.respond()
    stand.redis.set_up(True)
    assert stand.broadcasts.failed == 1
    assert len(stand.messages()) == 1
    stand.clock.advance(RETRY)
    first, second = sorted(stand.messages(), key=lambda one: one["s"])
    assert first["snapshot"] == {"a": {"n": 3}}
    assert (second["s"], second["snapshot"]) == (3, {"a": {"n": 2}, "b": {"n": 1}})


def test_rows_that_cannot_be_read(stand: Stand) -> None:
    """One attempt a second, for all views together, until the store answers."""
    stand.rows.fails = True
    for agent in (ONE, TWO):
        stand.rows.put(agent, "nodes", a={"n": 1})
    for _ in range(3):
        stand.clock.advance(RETRY)
    assert (stand.rows.reads, stand.broadcasts.failed) == (4, 4)
    stand.rows.fails = False
    stand.clock.advance(RETRY)
    assert {one["s"] for one in stand.messages()} == {1}
    assert stand.broadcasts.waiting == 0


def test_too_many_rows(stand: Stand) -> None:
    """Subscribers are told to read them from kas."""
    key = (ONE.agent_id, "nodes")
    stand.rows.rows[key] = None
    stand.broadcasts.replaced(ONE, "nodes")
    (message,) = stand.messages()
    assert message["reload"] is True and "snapshot" not in message
    stand.clock.advance(PAUSE)
    stand.rows.rows[key] = {"a": {"text": "x" * MAX_MESSAGE_BYTES}}
    stand.broadcasts.replaced(ONE, "nodes")
    (message,) = stand.messages()
    assert message["reload"] is True and message["s"] == 2


@pytest.mark.parametrize(
    ("limit", "agent"),
    [("MAX_MESSAGE_BYTES", ONE), ("MAX_WAITING_BYTES", TWO)],
    ids=["one view", "all views"],
)
def test_waiting_bytes_are_limited(
    stand: Stand, monkeypatch: pytest.MonkeyPatch, limit: str, agent: PublishingAgent
) -> None:
    """Beyond the limit, kas forgets the changes, and reads the rows later."""
    stand.rows.put(ONE, "nodes", a={"text": ""})
    stand.rows.put(agent, "summary", a={"text": ""})
    stand.clock.advance(PAUSE)
    stand.messages()
    stand.redis.answers = False
    stand.rows.put(TWO, "nodes", a={"text": ""})
    assert len(stand.messages()) == 1
    monkeypatch.setattr(broadcasts_module, limit, 1000)
    stand.rows.put(ONE, "nodes", a={"text": "x" * 600})
    more = {"b" if agent is ONE else "a": {"text": "y" * 600}}
    stand.rows.put(agent, "nodes" if agent is ONE else "summary", **more)
    assert stand.broadcasts._bytes.count < 1000
    monkeypatch.undo()
    reads = stand.rows.reads
    stand.redis.respond()
    assert stand.rows.reads == reads + 1
    assert stand.broadcasts._bytes.count == 0
    kinds = sorted(
        "snapshot" if "snapshot" in one else "put" for one in stand.messages()
    )
    assert kinds == (["snapshot"] if agent is ONE else ["put", "snapshot"])


def test_an_agent_that_leaves(stand: Stand) -> None:
    """Its changes are dropped; when it comes back, a new sequence begins."""
    stand.rows.put(ONE, "nodes", a={"n": 1})
    (before,) = stand.messages()
    stand.rows.put(ONE, "nodes", a={"n": 2})
    stand.broadcasts.ended(ONE)
    stand.rows.put(ONE, "nodes", a={"n": 3})
    stand.clock.advance(PAUSE)
    assert stand.messages() == []
    assert stand.broadcasts._bytes.count == 0
    stand.broadcasts.began(ONE, VIEWS)
    stand.rows.put(ONE, "nodes", a={"n": 4})
    (message,) = stand.messages()
    assert message["e"] != before["e"]
    assert (message["s"], message["snapshot"]) == (1, {"a": {"n": 4}})


def test_other_views(stand: Stand) -> None:
    """Views that are not named are not sent."""
    stand.broadcasts.changed(ONE, "workloads", {"a": {"n": 1}}, [])
    stand.broadcasts.replaced(ONE, "workloads")
    stand.clock.advance(PAUSE)
    assert stand.messages() == []


def test_stop(stand: Stand) -> None:
    stand.redis.answers = False
    stand.rows.put(ONE, "nodes", a={"n": 1})
    stand.rows.put(TWO, "nodes", a={"n": 1})
    stand.broadcasts.stop()
    stand.messages()
    stand.redis.respond()
    stand.clock.advance(PAUSE)
    assert stand.messages() == []
    assert stand.clock.getDelayedCalls() == []
    assert stand.rows.followers == []


def test_another_start_of_the_rows(stand: Stand) -> None:
    """After a restart of the module with the rows, everything begins again."""
    stand.rows.put(ONE, "nodes", a={"n": 1})
    stand.messages()
    stand.broadcasts.follow()
    assert len(stand.rows.followers) == 1
    stand.rows.put(ONE, "nodes", a={"n": 2})
    assert stand.messages() == []


def test_log(stand: Stand) -> None:
    """Views that no agent has, and a missing module, are probably mistakes."""
    seen = EventLoggingObserver()
    globalLogPublisher.addObserver(seen)
    try:
        stand.broadcasts.began(ONE, ["summary"])
        stand.broadcasts.began(TWO, ["summary"])
        alone = Broadcasts(settings(), lambda: None, Clock(), lambda: "e")
        alone.start(stand.redis)
    finally:
        globalLogPublisher.removeObserver(seen)
    texts = [formatEvent(one) for one in seen]
    assert [one.split(",")[0] for one in texts] == [
        "agent berlin has no view nodes",
        "modules.notifications.action_cable broadcasts nothing",
    ]


def test_metrics(stand: Stand) -> None:
    registry = CollectorRegistry()
    registry.register(BroadcastMetrics(stand.broadcasts))

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(f"kas_notifications_{name}", labels)

    stand.rows.put(ONE, "nodes", a={"n": 1})
    stand.redis.set_up(False)
    stand.rows.put(TWO, "nodes", a={"n": 1})
    assert value("broadcasts_total", outcome="sent") == 1
    assert value("broadcasts_total", outcome="failed") == 0
    assert value("broadcasts_waiting") == 1
    assert value("broadcasts_up") == 0


GOOD = """\
action_cable:
  redis: {server: {address: "redis:6379"}}
  channel_prefix: gitlab_production
  broadcasting: kas:{view}:{agent_id}
  views: [summary]
"""


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("kas:{view}:{agent_id}", "kas:{view}", "4:17: action_cable.broadcasting: "),
        ("{agent_id}", "{agent}", "may contain {agent_id} and {view}"),
        ("{agent_id}", "{agent_id}{", "and no other braces"),
        ("gitlab_production", '"a b"', "3:19: action_cable.channel_prefix: "),
        ("[summary]", "[]", "5:10: action_cable.views: name 1 to 20 views"),
        ("[summary]", "[Nodes]", "'Nodes' is not the name of a view"),
        ("[summary]", "[nodes, nodes]", "'nodes' is named twice"),
        ('server: {address: "redis:6379"}', "", "2:10: action_cable.redis: "),
        ("redis:6379", "redis://redis", "is a URL; write host:port"),
        ("  views: [summary]\n", "", "'views' is missing"),
        ("views", "view", "unknown key 'view'"),
    ],
    ids=[
        *("all agents", "placeholder", "braces", "prefix", "no views", "view"),
        *("twice", "no server", "url", "views missing", "unknown key"),
    ],
)
def test_wrong_settings(old: str, new: str, problem: str) -> None:
    """Each mistake has a position."""
    with pytest.raises(ConfigurationError) as caught:
        read(GOOD.replace(old, new), "kas.yaml", NotificationsSettings)
    assert any(
        one.startswith("kas.yaml:") and problem in one for one in caught.value.problems
    ), caught.value.problems


def test_channels() -> None:
    """Rails joins prefix and broadcasting with a colon; values keep their braces."""
    found = read(GOOD, "kas.yaml", NotificationsSettings).action_cable
    assert found is not None
    assert found.channel("7", "summary") == "gitlab_production:kas:summary:7"
    assert found.channel("{view}", "summary") == "gitlab_production:kas:summary:{view}"
    assert settings(channel_prefix="").channel("7", "nodes") == "kas:nodes:7"


def test_a_node_count(tmp_path: Path) -> None:
    """From a cluster to Redis, with the module that has the rows."""
    live = LivePair(tmp_path)
    try:
        module = live.pair.server_half(
            NotificationsServer, action_cable=settings(views=("summary",))
        )
        live.pair.run(module.start())
        live.add(node("a"))
        live.lead()
        live.advance(2)
        redis = module._api.network.redis["broadcasts to Rails"]

        def counts() -> list[int]:
            """Return the numbers of nodes in the messages since the last call."""
            found, redis.published = redis.published, []
            return [
                row["total"]
                for _, text in found
                for key, row in {
                    **json.loads(text).get("snapshot", {}),
                    **json.loads(text).get("put", {}),
                }.items()
                if "/Node/" in key
            ]

        assert counts()[-1] == 1
        live.advance(10)
        live.add(node("b"))
        live.advance(0.75)
        assert counts() == [2]
        live.follow()
        assert module._broadcasts._views == {}
    finally:
        live.close()
