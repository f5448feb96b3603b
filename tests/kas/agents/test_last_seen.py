"""When agents were last seen: in memory, in the state directory, in the store."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from kas.agents.last_seen import (
    ASK_INTERVAL,
    FILE_NAME,
    MAX_AGENTS,
    SAVE_DELAY,
    SAVE_INTERVAL,
    LastSeen,
    ago,
)
from kas.identity.file import Agent
from kas.state.directory import StateDirectory
from tunnel.api import AgentConnected, AgentDisconnected, ConnectedAgent
from tunnel.program.runtime import Runtime

#: 2026-11-22 06:00:00 UTC
BEGIN = 1_795_327_200.0


class Store:
    """What several kas remember together."""

    def __init__(self) -> None:
        self.seen: dict[str, float] = {}
        self.asked: list[Sequence[str]] = []

    async def last_seen(self, agent_ids: Sequence[str]) -> dict[str, float]:
        self.asked.append(agent_ids)
        return {one: self.seen[one] for one in agent_ids if one in self.seen}


class World:
    """One kas after the other with one state directory; agents ``1`` to ``3`` exist."""

    def __init__(self, folder: Path) -> None:
        folder.chmod(0o700)
        self.state = StateDirectory.open(folder)
        self.clock = Clock()
        self.store = Store()
        self.connected: list[str] = []
        self.agents = {
            number: Agent(number, name, datetime.fromtimestamp(BEGIN - 60, UTC))
            for number, name in (("1", "demo"), ("2", "other"), ("3", "third"))
        }
        self.start()

    def now(self) -> float:
        return BEGIN + self.clock.seconds()

    def start(self) -> None:
        """A kas that begins."""
        runtime = Runtime(reactor=self.clock, now=self.now)
        self.bus = runtime.bus
        self.last_seen = LastSeen(
            self.state,
            lambda: self.connected,
            self.agents.get,
            self.store,
            runtime,
        )
        self.last_seen.start()

    def add(self, number: str, name: str) -> None:
        """An agent that is made now."""
        self.agents[number] = Agent(
            number, name, datetime.fromtimestamp(self.now(), UTC)
        )

    def connect(self, number: str) -> None:
        self.connected.append(number)
        self.bus.publish(AgentConnected(_agent(number)))

    def leave(self, number: str) -> None:
        self.connected.remove(number)
        self.bus.publish(AgentDisconnected(_agent(number)))

    def file(self) -> dict[str, float]:
        """What is written down."""
        agents: dict[str, float] = json.loads(self.state.read(FILE_NAME) or b"")[
            "agents"
        ]
        return agents


def _agent(number: str) -> ConnectedAgent:
    return ConnectedAgent(number, f"name-{number}", b"i" * 16, 1, 0.0)


@pytest.fixture
def world(tmp_path: Path) -> World:
    """The first kas."""
    return World(tmp_path)


def test_says_when(world: World) -> None:
    """Name, time of day, and how long that is ago."""
    world.connect("1")
    world.clock.advance(600)
    world.leave("1")
    world.clock.advance(300)
    assert world.last_seen.absence("1") == (
        "agent demo is not connected; last seen 2026-11-22 06:10:00 UTC (5 minutes ago)"
    )


def test_never(world: World) -> None:
    """What was made while kas remembers never connected; of others less is known."""
    world.clock.advance(10)
    world.add("4", "new")
    assert world.last_seen.absence("4") == "agent new has never connected"
    assert (
        world.last_seen.absence("1")
        == "agent demo is not connected, and has not been since 2026-11-22 06:00:00 UTC"
    )
    # Another kas may have seen it, which the store knows.
    assert not world.last_seen.never("4")
    for agent_id in ("1", "4", "9"):
        world.last_seen.sought(agent_id)
    never = [one for one in ("1", "4", "9") if world.last_seen.never(one)]
    assert never == ["4"]
    # A number that nobody has.
    assert "agent 9 is not connected" in world.last_seen.absence("9")


def test_never_in_the_store(world: World) -> None:
    """What another kas saw has connected."""
    world.clock.advance(10)
    world.add("4", "new")
    world.store.seen["4"] = world.now() - 1
    world.last_seen.sought("4")
    assert not world.last_seen.never("4")


def test_restart(world: World) -> None:
    """What is remembered outlives kas: when it stops, and when it is killed."""
    world.connect("1")
    world.connect("2")
    world.leave("1")
    world.clock.advance(SAVE_DELAY)
    world.clock.advance(SAVE_INTERVAL)
    killed_at = world.now()
    world.clock.advance(SAVE_INTERVAL - 1)
    # Killed: nothing of it is called any more.
    world.connected.clear()
    world.clock.calls.clear()
    world.start()
    assert world.last_seen.known("1") == BEGIN
    assert world.last_seen.known("2") == killed_at
    # Since when it remembers outlives it, too.
    assert "has not been since 2026-11-22 06:00:00 UTC" in world.last_seen.absence("3")
    world.last_seen.stop()
    assert world.clock.calls == []
    assert world.file() == {"1": BEGIN, "2": killed_at}


def test_a_storm_is_written_once(world: World) -> None:
    """However many come and go."""
    for _ in range(50):
        world.connect("1")
        world.leave("1")
    assert len(world.clock.calls) == 1
    world.clock.advance(SAVE_DELAY)
    assert world.file() == {"1": BEGIN}


def test_shared_directory(world: World, tmp_path: Path) -> None:
    """Two kas with one directory keep what the other one wrote."""
    other = World(tmp_path)
    other.clock = world.clock
    world.connect("1")
    world.leave("1")
    other.connect("2")
    other.leave("2")
    world.last_seen.stop()
    other.last_seen.stop()
    assert set(world.file()) == {"1", "2"}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"{",
        b'{"agents": []}',
        b'{"agents": {"1": []}}',
        b'{"agents": {"1": 1e300}}',
        b'{"since": "x", "agents": {}}',
        b"\xff",
    ],
)
def test_spoilt_file(world: World, content: bytes) -> None:
    """It is written again, and harms nothing."""
    world.state.write(FILE_NAME, content)
    world.start()
    assert world.last_seen.known("1") is None
    world.connect("1")
    world.last_seen.stop()
    assert world.file() == {"1": BEGIN}


def test_revoked_agents_are_not_kept(world: World) -> None:
    """The file has those that may connect."""
    world.connect("1")
    world.leave("1")
    del world.agents["1"]
    world.last_seen.stop()
    assert world.file() == {}


def test_asks_the_store_seldom(world: World) -> None:
    """Once for all that wait, and never for what is connected."""
    world.store.seen["1"] = BEGIN - 3600
    for _ in range(100):
        world.last_seen.sought("1")
    assert world.store.asked == [["1"]]
    assert "(1 hour ago)" in world.last_seen.absence("1")
    world.clock.advance(ASK_INTERVAL)
    world.last_seen.sought("1")
    assert len(world.store.asked) == 2


def test_the_later_time_counts(world: World) -> None:
    """What the store has may be older than what we saw, and may be nonsense."""
    world.connect("1")
    world.leave("1")
    world.store.seen = {"1": BEGIN - 3600, "2": BEGIN + 1e9}
    found: list[dict[str, float]] = []
    asking = Deferred.fromCoroutine(world.last_seen.of(["1", "2", "3"]))
    asking.addCallback(found.append)
    assert found == [{"1": BEGIN}]


def test_bound(world: World) -> None:
    """The oldest are forgotten."""
    for number in range(MAX_AGENTS + 1):
        world.last_seen._note(str(number), BEGIN)
    assert len(world.last_seen._seen) == MAX_AGENTS
    assert world.last_seen.known("0") is None


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "less than a minute ago"),
        (59.4, "less than a minute ago"),
        (60, "1 minute ago"),
        (7199, "1 hour ago"),
        (86400 * 3, "3 days ago"),
    ],
)
def test_ago(seconds: float, text: str) -> None:
    """In the largest unit that fits."""
    assert ago(seconds) == text
