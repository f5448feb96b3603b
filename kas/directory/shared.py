"""
The directory that a kas uses: its own connections, and cached answers about others'.

    routing ──routes/watch──> SharedDirectory <──news, leases── Store (Redis)
                                    │  └──────find, put──────────^
                                    └──ask──> the peers themselves, while it is down;
                                              those that are cut off from it, always

What a request needs is answered from memory.  An answer stays right without being asked
for again, because every change is published; only after a gap in the news, or where
nothing is known, the store is read: once for everybody who wants the same agent.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence

import attrs
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from kas.directory.answers import Answer, newest
from kas.directory.lookups import LOOK_INTERVAL, LookUps
from kas.directory.peers import KnownPeers, Sessions
from kas.directory.records import AgentRecord, KasRecord
from kas.directory.store import Store, StoreDown
from tunnel.errors import CallError, Status

__all__ = ["SharedDirectory"]

#: Seconds between two look-ups of one agent where the last found nothing and news come
#: in: whoever connects says so, and this is only a net below that.
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

#: Seconds between two looks for what is to be dropped.
SWEEP_INTERVAL = 60.0


@attrs.define(eq=False)
class SharedDirectory:
    """
    Implements `kas.directory.Directory`.

    :param me: this kas, as others shall see it.
    :param store: None: this kas is alone.  No timer runs then, and nobody is anywhere.
    :param random: between 0 and 1, for the jitter.
    :param sessions: to ask peers directly, where the store does not know.
    :param on_superseded: a newer connection of the same instance is at another kas, so
        the one that is given is dead.
    :param on_connected: another kas has a connection, whoever's it is.
    """

    _me: KasRecord
    _store: Store | None
    _clock: IReactorTime
    _random: Callable[[], float]
    _sessions: Sessions | None = attrs.field(default=None, kw_only=True)
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
    _known: KnownPeers = attrs.field(init=False)
    _lookups: LookUps = attrs.field(init=False)
    _running: bool = attrs.field(default=False, init=False)
    _listening: bool = attrs.field(default=False, init=False)
    #: Counts the gaps in the news: answers of an earlier one are old.
    _epoch: int = attrs.field(default=0, init=False)
    #: When the last one began.
    _gap: float = attrs.field(default=0.0, init=False)
    _sweeping: IDelayedCall | None = attrs.field(default=None, init=False)
    _polling: IDelayedCall | None = attrs.field(default=None, init=False)
    _log = Logger()

    def __attrs_post_init__(self) -> None:
        self._known = KnownPeers(
            self._me,
            self._clock,
            self._sessions,
            self._reached,
            self._forget_kas,
            self._grow_old,
        )
        self._lookups = LookUps(self._clock, self._look_up)

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
            answer.cancel()
        self._lookups.stop()
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
            self._lookups.now(answer)
        return found

    def look_again(self, agent_id: str, wrong: AgentRecord | None = None) -> None:
        """The answer led nowhere: forget *wrong*, and look it up anew."""
        if self._store is None:
            return
        answer = self._wanted(agent_id)
        if wrong is not None:
            answer.forget(wrong)
        self._lookups.when_due(answer)

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
        return self._known.all()

    def living(self) -> Sequence[KasRecord]:
        """Those of them whose lease is not over."""
        return self._known.living()

    def is_current(self) -> bool:
        """What they say of themselves comes in; otherwise it may be old."""
        return self._listening

    def seen(self, kas: KasRecord) -> None:
        """A peer gave a sign of life, such as an answer of its private API."""
        self._known.seen(kas)

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
            asked = self._known.answering()
        except StoreDown as error:
            if not agent_id or self._sessions is None:
                raise CallError(Status.UNAVAILABLE, str(error)) from None
            theirs, asked = [], self._known.all()
        if agent_id and asked and self._sessions is not None:
            try:
                theirs = [*theirs, *await self._sessions.ask(agent_id, asked)]
            except Exception as error:
                raise CallError(Status.UNAVAILABLE, str(error)) from None
        # What the store has of ours may be older than what we know.
        theirs = [one for one in theirs if one.kas_id != self._me.kas_id]
        return newest([*mine, *theirs])

    def _wanted(self, agent_id: str) -> Answer:
        now = self._clock.seconds()
        answer = self._answers.get(agent_id)
        if answer is None:
            while len(self._answers) >= MAX_ANSWERS:
                self._answers.popitem(last=False)[1].drop()
            answer = self._answers[agent_id] = Answer(agent_id, now, self._random())
        else:
            self._answers.move_to_end(agent_id)
            answer.used = now
        return answer

    def _routes(self, answer: Answer) -> list[AgentRecord]:
        found = []
        for record in answer.records():
            if not self._known.is_believed(record.kas_id):
                continue
            # One that listened at our URL before us.
            if record.kas_url == self._me.url:
                continue
            mine = self._mine.get((answer.agent_id, record.agent.instance_id))
            if mine is None or mine.agent.generation < record.agent.generation:
                found.append(record)
        return found

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
            self._known.wrote(record.kas_id, record.kas_url)
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
        self._grow_old()
        if not on:
            self._gap = self._clock.seconds()
        self._listening = on
        self._poll_later(0.0)

    def _grow_old(self) -> None:
        """Something may have been missed: every answer is looked up once more."""
        self._epoch += 1

    def leases(self, alive: Sequence[KasRecord]) -> None:
        """All other kas that live, as the store has them now."""
        self._known.leases(alive)

    def lease(self, alive: KasRecord) -> None:
        """One that lives and was met on the way."""
        self._known.lease(alive)

    def left(self, kas_id: bytes) -> None:
        """Another kas said goodbye."""
        self._known.left(kas_id)

    # What is known of other kas, and what they are asked themselves.

    def _forget_kas(self, kas_id: bytes) -> None:
        for answer in self._answers.values():
            answer.forget_kas(kas_id)

    def _reached(self) -> None:
        """One that is cut off from the store answers: who waits may be there."""
        for agent_id in tuple(self._watchers):
            answer = self._wanted(agent_id)
            if self._routes(answer):
                self._wake(agent_id)
            else:
                self._lookups.when_due(answer)
        self._poll_later()

    def _cut_off(self, answer: Answer) -> list[KasRecord]:
        """Those to ask themselves, because the store cannot know their agents."""
        agent_id = answer.agent_id
        if agent_id in self._here and agent_id not in self._watchers:
            return []
        return self._known.answering()

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
        if known:
            return False
        return now >= answer.looked + ABSENT_INTERVAL or bool(self._cut_off(answer))

    async def _look_up(self, answer: Answer) -> None:
        assert self._store is not None
        epoch, since = self._epoch, self.news_received
        self.lookups += 1
        try:
            found = await self._store.find(answer.agent_id)
        except StoreDown:
            await self._ask_peers(answer, self._known.all())
            return
        theirs = self._not_mine(found)
        new = answer.looked_up(theirs, since, self._known.is_incomplete)
        answer.epoch = epoch
        self._taken(answer, theirs, new)
        if not self._routes(answer) and (cut_off := self._cut_off(answer)):
            await self._ask_peers(answer, cut_off)

    async def _ask_peers(self, answer: Answer, peers: Sequence[KasRecord]) -> None:
        if self._sessions is None:
            return
        self.asked += 1
        had = bool(self._routes(answer))
        try:
            found = await self._sessions.ask(answer.agent_id, peers)
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
            self._known.heard(record.kas_id)
        # Known before, and not believed any more: now it is.
        self._taken(answer, theirs, any(new) or not had)

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
        settled = self._listening and not self._known.answering()
        for agent_id in tuple(self._watchers):
            answer = self._wanted(agent_id)
            if answer.epoch != self._epoch:
                settled = False
            if self._is_due(answer, bool(self._routes(answer))):
                self._lookups.now(answer)
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
            self._answers.pop(agent_id).drop()
        self._known.sweep()
        if self._running:
            self._sweeping = self._clock.callLater(SWEEP_INTERVAL, self._sweep)
