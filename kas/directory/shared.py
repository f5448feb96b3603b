"""
The directory that a kas uses: its own connections, and cached answers about others'.

    routing ──routes/watch──> SharedDirectory <──news, leases── Store (Redis)
                                    │  └──────find, put──────────^
                                    └──ask──> the peers themselves, while it is down

What a request needs is answered from memory.  An answer stays right without being asked
for again, because every change is published; only after a gap in the news, or where
nothing is known, the store is read: once for everybody who wants the same agent.
"""

from __future__ import annotations

import math
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Sequence

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from kas.directory.answers import Answer, newest
from kas.directory.records import AgentRecord, KasRecord
from kas.directory.store import Store, StoreDown
from tunnel.errors import CallError, Status

__all__ = ["SharedDirectory"]

#: Seconds between two look-ups of one agent, however many ask for it.  Long enough to
#: cost nothing, short enough that a person who waits does not notice.
LOOK_INTERVAL = 1.0

#: The same where the last look-up found nothing and news come in: whoever connects says
#: so, and this is only a net below that.
ABSENT_INTERVAL = 30.0

#: The same, more or less a half, where nobody waits for the agent and no news come in.
#: An answer that is wrong shows itself when a request goes there, so all that these
#: find are further instances, and every kas pays for them with a call to each other.
REACHED_INTERVAL = 20.0

#: Seconds after which an answer that nobody wants is dropped.
UNUSED_SECONDS = 300.0

#: Agents with a cached answer.  Ten times the agents that a kas is made for; a stranger
#: with a valid credential can only name agents that exist.
MAX_ANSWERS = 100_000

#: Look-ups at the same time; the others wait for their turn.  Redis answers so many in
#: a few milliseconds, and the peers' private API is not flooded while it is down.
MAX_LOOKUPS = 256

#: Seconds that the records of a kas are still believed when its lease is gone from the
#: store: after a flush every kas writes its own again, within this time.
LEASE_GRACE = 30.0

#: Seconds that a kas whose lease is gone is still listed among the peers.
GONE_SECONDS = 60.0

#: Seconds that a peer of which nothing was heard is remembered while the store is down.
#: Without peers an agent that is not cached cannot be found, so this is long.
PEER_SECONDS = 3600.0

#: Peers; a fleet has a handful, and each restart adds one for `GONE_SECONDS`.
MAX_PEERS = 1000

#: Seconds between two looks for what is to be dropped.
SWEEP_INTERVAL = 60.0


@attrs.define(eq=False)
class _Peer:
    record: KasRecord
    #: Last sign of life.
    seen: float
    #: The store said that its lease is gone.
    missing: bool = False


@attrs.define(eq=False)
class SharedDirectory:
    """
    Implements `kas.directory.Directory`.

    :param me: this kas, as others shall see it.
    :param store: None: this kas is alone.  No timer runs then, and nobody is anywhere.
    :param random: between 0 and 1, for the jitter.
    :param ask: asks all peers directly for an agent, and ends by itself; used while the
        store is down.
    :param on_superseded: a newer connection of the same instance is at another kas, so
        the one that is given is dead.
    :param on_connected: another kas has a connection, whoever's it is.
    """

    _me: KasRecord
    _store: Store | None
    _clock: IReactorTime
    _random: Callable[[], float]
    _ask: Callable[[str], Awaitable[list[AgentRecord]]] | None = attrs.field(
        default=None, kw_only=True
    )
    on_superseded: Callable[[AgentRecord], None] = attrs.field(
        default=lambda record: None, kw_only=True
    )
    on_connected: Callable[[AgentRecord], None] = attrs.field(
        default=lambda record: None, kw_only=True
    )
    #: For metrics: look-ups in the store, those that went to the peers, news taken in.
    lookups: int = attrs.field(default=0, init=False)
    asked: int = attrs.field(default=0, init=False)
    news_received: int = attrs.field(default=0, init=False)
    _mine: dict[tuple[str, bytes], AgentRecord] = attrs.field(factory=dict, init=False)
    #: How many of these an agent has.
    _here: Counter[str] = attrs.field(factory=Counter, init=False)
    #: The one that was used last stands last.
    _answers: OrderedDict[str, Answer] = attrs.field(factory=OrderedDict, init=False)
    _watchers: dict[str, dict[object, Callable[[], None]]] = attrs.field(
        factory=dict, init=False
    )
    _peers: dict[bytes, _Peer] = attrs.field(factory=dict, init=False)
    _running: bool = attrs.field(default=False, init=False)
    _listening: bool = attrs.field(default=False, init=False)
    #: Counts the gaps in the news: answers of an earlier one are old.
    _epoch: int = attrs.field(default=0, init=False)
    #: When the last one began.
    _gap: float = attrs.field(default=0.0, init=False)
    _looking: int = attrs.field(default=0, init=False)
    _queue: OrderedDict[str, Answer] = attrs.field(factory=OrderedDict, init=False)
    _sweeping: IDelayedCall | None = attrs.field(default=None, init=False)
    _polling: IDelayedCall | None = attrs.field(default=None, init=False)
    #: Others at our address: since when, and never again once it was said.
    _namesakes: dict[bytes, float] = attrs.field(factory=dict, init=False)
    _log = Logger()

    async def start(self) -> None:
        """Begin; never waits for the store."""
        self._running = True
        if self._store is not None:
            self._store.start(self)
            self._sweeping = self._clock.callLater(SWEEP_INTERVAL, self._sweep)

    async def stop(self) -> None:
        """Remove everything that is ours from the store, within a short time."""
        self._running = False
        for call in (self._sweeping, self._polling):
            if call is not None and call.active():
                call.cancel()
        for answer in self._answers.values():
            _cancel(answer)
        self._queue.clear()
        if self._store is not None:
            await self._store.stop()

    @property
    def me(self) -> KasRecord:
        """This kas, as others see it."""
        return self._me

    @property
    def answers(self) -> int:
        """Cached answers, for metrics."""
        return len(self._answers)

    def update(self, me: KasRecord) -> None:
        """What others shall know of this kas from the next lease on."""
        self._me = me
        if self._store is not None:
            self._store.update(me)

    # What is ours.

    def connected(self, record: AgentRecord) -> None:
        """An agent connected here: write it down and tell everyone."""
        agent = record.agent
        key = (agent.agent_id, agent.instance_id)
        if key not in self._mine:
            self._here[agent.agent_id] += 1
        self._mine[key] = record
        if self._store is None:
            return
        self._store.put(record)
        answer = self._answers.get(agent.agent_id)
        if answer is not None:
            for other in tuple(answer.records()):
                self._compare(other)

    def disconnected(self, record: AgentRecord) -> None:
        """It is gone from here; a newer connection of the instance stays."""
        agent = record.agent
        key = (agent.agent_id, agent.instance_id)
        mine = self._mine.get(key)
        if mine is None or mine.agent.generation != agent.generation:
            return
        del self._mine[key]
        self._here[agent.agent_id] -= 1
        if not self._here[agent.agent_id]:
            del self._here[agent.agent_id]
        if self._store is not None:
            self._store.remove(record)

    def _compare(self, theirs: AgentRecord) -> None:
        """Hold what another kas has against what we have."""
        agent = theirs.agent
        mine = self._mine.get((agent.agent_id, agent.instance_id))
        if mine is None or self._store is None:
            return
        if mine.agent.generation < agent.generation:
            try:
                self.on_superseded(mine)
            except Exception:
                self._log.failure(
                    "ending what {agent_id} left", agent_id=agent.agent_id
                )
        elif mine.agent.generation > agent.generation:
            # That kas holds a dead connection and does not know.
            self._store.announce(mine)

    # What others have.

    def routes(self, agent_id: str) -> Sequence[AgentRecord]:
        """Where other kas hold this agent, as far as is known now."""
        if self._store is None:
            return ()
        answer = self._wanted(agent_id)
        found = self._routes(answer)
        if self._is_due(answer, bool(found)):
            self._look(answer)
        return found

    def look_again(self, agent_id: str, wrong: AgentRecord | None = None) -> None:
        """The answer led nowhere: forget *wrong*, and look it up anew."""
        if self._store is None:
            return
        answer = self._wanted(agent_id)
        if wrong is not None:
            answer.forget(wrong)
        if answer.looking:
            answer.again = True
        else:
            self._look_when_due(answer)

    def watch(self, agent_id: str, told: Callable[[], None]) -> Callable[[], None]:
        """Call *told* once, when `routes` may have become better."""
        if self._store is None:
            return lambda: None
        self._wanted(agent_id)
        watchers = self._watchers.setdefault(agent_id, {})
        key = object()
        watchers[key] = told
        self._poll_later()

        def give_up() -> None:
            watchers.pop(key, None)
            if not watchers and self._watchers.get(agent_id) is watchers:
                del self._watchers[agent_id]

        return give_up

    def peers(self) -> Sequence[KasRecord]:
        """The other kas that are known, alive or not long gone."""
        return [peer.record for peer in self._peers.values()]

    def living(self) -> Sequence[KasRecord]:
        """Those of them whose lease is not over."""
        return [peer.record for peer in self._peers.values() if not peer.missing]

    def seen(self, kas: KasRecord) -> None:
        """A peer gave a sign of life, such as an answer of its private API."""
        if kas.kas_id == self._me.kas_id:
            return
        peer = self._peers.get(kas.kas_id)
        if peer is None:
            if len(self._peers) >= MAX_PEERS:
                oldest = min(self._peers, key=lambda one: self._peers[one].seen)
                del self._peers[oldest]
            self._peers[kas.kas_id] = _Peer(kas, self._clock.seconds())
            return
        peer.record = kas
        peer.seen = self._clock.seconds()
        peer.missing = False

    async def agents(
        self, *, agent_id: str = "", project_id: int = 0
    ) -> list[AgentRecord]:
        """All connections of an agent, of a project, or at all; ours included."""
        mine = [
            record
            for record in self._mine.values()
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
        except StoreDown as error:
            if not agent_id or self._ask is None:
                raise CallError(Status.UNAVAILABLE, str(error)) from None
            try:
                theirs = await self._ask(agent_id)
            except CallError:
                raise
            except Exception:
                raise CallError(Status.UNAVAILABLE, str(error)) from None
        # What the store has of ours may be older than what we know.
        theirs = [one for one in theirs if one.kas_id != self._me.kas_id]
        return newest([*mine, *theirs])

    def _wanted(self, agent_id: str) -> Answer:
        now = self._clock.seconds()
        answer = self._answers.get(agent_id)
        if answer is None:
            while len(self._answers) >= MAX_ANSWERS:
                _cancel(self._answers.popitem(last=False)[1])
            answer = self._answers[agent_id] = Answer(agent_id, now, self._random())
        else:
            self._answers.move_to_end(agent_id)
            answer.used = now
        return answer

    def _routes(self, answer: Answer) -> list[AgentRecord]:
        found = []
        for record in answer.records():
            peer = self._peers.get(record.kas_id)
            if peer is not None and peer.missing and self._is_gone(peer):
                continue
            # One that listened at our URL before us.
            if record.kas_url == self._me.url:
                continue
            mine = self._mine.get((answer.agent_id, record.agent.instance_id))
            if mine is None or mine.agent.generation < record.agent.generation:
                found.append(record)
        return found

    def _is_gone(self, peer: _Peer) -> bool:
        return self._clock.seconds() - peer.seen >= LEASE_GRACE

    # News of the store.

    def news(
        self, connected: Sequence[AgentRecord], disconnected: Sequence[AgentRecord]
    ) -> None:
        """Another kas gained or lost connections."""
        self.news_received += 1
        number = self.news_received
        for record in disconnected:
            answer = self._answers.get(record.agent.agent_id)
            if answer is not None and record.kas_id != self._me.kas_id:
                agent = record.agent
                answer.disconnected(agent.instance_id, agent.generation, number)
        for record in connected:
            if record.kas_id == self._me.kas_id:
                continue
            peer = self._peers.get(record.kas_id)
            if peer is None:
                self.seen(KasRecord(record.kas_id, record.kas_url))
            else:
                peer.seen, peer.missing = self._clock.seconds(), False
            self.on_connected(record)
            agent_id = record.agent.agent_id
            # Only what somebody wanted is kept: not every agent at every kas.
            answer = self._answers.get(agent_id)
            if answer is None and agent_id in self._watchers:
                answer = self._wanted(agent_id)
            self._compare(record)
            if answer is not None and answer.connected(record, number):
                self._wake(agent_id)

    def listening(self, on: bool) -> None:
        """Whether news come in from now on; every answer is old now."""
        self._epoch += 1
        if not on:
            self._gap = self._clock.seconds()
        self._listening = on
        self._poll_later(0.0)

    def leases(self, alive: Sequence[KasRecord]) -> None:
        """All other kas that live, as the store has them now."""
        ids = {kas.kas_id for kas in alive}
        now = self._clock.seconds()
        for kas_id, peer in tuple(self._peers.items()):
            if kas_id not in ids:
                peer.missing = True
                if now - peer.seen >= GONE_SECONDS:
                    self._gone(kas_id)
        for kas in alive:
            self.lease(kas)

    def _gone(self, kas_id: bytes) -> None:
        """Nobody would say any more that what it had is not to be believed."""
        del self._peers[kas_id]
        for answer in self._answers.values():
            answer.forget_kas(kas_id)

    def lease(self, alive: KasRecord) -> None:
        """One that lives and was met on the way."""
        self.seen(alive)
        if alive.url == self._me.url and alive.kas_id != self._me.kas_id:
            self._namesake(alive)

    def _namesake(self, kas: KasRecord) -> None:
        now = self._clock.seconds()
        if len(self._namesakes) >= MAX_PEERS:
            self._namesakes.clear()
        # What a restart leaves behind has no lease any more after a while.
        since = self._namesakes.setdefault(kas.kas_id, now)
        if now - since < 2 * LEASE_GRACE:
            return
        self._namesakes[kas.kas_id] = math.inf
        self._log.warn(
            "another kas has our address {url}; each needs one of its own", url=kas.url
        )

    # Looking up.

    def _is_due(self, answer: Answer, known: bool) -> bool:
        if answer.looking or not self._running:
            return False
        now = self._clock.seconds()
        if now < answer.next_look:
            return False
        if not self._listening:
            agent_id = answer.agent_id
            reached = known or agent_id in self._here
            if not reached or agent_id in self._watchers:
                return True
            # Not all of them at once when a gap begins.
            wait = REACHED_INTERVAL * (0.5 + answer.spread)
            return now >= max(answer.looked, self._gap) + wait
        if answer.epoch != self._epoch:
            return True
        return not known and now >= answer.looked + ABSENT_INTERVAL

    def _look_when_due(self, answer: Answer) -> None:
        if not self._running or (answer.timer is not None and answer.timer.active()):
            return
        wait = answer.next_look - self._clock.seconds()
        if wait <= 0:
            self._look(answer)
        else:
            answer.timer = self._clock.callLater(wait, self._look, answer)

    def _look(self, answer: Answer) -> None:
        _cancel(answer)
        if answer.looking or not self._running:
            return
        answer.looking = True
        if self._looking >= MAX_LOOKUPS:
            self._queue[answer.agent_id] = answer
            return
        self._begin(answer)

    def _begin(self, answer: Answer) -> None:
        self._looking += 1
        answer.again = False
        answer.next_look = self._clock.seconds() + LOOK_INTERVAL
        looking = Deferred.fromCoroutine(self._look_up(answer))
        looking.addErrback(
            lambda failure: self._log.failure(
                "looking up {agent_id}", failure, agent_id=answer.agent_id
            )
        )
        looking.addBoth(self._looked, answer)

    def _looked(self, result: object, answer: Answer) -> None:
        self._looking -= 1
        answer.looking = False
        answer.looked = self._clock.seconds()
        if answer.again and self._answers.get(answer.agent_id) is answer:
            self._look_when_due(answer)
        while self._queue and self._looking < MAX_LOOKUPS:
            self._begin(self._queue.popitem(last=False)[1])

    async def _look_up(self, answer: Answer) -> None:
        assert self._store is not None
        epoch, since = self._epoch, self.news_received
        self.lookups += 1
        try:
            found = await self._store.find(answer.agent_id)
        except StoreDown:
            await self._ask_peers(answer)
            return
        theirs = self._not_mine(found)
        new = answer.looked_up(theirs, since)
        answer.epoch = epoch
        self._taken(answer, theirs, new)

    async def _ask_peers(self, answer: Answer) -> None:
        if self._ask is None:
            return
        self.asked += 1
        try:
            found = await self._ask(answer.agent_id)
        except Exception as error:
            # The peers that did not answer are the business of who asked them.
            self._log.debug(
                "nobody said where {agent_id} is: {error}",
                agent_id=answer.agent_id,
                error=str(error),
            )
            return
        theirs = self._not_mine(found)
        # Not all of them may have answered, so what was known before stays.
        new = [answer.connected(record, 0) for record in newest(theirs)]
        for record in theirs:
            peer = self._peers.get(record.kas_id)
            if peer is not None:
                peer.seen, peer.missing = self._clock.seconds(), False
        self._taken(answer, theirs, any(new))

    def _not_mine(self, records: Sequence[AgentRecord]) -> list[AgentRecord]:
        return [one for one in records if one.kas_id != self._me.kas_id]

    def _taken(self, answer: Answer, theirs: list[AgentRecord], new: bool) -> None:
        for record in theirs:
            self._compare(record)
        if new and self._routes(answer):
            self._wake(answer.agent_id)

    def _wake(self, agent_id: str) -> None:
        for told in tuple(self._watchers.pop(agent_id, {}).values()):
            try:
                told()
            except Exception:
                # What one of them does with the news must not harm the others.
                self._log.failure("a request for {agent_id} failed", agent_id=agent_id)

    # Timers.

    def _poll_later(self, wait: float | None = None) -> None:
        """Somebody waits: where news may be missing, look by ourselves."""
        if not self._running or not self._watchers:
            return
        if wait is None:
            wait = LOOK_INTERVAL * (0.9 + 0.2 * self._random())
        if self._polling is None or not self._polling.active():
            self._polling = self._clock.callLater(wait, self._poll)

    def _poll(self) -> None:
        settled = self._listening
        for agent_id in tuple(self._watchers):
            answer = self._wanted(agent_id)
            if answer.epoch != self._epoch:
                settled = False
            if self._is_due(answer, bool(self._routes(answer))):
                self._look(answer)
        if not settled:
            self._poll_later()

    def _sweep(self) -> None:
        now = self._clock.seconds()
        while self._answers:
            agent_id, answer = next(iter(self._answers.items()))
            if now - answer.used < UNUSED_SECONDS:
                break
            if agent_id in self._watchers:
                self._wanted(agent_id)
                continue
            del self._answers[agent_id]
            _cancel(answer)
        for kas_id, peer in tuple(self._peers.items()):
            if now - peer.seen >= PEER_SECONDS:
                self._gone(kas_id)
        if self._running:
            self._sweeping = self._clock.callLater(SWEEP_INTERVAL, self._sweep)


def _cancel(answer: Answer) -> None:
    if answer.timer is not None and answer.timer.active():
        answer.timer.cancel()
    answer.timer = None
