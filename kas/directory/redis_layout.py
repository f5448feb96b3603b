"""
The layout of the data in Redis. All keys begin with ``<key_prefix>:txkas1:``.

==================  ====  ==========================================  ==================
Key                 Type  Content                                     Expires
==================  ====  ==========================================  ==================
``kas``             set   ids of all kas                              after `RECORD_MS`
``kas:<id>``        text  `Lease` of one kas: it is alive             after `LEASE_MS`
``agent:<id>``      hash  connections of an agent, at any kas         after `RECORD_MS`
``project:<id>``    hash  connections of a project's agents           after `RECORD_MS`
``held:<kas id>``   hash  connections at one kas                      after `RECORD_MS`
``cleaning:<id>``   text  a kas removes a dead kas's records          after `CLEAN_MS`
``seen:<id>``       text  when an agent was last connected, in ms     after `SEEN_MS`
``probe``           text  proves that Redis accepts writes            after a second
``probe:hash``      hash  the same for a hash                         after a second
``probe:set``       set   the same for a set                          after a second
channel ``events``        `Events`: connects and disconnects
==================  ====  ==========================================  ==================

A connection counts only while the lease of its kas is valid.  Therefore ten thousand
idle agents cost one lease for each kas every few seconds, and not ten thousand
refreshes.  Each field belongs to one kas, whose id is part of the field's name, so no
kas ever removes the fields of another kas, whatever the order of events.

GitLab's kas uses other keys (``agent_tracker2``, ``tunnel_tracker2``): these keys
contain addresses of its private gRPC API, and with shared keys, GitLab's kas and txkas
on the same Redis would send requests to each other.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterable, Sequence

import attrs
from google.protobuf.message import DecodeError

from kas.directory.records import AgentRecord
from kas.pb import directory_pb2 as pb
from kas.redis import Command

__all__ = [
    "CLEAN_MS",
    "EVENT_BYTES",
    "LEASE_MS",
    "MAX_EVENT_BYTES",
    "RECORD_MS",
    "SEEN_MS",
    "Layout",
    "Place",
    "read_events",
]

#: Milliseconds after which a kas that has not renewed its lease is considered dead.
LEASE_MS = 30_000

#: Milliseconds after which a record expires unless a kas refreshes it: a long time,
#: because refreshes are expensive.  The records of a dead kas are ignored after the end
#: of its lease, and removed by the other kas.
RECORD_MS = 2 * 3600 * 1000

#: Milliseconds during which one kas may remove a dead kas' records before another one
#: tries.
CLEAN_MS = 60_000

#: Milliseconds until Redis forgets when an agent was last connected, in 100 bytes for
#: each agent: the exact time does not matter if an agent is absent for longer.
SEEN_MS = 90 * 24 * 3600 * 1000

#: Maximum bytes of one message on the channel: some hundreds of messages take far less
#: than the limit of Redis for a slow subscriber (32 MiB).
EVENT_BYTES = 64 * 1024

#: Maximum bytes of an accepted message; messages of kas are smaller.
MAX_EVENT_BYTES = 1024 * 1024

_PLACE = struct.Struct(">qB")


@attrs.frozen
class Place:
    """Identity of a connection in the keys and fields of Redis."""

    agent_id: str
    instance_id: bytes
    project_id: int = 0

    @classmethod
    def of(cls, record: AgentRecord) -> Place:
        """Return the place of *record*."""
        agent = record.agent
        return cls(agent.agent_id, agent.instance_id, agent.project_id)

    def to_field(self) -> bytes:
        """Return the field's name in ``held:<kas id>``, which `from_field` parses."""
        return (
            _PLACE.pack(self.project_id, len(self.instance_id))
            + self.instance_id
            + self.agent_id.encode()
        )

    @classmethod
    def from_field(cls, field: bytes) -> Place:
        """
        Parse a result of `to_field`.

        :raises ValueError: if *field* has another format, because another program wrote
            it.
        """
        try:
            project_id, length = _PLACE.unpack_from(field)
        except struct.error:
            raise ValueError("no place") from None
        rest = field[_PLACE.size :]
        return cls(rest[length:].decode(), rest[:length], project_id)


@attrs.frozen
class Layout:
    """Names of the keys, and the commands that change their content."""

    prefix: str

    def _key(self, name: str) -> bytes:
        return f"{self.prefix}:txkas1:{name}".encode()

    @property
    def channel(self) -> str:
        """Name of the channel on which `Events` are published."""
        return f"{self.prefix}:txkas1:events"

    @property
    def everyone(self) -> bytes:
        """Key of the set with the ids of all kas."""
        return self._key("kas")

    def lease(self, kas_id: bytes) -> bytes:
        return self._key(f"kas:{kas_id.hex()}")

    def agent(self, agent_id: str) -> bytes:
        """Return the key of an agent's connections."""
        return self._key(f"agent:{agent_id}")

    def project(self, project_id: int) -> bytes:
        """Return the key of the connections of a project's agents."""
        return self._key(f"project:{project_id}")

    def held(self, kas_id: bytes) -> bytes:
        """Return the key of the connections at one kas."""
        return self._key(f"held:{kas_id.hex()}")

    def cleaning(self, kas_id: bytes) -> bytes:
        """Return the key of the lock for removing a dead kas's records."""
        return self._key(f"cleaning:{kas_id.hex()}")

    def seen(self, agent_id: str) -> bytes:
        """Return the key of the time when an agent was last connected."""
        return self._key(f"seen:{agent_id}")

    def note_seen(self, places: Iterable[Place], now: float) -> list[Command]:
        """
        Return commands for Redis that record that the agents at *places* were connected
        until *now*.
        """
        ids = dict.fromkeys(place.agent_id for place in places)
        when = str(round(now * 1000))
        return [("SET", self.seen(one), when, "PX", SEEN_MS) for one in ids]

    def probe(self) -> list[Command]:
        """
        Return commands that a usable Redis accepts: every command of the store's
        transactions.

        If Redis refused a command, the other commands of the same transaction would
        fail, too.
        """
        text, hash_ = self._key("probe"), self._key("probe:hash")
        set_ = self._key("probe:set")
        return [
            # Delete the keys first, because they may have another type.
            ("DEL", text, hash_, set_),
            ("SET", text, "1", "PX", 1000),
            ("GET", text),
            ("MGET", text),
            ("HSET", hash_, "1", "1"),
            ("PEXPIRE", hash_, 1000),
            ("HDEL", hash_, "2"),
            ("SADD", set_, "1"),
            ("PEXPIRE", set_, 1000),
            ("SMEMBERS", set_),
            ("SREM", set_, "2"),
            ("PUBLISH", self.channel, ""),
        ]

    def is_of(self, key: bytes, place: Place) -> bool:
        """
        Return whether *key* is one of the keys under which a record at *place* is
        stored.
        """
        return key in (self.agent(place.agent_id), self.project(place.project_id))

    def put(self, kas_id: bytes, records: Sequence[AgentRecord]) -> list[Command]:
        """
        Return the commands that write *records* of one kas, all with the same time to
        live.
        """
        commands: list[Command] = []
        projects: dict[int, list[bytes]] = defaultdict(list)
        held: list[bytes] = []
        for record in records:
            place = Place.of(record)
            value = record.to_message().SerializeToString()
            key = self.agent(place.agent_id)
            commands.append(("HSET", key, _in_agent(place, kas_id), value))
            commands.append(("PEXPIRE", key, RECORD_MS))
            if place.project_id:
                projects[place.project_id] += (_in_project(place, kas_id), value)
            held += (place.to_field(), value)
        for project_id, pairs in projects.items():
            key = self.project(project_id)
            commands.append(("HSET", key, *pairs))
            commands.append(("PEXPIRE", key, RECORD_MS))
        if held:
            key = self.held(kas_id)
            commands.append(("HSET", key, *held))
            commands.append(("PEXPIRE", key, RECORD_MS))
        return commands

    def remove(self, kas_id: bytes, places: Iterable[Place]) -> list[Command]:
        """Return the commands that remove the records of one kas at *places*."""
        commands: list[Command] = []
        projects: dict[int, list[bytes]] = defaultdict(list)
        held: list[bytes] = []
        for place in places:
            key = self.agent(place.agent_id)
            commands.append(("HDEL", key, _in_agent(place, kas_id)))
            if place.project_id:
                projects[place.project_id].append(_in_project(place, kas_id))
            held.append(place.to_field())
        for project_id, fields in projects.items():
            commands.append(("HDEL", self.project(project_id), *fields))
        if held:
            commands.append(("HDEL", self.held(kas_id), *held))
        return commands

    def publish(
        self,
        here: Sequence[AgentRecord] = (),
        ended: Sequence[AgentRecord] = (),
        *,
        left: bytes = b"",
        lost: bytes = b"",
        rewrote: bytes = b"",
    ) -> list[Command]:
        """
        Return the commands that notify all kas, in as many messages as needed.

        :param left: the id of a kas that stops.
        :param lost: a key that lost its content.
        :param rewrote: the id of a kas that wrote all its records again.
        """
        commands: list[Command] = []
        events, size = pb.Events(), 0

        def flush() -> None:
            nonlocal events, size
            commands.append(("PUBLISH", self.channel, events.SerializeToString()))
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
                flush()
        for record in here:
            message = record.to_message()
            events.connected.append(message)
            size += message.ByteSize()
            if size >= EVENT_BYTES:
                flush()
        if left:
            events.left.append(left)
            size += len(left)
        if lost:
            events.lost.append(lost)
            size += len(lost)
        if rewrote:
            events.rewrote.append(rewrote)
            size += len(rewrote)
        if size:
            flush()
        return commands


def read_events(data: bytes) -> pb.Events | None:
    """Parse a message of the channel; None if another program sent the message."""
    try:
        if len(data) > MAX_EVENT_BYTES:
            raise DecodeError
        return pb.Events.FromString(data)
    except DecodeError:
        return None


def _in_agent(place: Place, kas_id: bytes) -> bytes:
    return place.instance_id + kas_id


def _in_project(place: Place, kas_id: bytes) -> bytes:
    # Include the agent, because an agent chooses its own instance id, and must not
    # replace another agent's record.
    return place.instance_id + kas_id + place.agent_id.encode()
