"""Directories of several kas that share a store, in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from kas.directory.cache import LOOK_INTERVAL
from kas.directory.directory import Directory
from kas.directory.records import AgentRecord, KasRecord
from tests.kas.directory.memory import Hub, MemoryStore, kas
from tunnel.program.runtime import Runtime

POLL = LOOK_INTERVAL * 1.2


class Fleet:
    """Some kas with one hub between them."""

    def __init__(self, size: int = 2) -> None:
        self.clock = Clock()
        self.hub = Hub()
        #: What peers hold, and answer when they are asked directly.
        self.held: dict[str, list[AgentRecord]] = {}
        self.asked: list[str] = []
        #: Whom a session exists to, and who was dialled.
        self.sessions: list[KasRecord] = []
        self.dialled: list[KasRecord] = []
        self.dialling: list[Callable[[], None]] = []
        self.broken: Exception | None = None
        self.superseded: list[AgentRecord] = []
        self.stores = [MemoryStore(self.hub, kas(one + 1)) for one in range(size)]
        self.all = [
            Directory(
                store.me,
                store,
                Runtime(reactor=self.clock, random=lambda: 0.5),
                sessions=self,
                on_superseded=self.superseded.append,
            )
            for store in self.stores
        ]
        for one in self.all:
            now(one.start())

    # kas.directory.known_kas.Sessions

    def answers(self, kas: KasRecord) -> bool:
        return kas in self.sessions

    def dial(self, kas: KasRecord, callback: Callable[[], None]) -> None:
        self.dialled.append(kas)
        self.dialling.append(callback)

    async def ask(self, agent_id: str, peers: Sequence[KasRecord]) -> list[AgentRecord]:
        if self.broken is not None:
            raise self.broken
        self.asked.append(agent_id)
        urls = {peer.url for peer in peers}
        return [one for one in self.held.get(agent_id, []) if one.kas_url in urls]


def now(coroutine: object) -> object:
    """The result of what does not wait."""
    got: list[object] = []
    Deferred.fromCoroutine(coroutine).addBoth(got.append)  # type: ignore[arg-type]
    assert got, "it waits"
    if hasattr(got[0], "raiseException"):
        got[0].raiseException()
    return got[0]


def passes(clock: Clock, seconds: float, step: float = 0.5) -> None:
    """Time, in steps, so that one timer can start another."""
    while seconds > 0:
        clock.advance(min(step, seconds))
        seconds -= step
