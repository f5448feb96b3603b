"""
The directory of a kas: the agents, each with the kas that it uses.

    routing ──routes/wait──> Directory <──events, leases── Store (Redis)
                               │  └──────find, put────────^
                               └──ask──> the peers themselves: all while Redis is down;
                                         a peer that is cut off from Redis, always

All requests are served from memory.  An entry stays correct without further lookups,
because every change is published.  Only after a gap in the events, or for an unknown
agent, the directory reads the store: only once for all requests for the same agent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import ClassVar, Final

from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from kas.agents.waiters import Waiters
from kas.directory.cache import LOOK_INTERVAL, NEVER, Cache, CacheEntry, LookUps, newest
from kas.directory.known_kas import KnownPeers, Sessions
from kas.directory.records import AgentRecord, KasRecord
from kas.directory.store import Store, StoreDown
from tunnel.errors import CallError, Status
from tunnel.program.runtime import Runtime
from tunnel.toolkit.counts import one_less
from tunnel.toolkit.for_each import for_each
from tunnel.toolkit.timers import cancel_call

__all__ = ["Directory"]

#: Seconds between two searches for entries to drop.
SWEEP_INTERVAL: Final = 60.0


class Directory:
    """
    Directory of the connections of this kas, and of cached connections of other kas.

    Only `agents` and `last_seen` wait for the store.  A request calls `routes`, tries
    the results, and uses `wait` to wait for better results.

    :param me: the record of this kas for other kas.
    :param store: the store that all kas share; None if this kas runs alone: then no
        timer runs, and no agent is connected to another kas.
    :param sessions: the sessions with peers, for direct queries if the store does not
        know the answer.
    :param siblings: addresses of the other workers of this kas, so that the directory
        knows them even without a store: a worker that starts while the store is down
        knows no other kas.
    :param on_superseded: called with a connection of this kas if another kas has a
        newer connection of the same instance, so that the older connection is dead.
    :param on_connected: called with each connection that another kas reports.
    """

    _log: ClassVar = Logger()

    def __init__(
        self,
        me: KasRecord,
        store: Store | None,
        runtime: Runtime,
        sessions: Sessions | None = None,
        *,
        siblings: Sequence[str] = (),
        on_superseded: Callable[[AgentRecord], None] = lambda record: None,
        on_connected: Callable[[AgentRecord], None] = lambda record: None,
    ) -> None:
        self._me = me
        self._store = store
        #: Whether other kas with agents may exist; if false, `routes` is always empty.
        self.is_shared: Final = store is not None
        clock: IReactorTime = runtime.reactor
        self._clock = clock
        self._random = runtime.random
        self._sessions = sessions
        self._siblings = siblings
        self.on_superseded = on_superseded
        self.on_connected = on_connected
        #: Metrics: number of lookups in the store, number of queries to peers, and
        #: number of events.
        self.lookups = self.asked = self.events_received = 0
        self._mine: dict[tuple[str, bytes], AgentRecord] = {}
        #: Number of connections of this kas, by agent.
        self._here: Counter[str] = Counter()
        self._cache = Cache(clock, runtime.random)
        self._waiters = Waiters()
        self._lookups = LookUps(
            clock, self._look_up, self._here, self._waiters.waiting, self._cut_off
        )
        self._known = KnownPeers(
            me,
            clock,
            sessions,
            self._reached,
            self._cache.forget_kas,
            self._lookups.grow_old,
        )
        self._running = False
        self._sweeping: IDelayedCall | None = None
        self._polling: IDelayedCall | None = None

    async def start(self) -> None:
        """
        Begin to record the connections of this kas and to receive events.

        An unreachable store is not an error: the directory retries.
        """
        self._running = True
        if self._store is not None:
            self._store.start(self)
            self._sweeping = self._clock.callLater(SWEEP_INTERVAL, self._sweep)

    async def stop(self) -> None:
        """Remove the records of this kas within a short time, and disconnect."""
        self._running = False
        for call in (self._sweeping, self._polling):
            cancel_call(call)
        self._cache.stop()
        self._lookups.stop()
        if self._store is not None:
            await self._store.stop()

    @property
    def me(self) -> KasRecord:
        """Record of this kas for other kas."""
        return self._me

    @property
    def entries(self) -> int:
        """Number of entries in the cache, for metrics."""
        return len(self._cache.entries)

    def update(self, me: KasRecord) -> None:
        """Set this kas' own record, which others receive with the next lease."""
        self._me = me
        if self._store is not None:
            self._store.update(me)

    # Methods about connections of this kas.

    def connected(self, record: AgentRecord) -> None:
        """Record an agent that connected to this kas, and notify the other kas."""
        agent = record.agent
        key = (agent.agent_id, agent.instance_id)
        if key not in self._mine:
            self._here[agent.agent_id] += 1
        self._mine[key] = record
        if self._store is None:
            return
        self._store.put(record)
        entry = self._cache.entries.get(agent.agent_id)
        if entry is not None:
            for other in tuple(entry.records()):
                self._compare(other)

    def disconnected(self, record: AgentRecord) -> None:
        """Remove an agent that disconnected; the record of a newer connection stays."""
        agent = record.agent
        key = (agent.agent_id, agent.instance_id)
        mine = self._mine.get(key)
        if mine is None or mine.agent.generation != agent.generation:
            return
        del self._mine[key]
        one_less(self._here, agent.agent_id)
        if self._store is not None:
            self._store.remove(record)

    def _compare(self, theirs: AgentRecord) -> None:
        """
        Compare a connection at another kas with this kas' connection of the same
        instance.
        """
        agent = theirs.agent
        mine = self._mine.get((agent.agent_id, agent.instance_id))
        if mine is None or self._store is None:
            return
        if mine.agent.generation < agent.generation:
            what = "ending an obsolete connection of {agent_id}"
            for_each((mine,), self.on_superseded, what, agent_id=agent.agent_id)
        elif mine.agent.generation > agent.generation:
            # Announce the newer connection again: the other kas does not know that its
            # own is dead.
            self._store.announce(mine)

    # Methods about connections at other kas.

    def routes(self, agent_id: str) -> Sequence[AgentRecord]:
        """
        Return the known connections of an agent at *other* kas: the newest connection
        of each instance.

        This needs no command to the store. An unknown or old entry is looked up in the
        background, at most once per interval and agent, however often it is requested.
        """
        if self._store is None:
            return ()
        entry = self._cache.wanted(agent_id)
        found = self._routes(entry)
        if self._lookups.is_due(entry, bool(found)):
            self._lookups.now(entry)
        return found

    def look_again(self, agent_id: str, wrong: AgentRecord | None = None) -> None:
        """
        Forget *wrong*, a connection that did not work, and look the agent up again.

        The lookup takes place at most once per interval; afterwards, the waiters are
        called.
        """
        if self._store is None:
            return
        entry = self._cache.wanted(agent_id)
        if wrong is not None:
            entry.forget(wrong)
        self._lookups.when_due(entry)

    def wait(self, agent_id: str, callback: Callable[[], None]) -> Callable[[], None]:
        """
        Call *callback* once, when `routes` may have improved: an agent connected, or a
        lookup found a connection. Return a function that cancels this.
        """
        if self._store is None:
            return lambda: None
        self._cache.wanted(agent_id)
        give_up = self._waiters.add(agent_id, callback)
        self._poll_later()
        return give_up

    def peers(self) -> Sequence[KasRecord]:
        """Return the other known kas, including kas that disappeared recently."""
        return self._known.all()

    def living(self) -> Sequence[KasRecord]:
        """Return the other kas with a valid lease."""
        return self._known.living()

    def is_current(self) -> bool:
        """
        Return whether events of the other kas arrive; otherwise their records may be
        out of date.
        """
        return self._lookups.listening

    def seen(self, kas: KasRecord) -> None:
        """
        Record that a peer is alive, because of a response from its private API, for
        example.
        """
        self._known.seen(kas)

    def own(self) -> Sequence[AgentRecord]:
        """Return all connections of this kas."""
        return list(self._mine.values())

    async def agents(
        self, *, agent_id: str = "", project_id: int = 0
    ) -> list[AgentRecord]:
        """
        Return all connections of an agent, of a project, or of all agents, including
        the connections of this kas.

        :raises tunnel.errors.CallError: UNAVAILABLE if neither the store nor peers
            respond.
        """
        mine = [
            record
            for record in self.own()
            if (not agent_id or record.agent.agent_id == agent_id)
            and (not project_id or record.agent.project_id == project_id)
        ]
        if self._store is None:
            return mine
        try:
            if agent_id:
                theirs = await self._store.find(agent_id)
            else:
                theirs = await self._store.listed(project_id)
            asked = self._known.answering()
        except StoreDown as down:
            if not agent_id or self._sessions is None:
                raise CallError(Status.UNAVAILABLE, str(down)) from None
            theirs, asked = [], self._anyone()
        if agent_id and asked and self._sessions is not None:
            try:
                theirs = [*theirs, *await self._sessions.ask(agent_id, asked)]
            except Exception as error:
                raise CallError(Status.UNAVAILABLE, str(error)) from None
        # Leave out the store's records of this kas' connections, which may be out of
        # date.
        return newest([*mine, *self._not_mine(theirs)])

    async def last_seen(self, agent_ids: Sequence[str]) -> dict[str, float]:
        """
        Return when each agent was last connected to any kas, in seconds since 1970.

        Agents whose time is unknown are omitted; the result is empty if the store does
        not respond.
        """
        if self._store is None or not agent_ids:
            return {}
        try:
            return await self._store.last_seen(agent_ids)
        except StoreDown:
            return {}

    def _routes(self, entry: CacheEntry) -> list[AgentRecord]:
        found = []
        for record in entry.records():
            if not self._known.is_believed(record.kas_id):
                continue
            # Ignore the record, which belongs to an earlier kas with the same URL.
            if record.kas_url == self._me.url:
                continue
            mine = self._mine.get((entry.agent_id, record.agent.instance_id))
            if mine is None or mine.agent.generation < record.agent.generation:
                found.append(record)
        return found

    # Methods that the store calls (`StoreListener`).

    def events(
        self, connected: Sequence[AgentRecord], disconnected: Sequence[AgentRecord]
    ) -> None:
        """Apply connects and disconnects at another kas."""
        self.events_received += 1
        number = self.events_received
        for record in disconnected:
            entry = self._cache.entries.get(record.agent.agent_id)
            if entry is not None and record.kas_id != self._me.kas_id:
                agent = record.agent
                entry.disconnected(agent.instance_id, agent.generation, number)
        for record in connected:
            if record.kas_id == self._me.kas_id:
                continue
            self._known.wrote(record.kas_id, record.kas_url)
            self.on_connected(record)
            agent_id = record.agent.agent_id
            # Apply the events only to agents in the cache, and not to every agent at
            # every kas.
            entry = self._cache.entries.get(agent_id)
            if entry is None and agent_id in self._waiters.waiting:
                entry = self._cache.wanted(agent_id)
            self._compare(record)
            if entry is not None and entry.connected(record, number):
                self._waiters.wake(agent_id)

    def found(self, records: Sequence[AgentRecord]) -> None:
        """Apply the records that a running lookup has found so far."""
        for record in self._not_mine(records):
            entry = self._cache.entries.get(record.agent.agent_id)
            if entry is not None:
                self._taken(entry, [record], entry.connected(record, 0))

    def listening(self, on: bool) -> None:
        """
        Record whether events arrive from now on; in both cases, all entries are out of
        date.
        """
        self._lookups.events_come_in(on)
        self._poll_later(0.0)

    def leases(self, alive: Sequence[KasRecord]) -> None:
        """Apply the complete list of the other living kas in the store."""
        self._known.leases(alive)

    def lease(self, alive: KasRecord) -> None:
        """Record the lease of a kas that a read of the store found."""
        self._known.lease(alive)

    def left(self, kas_id: bytes) -> None:
        """Handle another kas that announced its end."""
        self._known.left(kas_id)

    def rewrote(self, kas_id: bytes) -> None:
        """
        Handle another kas that wrote all its records again: connections that are
        missing from the records are gone.
        """
        self._cache.doubt_kas(kas_id)

    # Methods that query other kas directly.

    def _reached(self) -> None:
        """
        Mark all entries as out of date: a kas that is cut off from the store responds
        again, and may have agents.
        """
        for agent_id in tuple(self._waiters.waiting):
            entry = self._cache.wanted(agent_id)
            if self._routes(entry):
                self._waiters.wake(agent_id)
            else:
                self._lookups.when_due(entry)
        self._poll_later()

    def _cut_off(self, entry: CacheEntry) -> list[KasRecord]:
        """
        Return the kas to query directly, because the store cannot know the agents of
        these kas.
        """
        agent_id = entry.agent_id
        if agent_id in self._here and agent_id not in self._waiters.waiting:
            return []
        return self._known.answering()

    def _anyone(self) -> list[KasRecord]:
        """Return the kas to query while the store is down."""
        known = self._known.all()
        urls = {one.url for one in known}
        return [
            *known,
            *(KasRecord(b"", one) for one in self._siblings if one not in urls),
        ]

    # Methods that perform lookups.

    async def _look_up(self, entry: CacheEntry) -> None:
        assert self._store is not None
        epoch, since = self._lookups.epoch, self.events_received
        self.lookups += 1
        try:
            found = await self._store.find(entry.agent_id)
        except StoreDown:
            # The entry is unreliable from now on, even if events arrive, because the
            # store did not respond.
            entry.epoch = NEVER
            await self._ask_peers(entry, self._anyone())
            return
        theirs = self._not_mine(found)
        new = entry.looked_up(theirs, since, self._known.is_incomplete)
        entry.epoch = epoch
        self._taken(entry, theirs, new)
        if not self._routes(entry) and (cut_off := self._cut_off(entry)):
            await self._ask_peers(entry, cut_off)

    async def _ask_peers(self, entry: CacheEntry, peers: Sequence[KasRecord]) -> None:
        if self._sessions is None:
            return
        self.asked += 1
        had = bool(self._routes(entry))
        try:
            found = await self._sessions.ask(entry.agent_id, peers)
        except Exception as error:
            # Log this only for debugging, because the sessions log peers that do not
            # respond.
            self._log.debug(
                "no peer knows where {agent_id} is: {error}",
                agent_id=entry.agent_id,
                error=str(error),
            )
            return
        theirs = self._not_mine(found)
        # Keep known connections, because some peers may not have responded.
        new = [entry.connected(record, 0) for record in newest(theirs)]
        for record in theirs:
            self._known.heard(record.kas_id)
        # The result is also new if the lookup confirmed a known connection that was in
        # doubt.
        self._taken(entry, theirs, any(new) or not had)

    def _not_mine(self, records: Sequence[AgentRecord]) -> list[AgentRecord]:
        return [one for one in records if one.kas_id != self._me.kas_id]

    def _taken(self, entry: CacheEntry, theirs: list[AgentRecord], new: bool) -> None:
        for record in theirs:
            self._compare(record)
        if new and self._routes(entry):
            self._waiters.wake(entry.agent_id)

    # Methods that run on timers.

    def _poll_later(self, wait: float | None = None) -> None:
        """Schedule lookups for waiting streams, if events may be missed."""
        if not self._running or not self._waiters.waiting:
            return
        if self._polling is not None and self._polling.active():
            return
        if wait is None:
            wait = LOOK_INTERVAL * (0.9 + 0.2 * self._random())
        self._polling = self._clock.callLater(wait, self._poll)

    def _poll(self) -> None:
        settled = self._lookups.listening and not self._known.answering()
        for agent_id in tuple(self._waiters.waiting):
            entry = self._cache.wanted(agent_id)
            if entry.epoch != self._lookups.epoch:
                settled = False
            if self._lookups.is_due(entry, bool(self._routes(entry))):
                self._lookups.now(entry)
        if not settled:
            self._poll_later()

    def _sweep(self) -> None:
        self._cache.sweep(self._waiters.waiting)
        self._known.sweep()
        if self._running:
            self._sweeping = self._clock.callLater(SWEEP_INTERVAL, self._sweep)
