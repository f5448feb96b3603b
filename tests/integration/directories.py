"""Directories that share a Redis, with the time of leases and batches in our hands."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Any

from twisted.internet import reactor as _reactor
from twisted.internet.task import Clock, deferLater

from kas.config.redis import Redis
from kas.directory.directory import Directory
from kas.directory.records import AgentRecord
from kas.directory.redis_layout import Layout
from kas.directory.redis_store import BATCH_SECONDS, LEASE_INTERVAL, RedisStore
from tests.integration import redisserver
from tests.integration.processes import PATIENCE
from tests.integration.redisserver import until
from tests.kas.directory.memory import kas
from tunnel.config import RedisServer
from tunnel.program.runtime import Runtime

reactor: Any = _reactor

LAYOUT = Layout("gitlab-kas")

#: The time of day at the beginning.
NOW = 1_800_000_000.0


class Fleet:
    """Some kas at one Redis; the time of leases and batches is in our hands."""

    def __init__(
        self, redis: redisserver.RedisServer, size: int, **settings: Any
    ) -> None:
        self.redis = redis
        self.clock = Clock()
        self.superseded: list[AgentRecord] = []
        self.settings = Redis(
            server=RedisServer(address=f"127.0.0.1:{redis.port}"),
            write_timeout=PATIENCE,
            **settings,
        )
        self.stores: list[RedisStore] = []
        self.all: list[Directory] = []
        for number in range(1, size + 1):
            self.add(number)

    def add(self, number: int) -> Directory:
        """One more kas; not started yet."""
        store = RedisStore(
            kas(number),
            self.settings,
            Runtime(
                reactor=reactor,
                random=lambda: 0.5,
                now=lambda: NOW + self.clock.seconds(),
            ),
            clock=self.clock,
        )
        directory = Directory(
            kas(number),
            store,
            Runtime(reactor=self.clock, random=lambda: 0.5),
            on_superseded=self.superseded.append,
        )
        self.stores.append(store)
        self.all.append(directory)
        return directory

    async def start(self) -> None:
        for one in self.all:
            await one.start()
        await self.settled()

    async def up(self) -> None:
        for store in self.stores:
            client = store.client
            await until(lambda: client.up and client.listening, "up")  # noqa: B023

    async def settled(self) -> None:
        """Until everybody is up and knows the others, and nothing is to be written."""
        await self.up()
        for _ in range(2):
            await self.passes(LEASE_INTERVAL * 1.1, LEASE_INTERVAL / 4)
        await self.quiet()

    async def quiet(self) -> None:
        """Until nothing of what is to be written is left, and all news are in."""
        while any(one._running or one._changed for one in self.stores):
            self.clock.advance(BATCH_SECONDS)
            for store in self.stores:
                await self.answered(store)
        for store in self.stores:
            await self.answered(store)
        # An answer may have asked for more: what was of another type is written again.
        if any(one._running or one._changed or one._strange for one in self.stores):
            await self.quiet()

    async def answered(self, store: RedisStore) -> None:
        """Until Redis has answered, and what it published was taken in."""
        if store.client.up:
            await store.client.call("PING")
        for one in self.stores:
            news = one.client._events.connection
            if news is not None:
                await news.send([("PING",)])

    async def passes(self, seconds: float, step: float) -> None:
        """Let time pass, and Redis answer between the steps."""
        while seconds > 0:
            self.clock.advance(min(step, seconds))
            seconds -= step
            for store in self.stores:
                await self.answered(store)

    async def stop(self) -> None:
        for one in self.all:
            await one.stop()
        await deferLater(reactor, 0, lambda: None)

    async def routes(self, directory: Directory, agent_id: str) -> Sequence[Any]:
        """What it says when the look-up is over."""
        directory.routes(agent_id)
        await until(lambda: not directory._lookups.running, "an answer")
        return list(directory.routes(agent_id))


@contextlib.asynccontextmanager
async def fleet(
    redis: redisserver.RedisServer, size: int = 2, **settings: Any
) -> AsyncIterator[Fleet]:
    """Some kas that run and know each other."""
    made = Fleet(redis, size, **settings)
    try:
        await made.start()
        yield made
    finally:
        await made.stop()


def keys(redis: redisserver.RedisServer) -> set[str]:
    """All that stands there, without the probes."""
    found = {key.decode() for key in redis("KEYS", "*")}
    return {key for key in found if "probe" not in key}
