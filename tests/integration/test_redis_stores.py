"""Stores of modules in a real Redis: the conformance tests, losses, and several kas."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
import pytest_twisted
from twisted.internet import reactor as _reactor
from twisted.internet.task import Clock, deferLater
from twisted.logger import LogEvent

from kas.config.redis import Redis
from kas.storage.redis_backend import LOOK_INTERVAL, RedisBackend
from kas.storage.sealed_backend import SEAL_BYTES, SealedBackend
from tests.integration import redisserver
from tests.integration.processes import ROOT
from tests.integration.redisclients import tcp
from tests.integration.redisserver import until
from tests.tunnel.hosting import store_conformance as conformance
from tests.tunnel.hosting.store_conformance import (
    LIMITS,
    RESET,
    Reader,
    Stand,
    reader,
    refused,
)
from tunnel.api import StoreEventType
from tunnel.errors import CallError, Status
from tunnel.hosting.stores import NamespaceStore, StoreBackend, Stores

reactor: Any = _reactor

#: The time of day at the beginning.
NOW = 1_800_000_000.0


class RedisStand(Stand):
    """
    One kas at a Redis.

    :param now: False: Redis says what time it is.
    :param secrets: the secrets that seal the values; None: nothing seals them.
    """

    def __init__(
        self,
        settings: Redis,
        *,
        now: bool = True,
        secrets: tuple[bytes, ...] | None = None,
    ) -> None:
        self.clock = Clock()
        self.secrets = secrets
        self.now = (lambda: NOW + self.clock.seconds()) if now else None
        self.settings = settings
        self.stores = Stores(self._make, self.clock, LIMITS)
        self.store = self.stores.open("mod", "one")

    def _make(self) -> StoreBackend:
        limits = LIMITS
        if self.secrets is not None:
            # The conformance tests count the bytes of 19 values.
            seals = 19 * SEAL_BYTES
            limits = attrs.evolve(limits, bytes=limits.bytes + seals)
        self.backend = RedisBackend(
            self.settings, reactor, lambda: 0.5, limits, self.now
        )
        if self.secrets is None:
            return self.backend
        return SealedBackend(self.backend, lambda: self.secrets or ())

    async def up(self) -> None:
        client = self.backend.client
        await until(lambda: client.up and client.listening, f"up: {client.reason}")

    async def passes(self, seconds: float) -> None:
        self.clock.advance(seconds)
        await self.settled()

    async def settled(self) -> None:
        await deferLater(reactor, 0)
        client = self.backend.client
        if client.up:
            await client.call("PING")
        events = client._events.connection
        if events is not None:
            await events.send([("PING",)])

    async def again(self, namespace: str, owner: str = "mod") -> NamespaceStore:
        return self.stores.open(owner, namespace)


@contextlib.asynccontextmanager
async def stand(
    redis: redisserver.RedisServer, **options: Any
) -> AsyncIterator[RedisStand]:
    made = RedisStand(tcp(redis), **options)
    try:
        await made.up()
        yield made
    finally:
        await made.stores.stop()
        await deferLater(reactor, 0)


@pytest.mark.parametrize("check", conformance.ALL, ids=lambda one: one.__name__)
@pytest_twisted.ensureDeferred
async def test_conformance(
    check: Callable[[Stand], Awaitable[None]], redis: redisserver.RedisServer
) -> None:
    async with stand(redis) as one:
        await check(one)


@pytest.mark.parametrize("check", conformance.ALL, ids=lambda one: one.__name__)
@pytest_twisted.ensureDeferred
async def test_conformance_with_seals(
    check: Callable[[Stand], Awaitable[None]], redis: redisserver.RedisServer
) -> None:
    async with stand(redis, secrets=(b"a" * 32,)) as one:
        await check(one)


@pytest_twisted.ensureDeferred
async def test_a_value_without_a_head(redis: redisserver.RedisServer) -> None:
    """It counts as missing, and the next value replaces it."""
    async with stand(redis) as one:
        await one.store.set("k", b"1")
        redis("HSET", "gitlab-kas:txkas1:store:mod/one", "=k", "garbage")
        assert await one.store.get("k") is None
        await one.store.set("k", b"2", version=0)
        found = await one.store.get("k")
        assert found is not None and found.value == b"2"


_PLACE = "gitlab-kas:txkas1:store:mod/one"

#: Heads of values that kas cannot have written.
_HEADS = {
    "zeros": "007:0:",
    "zero": "0:0:",
    "expiry": "1:00:",
    "digits": "9" * 17 + ":0:",
    "inexact": "9007199254740992:0:",
    "never": "1:" + "9" * 400 + ":",
    "5000": "1" * 5000 + ":0:",
    "negative": "-1:0:",
    "fraction": "1.5:0:",
}


@pytest.mark.parametrize("head", _HEADS.values(), ids=_HEADS)
@pytest.mark.parametrize("secrets", [None, (b"a" * 32,)], ids=["plain", "sealed"])
@pytest_twisted.ensureDeferred
async def test_heads_of_another_program(
    redis: redisserver.RedisServer, secrets: tuple[bytes, ...] | None, head: str
) -> None:
    """The value counts as missing for each operation."""
    async with stand(redis, secrets=secrets) as one:
        version = await one.store.set("k", b"1")
        redis("HSET", _PLACE, "=k", head + "evil")
        assert await one.store.get("k") is None
        # Nothing becomes of an obsolete version.
        assert await refused(one.store.set("k", b"2", version=version)) == (
            Status.ABORTED
        )
        created = await one.store.set("k", b"2", version=0)
        found = await one.store.get("k")
        assert found is not None and (found.value, found.version) == (b"2", created)
        redis("HSET", _PLACE, "=k", head + "evil")
        assert await one.store.set("k", b"3") > created
        redis("HSET", _PLACE, "=k", head + "evil")
        assert not await one.store.delete("k")
        assert [page async for page in one.store.keys()] == []
        assert redis("HGET", _PLACE, "=k") is None


@pytest.mark.parametrize(
    "number",
    ["garbage", "nan", "inf", "-1", "1.5", "1e300", "007", "9" * 16, "9" * 5000],
    ids=lambda number: number[:20] + f"-{len(number)}",
)
@pytest.mark.parametrize("field", ["version", "bytes"])
@pytest_twisted.ensureDeferred
async def test_numbers_of_another_program(
    redis: redisserver.RedisServer, field: str, number: str
) -> None:
    """
    The namespace works, versions increase although the time is the same, and its limit
    of bytes is valid.
    """
    async with stand(redis) as one:
        version = await one.store.set("k", b"1")
        redis("HSET", _PLACE, field, number)
        found = await one.store.get("k")
        assert found is not None and (found.value, found.version) == (b"1", version)
        second = await one.store.set("k", b"2", version=version)
        assert second > version
        assert await one.store.set("new", b"3", version=0) > second
        redis("HSET", _PLACE, field, number)
        assert await one.store.delete("new")
        redis("HSET", _PLACE, field, number)
        big = bytes(LIMITS.value)
        for index in range(LIMITS.bytes // LIMITS.value):
            # Each key is one byte long.
            await one.store.set(str(index), big[1:])
        too_much = one.store.set("x", big)
        assert await refused(too_much) == Status.RESOURCE_EXHAUSTED


@pytest_twisted.ensureDeferred
async def test_a_number_of_bytes_that_is_too_small(
    redis: redisserver.RedisServer,
) -> None:
    async with stand(redis) as one:
        await one.store.set("k", b"1" * 100)
        redis("HSET", _PLACE, "bytes", 0)
        await one.store.set("k", b"1")
        assert redis("HGET", _PLACE, "bytes") == b"0"


@pytest_twisted.ensureDeferred
async def test_a_version_in_the_future(
    redis: redisserver.RedisServer, events: list[LogEvent]
) -> None:
    """Just below the limit: the next versions are valid, and increase."""
    async with stand(redis) as one:
        await one.store.set("k", b"1")
        redis("HSET", _PLACE, "version", 2**52)
        first = await one.store.set("k", b"2")
        assert first == 2**52 + 1
        found = await one.store.get("k")
        assert found is not None and found.version == first
        # The version in Redis is too large now, as if the data was lost.
        second = await one.store.set("k", b"3", version=first)
        found = await one.store.get("k")
        assert found is not None and (found.value, found.version) == (b"3", second)
    assert sum("lost" in str(one.get("log_format")) for one in events) == 1


@pytest_twisted.ensureDeferred
async def test_keys_of_another_program(redis: redisserver.RedisServer) -> None:
    """Modules see only keys that they can request."""
    async with stand(redis) as one:
        await one.store.set("k", b"1")
        redis("ZADD", _PLACE + "/keys", 0, "", 0, "a\nb", 0, "\x7f", 0, "a" * 300)
        redis("ZADD", _PLACE + "/ends", "inf", "strange", "+inf", "k")
        assert [page async for page in one.store.keys()] == [["k"]]
        async with reader(one.store) as read:
            await one.settled()
            read.take()
            for key in ("", "a\nb", "\x7f", "a" * 300):
                redis("PUBLISH", "gitlab-kas:txkas1:store", f"S 1 mod/one {key}")
            await one.passes(LOOK_INTERVAL + 1)
            await one.store.set("k", b"2")
            await one.settled()
            assert read.take() == [(StoreEventType.SET, "k")]


@pytest_twisted.ensureDeferred
async def test_new_seals(redis: redisserver.RedisServer) -> None:
    """A new secret changes neither versions nor expiry, and no watch is notified."""
    old, new = b"a" * 32, b"b" * 32
    async with stand(redis, secrets=(old,)) as one:
        version = await one.store.set("k", b"1", expires_after=60)
        await one.store.set("forged", b"1")
        redis("HSET", "gitlab-kas:txkas1:store:mod/one", "=forged", "1:0:evil")
        assert await one.store.get("forged") is None
        place = ("gitlab-kas:txkas1:store:mod/one", "=k")
        before = redis("HGET", *place)
        async with reader(one.store) as read:
            await one.settled()
            read.take()
            one.secrets = (new, old)
            await one.passes(LOOK_INTERVAL + 1)
            await until(lambda: redis("HGET", *place) != before, "a new seal")
            await one.settled()
            assert read.take() == []
        after = redis("HGET", *place)
        assert after.split(b":")[:2] == before.split(b":")[:2]
        one.secrets = (new,)
        found = await one.store.get("k")
        assert found is not None
        assert (found.value, found.version) == (b"1", version)
        await one.passes(60)
        assert await one.store.get("k") is None


@pytest_twisted.ensureDeferred
async def test_values_that_are_too_large(redis: redisserver.RedisServer) -> None:
    """They count as missing and can be written again; other values stay."""
    place = "gitlab-kas:txkas1:store:mod/one"
    async with stand(redis) as one:
        await one.store.set("a", b"1")
        await one.store.set("b", b"2")
        for value in (b"1:0:", b"9" * 100 + b":0:", b"no head "):
            redis("HSET", place, "=a", value + b"x" * (16 << 20))
            assert await one.store.get("a") is None
            assert await one.store.set("a", b"1", version=0) > 0
            found = await one.store.get("a")
            assert found is not None and found.value == b"1"
        keys = [b"a" * 300, b"a" * (9 << 20), b"bb" * 200]
        redis("ZADD", place + "/keys", *(part for key in keys for part in (0, key)))
        redis("HSET", place, "epoch", b"e" * (9 << 20))
        assert [page async for page in one.store.keys()] == [["a", "b"]]
        found = await one.store.get("b")
        assert found is not None and found.value == b"2"
        pages = []
        after = ""
        while True:
            found_keys, after = await one.backend.page("mod/one", "", after, 1)
            pages += found_keys
            if not after:
                break
        assert pages == ["a", "b"]
        assert one.backend.client.up


@pytest_twisted.ensureDeferred
async def test_from_the_first_moment(redis: redisserver.RedisServer) -> None:
    """A module that stores something as it starts waits for the first connection."""
    one = RedisStand(tcp(redis))
    try:
        await one.store.set("k", b"1")
        found = await one.store.get("k")
        assert found is not None and found.value == b"1"
    finally:
        await one.stores.stop()
    redis.stop()
    two = RedisStand(tcp(redis))
    try:
        # ... and for no second one.
        assert await refused(two.store.get("k")) == Status.UNAVAILABLE
        assert two.backend.client.tried
    finally:
        await two.stores.stop()
        await deferLater(reactor, 0)


@pytest_twisted.ensureDeferred
async def test_the_clock_of_redis(redis: redisserver.RedisServer) -> None:
    """What one kas stores expires for the other, which needs no time for it."""
    async with stand(redis, now=False) as one, stand(redis, now=False) as two:
        async with reader(two.store) as read:
            await two.settled()
            read.take()
            await one.store.set("k", b"1", expires_after=3)
            await two.settled()
            assert (await two.store.get("k")) is not None
            assert read.take() == [(StoreEventType.SET, "k")]
            await deferLater(reactor, 3.05)
            assert (await two.store.get("k")) is None
            # Whoever looks first; a kas that died does not.
            two.clock.advance(LOOK_INTERVAL)
            await until(lambda: read.events, "it is told")
            assert read.take() == [(StoreEventType.DELETED, "k")]


@pytest_twisted.ensureDeferred
async def test_flushed(redis: redisserver.RedisServer, events: list[LogEvent]) -> None:
    """A loss is noticed within ten seconds, logged once, and told to every kas."""
    async with stand(redis) as one, stand(redis) as two:
        version = await one.store.set("k", b"1")
        assert (await two.store.get("k")) is not None
        async with reader(one.store) as first, reader(two.store) as second:
            first.take(), second.take()
            redis("FLUSHALL")
            one.clock.advance(LOOK_INTERVAL)
            await until(lambda: first.events, "the first kas knows")
            assert first.take() == [(RESET, "")]
            # Something is there again when the other one looks.
            assert await one.store.set("k", b"1", version=0) > version
            two.clock.advance(LOOK_INTERVAL)
            await until(lambda: len(second.events) > 1, "the second kas knows")
            assert (RESET, "") in second.take()
    said = [one["log_format"] for one in events if "lost" in str(one.get("log_format"))]
    assert len(said) == 2


@pytest_twisted.ensureDeferred
async def test_an_older_state(redis: redisserver.RedisServer) -> None:
    """As after a failover to a replica that was behind."""
    keys = ("", "/keys", "/ends")
    async with stand(redis) as one:
        await one.store.set("k", b"1")
        dumps = [redis("DUMP", f"gitlab-kas:txkas1:store:mod/one{k}") for k in keys]
        await one.store.set("k", b"2")
        async with reader(one.store) as read:
            await one.settled()
            read.take()
            for key, dump in zip(keys, dumps, strict=True):
                if dump is not None:
                    name = f"gitlab-kas:txkas1:store:mod/one{key}"
                    assert redis("RESTORE", name, 0, dump, "REPLACE") == b"OK"
            found = await one.store.get("k")
            assert found is not None and found.value == b"1"
            assert read.take() == [(RESET, "")]


def _restore(redis: redisserver.RedisServer, dumps: list[Any]) -> None:
    for key, dump in zip(_KEYS, dumps, strict=True):
        redis("DEL", key)
        if dump is not None:
            assert redis("RESTORE", key, 0, dump, "REPLACE") == b"OK"


_KEYS = [f"gitlab-kas:txkas1:store:mod/one{key}" for key in ("", "/keys", "/ends")]


@pytest.mark.parametrize("operation", ["set", "delete"])
@pytest_twisted.ensureDeferred
async def test_an_older_state_before_a_write(
    redis: redisserver.RedisServer, events: list[LogEvent], operation: str
) -> None:
    """
    A write makes the version newer again; the loss is noticed all the same, by each
    kas.
    """

    def has_reset(read: Reader) -> bool:
        return any(one.type is RESET for one in read.events)

    async with stand(redis) as one, stand(redis) as two:
        await one.store.set("k", b"1")
        dumps = [redis("DUMP", key) for key in _KEYS]
        await one.store.set("lost", b"2")
        assert (await two.store.get("lost")) is not None
        async with reader(one.store) as first, reader(two.store) as second:
            await one.settled()
            await two.settled()
            first.take(), second.take()
            _restore(redis, dumps)
            if operation == "set":
                await one.store.set("k", b"3")
            else:
                await one.store.delete("k")
            await until(
                lambda: any(one.type is RESET for one in first.events),
                "the writer knows",
            )
            two.clock.advance(LOOK_INTERVAL)
            await until(
                lambda: any(one.type is RESET for one in second.events),
                "the other one knows",
            )
    said = [one["log_format"] for one in events if "lost" in str(one.get("log_format"))]
    assert len(said) == 2


@pytest_twisted.ensureDeferred
async def test_swept_when_redis_is_back(redis: redisserver.RedisServer) -> None:
    """Before any other kas makes the version newer again."""
    async with stand(redis) as one:
        await one.store.set("k", b"1")
        dumps = [redis("DUMP", key) for key in _KEYS]
        await one.store.set("k", b"2")
        redis.stop()
        await until(lambda: not one.backend.client.up, "down")
        seen = one.backend._seen["mod/one"]
        before = seen.epoch
        redis.start()
        _restore(redis, dumps)

        def swept() -> bool:
            one.clock.advance(0)  # The sweep is due at once.
            return seen.epoch != before

        await until(swept, "swept", 15)


@pytest_twisted.ensureDeferred
async def test_away(redis: redisserver.RedisServer, tmp_path: Path) -> None:
    """While Redis is away nothing waits; after it watches are told."""
    async with stand(redis) as one:
        await one.store.set("k", b"1")
        async with reader(one.store) as read:
            await one.settled()
            read.take()
            redis.stop()
            await until(lambda: not one.backend.client.up, "down")
            assert await refused(one.store.get("k")) == Status.UNAVAILABLE
            async with reader(one.store) as later:
                redis.start()
                await until(lambda: later.events and read.events, "back", 30)
                assert read.take() == later.take() == [(RESET, "")]
                assert await one.store.get("k") is None


@pytest_twisted.ensureDeferred
async def test_what_stands_in_the_way(redis: redisserver.RedisServer) -> None:
    """Of another type, or messages of another program: an error, and no other harm."""
    redis("SADD", "gitlab-kas:txkas1:store:mod/one", "x")
    async with stand(redis) as one:
        with pytest.raises(CallError, match="another program") as caught:
            await one.store.get("k")
        assert caught.value.status == Status.INTERNAL
        other = await one.again("two")
        async with reader(other) as read:
            await one.settled()
            read.take()
            for text in (b"", b"S", b"S 1 mod/two \xff", b"X 1 mod/two k", b"S x a b"):
                redis("PUBLISH", "gitlab-kas:txkas1:store", text)
            await other.set("k", b"1")
            await one.settled()
            assert read.take() == [(StoreEventType.SET, "k")]


#: As in docs/several_kas.rst and docs/more_ports.rst.
_RIGHTS = (
    *("on", ">secret", "~gitlab-kas:txkas1:*", "&gitlab-kas:txkas1:*", "-@all"),
    *"+ping +select +multi +exec +subscribe +publish +get +set +mget +del".split(),
    *"+exists +pexpire +sadd +srem +smembers +hset +hdel +hkeys +hmget +hscan".split(),
)
_SCRIPT_RIGHTS = (
    "+eval +time +hget +zadd +zrem +zcard +zscore +zrange +zrangebyscore +zrangebylex"
).split()


@pytest_twisted.ensureDeferred
async def test_rights(redis: redisserver.RedisServer, tmp_path: Path) -> None:
    """What the documentation says is enough, and what lacks is said."""
    password = tmp_path / "password"
    password.write_text("secret")
    redis("ACL", "SETUSER", "kas", *_RIGHTS)
    one = RedisStand(tcp(redis, username="kas", password_file=password))
    try:
        await until(lambda: "NOPERM" in one.backend.client.reason, "refused")
        with pytest.raises(CallError, match="NOPERM") as caught:
            await one.store.get("k")
        assert caught.value.status == Status.UNAVAILABLE
        redis("ACL", "SETUSER", "kas", *_SCRIPT_RIGHTS)
        await one.up()
        await conformance.forgets_in_time(one)
        one.store = await one.again("two")
        await conformance.lists_by_prefix(one)
    finally:
        await one.stores.stop()
    pages = (ROOT / "docs" / "several_kas.rst", ROOT / "docs" / "more_ports.rst")
    text = "".join(page.read_text() for page in pages)
    for right in (*_RIGHTS[5:], *_SCRIPT_RIGHTS):
        assert right in text


_COUNTER = """
import json, random, sys
from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from kas.config.redis import Redis
from tunnel.config import RedisServer
from kas.storage.redis_backend import RedisBackend
from tunnel.errors import CallError, Status
from tunnel.hosting.stores import Stores

async def count():
    settings = Redis(server=RedisServer(address=sys.argv[1]))
    make = lambda: RedisBackend(settings, reactor, random.random)
    store = Stores(make, reactor).open("mod", "one")
    # Neither begins before the other is there.
    print("ready", flush=True)
    sys.stdin.readline()
    won = lost = 0
    while won + lost < 500:
        try:
            found = await store.get("round")
            number = int(found.value) if found else 0
            version = found.version if found else 0
            await store.set("round", b"%d" % (number + 1), version=version)
            won += 1
        except CallError as error:
            if error.status == Status.ABORTED:
                lost += 1
            elif error.status == Status.UNAVAILABLE:
                await deferLater(reactor, 0.05)
            else:
                raise
    print(json.dumps([won, lost]), flush=True)

done = Deferred.fromCoroutine(count())
done.addErrback(lambda failure: failure.printTraceback())
done.addBoth(lambda _: reactor.stop())
reactor.run()
"""


def test_one_wins_each_round(redis: redisserver.RedisServer) -> None:
    """Two processes change one value: each change is counted once."""
    address = f"127.0.0.1:{redis.port}"
    command = [sys.executable, "-c", _COUNTER, address]
    counters = [
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT
        )
        for _ in range(2)
    ]
    for one in counters:
        assert one.stdout is not None
        assert one.stdout.readline() == b"ready\n"
    for one in counters:
        assert one.stdin is not None
        one.stdin.write(b"go\n")
        one.stdin.flush()
    results = [json.loads(one.communicate(timeout=120)[0]) for one in counters]
    stored = redis("HGET", "gitlab-kas:txkas1:store:mod/one", "=round")
    assert int(stored.split(b":")[2]) == sum(won for won, _ in results)
    assert all(won > 0 for won, _ in results)
    assert sum(lost for _, lost in results) > 0
