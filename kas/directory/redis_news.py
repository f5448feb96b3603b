"""What kas tell each other over the channel in Redis: written, and read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from google.protobuf.message import DecodeError

from kas.directory.records import AgentRecord
from kas.directory.store import StoreListener
from kas.pb import directory_pb2 as pb
from kas.redis import Command

__all__ = ["publish", "tell"]

#: Bytes of one message on the channel; far below what Redis allows a subscriber that is
#: slow (32 MiB) even when some hundred come at once.
EVENT_BYTES = 64 * 1024

#: Bytes of a message that is read at all.  Ours are smaller.
MAX_EVENT_BYTES = 1024 * 1024


def publish(
    channel: str,
    here: Sequence[AgentRecord],
    ended: Sequence[AgentRecord],
    *,
    left: bytes = b"",
    lost: bytes = b"",
) -> list[Command]:
    """
    The commands that tell everyone, in as many messages as it takes.

    :param left: this kas stops.
    :param lost: a key that lost what stood there.
    """
    commands: list[Command] = []
    events, size = pb.Events(), 0

    def flush() -> None:
        nonlocal events, size
        commands.append(("PUBLISH", channel, events.SerializeToString()))
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
    if size:
        flush()
    return commands


def tell(
    data: bytes,
    listener: StoreListener,
    me: bytes,
    lost: Callable[[bytes], None],
) -> bool:
    """
    Tell *listener* what a message says of others; False where it is not one of ours.

    :param me: this kas, which knows its own.
    :param lost: told of each key that lost what stood there.
    """
    try:
        if len(data) > MAX_EVENT_BYTES:
            raise DecodeError
        events = pb.Events.FromString(data)
    except DecodeError:
        return False
    connected = list(_others(events.connected, me))
    disconnected = list(_others(events.disconnected, me))
    if connected or disconnected:
        listener.news(connected, disconnected)
    for kas_id in events.left:
        if kas_id != me:
            listener.left(kas_id)
    for key in events.lost:
        lost(key)
    return True


def _others(messages: Iterable[pb.AgentRecord], me: bytes) -> Iterable[AgentRecord]:
    for message in messages:
        if message.kas_id != me and message.agent_id:
            yield AgentRecord.from_message(message)
