"""Keys of ours at which something of another type stands, and commands refused."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
import pytest_twisted
from twisted.internet.defer import gatherResults
from twisted.logger import LogEvent, LogLevel, formatEvent

from kas.directory import redis_reading, redis_store
from kas.directory.redis_reading import MAX_KAS
from kas.directory.redis_store import LEASE_INTERVAL
from kas.directory.store import StoreDown
from kas.redis import RedisRefused
from tests.integration import redisserver
from tests.integration.directories import LAYOUT, Fleet, fleet
from tests.integration.redisclients import failure
from tests.integration.redisserver import until
from tests.kas.directory.memory import kas, record
from tunnel.errors import CallError, Status

#: How to make something of each type.
TYPES = {
    "string": ("SET", "{key}", "nonsense"),
    "list": ("RPUSH", "{key}", "a", "b"),
    "set": ("SADD", "{key}", "a"),
    "hash": ("HSET", "{key}", "a", "b"),
    "zset": ("ZADD", "{key}", "1", "a"),
    "stream": ("XADD", "{key}", "*", "a", "b"),
}

#: One kas of two, and a third that is dead.
MINE, OTHER, DEAD = kas(1).kas_id, kas(2).kas_id, kas(9).kas_id

KEYS = {
    "everyone": (LAYOUT.everyone, "set"),
    "lease": (LAYOUT.lease(MINE), "string"),
    "lease of another": (LAYOUT.lease(OTHER), "string"),
    "agent": (LAYOUT.agent("a"), "hash"),
    "agent of another": (LAYOUT.agent("b"), "hash"),
    "project": (LAYOUT.project(7), "hash"),
    "held": (LAYOUT.held(MINE), "hash"),
    "held of another": (LAYOUT.held(OTHER), "hash"),
    "held of the dead": (LAYOUT.held(DEAD), "hash"),
    "cleaning": (LAYOUT.cleaning(DEAD), "string"),
    "seen": (LAYOUT.seen("c"), "string"),
    "probe": (LAYOUT._key("probe"), "string"),
    "probe:hash": (LAYOUT._key("probe:hash"), "hash"),
    "probe:set": (LAYOUT._key("probe:set"), "set"),
}


def _cases() -> Iterator[tuple[str, str]]:
    for name, (_, right) in KEYS.items():
        for wrong in TYPES:
            if wrong != right:
                yield name, wrong


def _lines(events: list[LogEvent], *levels: Any) -> list[str | None]:
    return [formatEvent(one) for one in events if one.get("log_level") in levels]


async def _healed(kas_: Fleet) -> None:
    for _ in range(4):
        await kas_.passes(LEASE_INTERVAL * 1.2, LEASE_INTERVAL / 4)
        await kas_.quiet()


@pytest.mark.parametrize(("name", "wrong"), tuple(_cases()))
@pytest_twisted.ensureDeferred
async def test_heals(
    name: str, wrong: str, redis: redisserver.RedisServer, events: list[LogEvent]
) -> None:
    """Within some leases everything is there again; a line or two tell of it."""
    key, _ = KEYS[name]
    async with fleet(redis, 2) as kas_:
        one, two = kas_.all
        here, there = record("a", at=1, project_id=7), record("b", 2, at=2)
        one.connected(here)
        two.connected(there)
        await kas_.quiet()
        for command in LAYOUT.put(DEAD, [record("c", 3, at=9)]):
            redis(*command)
        redis("SADD", LAYOUT.everyone, DEAD)
        events.clear()
        redis("DEL", key)
        redis(*(part.format(key=key.decode()) for part in TYPES[wrong]))
        if name.startswith("probe"):
            redis("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            await until(lambda: not kas_.stores[0].client.up, "down")
            await kas_.up()
        # Who looks meets it.
        await kas_.routes(two, "a")
        await kas_.routes(one, "b")
        await _healed(kas_)
        assert list(await one.agents(agent_id="b")) == [there]
        assert list(await two.agents(agent_id="a")) == [here]
        assert await two.agents(project_id=7) == [here]
        assert {r.agent.agent_id for r in await one.agents()} == {"a", "b"}
        one.disconnected(here)
        await kas_.quiet()
        assert "a" in await two.last_seen(["a"])
        assert {peer.kas_id for peer in one.living()} == {OTHER}
    bad = [
        one for one in events if one.get("log_level", LogLevel.debug) > LogLevel.warn
    ]
    assert bad == []
    lines = [
        formatEvent(one) for one in events if one.get("log_level") == LogLevel.warn
    ]
    assert len(lines) <= 3, lines


@pytest_twisted.ensureDeferred
async def test_our_own_lease(redis: redisserver.RedisServer) -> None:
    """It is written over at once, and never missing: others would take us for dead."""
    async with fleet(redis, 1) as kas_:
        (store,) = kas_.stores
        lease, rewrites = LAYOUT.lease(MINE), store.rewrites
        redis("DEL", lease)
        redis("RPUSH", lease, "of another type")
        kas_.all[0].connected(record("a", at=1))
        await kas_.quiet()
        assert redis("TYPE", lease) == b"string"
        assert (store.removed, store.rewrites) == (0, rewrites + 1)


@pytest_twisted.ensureDeferred
async def test_what_we_hold(redis: redisserver.RedisServer) -> None:
    """It is written again as soon as that was met, and not only with a lease."""
    async with fleet(redis, 1) as kas_:
        (one,), (store,) = kas_.all, kas_.stores
        one.connected(record("a", at=1))
        await kas_.quiet()
        redis("SET", LAYOUT.held(MINE), "of another type")
        begin = kas_.clock.seconds()
        one.connected(record("b", 2, at=1))
        await kas_.quiet()
        assert kas_.clock.seconds() - begin < LEASE_INTERVAL / 10
        assert redis("HLEN", LAYOUT.held(MINE)) == 2
        assert store.removed == 1


#: Values that kas cannot have written, by the name of a key in `KEYS`.
TOO_LARGE = ("everyone", "agent", "agent of another", "project", "held of another")


def _fill(redis: redisserver.RedisServer, key: bytes, count: int, size: int) -> None:
    """Write *count* fields or members of *size* bytes at least."""
    kind = dict(KEYS.values())[key]
    for begin in range(0, count, 1000):
        parts: list[bytes] = []
        for number in range(begin, min(begin + 1000, count)):
            name = b"%016d" % number
            parts += [name + b"x" * size] if kind == "set" else [name, b"x" * size]
        redis("SADD" if kind == "set" else "HSET", key, *parts)


@pytest.mark.parametrize(("count", "size"), [(5, 4 << 20), (300, 64 << 10)])
@pytest.mark.parametrize("name", TOO_LARGE)
@pytest_twisted.ensureDeferred
async def test_heals_after_values_that_are_too_large(
    name: str,
    count: int,
    size: int,
    redis: redisserver.RedisServer,
    events: list[LogEvent],
) -> None:
    """The key is removed and written again, and the connection is back."""
    key, _ = KEYS[name]
    async with fleet(redis, 2) as kas_:
        one, two = kas_.all
        here, there = record("a", at=1, project_id=7), record("b", 2, at=2)
        one.connected(here)
        two.connected(there)
        await kas_.quiet()
        events.clear()
        _fill(redis, key, count, size)
        for store, agent_id in ((kas_.stores[1], "a"), (kas_.stores[0], "b")):
            with contextlib.suppress(StoreDown):
                await store.find(agent_id)
            with contextlib.suppress(StoreDown):
                await store.listed(7)
            with contextlib.suppress(StoreDown):
                await store.listed()
            await kas_.up()
        await kas_.passes(LEASE_INTERVAL * 1.2, LEASE_INTERVAL / 4)
        await kas_.up()
        await _healed(kas_)
        await kas_.up()
        assert list(await one.agents(agent_id="b")) == [there]
        assert list(await two.agents(agent_id="a")) == [here]
        assert await two.agents(project_id=7) == [here]
        assert {r.agent.agent_id for r in await one.agents()} == {"a", "b"}
        size_now = redis("MEMORY", "USAGE", key)
    assert size_now < 10_000
    lines = _lines(events, LogLevel.warn)
    assert any(
        "removed a value of another type or size" in (one or "") for one in lines
    )
    assert len(lines) <= 12, lines


@pytest_twisted.ensureDeferred
async def test_a_hash_with_many_fields(
    redis: redisserver.RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is read in pages; with too many of them, it is not ours."""
    monkeypatch.setattr(redis_reading, "PAGE_FIELDS", 50)
    async with fleet(redis, 2) as kas_:
        one = kas_.all[0]
        for number in range(300):
            one.connected(record("a", number % 250 + 1, at=1))
        await kas_.quiet()
        held = await kas_.stores[1].listed()
        assert len(held) == len(await kas_.stores[1].find("a")) > 200
        monkeypatch.setattr(redis_reading, "MAX_FIELDS", 100)
        with pytest.raises(StoreDown, match="more than 100 fields"):
            await kas_.stores[1].find("a")
        await kas_.quiet()
        assert kas_.stores[1].removed == 1
        monkeypatch.undo()
        await _healed(kas_)
        assert len(await kas_.stores[1].find("a")) == len(held)


@pytest_twisted.ensureDeferred
async def test_too_many_agents_at_several_kas(
    redis: redisserver.RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """kas does not list them; no key is removed, and each agent can be found."""
    async with fleet(redis, 3) as kas_:
        for at, one in enumerate(kas_.all[1:], 2):
            for number in range(60):
                one.connected(record(f"agent-{number}", at=at, instance=at))
        await kas_.quiet()
        monkeypatch.setattr(redis_reading, "MAX_FIELDS", 100)
        (first, *_) = kas_.all
        with pytest.raises(CallError, match="of all kas in Redis have more") as caught:
            await first.agents()
        assert caught.value.status is Status.UNAVAILABLE
        assert len(await first.agents(agent_id="agent-1")) == 2
        await kas_.quiet()
        assert [store.removed for store in kas_.stores] == [0, 0, 0]
        monkeypatch.setattr(redis_reading, "MAX_FIELDS", 120)
        assert len(await first.agents()) == 120


@pytest_twisted.ensureDeferred
async def test_very_many_kas(redis: redisserver.RedisServer) -> None:
    """More members than any fleet has kas: the set is removed, and made again."""
    async with fleet(redis, 1) as kas_:
        _fill(redis, LAYOUT.everyone, 10 * MAX_KAS + 1, 1)
        await _healed(kas_)
        assert redis("SMEMBERS", LAYOUT.everyone) == [MINE]


@pytest_twisted.ensureDeferred
async def test_met_by_several(
    redis: redisserver.RedisServer, events: list[LogEvent]
) -> None:
    """What many requests meet at the same time is removed, and said, once."""
    async with fleet(redis, 1) as kas_:
        (store,) = kas_.stores
        events.clear()
        for name in ("a", "b"):
            redis("SET", LAYOUT.agent(name), "of another type")
            asked = [store.client.call("HGETALL", LAYOUT.agent(name)) for _ in range(3)]
            for one in asked:
                assert isinstance(await failure(one), RedisRefused)
            await kas_.quiet()
        assert store.removed == 2
        assert not redis("EXISTS", LAYOUT.agent("a"), LAYOUT.agent("b"))
        # The next one is said a while later, with how many there were.
        assert len(_lines(events, LogLevel.warn)) == 1
        kas_.clock.advance(LEASE_INTERVAL)
        redis("SET", LAYOUT.agent("c"), "of another type")
        await failure(store.client.call("HGETALL", LAYOUT.agent("c")))
        await kas_.quiet()
        (first, last) = _lines(events, LogLevel.warn)
        assert "agent:a in Redis" in (first or "")
        assert "(3 so far)" in (last or "")


@pytest_twisted.ensureDeferred
async def test_more_than_can_be_removed_at_once(
    redis: redisserver.RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others are removed when they are met again."""
    monkeypatch.setattr(redis_store, "MAX_STRANGE", 2)
    keys = [LAYOUT.agent(name) for name in "abc"]
    async with fleet(redis, 1) as kas_:
        (store,) = kas_.stores
        for key in keys:
            redis("SET", key, "of another type")
        for left in (1, 0):
            met = [store.client.call("HGETALL", key) for key in keys]
            await gatherResults([one.addErrback(lambda _: None) for one in met])
            await kas_.quiet()
            assert redis("EXISTS", *keys) == left


@pytest.mark.parametrize("command", ["hkeys", "hscan", "exists", "hmget"])
@pytest_twisted.ensureDeferred
async def test_one_command_is_forbidden(
    command: str, redis: redisserver.RedisServer, tmp_path: Any, events: list[LogEvent]
) -> None:
    """Said once, and once more when it is allowed again; the rest goes on."""
    password = tmp_path / "password"
    password.write_text("secret")
    rights = ("on", ">secret", "~*", "&*", "+@all")
    redis("ACL", "SETUSER", "kas", *rights, f"-{command}")
    async with fleet(redis, 1, username="kas", password_file=password) as kas_:
        store = kas_.stores[0]
        kas_.all[0].connected(record("a", at=1))
        for number in range(20):
            gone = bytes([100 + number]) * 16
            redis("SADD", LAYOUT.everyone, gone)
            for line in LAYOUT.put(gone, [record(f"gone-{number}", at=9)]):
                redis(*line)
            store._rewrite("a test")
            await kas_.routes(kas_.all[0], f"gone-{number}")
            await kas_.passes(LEASE_INTERVAL * 1.2, LEASE_INTERVAL / 2)
        await kas_.quiet()
        assert store.client.up
        assert redis("EXISTS", LAYOUT.agent("a"))
        said = [formatEvent(one) for one in events]
        refused = [one for one in said if "NOPERM" in one]
        assert len(refused) == (0 if command == "hmget" else 1), said
        redis("ACL", "SETUSER", "kas", f"+{command}")
        for key in redis("KEYS", "*:cleaning:*"):
            redis("DEL", key)
        store._rewrite("a test")
        for number in range(20):
            await kas_.routes(kas_.all[0], f"gone-{number}")
            await kas_.passes(LEASE_INTERVAL * 1.2, LEASE_INTERVAL / 2)
        said = [formatEvent(one) for one in events]
        again = [one for one in said if "again" in one and command.upper() in one]
        assert len(again) == len(refused), said
        bad = [
            one
            for one in events
            if one.get("log_level", LogLevel.debug) > LogLevel.warn
        ]
        assert bad == []
