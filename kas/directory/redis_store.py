"""
A directory's store in Redis: what is ours is written there, and kept right.

    put, remove ──> what changed ──(20 ms)──> MULTI: our lease, HSET/HDEL, PUBLISH
    every 10 s ───> MULTI: our lease, who else lives, a few records once more
    find, listed ─> `kas.directory.redis_reading`
    news ─────────> `kas.directory.redis_news`

Our lease tells at every transaction whether Redis still has what we wrote.  If it has
not, everything of ours is written again.  The same is done whenever Redis comes back,
so nothing has to be remembered while it is away.
"""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import attrs
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from kas.config.redis import Redis
from kas.directory.jobs import Jobs
from kas.directory.records import AgentRecord, KasRecord
from kas.directory.redis_cleaning import clean
from kas.directory.redis_layout import RECORD_MS, Layout, Place
from kas.directory.redis_lease import OwnLease
from kas.directory.redis_news import publish, tell
from kas.directory.redis_reading import MAX_KAS, Reader, read_record
from kas.directory.store import StoreListener
from kas.redis import Command, RedisClient, RedisRefused, RedisUnavailable

__all__ = ["RedisStore"]

T = TypeVar("T")

#: Seconds between two leases: three fit into the life of one.
LEASE_INTERVAL = 10.0

#: Seconds within which each record is written once more; they live twice as long.
KEEP_SECONDS = 3600.0

#: Seconds for which changes are collected: a storm of connections becomes few
#: transactions, and nobody notices.
BATCH_SECONDS = 0.02

#: Changes in one transaction, and what is read or removed at once.  Some hundred
#: commands keep Redis from others for a millisecond.
BATCH_RECORDS = 200

#: Seconds between two transactions while everything is written again: 10,000 records
#: take less than five seconds, and Redis is free for others most of that time.
REWRITE_PAUSE = 0.05

#: Keys of another type that are removed at the same time; others are met again.
MAX_STRANGE = 1000

#: Seconds for removing what is ours before the process ends.
STOP_SECONDS = 2.0


@attrs.define(eq=False)
class RedisStore:
    """
    Implements `kas.directory.store.Store`.

    :param reactor: for connections.
    :param random: between 0 and 1, for the jitter.
    :param clock: for everything else; the reactor itself but for tests.
    """

    _me: KasRecord
    _settings: Redis
    _reactor: Any
    _random: Callable[[], float]
    _clock: IReactorTime = attrs.field(
        default=attrs.Factory(lambda self: self._reactor, takes_self=True), kw_only=True
    )
    #: The time of day.
    _now: Callable[[], float] = attrs.field(default=time.time, kw_only=True)
    #: For metrics: how often everything was written again, messages not understood.
    rewrites: int = attrs.field(default=0, init=False)
    malformed: int = attrs.field(default=0, init=False)
    #: Keys of another type that were removed.
    removed: int = attrs.field(default=0, init=False)
    #: Those that are being removed.
    _strange: set[bytes] = attrs.field(factory=set, init=False)
    #: When the next one is said.
    _say_removed: float = attrs.field(default=-math.inf, init=False)
    client: RedisClient = attrs.field(init=False)
    _layout: Layout = attrs.field(init=False)
    _listener: StoreListener | None = attrs.field(default=None, init=False)
    #: What is ours; the one that was written last stands last.
    _mine: OrderedDict[tuple[str, bytes], AgentRecord] = attrs.field(
        factory=OrderedDict, init=False
    )
    #: Where something changed, in order, and what stood there if it is gone.
    _changed: OrderedDict[Place, AgentRecord | None] = attrs.field(
        factory=OrderedDict, init=False
    )
    _reader: Reader = attrs.field(init=False)
    _leased: OwnLease = attrs.field(init=False)
    _jobs: Jobs = attrs.field(init=False)
    _stopping: bool = attrs.field(default=False, init=False)
    #: What the listener was told.
    _listening: bool = attrs.field(default=False, init=False)
    #: Everything has to be written again, for this reason.
    _stale: str = attrs.field(default="", init=False)
    _log = Logger()

    def __attrs_post_init__(self) -> None:
        self._layout = Layout(self._settings.key_prefix)
        self.client = RedisClient(
            self._settings,
            self._reactor,
            self._random,
            self._layout.channel,
            self._layout.probe(),
        )
        self._reader = Reader(self.client, self._layout, self._me.kas_id)
        self._leased = OwnLease(self.client, self._layout, self._me, self._rewrite)
        self._jobs = Jobs(self._clock, self._ended)

    def start(self, listener: StoreListener) -> None:
        """Connect, in the background."""
        self._listener = self._reader.listener = listener
        self.client.start(self)

    async def stop(self) -> None:
        """Remove everything that is ours, within `STOP_SECONDS`, and let go."""
        self._stopping = True
        self._reader.listener = None
        self._jobs.stop()
        if self.client.up:
            leaving = Deferred.fromCoroutine(self._leave())
            leaving.addTimeout(STOP_SECONDS, self._clock)
            try:
                await leaving
            except Exception as error:
                self._log.warn(
                    "what this kas wrote into Redis stays until others remove it: "
                    "{reason}",
                    reason=str(error),
                )
        self.client.stop()

    # What is ours.

    def update(self, me: KasRecord) -> None:
        """Written with the next lease; that kas drains is told at once."""
        before, self._me, self._leased.me = self._me, me, me
        if before.draining != me.draining:
            self._jobs.later("lease", 0.0, self._lease)

    def put(self, record: AgentRecord) -> None:
        """Write a connection of ours down and tell everyone."""
        place = Place.of(record)
        key = (place.agent_id, place.instance_id)
        before = self._mine.get(key)
        if before is not None and Place.of(before) != place:
            self._change(Place.of(before), before)
        self._mine[key] = record
        self._mine.move_to_end(key)
        self._change(place, None)

    def announce(self, record: AgentRecord) -> None:
        """Tell everyone once more."""
        self._change(Place.of(record), None)

    def remove(self, record: AgentRecord) -> None:
        """It is gone; what a newer connection wrote stays."""
        key = (record.agent.agent_id, record.agent.instance_id)
        mine = self._mine.get(key)
        if mine is not None and mine.agent.generation == record.agent.generation:
            del self._mine[key]
            self._change(Place.of(record), record)

    def _change(self, place: Place, gone: AgentRecord | None) -> None:
        if self._stopping or not self.client.up:
            # All that is ours is written again when Redis is back.
            return
        self._changed[place] = gone
        if "write" not in self._jobs.running and "write" not in self._jobs.planned:
            self._jobs.later("write", BATCH_SECONDS, self._write)

    def _write(self) -> None:
        self._jobs.run("write", self._write_changes())

    async def _write_changes(self) -> None:
        while self._changed:
            batch: dict[Place, AgentRecord | None] = {}
            while self._changed and len(batch) < BATCH_RECORDS:
                place, gone = self._changed.popitem(last=False)
                batch[place] = gone
            await self._send(batch)

    def _send(self, places: Mapping[Place, AgentRecord | None]) -> Deferred[list[Any]]:
        """Make Redis have what we have at *places*, and tell everyone."""
        here, gone, ended = [], [], []
        for place, before in places.items():
            mine = self._mine.get((place.agent_id, place.instance_id))
            # As it is now, not as it was when it changed: what is sent later wins.
            if mine is not None and Place.of(mine) == place:
                here.append(mine)
            else:
                gone.append(place)
                if before is not None:
                    ended.append(before)
        me = self._me.kas_id
        commands = self._layout.remove(me, gone) + self._layout.put(me, here)
        commands += self._layout.note_seen(gone, self._now())
        commands += publish(self._layout.channel, here, ended)
        return self._leased.transaction(commands, changes=True)

    # States of Redis.

    def redis_up(self) -> None:
        """It works (again)."""
        self._leased.forget()
        self._jobs.later("lease", 0.0, self._lease)
        self._rewrite("")
        self._tell_listening()

    def redis_down(self) -> None:
        """It does not: nothing is queued for it."""
        self._changed.clear()
        self._tell_listening()

    def redis_listening(self, on: bool) -> None:
        """Whether news come in."""
        self._tell_listening()

    def _tell_listening(self) -> None:
        # Where we cannot write, others can hardly publish: that nothing is heard means
        # nothing then, although the connection for news stands.
        on = self.client.up and self.client.listening
        if on != self._listening and self._listener is not None and not self._stopping:
            self._listening = on
            self._listener.listening(on)

    def redis_message(self, data: bytes) -> None:
        """News of some kas, perhaps of ourselves."""
        if not data or self._listener is None or self._stopping:
            return
        if not tell(data, self._listener, self._me.kas_id, self._write_again):
            self.malformed += 1
            if self.malformed == 1:
                self._log.warn("somebody else publishes on our channel in Redis")

    # What is of another type than ours, and what that took with it.

    def redis_wrong_type(self, key: bytes) -> None:
        """Nobody else has a place below our prefix: remove it, and write again."""
        # A text is replaced whatever stood there.
        if self._stopping or key in self._strange or key == self._own_lease:
            return
        if len(self._strange) < MAX_STRANGE:
            self._strange.add(key)
            removing = self.client.call("DEL", key)
            removing.addCallbacks(
                lambda _: self._removed(key),
                lambda failure: failure.trap(RedisUnavailable, RedisRefused),
            )
            removing.addBoth(lambda _: self._strange.discard(key))

    def _removed(self, key: bytes) -> None:
        self.removed += 1
        now = self._clock.seconds()
        if now >= self._say_removed:
            self._say_removed = now + LEASE_INTERVAL
            self._log.warn(
                "in Redis something of another type stood at {key}, and was removed: "
                "who else writes below {prefix}?  ({count} so far)",
                key=key.decode(errors="backslashreplace")[:200],
                prefix=self._layout.prefix,
                count=self.removed,
            )
        if key in (self._layout.held(self._me.kas_id), self._layout.everyone):
            self._rewrite("it was of another type")
            return
        self._write_again(key)
        told = publish(self._layout.channel, [], [], lost=key)
        self.client.transaction(told).addErrback(
            lambda failure: failure.trap(RedisUnavailable, RedisRefused)
        )

    def _write_again(self, key: bytes) -> None:
        """Another kas, or this one, found that what stood at *key* is gone."""
        for record in self._mine.values():
            place = Place.of(record)
            if self._layout.is_of(key, place):
                self._change(place, None)

    @property
    def _own_lease(self) -> bytes:
        return self._layout.lease(self._me.kas_id)

    # The lease.

    def _lease(self) -> None:
        interval = LEASE_INTERVAL * (0.9 + 0.2 * self._random())
        self._jobs.later("lease", interval, self._lease)
        if self.client.up:
            self._jobs.run("lease", self._renew())

    async def _renew(self) -> None:
        layout, me = self._layout, self._me.kas_id
        known = list(self._reader.leases)
        commands: list[Command] = [
            ("SADD", layout.everyone, me),
            ("PEXPIRE", layout.everyone, RECORD_MS),
            ("SMEMBERS", layout.everyone),
        ]
        if known:
            commands.append(("MGET", *map(layout.lease, known)))
        keep_held: Command = ("PEXPIRE", layout.held(me), RECORD_MS)
        if self._mine:
            commands.append(keep_held)
        # What is being written now need not be there yet.
        settled = not {"write", "rewrite"} & self._jobs.running.keys()
        results = await self._leased.transaction(commands + layout.put(me, self._due()))
        answers = dict(zip(commands, results, strict=False))
        if answers.get(keep_held) == 0 and settled:
            self._rewrite("what we hold was gone")
        members = answers["SMEMBERS", layout.everyone]
        if isinstance(members, RedisRefused):
            return
        members = [one for one in members if one != me][:MAX_KAS]
        found = dict(zip(known, results[3], strict=True)) if known else {}
        strangers = [one for one in members if one not in found]
        found.update(await self._reader.fetch_leases(strangers))
        dead = self._reader.learn(members, found)
        if dead:
            # One at a time, and not every kas the same one.
            chosen = dead[int(self._random() * len(dead)) % len(dead)]
            self._jobs.run("clean", self._clean(chosen))

    def _due(self) -> list[AgentRecord]:
        """
        Those of ours whose turn it is, so that all have theirs in time.

        They are written and not only kept from expiring: other fields of the same key
        may be there although ours were evicted with it.
        """
        count = math.ceil(len(self._mine) * LEASE_INTERVAL / KEEP_SECONDS)
        due = []
        for _ in range(count):
            key, record = next(iter(self._mine.items()))
            self._mine.move_to_end(key)
            due.append(record)
        return due

    async def _clean(self, kas_id: bytes) -> None:
        removed = await clean(
            self.client,
            self._layout,
            kas_id,
            by=self._me.kas_id,
            count=BATCH_RECORDS,
            now=self._now,
            pause=self._jobs.pause,
        )
        if removed is not None:
            self._log.info(
                "kas {kas} is gone; {count} connections that it left are removed",
                kas=kas_id.hex(),
                count=removed,
            )

    # Everything again.

    def _rewrite(self, reason: str) -> None:
        if reason:
            self._log.info(
                "Redis lost what this kas wrote, which writes it again: {reason}",
                reason=reason,
            )
        self._stale = reason or "Redis is back"
        if "rewrite" not in self._jobs.running:
            self._jobs.run("rewrite", self._write_everything())

    async def _write_everything(self) -> None:
        while self._stale:
            self._stale = ""
            self.rewrites += 1
            await self._remove_leftovers()
            places = [Place.of(record) for record in self._mine.values()]
            for batch in _batches(places):
                await self._send(dict.fromkeys(batch))
                await self._jobs.pause(REWRITE_PAUSE)

    async def _remove_leftovers(self) -> None:
        """What Redis has of ours and we have not: it went while Redis was away."""
        held = self._layout.held(self._me.kas_id)
        leftovers = []
        for field in await self.client.call("HKEYS", held):
            try:
                place = Place.from_field(field)
            except ValueError:
                continue
            mine = self._mine.get((place.agent_id, place.instance_id))
            if mine is None or Place.of(mine) != place:
                leftovers.append(place)
        for batch in _batches(leftovers):
            fields = [place.to_field() for place in batch]
            values = await self.client.call("HMGET", held, *fields)
            gone = map(read_record, values)
            await self._send(dict(zip(batch, gone, strict=True)))
            await self._jobs.pause(REWRITE_PAUSE)

    async def _leave(self) -> None:
        layout, me = self._layout, self._me.kas_id
        # First what makes all of it invalid.
        await self.client.transaction([("DEL", layout.lease(me))])
        gone = {Place.of(record): record for record in self._mine.values()}
        places = [*gone, *(place for place in self._changed if place not in gone)]
        for batch in _batches(places):
            ended = [gone.get(place) or self._changed[place] for place in batch]
            there = [one for one in ended if one is not None]
            told = publish(layout.channel, [], there)
            seen = layout.note_seen(batch, self._now())
            await self.client.transaction(layout.remove(me, batch) + seen + told)
        goodbye = publish(layout.channel, [], [], left=me)
        await self.client.transaction(
            [("DEL", layout.held(me)), ("SREM", layout.everyone, me), *goodbye]
        )

    # Reading.

    async def find(self, agent_id: str) -> list[AgentRecord]:
        """Connections of an agent at kas that live."""
        return await self._reader.find(agent_id)

    async def listed(self, project_id: int = 0) -> list[AgentRecord]:
        """Connections of a project, or all, at kas that live."""
        return await self._reader.listed(project_id)

    async def last_seen(self, agent_ids: Sequence[str]) -> dict[str, float]:
        """When each was last connected; without those of which that is not known."""
        return await self._reader.last_seen(agent_ids)

    # What runs.

    def _ended(self, name: str, failure: Failure | None) -> None:
        if name == "write" and self._changed:
            self._jobs.later("write", BATCH_SECONDS, self._write)
        if failure is None:
            return
        # That Redis is down, or refuses a command, was logged by the client.
        if failure.check(RedisUnavailable, RedisRefused, CancelledError) is None:
            self._log.failure("{what} in Redis", failure, what=name)
        if name in ("write", "rewrite") and self.client.up:
            # Too much waited: the connection works, so nothing else would repeat it.
            again = partial(self._rewrite, "a write failed")
            self._jobs.later("again", LEASE_INTERVAL * self._random(), again)


def _batches(items: Sequence[T]) -> Iterator[Sequence[T]]:
    for begin in range(0, len(items), BATCH_RECORDS):
        yield items[begin : begin + BATCH_RECORDS]
