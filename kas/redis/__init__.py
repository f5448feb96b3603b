"""
The client of Redis, made to fail at once; what is kept there is `kas.directory`'s.

    RedisClient ── commands ──> one connection, in order, MULTI/EXEC in one write
         │    ──── events ────> one connection that has subscribed
         └── breaker: closed while the first of them works, open until it does again

    client.py       commands, events, and the breaker
    connection.py   one connection: the only file that touches txredisapi
    dialling.py     how one comes about: sockets, TLS, sentinels, passwords
    metrics.py      metrics of each client, by its purpose

Importing this installs a reactor, as importing txredisapi does.
"""

from __future__ import annotations

from kas.redis.client import Counters, RedisClient, RedisListener
from kas.redis.connection import (
    Command,
    RedisRefused,
    RedisUnavailable,
    trap_redis_errors,
)

__all__ = [
    "Command",
    "Counters",
    "RedisClient",
    "RedisListener",
    "RedisRefused",
    "RedisUnavailable",
    "trap_redis_errors",
]
