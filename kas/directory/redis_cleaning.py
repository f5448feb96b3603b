"""Removing what a dead kas left in Redis."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from kas.directory.redis_layout import CLEAN_MS, Layout, Place
from kas.redis import Command, RedisClient

__all__ = ["clean"]

#: Transactions for one kas at most; what is left is for the next time.
ROUNDS = 100

#: Seconds between two of them: nobody waits for this, and others need Redis.
ROUND_PAUSE = 0.1


async def clean(
    client: RedisClient,
    layout: Layout,
    kas_id: bytes,
    *,
    by: bytes,
    count: int,
    now: Callable[[], float],
    pause: Callable[[float], Awaitable[None]],
) -> int | None:
    """
    Remove the connections of a kas whose lease is over, and the kas itself.

    Its lease goes with each piece, although there is none: should the kas come to life
    in between, it sees by that, at its next transaction, that it has to write
    everything again.

    :param by: who does it.
    :param count: connections to remove at once.
    :param now: the time of day: until when its agents were seen, as far as is known.
    :return: how many were removed; None: another kas does it already, or it lives.
    """
    lease, held = layout.lease(kas_id), layout.held(kas_id)
    lock = layout.cleaning(kas_id)
    if await client.call("SET", lock, by, "NX", "PX", CLEAN_MS) is None:
        # Is it a lock at all?  What is of another type is removed (`redis_wrong_type`).
        await client.call("GET", lock)
        return None
    removed = 0
    cursor: bytes = b"0"
    for _ in range(ROUNDS):
        if await client.call("EXISTS", lease):
            return None
        cursor, flat = await client.call("HSCAN", held, cursor, "COUNT", count)
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
        commands += layout.note_seen(places, now())
        if strange:
            commands.append(("HDEL", held, *strange))
        await client.transaction(commands)
        removed += len(places)
        await pause(ROUND_PAUSE)
    return removed
