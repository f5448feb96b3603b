"""A store in memory that several directories share, and records to put there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs
from twisted.internet.defer import Deferred

from kas.directory.records import AgentRecord, KasRecord
from kas.directory.store import StoreDown, StoreListener
from tunnel.api import ConnectedAgent


def kas(number: int) -> KasRecord:
    """One kas of many."""
    return KasRecord(bytes([number]) * 16, f"tls://kas-{number}:8155", version="0")


def record(
    agent_id: str = "agent",
    instance: int = 1,
    generation: int = 1,
    at: int = 2,
    project_id: int = 0,
) -> AgentRecord:
    """A connection at kas number *at*."""
    agent = ConnectedAgent(
        agent_id=agent_id,
        agent_name=agent_id,
        instance_id=bytes([instance]) * 16,
        generation=generation,
        connected_at=1000.0 + generation,
        project_id=project_id,
    )
    holder = kas(at)
    return AgentRecord(agent, holder.kas_id, holder.url)


@attrs.define(eq=False)
class Hub:
    """What a Redis would be."""

    records: dict[tuple[str, bytes, bytes], AgentRecord] = attrs.Factory(dict)
    stores: list[MemoryStore] = attrs.Factory(list)
    down: bool = False
    #: When agents were last connected.
    seen: dict[str, float] = attrs.Factory(dict)
    #: Look-ups, in order.
    finds: list[str] = attrs.Factory(list)
    #: Instead of answering, a look-up waits here.
    held: list[Deferred[None]] | None = None
    #: Instead of being told, news wait here, as they do before a batch is written.
    late: list[Callable[[], None]] | None = None

    def fail(self) -> None:
        """No answers and no news from now on."""
        self.down = True
        for store in self.stores:
            store.listener.listening(False)

    def recover(self) -> None:
        """It works again; every kas writes its own."""
        self.down = False
        for store in self.stores:
            store.listener.listening(True)
            store.tell_leases()
            for one in tuple(store.mine.values()):
                store.put(one)

    def tell_leases(self) -> None:
        """Every kas learns who lives."""
        for store in self.stores:
            store.tell_leases()

    def cut_off(self, store: MemoryStore) -> None:
        """One kas has no way to it, and its lease ends; all others have theirs."""
        store.cut = True
        store.listener.listening(False)
        for key in tuple(self.records):
            if key[2] == store.me.kas_id:
                del self.records[key]
        self.tell_leases()

    def let_in(self, store: MemoryStore) -> None:
        """It has one again, and writes its own."""
        store.cut = False
        store.listener.listening(True)
        self.tell_leases()
        for one in tuple(store.mine.values()):
            store.put(one)

    def release(self) -> None:
        """Answer the look-ups that wait."""
        held, self.held = self.held or [], None
        for waiting in held:
            waiting.callback(None)

    def publish(self) -> None:
        """Tell the news that wait."""
        late, self.late = self.late or [], None
        for tell in late:
            tell()


@attrs.define(eq=False)
class MemoryStore:
    """One kas' view of the hub."""

    hub: Hub
    me: KasRecord
    listener: Any = None
    mine: dict[tuple[str, bytes], AgentRecord] = attrs.Factory(dict)
    announced: list[AgentRecord] = attrs.Factory(list)
    #: It has no way to the hub.
    cut: bool = False

    @property
    def down(self) -> bool:
        return self.hub.down or self.cut

    def start(self, listener: StoreListener) -> None:
        self.listener = listener
        self.hub.stores.append(self)
        if not self.hub.down:
            listener.listening(True)
            self.hub.tell_leases()

    def tell_leases(self) -> None:
        if not self.cut:
            others = [one for one in self.hub.stores if one is not self]
            self.listener.leases([one.me for one in others if not one.cut])

    async def stop(self) -> None:
        self.hub.stores.remove(self)
        for one in tuple(self.mine.values()):
            self.remove(one)
        self._tell(lambda listener: listener.left(self.me.kas_id))

    def update(self, me: KasRecord) -> None:
        self.me = me

    def _tell(self, tell: Callable[[StoreListener], None]) -> None:
        if self.hub.late is not None:
            self.hub.late.append(lambda: self._tell(tell))
        elif not self.down:
            for store in self.hub.stores:
                if not store.cut:
                    tell(store.listener)

    def put(self, record: AgentRecord) -> None:
        agent = record.agent
        self.mine[agent.agent_id, agent.instance_id] = record
        if not self.down:
            key = (agent.agent_id, agent.instance_id, self.me.kas_id)
            self.hub.records[key] = record
        self._tell(lambda listener: listener.events([record], []))

    def announce(self, record: AgentRecord) -> None:
        self.announced.append(record)
        self._tell(lambda listener: listener.events([record], []))

    def remove(self, record: AgentRecord) -> None:
        agent = record.agent
        self.mine.pop((agent.agent_id, agent.instance_id), None)
        if not self.down:
            key = (agent.agent_id, agent.instance_id, self.me.kas_id)
            self.hub.records.pop(key, None)
        self._tell(lambda listener: listener.events([], [record]))

    async def find(self, agent_id: str) -> list[AgentRecord]:
        self.hub.finds.append(agent_id)
        if self.down:
            raise StoreDown("the hub is down")
        found = [one for key, one in self.hub.records.items() if key[0] == agent_id]
        if self.hub.held is not None:
            waiting: Deferred[None] = Deferred()
            self.hub.held.append(waiting)
            await waiting
        return found

    async def last_seen(self, agent_ids: Sequence[str]) -> dict[str, float]:
        if self.down:
            raise StoreDown("the hub is down")
        return {one: self.hub.seen[one] for one in agent_ids if one in self.hub.seen}

    async def listed(self, project_id: int = 0) -> list[AgentRecord]:
        if self.down:
            raise StoreDown("the hub is down")
        return [
            one
            for one in self.hub.records.values()
            if not project_id or one.agent.project_id == project_id
        ]
