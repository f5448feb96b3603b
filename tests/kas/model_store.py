"""A directory's store for the model check: it fails, forgets, and takes its time."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from kas.directory.records import AgentRecord, KasRecord
from kas.directory.store import StoreDown, StoreListener

if TYPE_CHECKING:
    from tests.kas.model import Process

#: As in `kas.directory.redis_layout` and `kas.directory.redis_store`.
LEASE_SECONDS = 30.0
LEASE_INTERVAL = 10.0


class ModelHub:
    """As Redis: records with an owner, leases, and messages that take their time."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.down = False
        self.holding = False
        self.records: dict[tuple[str, bytes, bytes], AgentRecord] = {}
        self.leases: dict[bytes, tuple[KasRecord, float]] = {}
        self.stores: list[ModelStore] = []

    def alive(self) -> dict[bytes, KasRecord]:
        now = self.clock.seconds()
        return {key: kas for key, (kas, until) in self.leases.items() if until > now}

    def publish(
        self,
        source: ModelStore,
        connected: Sequence[AgentRecord],
        disconnected: Sequence[AgentRecord],
        left: bytes = b"",
        rewrote: bytes = b"",
    ) -> None:
        if self.down:
            return
        for store in self.stores:
            if store is not source and not store.cut:
                queue = store.inbox[source.me.kas_id]
                queue.append((list(connected), list(disconnected), left, rewrote))

    def deliver(self, choose: Callable[[int], int] = lambda count: 0) -> bool:
        """One message to each; those of one kas stay in order."""
        found = False
        for store in tuple(self.stores):
            waiting = [queue for queue in store.inbox.values() if queue]
            if waiting and store.up:
                message = waiting[choose(len(waiting))].popleft()
                connected, disconnected, left, rewrote = message
                store.listener.events(connected, disconnected)
                if left:
                    store.listener.left(left)
                if rewrote:
                    store.listener.rewrote(rewrote)
                found = True
        return found

    def fail(self) -> None:
        self.down = True
        for store in self.stores:
            store.gap()

    def recover(self) -> None:
        self.down = False
        for store in tuple(self.stores):
            if not store.cut:
                store.back()

    def flush(self) -> None:
        self.records.clear()
        self.leases.clear()


class ModelStore:
    """One kas' view of it; see `kas.directory.store.Store`."""

    def __init__(self, process: Process, me: KasRecord) -> None:
        self.process = process
        self.me = me
        self.hub = process.world.hub
        self.listener: Any = None
        self.up = False
        #: It alone has no way to the hub.
        self.cut = False
        self.inbox: dict[bytes, deque[Any]] = defaultdict(deque)
        self.mine: dict[tuple[str, bytes], AgentRecord] = {}

    def start(self, listener: StoreListener) -> None:
        self.listener = listener
        self.hub.stores.append(self)
        self.process.clock.callLater(LEASE_INTERVAL, self._tick)
        if not self.hub.down:
            self.back()

    async def stop(self) -> None:
        if self.up:
            self.hub.leases.pop(self.me.kas_id, None)
        for one in tuple(self.mine.values()):
            self.remove(one)
        if self.up:
            self.hub.publish(self, [], [], self.me.kas_id)
        self.leave()

    def leave(self) -> None:
        """It hears and writes nothing any more."""
        if self in self.hub.stores:
            self.hub.stores.remove(self)
        self.hub = ModelHub(self.hub.clock)
        self.hub.down = True

    def cut_off(self) -> None:
        """No way to the hub, which others have."""
        self.cut = True
        self.gap()

    def let_in(self) -> None:
        """It has one again."""
        self.cut = False
        if not self.hub.down:
            self.back()

    def gap(self) -> None:
        self.up = False
        self.inbox.clear()
        self.listener.listening(False)

    def back(self) -> None:
        self.up = True
        self.listener.listening(True)
        self._lease()
        self._rewrite()

    def _tick(self) -> None:
        self.process.clock.callLater(LEASE_INTERVAL, self._tick)
        if self.up:
            lost = self.me.kas_id not in self.hub.leases
            self._lease()
            if lost:
                self._rewrite()

    def _lease(self) -> None:
        until = self.hub.clock.seconds() + LEASE_SECONDS
        self.hub.leases[self.me.kas_id] = (self.me, until)
        alive = self.hub.alive()
        for key in tuple(self.hub.records):
            if key[2] not in alive:
                del self.hub.records[key]
        others = [kas for key, kas in alive.items() if key != self.me.kas_id]
        self.listener.leases(others)

    def _rewrite(self) -> None:
        me = self.me.kas_id
        for key in tuple(self.hub.records):
            if key[2] == me and key[:2] not in self.mine:
                gone = self.hub.records.pop(key)
                self.hub.publish(self, [], [gone])
        for (agent_id, instance), one in self.mine.items():
            self.hub.records[agent_id, instance, me] = one
        self.hub.publish(self, list(self.mine.values()), [], rewrote=me)

    def put(self, record: AgentRecord) -> None:
        key = (record.agent.agent_id, record.agent.instance_id)
        self.mine[key] = record
        if self.up:
            self.hub.records[(*key, self.me.kas_id)] = record
            self.hub.publish(self, [record], [])

    def announce(self, record: AgentRecord) -> None:
        if self.up:
            self.hub.publish(self, [record], [])

    def remove(self, record: AgentRecord) -> None:
        key = (record.agent.agent_id, record.agent.instance_id)
        mine = self.mine.get(key)
        if mine is None or mine.agent.generation != record.agent.generation:
            return
        del self.mine[key]
        if self.up:
            self.hub.records.pop((*key, self.me.kas_id), None)
            self.hub.publish(self, [], [record])

    def update(self, me: KasRecord) -> None:
        self.me = me

    async def find(self, agent_id: str) -> list[AgentRecord]:
        if not self.up:
            raise StoreDown("the hub is down")
        alive = self.hub.alive()
        found = [
            one
            for key, one in self.hub.records.items()
            if key[0] == agent_id and key[2] in alive
        ]
        # The answer is on its way for a moment.
        answer: Deferred[None] = Deferred()
        self.process.clock.callLater(0.03, answer.callback, None)
        await answer
        if not self.up:
            raise StoreDown("the hub went down")
        for one in found:
            if one.kas_id != self.me.kas_id:
                self.listener.lease(alive[one.kas_id])
        return found

    async def last_seen(self, agent_ids: Sequence[str]) -> dict[str, float]:
        return {}

    async def listed(self, project_id: int = 0) -> list[AgentRecord]:
        raise StoreDown("nobody asks here")
