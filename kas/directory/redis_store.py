"""
Store of a directory in Redis, which writes this kas' records and keeps them correct.

    put, remove ──> changes ───────(20 ms)──> MULTI: own lease, HSET/HDEL, PUBLISH
    every 10 s ───> MULTI: own lease, the other leases, a few records again
    find, listed ─> `kas.directory.redis_reading`

Every transaction reads this kas' lease before it writes the lease again, with an
increasing number.  If the lease is missing or has an older number, the store has lost
the last writes: Redis was flushed, it failed over to an older state, or this kas was
paused for so long that other kas removed its records.  The store then writes all
records again.  The store also writes all records again whenever Redis comes back, so
changes during an outage need not be remembered.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import attrs
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure

from kas.config.redis import Redis
from kas.directory.records import AgentRecord, KasRecord
from kas.directory.redis_layout import (
    CLEAN_MS,
    LEASE_MS,
    RECORD_MS,
    Layout,
    Place,
    read_events,
)
from kas.directory.redis_reading import MAX_KAS, StoreReader, read_lease, read_record
from kas.directory.store import StoreListener
from kas.pb import directory_pb2, store_pb2
from kas.redis import (
    Command,
    RedisClient,
    RedisRefused,
    RedisUnavailable,
    trap_redis_errors,
)
from tunnel.program.runtime import Runtime
from tunnel.toolkit.timers import Timers

__all__ = ["RedisStore"]

T = TypeVar("T")

#: Seconds between two leases: a lease is valid for three times as long.
LEASE_INTERVAL = 10.0

#: Seconds within which each record is written again; a record expires after twice as
#: long.
KEEP_SECONDS = 3600.0

#: Seconds during which changes are collected: many simultaneous connections then need
#: only a few transactions, and no client notices the delay.
BATCH_SECONDS = 0.02

#: Maximum number of changes in one transaction, and maximum number of records that are
#: read or removed at once.  A few hundred commands block Redis for a millisecond.
BATCH_RECORDS = 200

#: Number of names of connections that are parsed in one turn of the event loop, because
#: another program may have written many.
PARSED_AT_ONCE = 1_000

#: Seconds between two transactions while all records are written again: 10,000 records
#: take less than five seconds, and Redis can execute other commands most of that time.
REWRITE_PAUSE = 0.05

#: Maximum number of keys of another type that are removed at the same time; further
#: keys are removed when kas encounters them again.
MAX_STRANGE = 1000

#: Maximum number of transactions that remove the records of one kas; the remaining
#: records are removed the next time.
CLEAN_ROUNDS = 100

#: Seconds between two transactions that remove records of a dead kas: they are not
#: urgent, and other kas need Redis.
CLEAN_PAUSE = 0.1

#: Maximum seconds for removing this kas' records before the process ends.
STOP_SECONDS = 2.0


@attrs.define(eq=False)
class RedisStore:
    """
    Implementation of `kas.directory.store.Store` with Redis.

    :param clock: clock for everything except connections: the reactor, except in tests.
    """

    _me: KasRecord
    _settings: Redis
    _runtime: Runtime
    _clock: IReactorTime = attrs.field(
        default=attrs.Factory(lambda self: self._runtime.reactor, takes_self=True),
        kw_only=True,
    )
    #: Metrics: number of times that all records were written again, and number of
    #: messages that could not be parsed.
    rewrites: int = attrs.field(default=0, init=False)
    malformed: int = attrs.field(default=0, init=False)
    #: Number of removed keys of another type.
    removed: int = attrs.field(default=0, init=False)
    #: Keys of another type that are being removed.
    _strange: set[bytes] = attrs.field(factory=set, init=False)
    #: Time when the next removed key may be logged.
    _say_removed: float = attrs.field(default=-math.inf, init=False)
    client: RedisClient = attrs.field(init=False)
    _layout: Layout = attrs.field(init=False)
    _listener: StoreListener | None = attrs.field(default=None, init=False)
    #: Records of this kas, ordered by the last write.
    _mine: OrderedDict[tuple[str, bytes], AgentRecord] = attrs.field(
        factory=OrderedDict, init=False
    )
    #: Places in Redis that have changed, in order, each with the removed record, or
    #: None if the record was not removed.
    _changed: OrderedDict[Place, AgentRecord | None] = attrs.field(
        factory=OrderedDict, init=False
    )
    _reader: StoreReader = attrs.field(init=False)
    _timers: Timers = attrs.field(init=False)
    #: Background tasks by name; each task runs at most once at a time.
    _running: dict[str, Deferred[None]] = attrs.field(factory=dict, init=False)
    #: Number in this kas' lease, which increases with each transaction.
    _sequence: int = attrs.field(default=0, init=False)
    #: Number of the last lease that was sent; -1 if no lease was sent since Redis came
    #: back.
    _sent: int = attrs.field(default=-1, init=False)
    _stopping: bool = attrs.field(default=False, init=False)
    #: State that was last reported to the listener.
    _listening: bool = attrs.field(default=False, init=False)
    #: Reason why all records have to be written again; empty if this is not necessary.
    _stale: str = attrs.field(default="", init=False)
    _log = Logger()

    def __attrs_post_init__(self) -> None:
        self._layout = Layout(self._settings.key_prefix)
        self.client = RedisClient(
            self._settings,
            self._runtime.reactor,
            self._runtime.random,
            self._layout.channel,
            self._layout.probe(),
        )
        self._reader = StoreReader(self.client, self._layout, self._me.kas_id)
        self._timers = Timers(self._clock)

    def start(self, listener: StoreListener) -> None:
        """Connect to Redis in the background."""
        self._listener = self._reader.listener = listener
        self.client.start(self)

    async def stop(self) -> None:
        """Remove this kas' records within `STOP_SECONDS`, and disconnect."""
        self._stopping = True
        self._reader.listener = None
        self._timers.cancel_all()
        for running in tuple(self._running.values()):
            running.cancel()
        if self.client.up:
            leaving = Deferred.fromCoroutine(self._leave())
            leaving.addTimeout(STOP_SECONDS, self._clock)
            try:
                await leaving
            except Exception as error:
                self._log.warn(
                    "the records of this kas in Redis stay until other kas remove "
                    "them: {reason}",
                    reason=str(error),
                )
        self.client.stop()

    # Methods about records of this kas.

    def update(self, me: KasRecord) -> None:
        """
        Set this kas' own record, which is written with the next lease; if this kas
        begins to drain, the record is written at once.
        """
        before, self._me = self._me, me
        if before.draining != me.draining:
            self._later("lease", 0.0, self._lease_due)

    def put(self, record: AgentRecord) -> None:
        """Store a connection of this kas, and notify all kas."""
        place = Place.of(record)
        key = (place.agent_id, place.instance_id)
        before = self._mine.get(key)
        if before is not None and Place.of(before) != place:
            self._change(Place.of(before), before)
        self._mine[key] = record
        self._mine.move_to_end(key)
        self._change(place, None)

    def announce(self, record: AgentRecord) -> None:
        """Notify all kas of a connection once more."""
        self._change(Place.of(record), None)

    def remove(self, record: AgentRecord) -> None:
        """Remove a connection; the record of a newer connection stays."""
        key = (record.agent.agent_id, record.agent.instance_id)
        mine = self._mine.get(key)
        if mine is not None and mine.agent.generation == record.agent.generation:
            del self._mine[key]
            self._change(Place.of(record), record)

    def _change(self, place: Place, gone: AgentRecord | None) -> None:
        if self._stopping or not self.client.up:
            # Do nothing, because all records are written again when Redis is back.
            return
        self._changed[place] = gone
        if "write" not in self._running and "write" not in self._timers:
            self._write_later()

    def _write_later(self) -> None:
        self._later("write", BATCH_SECONDS, self._write)

    def _write(self) -> None:
        self._run("write", self._write_changes())

    async def _write_changes(self) -> None:
        while self._changed:
            batch: dict[Place, AgentRecord | None] = {}
            while self._changed and len(batch) < BATCH_RECORDS:
                place, gone = self._changed.popitem(last=False)
                batch[place] = gone
            await self._send(batch)

    def _send(self, places: Mapping[Place, AgentRecord | None]) -> Deferred[list[Any]]:
        """
        Write this kas' current connections at *places* to Redis, and notify all kas.
        """
        here, gone, ended = [], [], []
        for place, before in places.items():
            mine = self._mine.get((place.agent_id, place.instance_id))
            # Write the current record, and not the changed record: later writes win.
            if mine is not None and Place.of(mine) == place:
                here.append(mine)
            else:
                gone.append(place)
                if before is not None:
                    ended.append(before)
        me = self._me.kas_id
        commands = self._layout.remove(me, gone) + self._layout.put(me, here)
        commands += self._layout.note_seen(gone, self._runtime.now())
        commands += self._layout.publish(here, ended)
        return self._transaction(commands, changes=True)

    # Methods about the state of the connection to Redis.

    def redis_up(self) -> None:
        """Write all records again, because Redis works again."""
        # Ignore the last lease, because all records are written again anyway.
        self._sent = -1
        self._later("lease", 0.0, self._lease_due)
        self._rewrite("")
        self._update_listening()

    def redis_down(self) -> None:
        """Record that Redis does not work; nothing is queued in the meantime."""
        self._changed.clear()
        self._update_listening()

    def redis_listening(self, on: bool) -> None:
        """Record whether events arrive."""
        self._update_listening()

    def _update_listening(self) -> None:
        # While this kas cannot write, other kas can hardly publish.  In this state, the
        # lack of events proves nothing, even if the connection for events is open.
        on = self.client.up and self.client.listening
        if on != self._listening and self._listener is not None and not self._stopping:
            self._listening = on
            self._listener.listening(on)

    def redis_message(self, data: bytes) -> None:
        """Handle events from a kas, which may be this kas."""
        listener, me = self._listener, self._me.kas_id
        if not data or listener is None or self._stopping:
            return
        events = read_events(data)
        if events is None:
            self.malformed += 1
            if self.malformed == 1:
                self._log.warn(
                    "another program publishes messages on our channel in Redis"
                )
            return
        connected = list(_others(events.connected, me))
        disconnected = list(_others(events.disconnected, me))
        if connected or disconnected:
            listener.events(connected, disconnected)
        for kas_id in events.left:
            if kas_id != me:
                listener.left(kas_id)
        for kas_id in events.rewrote:
            if kas_id != me:
                listener.rewrote(kas_id)
        for key in events.lost:
            self._write_again(key)

    # Methods about keys of another type, and about the records that were lost with
    # them.

    def redis_wrong_type(self, key: bytes) -> None:
        """
        Remove a key of another type, or with a value that is too large, because no
        other program may use this prefix, and write the records of the key again.
        """
        # Ignore the own lease, because SET replaces a key of any type.
        if self._stopping or key in self._strange or key == self._own_lease:
            return
        if len(self._strange) < MAX_STRANGE:
            self._strange.add(key)
            removing = self.client.call("DEL", key)
            removing.addCallbacks(lambda _: self._removed(key), trap_redis_errors)
            removing.addBoth(lambda _: self._strange.discard(key))

    def _removed(self, key: bytes) -> None:
        self.removed += 1
        now = self._clock.seconds()
        if now >= self._say_removed:
            self._say_removed = now + LEASE_INTERVAL
            self._log.warn(
                "removed a value of another type or size from {key} in Redis: "
                "check which other program writes below {prefix} ({count} so far)",
                key=key.decode(errors="backslashreplace")[:200],
                prefix=self._layout.prefix,
                count=self.removed,
            )
        if key in (self._layout.held(self._me.kas_id), self._layout.everyone):
            self._rewrite("it had another type or size")
            return
        self._write_again(key)
        lost = self._layout.publish(lost=key)
        self.client.transaction(lost).addErrback(trap_redis_errors)

    def _write_again(self, key: bytes) -> None:
        """Write *key* again, because this kas or another one found it missing."""
        for record in self._mine.values():
            place = Place.of(record)
            if self._layout.is_of(key, place):
                self._change(place, None)

    @property
    def _own_lease(self) -> bytes:
        return self._layout.lease(self._me.kas_id)

    # Methods about the lease of this kas.

    def _transaction(
        self, commands: Sequence[Command], *, changes: bool = False
    ) -> Deferred[list[Any]]:
        """
        Execute *commands* in a transaction that renews this kas' lease, and check
        whether Redis still has the records of this kas.

        :param changes: whether the commands write records that must exist from now on.
        """
        self._sequence += changes
        lease = self._own_lease
        value = store_pb2.Lease(kas=self._me.to_message(), sequence=self._sequence)
        data = value.SerializeToString()
        first: list[Command] = [
            ("GET", lease),
            ("SET", lease, data, "PX", LEASE_MS),
        ]
        before, self._sent = self._sent, self._sequence

        def check(results: list[Any]) -> list[Any]:
            found = read_lease(results[0])
            if before >= 0:
                if found is None:
                    self._rewrite("our lease was missing")
                elif found.sequence < before:
                    self._rewrite("our lease was older than the last one sent")
            return results[2:]

        return self.client.transaction([*first, *commands]).addCallback(check)

    def _lease_due(self) -> None:
        interval = LEASE_INTERVAL * (0.9 + 0.2 * self._runtime.random())
        self._later("lease", interval, self._lease_due)
        if self.client.up:
            self._run("lease", self._renew_lease())

    async def _renew_lease(self) -> None:
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
        # Check this only if no records are being written, because these records may
        # still be missing.
        settled = not {"write", "rewrite"} & self._running.keys()
        results = await self._transaction(commands + layout.put(me, self._due()))
        answers = dict(zip(commands, results, strict=False))
        if answers.get(keep_held) == 0 and settled:
            self._rewrite("our records were missing")
        members = answers["SMEMBERS", layout.everyone]
        if isinstance(members, RedisRefused):
            return
        if len(members) > 10 * MAX_KAS:
            self.redis_wrong_type(layout.everyone)
            return
        members = [one for one in members if one != me][:MAX_KAS]
        found = dict(zip(known, results[3], strict=True)) if known else {}
        strangers = [one for one in members if one not in found]
        found.update(await self._reader.fetch_leases(strangers))
        dead = self._reader.learn(members, found)
        if dead:
            # Choose one at random, so that several kas rarely choose the same dead kas.
            chosen = dead[int(self._runtime.random() * len(dead)) % len(dead)]
            self._run("clean", self._clean(chosen))

    def _due(self) -> list[AgentRecord]:
        """
        Return the records that have to be written again now, so that each record is
        written in time.

        Records are written and not merely refreshed: if Redis evicted a key, the key
        may exist again with the fields of other kas, but without the fields of this
        kas.
        """
        count = math.ceil(len(self._mine) * LEASE_INTERVAL / KEEP_SECONDS)
        due = []
        for _ in range(count):
            key, record = next(iter(self._mine.items()))
            self._mine.move_to_end(key)
            due.append(record)
        return due

    # Methods that remove records of dead kas.

    async def _clean(self, kas_id: bytes) -> None:
        removed = await self._remove_dead(kas_id)
        if removed is not None:
            self._log.info(
                "kas {kas} is gone; removing the {count} connections that it left",
                kas=kas_id.hex(),
                count=removed,
            )

    async def _remove_dead(self, kas_id: bytes) -> int | None:
        """
        Remove the records of a dead kas, in batches.

        Each batch also deletes the lease, although it has normally expired: if the kas
        comes back in the meantime, it notices at its next transaction that its lease is
        missing, and writes all its records again.

        :returns: the number of removed records; None if another kas is already removing
            the records, or if the kas is alive.
        """
        client, layout = self.client, self._layout
        lease, held = layout.lease(kas_id), layout.held(kas_id)
        lock = layout.cleaning(kas_id)
        me = self._me.kas_id
        if await client.call("SET", lock, me, "NX", "PX", CLEAN_MS) is None:
            # Check that the key is a lock: a key of another type is removed
            # (`redis_wrong_type`).
            await client.call("GET", lock)
            return None
        removed = 0
        cursor: bytes = b"0"
        for _ in range(CLEAN_ROUNDS):
            if await client.call("EXISTS", lease):
                return None
            cursor, flat = await client.call(
                "HSCAN", held, cursor, "COUNT", BATCH_RECORDS
            )
            fields = flat[::2]
            if not fields and cursor == b"0":
                end: list[Command] = [("DEL", lease, held, lock)]
                await client.transaction([*end, ("SREM", layout.everyone, kas_id)])
                return removed
            places, strange = [], []
            for field in fields:
                try:
                    places.append(Place.from_field(field))
                except ValueError:
                    strange.append(field)
            commands: list[Command] = [("DEL", lease), *layout.remove(kas_id, places)]
            # Record that the agents of the dead kas were connected until now, as far as
            # is known.
            commands += layout.note_seen(places, self._runtime.now())
            if strange:
                commands.append(("HDEL", held, *strange))
            await client.transaction(commands)
            removed += len(places)
            await deferLater(self._clock, CLEAN_PAUSE)
        return removed

    # Methods that write all records again.

    def _rewrite(self, reason: str) -> None:
        if reason:
            self._log.info(
                (
                    "Redis lost the records of this kas, which are being written "
                    "again: {reason}"
                ),
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
                await deferLater(self._clock, REWRITE_PAUSE)
            # Notify other kas of this: otherwise, they would not learn of connections
            # that ended during the outage and whose records Redis has lost.
            commands = self._layout.publish(rewrote=self._me.kas_id)
            await self.client.transaction(commands)

    async def _remove_leftovers(self) -> None:
        """
        Remove this kas' records of connections that ended while Redis was unreachable.
        """
        held = self._layout.held(self._me.kas_id)
        leftovers = []
        for number, field in enumerate(await self.client.call("HKEYS", held), 1):
            if number % PARSED_AT_ONCE == 0:
                await deferLater(self._clock, 0)
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
            await deferLater(self._clock, REWRITE_PAUSE)

    async def _leave(self) -> None:
        layout, me = self._layout, self._me.kas_id
        # Remove the lease first, which makes all records invalid.
        await self.client.transaction([("DEL", layout.lease(me))])
        gone = {Place.of(record): record for record in self._mine.values()}
        places = [*gone, *(place for place in self._changed if place not in gone)]
        for batch in _batches(places):
            ended = [gone.get(place) or self._changed[place] for place in batch]
            there = [one for one in ended if one is not None]
            events = layout.publish(ended=there)
            seen = layout.note_seen(batch, self._runtime.now())
            await self.client.transaction(layout.remove(me, batch) + seen + events)
        goodbye = layout.publish(left=me)
        await self.client.transaction(
            [("DEL", layout.held(me)), ("SREM", layout.everyone, me), *goodbye]
        )

    # Methods that read.

    async def find(self, agent_id: str) -> list[AgentRecord]:
        """Return the connections of an agent at living kas."""
        return await self._reader.find(agent_id)

    async def listed(self, project_id: int = 0) -> list[AgentRecord]:
        """
        Return the connections of a project's agents, or of all agents, at living kas.
        """
        return await self._reader.listed(project_id)

    async def last_seen(self, agent_ids: Sequence[str]) -> dict[str, float]:
        """
        Return when each agent was last connected; agents whose time is unknown are left
        out.
        """
        return await self._reader.last_seen(agent_ids)

    # Methods that run tasks in the background.

    def _later(self, name: str, seconds: float, call: Callable[[], None]) -> None:
        if not self._stopping:
            self._timers.later(name, seconds, call)

    def _run(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        if name in self._running or self._stopping:
            work.close()
            return
        # Add an entry first: the task begins at once, and may check whether it is
        # running.
        self._running[name] = Deferred()
        running = Deferred.fromCoroutine(work)
        self._running[name] = running
        running.addBoth(self._ran, name)

    def _ran(self, result: object, name: str) -> None:
        self._running.pop(name, None)
        if name == "write" and self._changed:
            self._write_later()
        if not isinstance(result, Failure):
            return
        # Do not log failures and refusals of Redis, because the client logs them.
        if result.check(RedisUnavailable, RedisRefused, CancelledError) is None:
            self._log.failure("{what} in Redis failed", result, what=name)
        if name in ("write", "rewrite") and self.client.up:
            # Start the task again if too many commands were waiting: the connection
            # works, so no other event would start this task.
            again = partial(self._rewrite, "a write failed")
            self._later("again", LEASE_INTERVAL * self._runtime.random(), again)


def _batches(items: Sequence[T]) -> Iterator[Sequence[T]]:
    for begin in range(0, len(items), BATCH_RECORDS):
        yield items[begin : begin + BATCH_RECORDS]


def _others(
    messages: Iterable[directory_pb2.AgentRecord], me: bytes
) -> Iterator[AgentRecord]:
    for message in messages:
        if message.kas_id != me and message.agent_id:
            yield AgentRecord.from_message(message)
