"""Our Redis client as it runs in kas, and what it told."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

from twisted.internet import reactor as _reactor
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater

from kas.config.redis import Redis
from kas.redis import RedisClient, RedisRefused, RedisUnavailable
from tests.integration import redisserver
from tests.integration.processes import PATIENCE
from tests.integration.redisserver import until
from tunnel.config import RedisServer

reactor: Any = _reactor

CHANNEL = "p:txkas1:events"
_PROBE = (("SET", "p:txkas1:probe", "1", "PX", 1000),)


class Owner:
    """What a client told."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.messages: list[bytes] = []

    def redis_up(self) -> None:
        self.said.append("up")

    def redis_down(self) -> None:
        self.said.append("down")

    def redis_listening(self, on: bool) -> None:
        self.said.append("listening" if on else "deaf")

    def redis_wrong_type(self, key: bytes) -> None:
        pass

    def redis_message(self, data: bytes) -> None:
        self.messages.append(data)


@contextlib.asynccontextmanager
async def client(
    settings: Redis, wait: bool = True
) -> AsyncIterator[tuple[RedisClient, Owner]]:
    """A client that runs."""
    made = RedisClient(settings, reactor, lambda: 0.0, CHANNEL, _PROBE)
    owner = Owner()
    made.start(owner)
    try:
        if wait:
            await until(lambda: made.up and made.listening, f"up: {made.reason}")
        yield made, owner
    finally:
        made.stop()
        # What was cut is cut by the reactor's next turn.
        await deferLater(reactor, 0, lambda: None)


def tcp(server: redisserver.RedisServer, **more: Any) -> Redis:
    """Settings for it."""
    address = RedisServer(address=f"127.0.0.1:{server.port}")
    times = {"write_timeout": PATIENCE, "dial_timeout": PATIENCE}
    return Redis(server=address, **{**times, **more})


async def failure(waiting: Deferred[Any]) -> Exception:
    """What it fails with."""
    try:
        got = await waiting
    except (RedisUnavailable, RedisRefused) as error:
        return error
    raise AssertionError(f"it worked: {got}")
