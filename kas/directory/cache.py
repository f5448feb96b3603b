"""
Cache of the agents at other kas, and the schedule of its lookups.

The cache has an entry for each agent with recent requests.  Events from the store and
lookups change the entry.  Lookups are rare, are shared by all requests for the same
agent, and never start all at once.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Container, Coroutine, Iterable, Sequence
from typing import Any, ClassVar, Final

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from kas.directory.records import AgentRecord, KasRecord
from tunnel.toolkit.timers import cancel_call

__all__ = ["Cache", "CacheEntry", "LookUps", "newest"]

#: Seconds after which an unused entry is dropped.
UNUSED_SECONDS: Final = 300.0

#: Maximum number of agents with an entry: ten times as many as one kas is designed for.
#: Clients with valid credentials can only name existing agents.
MAX_ENTRIES = 100_000

#: Maximum number of stored instances (pods) of one agent.  Two or three are usual; the
#: limit protects against an agent that invents new instances.
MAX_INSTANCES: Final = 256

#: Maximum number of instances of one agent that the cache remembers as gone, so that
#: late events do not bring them back.  Events are at most some seconds late, and fewer
#: pods of one agent end in that time.
MAX_GONE: Final = 32

#: Epoch of an entry before its first successful lookup.
NEVER: Final = -1

#: Minimum seconds between two lookups of one agent, however many requests there are:
#: long enough to cost little, and short enough for a user who waits.
LOOK_INTERVAL: Final = 1.0

#: Seconds between two lookups of one agent if the last one found nothing and events
#: arrive: the agent's connection causes an event, and these lookups are needed only if
#: an event was lost.
ABSENT_INTERVAL: Final = 30.0

#: Seconds between two lookups of one agent, plus or minus half, if no stream waits for
#: it and no events arrive.  A wrong entry is detected when a request uses it, so these
#: lookups can only find further instances, and each one costs a call to every other
#: kas.
REACHED_INTERVAL: Final = 20.0

#: Maximum number of simultaneous lookups; further lookups wait for their turn.  Redis
#: needs a few milliseconds for that many lookups.  While Redis is down, the limit
#: protects the private API of the peers.
MAX_LOOKUPS = 256


class Cache:
    """
    Cache with one entry for each agent with recent requests.

    :param random: returns a number between 0 and 1, to spread the due times of entries.
    :ivar entries: the entries in order of use, the most recent one last.
    """

    def __init__(self, clock: IReactorTime, random: Callable[[], float]) -> None:
        self._clock = clock
        self._random = random
        self.entries: OrderedDict[str, CacheEntry] = OrderedDict()

    def wanted(self, agent_id: str) -> CacheEntry:
        """
        Return the entry of an agent, which is kept from now on even if it is empty.
        """
        now = self._clock.seconds()
        entry = self.entries.get(agent_id)
        if entry is None:
            while len(self.entries) >= MAX_ENTRIES:
                self.entries.popitem(last=False)[1].drop()
            entry = self.entries[agent_id] = CacheEntry(agent_id, now, self._random())
        else:
            self.entries.move_to_end(agent_id)
            entry.used = now
        return entry

    def forget_kas(self, kas_id: bytes) -> None:
        """Forget a dead kas and its agents."""
        for entry in self.entries.values():
            entry.forget_kas(kas_id)

    def doubt_kas(self, kas_id: bytes) -> None:
        """
        Mark the entries of a kas's agents as out of date, so that the next request for
        each agent causes a lookup.
        """
        for entry in self.entries.values():
            if any(record.kas_id == kas_id for record in entry.records()):
                entry.doubt()

    def sweep(self, needed: Container[str]) -> None:
        """
        Drop entries without recent requests, except the entries of agents in *needed*.
        """
        now = self._clock.seconds()
        while self.entries:
            agent_id, entry = next(iter(self.entries.items()))
            if now - entry.used < UNUSED_SECONDS:
                break
            if agent_id in needed:
                self.wanted(agent_id)
                continue
            self.entries.pop(agent_id).drop()

    def stop(self) -> None:
        """Cancel all lookups."""
        for entry in self.entries.values():
            entry.cancel()


class LookUps:
    """
    Scheduler of lookups, which starts each lookup when it is due.

    :param look_up: coroutine function that performs one lookup.
    :param here: the ids of agents that are connected to this kas.
    :param awaited: the ids of agents that streams wait for.
    :param cut_off: returns the kas to query directly, because the store cannot know
        their agents.
    :ivar listening: whether events arrive, so that entries stay correct.
    :ivar epoch: the number of gaps in the events so far: entries of an earlier epoch
        are out of date.
    """

    _log: ClassVar = Logger()

    def __init__(
        self,
        clock: IReactorTime,
        look_up: Callable[[CacheEntry], Coroutine[Any, Any, None]],
        here: Container[str],
        awaited: Container[str],
        cut_off: Callable[[CacheEntry], Sequence[KasRecord]],
    ) -> None:
        self._clock = clock
        self._look_up = look_up
        self._here = here
        self._awaited = awaited
        self._cut_off = cut_off
        self.listening = False
        self.epoch = 0
        #: Time when the last gap in the events began.
        self._gap = -math.inf
        self._stopped = False
        #: Number of running lookups.
        self.running = 0
        self._queue: OrderedDict[str, CacheEntry] = OrderedDict()

    def stop(self) -> None:
        """Stop the scheduler, so that it starts no more lookups."""
        self._stopped = True
        self._queue.clear()

    def events_come_in(self, on: bool) -> None:
        """
        Record whether events arrive from now on, and look every agent up once more.

        In both cases, events may have been missed.

        :param on: whether events arrive.
        """
        self.grow_old()
        if not on:
            self._gap = self._clock.seconds()
        self.listening = on

    def grow_old(self) -> None:
        """Look every agent up once more, because events may have been missed."""
        self.epoch += 1

    def is_due(self, entry: CacheEntry, known: bool) -> bool:
        """
        Return whether a requested entry needs a lookup.

        :param known: whether the entry has a location.
        """
        if entry.looking:
            return False
        now = self._clock.seconds()
        if now < entry.next_look:
            return False
        if not self.listening:
            agent_id = entry.agent_id
            reached = known or agent_id in self._here
            if not reached or agent_id in self._awaited:
                return True
            # Spread the lookups over time after the beginning of a gap.
            wait = REACHED_INTERVAL * (0.5 + entry.spread)
            return now >= max(entry.looked, self._gap) + wait
        if entry.epoch != self.epoch:
            return True
        if known:
            return False
        return now >= entry.looked + ABSENT_INTERVAL or bool(self._cut_off(entry))

    def when_due(self, entry: CacheEntry) -> None:
        """Start the lookup of an entry when the interval of its agent is over."""
        if self._stopped or (entry.timer is not None and entry.timer.active()):
            return
        if entry.looking:
            entry.again = True
            return
        wait = entry.next_look - self._clock.seconds()
        if wait <= 0:
            self.now(entry)
        else:
            entry.timer = self._clock.callLater(wait, self.now, entry)

    def now(self, entry: CacheEntry) -> None:
        """Start the lookup of an entry as soon as a slot is free."""
        entry.cancel()
        if entry.looking or self._stopped:
            return
        entry.looking = True
        if self.running >= MAX_LOOKUPS:
            self._queue[entry.agent_id] = entry
            return
        self._begin(entry)

    def _begin(self, entry: CacheEntry) -> None:
        self.running += 1
        entry.again = False
        entry.next_look = self._clock.seconds() + LOOK_INTERVAL
        looking = Deferred.fromCoroutine(self._look_up(entry))
        looking.addErrback(
            lambda failure: self._log.failure(
                "looking up {agent_id} failed", failure, agent_id=entry.agent_id
            )
        )
        looking.addBoth(self._looked, entry)

    def _looked(self, result: object, entry: CacheEntry) -> None:
        self.running -= 1
        entry.looking = False
        entry.looked = self._clock.seconds()
        if entry.again and not entry.dropped:
            self.when_due(entry)
        while self._queue and self.running < MAX_LOOKUPS:
            self._begin(self._queue.popitem(last=False)[1])


class _Instance:
    """
    State of one run of an agentk: its newest connection, or that it has disconnected.

    :ivar event: the number of the event that reported this state; 0 if a lookup found
        it.
    """

    def __init__(self, generation: int, record: AgentRecord | None, event: int) -> None:
        self.generation = generation
        self.record = record
        self.event = event


class CacheEntry:
    """
    Known locations of one agent.

    For each agentk instance, only the connection with the highest generation is kept.
    After an event has reported the end of a connection, later lookups do not add the
    connection again. Therefore the entry always has the newest state, whatever the
    order of events and lookups.

    :param used: when a request last used the entry.
    :param spread: a number between 0 and 1, which spreads lookups that would otherwise
        be due at the same time.
    """

    def __init__(self, agent_id: str, used: float, spread: float = 0.5) -> None:
        self.agent_id = agent_id
        self.used = used
        self.spread = spread
        #: Earliest time of the next lookup.
        self.next_look = 0.0
        #: Time when the last lookup ended.
        self.looked = -math.inf
        #: Whether a lookup is running or waits for its turn.
        self.looking = False
        #: Whether another lookup has to begin after the current one.
        self.again = False
        #: Epoch (`LookUps.epoch`) since which the entry has received all events; NEVER
        #: if events may be missing.
        self.epoch = NEVER
        self.timer: IDelayedCall | None = None
        #: Whether the cache has dropped the entry.
        self.dropped = False
        self._instances: dict[bytes, _Instance] = {}

    def cancel(self) -> None:
        """Cancel the scheduled lookup of this entry."""
        cancel_call(self.timer)
        self.timer = None

    def doubt(self) -> None:
        """
        Record that events were missed: look this entry up again, even if a lookup is
        running, because the result of that lookup may be out of date.
        """
        self.epoch = NEVER
        self.again = self.looking

    def drop(self) -> None:
        """Record that the cache has dropped this entry."""
        self.dropped = True
        self.cancel()

    def records(self) -> list[AgentRecord]:
        """Return the newest connection of each instance."""
        instances = self._instances.values()
        return [known.record for known in instances if known.record is not None]

    def connected(self, record: AgentRecord, event: int) -> bool:
        """Apply a new connection; return False if it is already known."""
        agent = record.agent
        known = self._instances.get(agent.instance_id)
        if known is not None:
            if known.generation > agent.generation:
                return False
            if known.generation == agent.generation:
                if known.record is not None:
                    known.record, known.event = record, event
                return False
            known.generation, known.record = agent.generation, record
            known.event = event
            return True
        if len(self._instances) >= MAX_INSTANCES:
            return False
        self._instances[agent.instance_id] = _Instance(agent.generation, record, event)
        return True

    def disconnected(self, instance_id: bytes, generation: int, event: int) -> None:
        """
        Remove a connection that has ended, unless the instance has a newer connection.
        """
        known = self._instances.pop(instance_id, None)
        if known is not None and known.generation > generation:
            self._instances[instance_id] = known
            return
        # Insert the instance at the end, because the first entries are forgotten first.
        self._instances[instance_id] = _Instance(generation, None, event)
        gone = [key for key, one in self._instances.items() if one.record is None]
        for key in gone[:-MAX_GONE]:
            del self._instances[key]

    def looked_up(
        self,
        records: Iterable[AgentRecord],
        since: int,
        is_incomplete: Callable[[bytes], bool] = lambda kas_id: False,
    ) -> bool:
        """
        Apply the result of a lookup; return whether it contains anything new.

        :param since: number of the last event before the lookup began.  Later events
            take precedence over the result, because the store may have been read before
            these events.
        :param is_incomplete: returns whether the store may lack agents of a kas.
        """
        found = {}
        for record in newest(records):
            found[record.agent.instance_id] = record
        for key, known in tuple(self._instances.items()):
            if known.record is None or key in found or known.event > since:
                continue
            if not is_incomplete(known.record.kas_id):
                del self._instances[key]
        new = [self.connected(record, 0) for record in found.values()]
        return any(new)

    def forget(self, wrong: AgentRecord) -> None:
        """
        Forget a location that did not work; the location is used again if it is
        reported again.
        """
        known = self._instances.get(wrong.agent.instance_id)
        if known is not None and known.record is not None:
            same = known.record.kas_id == wrong.kas_id
            if same and known.generation == wrong.agent.generation:
                del self._instances[wrong.agent.instance_id]

    def forget_kas(self, kas_id: bytes) -> None:
        """Forget the connections to a dead kas."""
        for key, known in tuple(self._instances.items()):
            if known.record is not None and known.record.kas_id == kas_id:
                del self._instances[key]


def newest(records: Iterable[AgentRecord]) -> list[AgentRecord]:
    """
    Return the connection with the highest generation for each instance of each agent.
    """
    best: dict[tuple[str, bytes], AgentRecord] = {}
    for record in records:
        key = (record.agent.agent_id, record.agent.instance_id)
        other = best.get(key)
        if other is None or other.agent.generation < record.agent.generation:
            best[key] = record
    return list(best.values())
