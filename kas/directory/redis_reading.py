"""
Reader of the records of other kas in Redis: which kas are alive, and which agents they
have.

A connection counts only while the lease of its kas is valid, so the reader compares all
results with the leases, and removes the records of dead kas that it finds.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

import attrs
from google.protobuf.message import DecodeError

from kas.directory.records import AgentRecord, KasRecord
from kas.directory.redis_layout import Layout
from kas.directory.store import StoreDown, StoreListener
from kas.pb import directory_pb2 as pb
from kas.pb import store_pb2
from kas.redis import (
    Command,
    RedisClient,
    RedisRefused,
    RedisUnavailable,
    trap_redis_errors,
)

__all__ = ["MAX_KAS", "StoreReader", "read_lease", "read_record"]

#: Maximum number of kas to read.  A fleet has a handful of kas; only a crash loop
#: creates more, and dead kas are removed one by one.
MAX_KAS = 1000

#: Maximum number of keys that one command reads, because Redis executes no other
#: command in the meantime.
MAX_KEYS = 1000

#: Number of fields that kas requests from one command; Redis may return a few more.  A
#: hash with at most this many fields is read as a whole, at one moment.
PAGE_FIELDS = 500

#: Maximum fields and maximum bytes that one call reads, from all hashes and pages.
#: 10,000 agents with two replicas have 20,000 connections of about 400 bytes, and twice
#: as many while all of them move to other kas.  kas needs a few times as much memory.
#: If one hash alone exceeds a limit, another program wrote it, and the key is removed.
MAX_FIELDS, MAX_BYTES = 50_000, 32 * 1024 * 1024

#: Maximum bytes of one record; larger values are ignored.  The texts in a greeting of
#: an agent, from which kas makes the record, have at most 16 KiB.
MAX_RECORD = 32 * 1024

#: Maximum digits of a time in milliseconds: longer times are far beyond the year 9999.
MAX_DIGITS = 15

#: Maximum number of fields of dead kas that a lookup removes.
MAX_DEAD_FIELDS = 100


@attrs.define(eq=False)
class _Total:
    """Number of fields that one call has read, and their bytes."""

    fields: int = 0
    size: int = 0

    def add(self, flat: Sequence[bytes]) -> None:
        """Add a page of fields and their values."""
        self.fields += len(flat) // 2
        self.size += sum(map(len, flat))

    @property
    def is_too_large(self) -> bool:
        """Whether the fields exceed a limit."""
        return self.fields > MAX_FIELDS or self.size > MAX_BYTES


@attrs.define(eq=False)
class StoreReader:
    """
    Reader of the records of other kas.

    :ivar listener: listener that is notified of living kas; None after the store was
        stopped.
    :ivar leases: the other living kas, as found when this kas last wrote its lease.
    """

    _client: RedisClient
    _layout: Layout
    _me: bytes
    listener: StoreListener | None = None
    leases: dict[bytes, KasRecord] = attrs.field(factory=dict, init=False)

    # Methods that read which kas are alive.

    async def fetch_leases(self, ids: Sequence[bytes]) -> dict[bytes, bytes | None]:
        """Return the leases of these kas."""
        if not ids:
            return {}
        keys = map(self._layout.lease, ids)
        values = await self._client.call("MGET", *keys)
        return dict(zip(ids, values, strict=True))

    def learn(
        self, members: Sequence[bytes], found: Mapping[bytes, bytes | None]
    ) -> list[bytes]:
        """Record which kas are alive, and return the ids of all others."""
        leases, dead = {}, []
        for kas_id in members:
            lease = read_lease(found.get(kas_id))
            if lease is None or lease.kas.kas_id != kas_id:
                dead.append(kas_id)
            else:
                leases[kas_id] = KasRecord.from_message(lease.kas)
        self.leases = leases
        if self.listener is not None:
            self.listener.leases(list(leases.values()))
        return dead

    # Methods that read the agents of living kas.

    async def find(self, agent_id: str) -> list[AgentRecord]:
        """Return the connections of an agent at living kas."""
        found = await self._read(self._layout.agent(agent_id), _Total())
        return [one for one in found if one.agent.agent_id == agent_id]

    async def listed(self, project_id: int = 0) -> list[AgentRecord]:
        """
        Return the connections of a project's agents, or of all agents, at living kas.
        """
        total = _Total()
        if project_id:
            found = await self._read(self._layout.project(project_id), total)
            return [one for one in found if one.agent.project_id == project_id]
        with _as_store_down():
            members = await self._client.call("SMEMBERS", self._layout.everyone)
            leases = await self.fetch_leases(members[:MAX_KAS])
        found = []
        for kas_id, lease in leases.items():
            if lease is not None and kas_id != self._me:
                found += await self._read(self._layout.held(kas_id), total)
        return found

    async def last_seen(self, agent_ids: Sequence[str]) -> dict[str, float]:
        """Return when each agent was last connected, in seconds since 1970."""
        found: dict[str, float] = {}
        for begin in range(0, len(agent_ids), MAX_KEYS):
            ids = agent_ids[begin : begin + MAX_KEYS]
            with _as_store_down():
                values = await self._client.call("MGET", *map(self._layout.seen, ids))
            for agent_id, value in zip(ids, values, strict=True):
                if value is not None and value.isdigit() and len(value) <= MAX_DIGITS:
                    found[agent_id] = int(value) / 1000
        return found

    async def _read(self, key: bytes, total: _Total) -> list[AgentRecord]:
        with _as_store_down():
            fields = await self._fields(key, total)
            unknown = {
                record.kas_id
                for record in fields.values()
                if record is not None and record.kas_id not in self.leases
            }
            unknown.discard(self._me)
            found = await self.fetch_leases(list(unknown)[:MAX_KAS])
        dead = set(unknown)
        for kas_id, data in found.items():
            lease = read_lease(data)
            if lease is not None:
                dead.discard(kas_id)
                kas = KasRecord.from_message(lease.kas)
                if len(self.leases) < MAX_KAS:
                    self.leases[kas_id] = kas
                if self.listener is not None:
                    self.listener.lease(kas)
        if dead:
            self._delete_stale(key, dead, fields)
        return [
            record
            for record in fields.values()
            if record is not None and record.kas_id not in dead
        ]

    async def _fields(
        self, key: bytes, total: _Total
    ) -> dict[bytes, AgentRecord | None]:
        """
        Return the records in a hash, in pages, because another program may have written
        any number of fields.

        :param total: the fields of the call, to which the fields of this hash are
            added.
        :raises StoreDown: if the hash is too large, or if the call reads too much.
        """
        fields: dict[bytes, AgentRecord | None] = {}
        own = _Total()
        limits = f"{MAX_FIELDS} fields or {MAX_BYTES // 1024**2} MiB"
        cursor: bytes = b"0"
        while True:
            cursor, flat = await self._client.call(
                "HSCAN", key, cursor, "COUNT", PAGE_FIELDS
            )
            own.add(flat)
            total.add(flat)
            if own.is_too_large:
                self._client.foreign(key)
                shown = key.decode(errors="backslashreplace")[:200]
                raise StoreDown(
                    f"{shown} in Redis has more than {limits}: check which other "
                    "program writes there"
                )
            if total.is_too_large:
                # Keep nothing, but read on, because this hash alone may be too large.
                fields.clear()
            else:
                records = map(read_record, flat[1::2])
                fields.update(zip(flat[::2], records, strict=True))
            if cursor == b"0":
                break
        if total.is_too_large:
            raise StoreDown(
                f"the agents of all kas in Redis have more than {limits}: check which "
                f"other program writes below {self._layout.prefix}"
            )
        return fields

    def _delete_stale(
        self,
        key: bytes,
        dead: set[bytes],
        fields: Mapping[bytes, AgentRecord | None],
    ) -> None:
        """
        Remove the records of dead kas under *key*.

        The leases of these kas are removed, too.  A kas that has just recovered notices
        the missing lease at its next transaction, and writes all its records again.
        """
        every = (
            (field, record.kas_id)
            for field, record in fields.items()
            if record is not None and record.kas_id in dead
        )
        gone = dict(islice(every, MAX_DEAD_FIELDS))
        commands: list[Command] = [
            *(("DEL", self._layout.lease(one)) for one in set(gone.values())),
            ("HDEL", key, *gone),
        ]
        self._client.transaction(commands).addErrback(trap_redis_errors)


def read_lease(data: bytes | RedisRefused | None) -> store_pb2.Lease | None:
    """Parse a stored lease; None if it does not exist."""
    if data is None or isinstance(data, RedisRefused):
        return None
    try:
        return store_pb2.Lease.FromString(data)
    except DecodeError:
        return None


def read_record(data: bytes | None) -> AgentRecord | None:
    """Parse a stored connection; None if it does not exist."""
    if data is None or len(data) > MAX_RECORD:
        return None
    try:
        return AgentRecord.from_message(pb.AgentRecord.FromString(data))
    except DecodeError:
        return None


@contextlib.contextmanager
def _as_store_down() -> Iterator[None]:
    try:
        yield
    except (RedisUnavailable, RedisRefused) as error:
        raise StoreDown(str(error)) from None
