"""
Redis, made to fail at once.

    RedisClient ── commands ──> one connection, in order, MULTI/EXEC in one write
         │    ──── news ──────> one connection that has subscribed
         └── breaker: closed while the first of them works, open until it does again

`kas.redis.connection` is the one file that touches txredisapi.  Importing this installs
a reactor, as importing txredisapi does.
"""

from __future__ import annotations

from kas.redis.client import Counters, RedisClient, RedisListener
from kas.redis.connection import Command, RedisRefused, RedisUnavailable

__all__ = [
    "Command",
    "Counters",
    "RedisClient",
    "RedisListener",
    "RedisRefused",
    "RedisUnavailable",
]
