"""
A directory's store in Redis: what is ours is written there, and kept right.

    put, remove ──> what changed ──(20 ms)──> MULTI: our lease, HSET/HDEL, PUBLISH
    every 10 s ───> MULTI: our lease, who else lives, a few records once more
    find, listed ─> HGETALL, without the connections of kas whose lease is over

Every transaction reads our lease before it writes it anew, with a number that rises.
A lease that is missing or has an older number tells that the store is not the one we
wrote to last: it was flushed, it failed over to an older state, or we slept so long
that others cleaned up behind us.  Then everything of ours is written again.  The same
is done whenever Redis comes back, so nothing has to be remembered while it is away.
"""

from __future__ import annotations

import contextlib
import math
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import attrs
from google.protobuf.message import DecodeError
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from kas.config import Redis
from kas.directory.records import AgentRecord, KasRecord
from kas.directory.redis_cleaning import clean
from kas.directory.redis_layout import LEASE_MS, RECORD_MS, Layout, Place
from kas.directory.store import StoreDown, StoreListener
from kas.pb import directory_pb2 as pb
from kas.pb import store_pb2
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

#: Bytes of one message on the channel; far below what Redis allows a subscriber that is
#: slow (32 MiB) even when some hundred come at once.
EVENT_BYTES = 64 * 1024

#: Bytes of a message that is read at all.  Ours are smaller.
MAX_EVENT_BYTES = 1024 * 1024

#: Kas that are looked at.  A fleet has a handful; more come only from a crash loop, and
#: those that are dead are cleaned up one by one.
MAX_KAS = 1000

#: Fields of dead kas that a look-up removes on its way.
MAX_DEAD_FIELDS = 100

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
    _clock: IReactorTime = attrs.field(kw_only=True)
    #: For metrics: how often everything was written again, messages not understood.
    rewrites: int = attrs.field(default=0, init=False)
    malformed: int = attrs.field(default=0, init=False)
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
    #: The other kas that live, as of the last lease.
    _leases: dict[bytes, KasRecord] = attrs.field(factory=dict, init=False)
    #: Rises with each batch that is written.
    _sequence: int = attrs.field(default=0, init=False)
    #: What the last lease that was sent had; -1: none since Redis came back.
    _sent: int = attrs.field(default=-1, init=False)
    _stopping: bool = attrs.field(default=False, init=False)
    #: What the listener was told.
    _listening: bool = attrs.field(default=False, init=False)
    #: Everything has to be written again, for this reason.
    _stale: str = attrs.field(default="", init=False)
    _timers: dict[str, IDelayedCall] = attrs.field(factory=dict, init=False)
    #: What runs now, by name; each at most once.
    _running: dict[str, Deferred[None]] = attrs.field(factory=dict, init=False)
    _log = Logger()

    @_clock.default
    def _default_clock(self) -> IReactorTime:
        clock: IReactorTime = self._reactor
        return clock

    def __attrs_post_init__(self) -> None:
        self._layout = Layout(self._settings.key_prefix)
        self.client = RedisClient(
            self._settings,
            self._reactor,
            self._random,
            self._layout.channel,
            self._layout.probe(),
        )

    def start(self, listener: StoreListener) -> None:
        """Connect, in the background."""
        self._listener = listener
        self.client.start(self)

    async def stop(self) -> None:
        """Remove everything that is ours, within `STOP_SECONDS`, and let go."""
        self._stopping = True
        for timer in self._timers.values():
            if timer.active():
                timer.cancel()
        for running in tuple(self._running.values()):
            running.cancel()
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
        before, self._me = self._me, me
        if before.draining != me.draining:
            self._later("lease", 0.0, self._lease)

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
        if "write" not in self._running and "write" not in self._timers:
            self._later("write", BATCH_SECONDS, self._write)

    def _write(self) -> None:
        del self._timers["write"]
        self._run("write", self._write_changes())

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
        self._sequence += 1
        return self._transaction(commands + self._publish(here, ended))

    def _publish(
        self, here: Sequence[AgentRecord], ended: Sequence[AgentRecord]
    ) -> list[Command]:
        commands: list[Command] = []
        events, size = pb.Events(), 0

        def publish() -> None:
            nonlocal events, size
            data = events.SerializeToString()
            commands.append(("PUBLISH", self._layout.channel, data))
            events, size = pb.Events(), 0

        for record in ended:
            agent = record.agent
            message = pb.AgentRecord(
                agent_id=agent.agent_id,
                instance_id=agent.instance_id,
                generation=agent.generation,
                kas_id=record.kas_id,
            )
            events.disconnected.append(message)
            size += message.ByteSize()
            if size >= EVENT_BYTES:
                publish()
        for record in here:
            message = record.to_message()
            events.connected.append(message)
            size += message.ByteSize()
            if size >= EVENT_BYTES:
                publish()
        if size:
            publish()
        return commands

    def _transaction(self, commands: Sequence[Command]) -> Deferred[list[Any]]:
        """Do *commands* with our lease, and see whether Redis has what we wrote."""
        lease = self._layout.lease(self._me.kas_id)
        value = store_pb2.Lease(kas=self._me.to_message(), sequence=self._sequence)
        data = value.SerializeToString()
        first: list[Command] = [
            ("GET", lease),
            ("SET", lease, data, "PX", LEASE_MS),
        ]
        before, self._sent = self._sent, self._sequence

        def answered(results: list[Any]) -> list[Any]:
            for result in results:
                if isinstance(result, RedisRefused):
                    self._log.warn("{reason}", reason=str(result))
            found = _lease(results[0])
            if before >= 0:
                if found is None:
                    self._rewrite("our lease was gone")
                elif found.sequence < before:
                    self._rewrite("it is in an older state")
            return results[2:]

        return self.client.transaction([*first, *commands]).addCallback(answered)

    # States of Redis.

    def redis_up(self) -> None:
        """It works (again)."""
        self._sent = -1
        self._later("lease", 0.0, self._lease)
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
        try:
            if len(data) > MAX_EVENT_BYTES:
                raise DecodeError
            events = pb.Events.FromString(data)
        except DecodeError:
            self.malformed += 1
            if self.malformed == 1:
                self._log.warn("somebody else publishes on our channel in Redis")
            return
        connected = list(self._others(events.connected))
        disconnected = list(self._others(events.disconnected))
        if connected or disconnected:
            self._listener.news(connected, disconnected)

    def _others(self, messages: Iterable[pb.AgentRecord]) -> Iterable[AgentRecord]:
        for message in messages:
            if message.kas_id != self._me.kas_id and message.agent_id:
                yield AgentRecord.from_message(message)

    # The lease.

    def _lease(self) -> None:
        interval = LEASE_INTERVAL * (0.9 + 0.2 * self._random())
        self._later("lease", interval, self._lease)
        if self.client.up:
            self._run("lease", self._renew())

    async def _renew(self) -> None:
        layout, me = self._layout, self._me.kas_id
        known = list(self._leases)
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
        settled = not {"write", "rewrite"} & self._running.keys()
        results = await self._transaction(commands + layout.put(me, self._due()))
        answers = dict(zip(commands, results, strict=False))
        if answers.get(keep_held) == 0 and settled:
            self._rewrite("what we hold was gone")
        members = answers["SMEMBERS", layout.everyone]
        if isinstance(members, RedisRefused):
            return
        members = [one for one in members if one != me][:MAX_KAS]
        found = dict(zip(known, results[3], strict=True)) if known else {}
        strangers = [one for one in members if one not in found]
        found.update(await self._fetch_leases(strangers))
        dead = self._learn(members, found)
        if dead:
            # One at a time, and not every kas the same one.
            chosen = dead[int(self._random() * len(dead)) % len(dead)]
            self._run("clean", self._clean(chosen))

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

    def _learn(
        self, members: Sequence[bytes], found: Mapping[bytes, bytes | None]
    ) -> list[bytes]:
        """Take in who lives; returns who does not."""
        leases, dead = {}, []
        for kas_id in members:
            lease = _lease(found.get(kas_id))
            if lease is None or lease.kas.kas_id != kas_id:
                dead.append(kas_id)
            else:
                leases[kas_id] = KasRecord.from_message(lease.kas)
        self._leases = leases
        if self._listener is not None and not self._stopping:
            self._listener.leases(list(leases.values()))
        return dead

    async def _fetch_leases(self, ids: Sequence[bytes]) -> dict[bytes, bytes | None]:
        if not ids:
            return {}
        keys = map(self._layout.lease, ids)
        values = await self.client.call("MGET", *keys)
        return dict(zip(ids, values, strict=True))

    async def _clean(self, kas_id: bytes) -> None:
        removed = await clean(
            self.client,
            self._layout,
            kas_id,
            by=self._me.kas_id,
            count=BATCH_RECORDS,
            pause=self._pause,
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
        if "rewrite" not in self._running:
            self._run("rewrite", self._write_everything())

    async def _write_everything(self) -> None:
        while self._stale:
            self._stale = ""
            self.rewrites += 1
            await self._remove_leftovers()
            places = [Place.of(record) for record in self._mine.values()]
            for batch in _batches(places):
                await self._send(dict.fromkeys(batch))
                await self._pause(REWRITE_PAUSE)

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
            gone = map(_record, values)
            await self._send(dict(zip(batch, gone, strict=True)))
            await self._pause(REWRITE_PAUSE)

    async def _leave(self) -> None:
        layout, me = self._layout, self._me.kas_id
        # First what makes all of it invalid.
        await self.client.transaction([("DEL", layout.lease(me))])
        gone = {Place.of(record): record for record in self._mine.values()}
        places = [*gone, *(place for place in self._changed if place not in gone)]
        for batch in _batches(places):
            ended = [gone.get(place) or self._changed[place] for place in batch]
            told = self._publish([], [one for one in ended if one is not None])
            await self.client.transaction(layout.remove(me, batch) + told)
        await self.client.transaction(
            [("DEL", layout.held(me)), ("SREM", layout.everyone, me)]
        )

    # Reading.

    async def find(self, agent_id: str) -> list[AgentRecord]:
        """Connections of an agent at kas that live."""
        found = await self._read(self._layout.agent(agent_id))
        return [one for one in found if one.agent.agent_id == agent_id]

    async def listed(self, project_id: int = 0) -> list[AgentRecord]:
        """Connections of a project, or all, at kas that live."""
        if project_id:
            found = await self._read(self._layout.project(project_id))
            return [one for one in found if one.agent.project_id == project_id]
        with _as_store_down():
            members = await self.client.call("SMEMBERS", self._layout.everyone)
            leases = await self._fetch_leases(members[:MAX_KAS])
        found = []
        for kas_id, lease in leases.items():
            if lease is not None and kas_id != self._me.kas_id:
                found += await self._read(self._layout.held(kas_id))
        return found

    async def _read(self, key: bytes) -> list[AgentRecord]:
        with _as_store_down():
            flat = await self.client.call("HGETALL", key)
            fields = dict(zip(flat[::2], map(_record, flat[1::2]), strict=True))
            unknown = {
                record.kas_id
                for record in fields.values()
                if record is not None and record.kas_id not in self._leases
            }
            unknown.discard(self._me.kas_id)
            found = await self._fetch_leases(list(unknown)[:MAX_KAS])
        dead = set(unknown)
        for kas_id, data in found.items():
            lease = _lease(data)
            if lease is not None:
                dead.discard(kas_id)
                kas = KasRecord.from_message(lease.kas)
                self._leases[kas_id] = kas
                if self._listener is not None:
                    self._listener.lease(kas)
        if dead:
            self._bury(key, dead, fields)
        return [
            record
            for record in fields.values()
            if record is not None and record.kas_id not in dead
        ]

    def _bury(
        self,
        key: bytes,
        dead: set[bytes],
        fields: Mapping[bytes, AgentRecord | None],
    ) -> None:
        """
        Remove what dead kas left under *key*.

        Their leases go with it: whoever came back to life just now sees by that, at
        the next transaction, that it has to write everything again.
        """
        gone = [
            field
            for field, record in fields.items()
            if record is not None and record.kas_id in dead
        ]
        removing = self.client.transaction(
            [
                *(("DEL", self._layout.lease(one)) for one in dead),
                ("HDEL", key, *gone[:MAX_DEAD_FIELDS]),
            ]
        )
        removing.addErrback(
            lambda failure: failure.trap(RedisUnavailable, RedisRefused)
        )

    # Helpers.

    def _later(self, name: str, seconds: float, call: Callable[[], None]) -> None:
        """Call once; whatever was planned under this name is not."""
        timer = self._timers.get(name)
        if timer is not None and timer.active():
            timer.cancel()
        if not self._stopping:
            self._timers[name] = self._clock.callLater(seconds, call)

    def _pause(self, seconds: float) -> Deferred[None]:
        def cancel(_: Deferred[None]) -> None:
            timer.cancel()

        done: Deferred[None] = Deferred(cancel)
        timer = self._clock.callLater(seconds, done.callback, None)
        return done

    def _run(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        """Do something in the background, unless it is being done."""
        if name in self._running or self._stopping:
            work.close()
            return
        done: Deferred[None] = Deferred()
        self._running[name] = done
        running = Deferred.fromCoroutine(work)
        self._running[name] = running
        running.addErrback(self._failed, name)
        running.addBoth(self._ran, name, running)

    def _ran(self, result: object, name: str, running: Deferred[None]) -> None:
        self._running.pop(name, None)
        if name == "write" and self._changed:
            self._later("write", BATCH_SECONDS, self._write)

    def _failed(self, failure: Failure, name: str) -> None:
        # Redis being down was logged by the client, and is made good when it is back.
        if failure.check(RedisUnavailable, CancelledError) is None:
            self._log.failure("{what} in Redis", failure, what=name)
        if name in ("write", "rewrite") and self.client.up:
            # Too much waited: the connection works, so nothing else would repeat it.
            again = partial(self._rewrite, "a write failed")
            self._later("again", LEASE_INTERVAL * self._random(), again)


def _lease(data: bytes | RedisRefused | None) -> store_pb2.Lease | None:
    if data is None or isinstance(data, RedisRefused):
        return None
    try:
        return store_pb2.Lease.FromString(data)
    except DecodeError:
        return None


def _record(data: bytes | None) -> AgentRecord | None:
    if data is None:
        return None
    try:
        return AgentRecord.from_message(pb.AgentRecord.FromString(data))
    except DecodeError:
        return None


def _batches(items: Sequence[T]) -> Iterator[Sequence[T]]:
    for begin in range(0, len(items), BATCH_RECORDS):
        yield items[begin : begin + BATCH_RECORDS]


@contextlib.contextmanager
def _as_store_down() -> Iterator[None]:
    try:
        yield
    except (RedisUnavailable, RedisRefused) as error:
        raise StoreDown(str(error)) from None
