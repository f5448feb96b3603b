"""
Client of Redis whose commands fail at once during an outage; `kas.directory` contains
the layout of the data in Redis.

    RedisClient ── commands ──> one connection, in order, MULTI/EXEC in one write
         │    ──── events ────> one connection that has subscribed
         └── breaker: closed while the connection for commands works, otherwise open

    client.py       commands, events, and the breaker
    connection.py   one connection: the only file that uses txredisapi
    dialling.py     opening of a connection: sockets, TLS, sentinels, passwords
    metrics.py      metrics of each client, by its purpose

Importing this package installs a reactor, because importing txredisapi does.
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
