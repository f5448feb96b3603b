"""Directories heal: what Redis lost, what its kas missed, and what the dead left."""

from __future__ import annotations

import math
from typing import Any

import pytest
import pytest_twisted
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from kas.directory import redis_store
from kas.directory.redis_layout import Place
from kas.directory.redis_store import (
    BATCH_RECORDS,
    BATCH_SECONDS,
    CLEAN_PAUSE,
    KEEP_SECONDS,
    LEASE_INTERVAL,
    REWRITE_PAUSE,
    RedisStore,
)
from kas.directory.store import StoreDown
from kas.pb import store_pb2
from tests.integration import redisserver
from tests.integration.directories import LAYOUT, Fleet, fleet, keys
from tests.integration.redisserver import until
from tests.kas.directory.memory import kas, record
from tunnel.errors import CallError


@pytest_twisted.ensureDeferred
async def test_flushed(redis: redisserver.RedisServer) -> None:
    """Within one interval everything is there again, and events correct the others."""
    async with fleet(redis) as kas_:
        one, two = kas_.all
        there = [record(f"agent-{n}", at=2) for n in range(BATCH_RECORDS + 5)]
        for each in there:
            two.connected(each)
        await kas_.quiet()
        assert await kas_.routes(one, "agent-0") == [there[0]]
        redis("FLUSHALL")
        # What is known goes on, what is not is not found yet.
        assert list(one.routes("agent-0")) == [there[0]]
        assert await kas_.routes(one, "agent-1") == []
        await kas_.passes(LEASE_INTERVAL * 1.1, LEASE_INTERVAL / 4)
        await kas_.quiet()
        assert list(one.routes("agent-1")) == [there[1]]
        assert redis("HLEN", LAYOUT.held(kas(2).kas_id)) == len(there)
        assert await kas_.routes(one, "agent-2") == [there[2]]


@pytest_twisted.ensureDeferred
async def test_an_older_state(redis: redisserver.RedisServer) -> None:
    """After a failover: a lease with a number that is too small."""
    async with fleet(redis) as kas_:
        one, two = kas_.all
        two.connected(record("a", at=2))
        await kas_.quiet()
        lease = LAYOUT.lease(kas(2).kas_id)
        older = redis("GET", lease)
        two.connected(record("b", at=2))
        await kas_.quiet()
        redis("DEL", LAYOUT.agent("b"))
        redis("SET", lease, older, "PX", 30000)
        assert await kas_.routes(one, "b") == []
        await kas_.passes(LEASE_INTERVAL * 1.1, LEASE_INTERVAL / 4)
        await kas_.quiet()
        assert list(one.routes("b")) == [record("b", at=2)]
        assert store_pb2.Lease.FromString(redis("GET", lease)).sequence > 2


@pytest_twisted.ensureDeferred
async def test_asleep_longer_than_its_lease(redis: redisserver.RedisServer) -> None:
    """Others ignore it and clean up behind it; awake again it writes everything."""
    async with fleet(redis, 1) as kas_:
        one = kas_.all[0]
        sleeper = Fleet(redis, 0)
        slow = sleeper.add(2)
        await sleeper.start()
        for number in range(BATCH_RECORDS * 2 + 5):
            slow.connected(record(f"agent-{number}", at=2, project_id=7))
        await sleeper.quiet()
        await kas_.passes(LEASE_INTERVAL * 1.1, LEASE_INTERVAL / 4)
        assert [peer.kas_id for peer in one.peers()] == [kas(2).kas_id]
        # Its clock stands still.
        redis("PEXPIRE", LAYOUT.lease(kas(2).kas_id), 1)
        redis("HSET", LAYOUT.held(kas(2).kas_id), "\xff", "not ours")
        await until(lambda: not redis("EXISTS", LAYOUT.lease(kas(2).kas_id)), "gone")
        for _ in range(8):
            await kas_.passes(LEASE_INTERVAL, LEASE_INTERVAL / 4)
        await kas_.quiet()
        left = keys(redis)
        assert not {key for key in left if "agent:" in key or "project:" in key}
        assert kas(2).kas_id.hex() not in str(left)
        assert list(one.living()) == []
        assert await kas_.routes(one, "agent-1") == []
        # It wakes up.
        await sleeper.passes(LEASE_INTERVAL * 1.1, LEASE_INTERVAL / 4)
        await sleeper.quiet()
        await kas_.quiet()
        assert list(one.routes("agent-1")) == [record("agent-1", at=2, project_id=7)]
        assert redis("HLEN", LAYOUT.project(7)) == BATCH_RECORDS * 2 + 5
        await sleeper.stop()


@pytest_twisted.ensureDeferred
async def test_what_went_while_redis_was_away(redis: redisserver.RedisServer) -> None:
    """The others do not go on believing it."""
    async with fleet(redis) as kas_:
        one, two = kas_.all
        stays, goes = record("stays", at=2), record("goes", at=2, project_id=7)
        two.connected(stays)
        two.connected(goes)
        await kas_.quiet()
        assert await kas_.routes(one, "goes") == [goes]
        store = kas_.stores[1]
        redis("ACL", "SETUSER", "default", "-@all", "+acl", "+client", "+ping", "+info")
        redis("CLIENT", "KILL", "TYPE", "normal")
        await until(lambda: not store.client.up, "down")
        two.disconnected(goes)
        two.connected(record("new", at=2))
        assert not store._changed
        redis("ACL", "SETUSER", "default", "+@all")
        await kas_.settled()
        assert list(one.routes("goes")) == []
        assert not redis("EXISTS", LAYOUT.project(7))
        assert await kas_.routes(one, "new") == [record("new", at=2)]
        assert await kas_.routes(one, "stays") == [stays]


@pytest_twisted.ensureDeferred
async def test_what_went_and_was_lost_as_well(redis: redisserver.RedisServer) -> None:
    """One kas is cut off alone, and nothing in Redis tells what it had before."""
    async with fleet(redis) as kas_:
        one, two = kas_.all
        stays, goes = record("a", at=2, instance=1), record("a", at=2, instance=2)
        for each in (stays, goes):
            two.connected(each)
        await kas_.quiet()
        assert set(await kas_.routes(one, "a")) == {stays, goes}
        lookups = one.lookups
        store = kas_.stores[1]
        redis("CLIENT", "KILL", "ID", str(await store.client.call("CLIENT", "ID")))
        await until(lambda: not store.client.up, "down")
        two.disconnected(goes)
        redis("FLUSHALL")
        await kas_.settled()
        assert await kas_.routes(one, "a") == [stays]
        assert one.lookups == lookups + 1


@pytest_twisted.ensureDeferred
async def test_restarted_empty(redis: redisserver.RedisServer) -> None:
    """Redis dies: what is known goes on, and all is found again when it is back."""
    async with fleet(redis) as kas_:
        one, two = kas_.all
        there = record("a", at=2)
        two.connected(there)
        await kas_.quiet()
        assert await kas_.routes(one, "a") == [there]
        redis.stop()
        await until(lambda: not any(s.client.up for s in kas_.stores), "down")
        assert list(one.routes("a")) == [there]
        with pytest.raises(CallError):
            await one.agents()
        with pytest.raises(StoreDown):
            await kas_.stores[0].find("a")
        other = record("b", at=2)
        two.connected(other)
        redis.start()
        await kas_.settled()
        assert await kas_.routes(one, "b") == [other]
        assert list(one.routes("a")) == [there]


@pytest.mark.parametrize("lost", ["lease", "held"])
@pytest_twisted.ensureDeferred
async def test_a_part_that_is_lost(redis: redisserver.RedisServer, lost: str) -> None:
    """Each of them alone tells that it is not what we wrote."""
    async with fleet(redis, 1) as kas_:
        kas_.all[0].connected(record("a", at=1))
        await kas_.quiet()
        rewrites = kas_.stores[0].rewrites
        redis("DEL", LAYOUT.agent("a"), getattr(LAYOUT, lost)(kas(1).kas_id))
        await kas_.passes(LEASE_INTERVAL * 1.1, LEASE_INTERVAL / 4)
        await kas_.quiet()
        assert redis("HLEN", LAYOUT.agent("a")) == 1
        assert redis("HLEN", LAYOUT.held(kas(1).kas_id)) == 1
        assert kas_.stores[0].rewrites == rewrites + 1


@pytest_twisted.ensureDeferred
async def test_what_redis_evicts_is_written_when_it_is_due(
    redis: redisserver.RedisServer,
) -> None:
    async with fleet(redis, 1) as kas_:
        for name in ("a", "b"):
            kas_.all[0].connected(record(name, at=1, project_id=7))
        await kas_.quiet()
        rewrites = kas_.stores[0].rewrites
        redis("DEL", LAYOUT.agent("a"), LAYOUT.project(7))
        await kas_.passes(LEASE_INTERVAL * 3, LEASE_INTERVAL / 4)
        await kas_.quiet()
        assert redis("HLEN", LAYOUT.agent("a")) == 1
        assert redis("HLEN", LAYOUT.project(7)) == 2
        assert kas_.stores[0].rewrites == rewrites


@pytest_twisted.ensureDeferred
async def test_what_is_left_of_ours(redis: redisserver.RedisServer) -> None:
    """All of it is removed, also behind fields that another program wrote."""
    me = kas(1).kas_id
    others = [b"\xff%d" % number for number in range(100)]
    for field in others:
        redis("HSET", LAYOUT.held(me), field, "not ours")
    for command in LAYOUT.put(me, [record("a", at=1), record("b", at=1)]):
        redis(*command)
    async with fleet(redis, 1):
        assert redis("EXISTS", LAYOUT.agent("a"), LAYOUT.agent("b")) == 0
        assert set(redis("HKEYS", LAYOUT.held(me))) == set(others)


@pytest_twisted.ensureDeferred
async def test_pauses_for_others(redis: redisserver.RedisServer) -> None:
    """What is removed and written again in bulk leaves Redis to others in between."""
    me = kas(1).kas_id
    held = LAYOUT.held(me)
    many = [record(f"agent-{number}", at=1) for number in range(BATCH_RECORDS + 50)]
    for command in LAYOUT.put(me, many):
        redis(*command)
    made = Fleet(redis, 1)
    (one,), (store,) = made.all, made.stores

    async def answered() -> int:
        for _ in range(8):
            await made.answered(store)
        found: int = redis("HLEN", held)
        return found

    await one.start()
    await made.up()
    assert await answered() == 50
    made.clock.advance(REWRITE_PAUSE)
    assert await answered() == 0
    made.clock.advance(REWRITE_PAUSE)
    await made.quiet()
    for each in many:
        one.connected(each)
    await made.quiet()
    redis("DEL", held, LAYOUT.lease(me))
    made.clock.advance(LEASE_INTERVAL)
    # Beside one whose turn it was with the lease.
    assert await answered() == BATCH_RECORDS + 1
    made.clock.advance(REWRITE_PAUSE)
    assert await answered() == len(many)
    await made.stop()


@pytest_twisted.ensureDeferred
async def test_all_are_written_in_turn(redis: redisserver.RedisServer) -> None:
    """With each lease so many that all have had their turn before one expires."""
    async with fleet(redis, 1) as kas_:
        (store,) = kas_.stores
        names = [f"agent-{number}" for number in range(400)]
        for name in names:
            store.put(record(name, at=1))
        await kas_.quiet()
        redis("DEL", *map(LAYOUT.agent, names))
        due = math.ceil(len(names) * LEASE_INTERVAL / KEEP_SECONDS)
        for lease in range(1, 4):
            await kas_.passes(LEASE_INTERVAL, LEASE_INTERVAL / 4)
            await kas_.quiet()
            there = [name for name in names if redis("EXISTS", LAYOUT.agent(name))]
            assert there == names[: due * lease]
        # One that was written just now is the last again.
        store.put(record(names[due * 3], at=1))
        await kas_.passes(LEASE_INTERVAL, LEASE_INTERVAL / 4)
        await kas_.quiet()
        there = [name for name in names if redis("EXISTS", LAYOUT.agent(name))]
        assert there == names[: due * 4 + 1]


@pytest_twisted.ensureDeferred
async def test_cleaning_up_behind_many(
    redis: redisserver.RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part at a time; what is left, and what is no place, goes with the next time."""
    monkeypatch.setattr(redis_store, "CLEAN_ROUNDS", 1)
    monkeypatch.setattr(redis_store, "BATCH_RECORDS", 10)
    gone = kas(9).kas_id
    held = LAYOUT.held(gone)
    # Beyond so many Redis gives a hash in parts.
    there = [record(f"agent-{number}", at=9, project_id=7) for number in range(600)]
    for command in LAYOUT.put(gone, there):
        redis(*command)
    redis("HSET", held, b"\xff", "not ours")
    async with fleet(redis, 1) as kas_:
        (store,) = kas_.stores

        async def clean() -> int | None:
            removing = Deferred.fromCoroutine(store._remove_dead(gone))
            while not removing.called:
                await kas_.answered(store)
                kas_.clock.advance(CLEAN_PAUSE / 2)
            redis("DEL", LAYOUT.cleaning(gone))
            return await removing

        removed = await clean()
        assert removed is not None and 10 <= removed < 100
        # That one went with the first part, or goes with another.
        assert redis("HLEN", held) in (600 - removed, 601 - removed)
        monkeypatch.setattr(redis_store, "CLEAN_ROUNDS", 1000)
        assert await clean() == 600 - removed
        assert redis("EXISTS", held, LAYOUT.project(7)) == 0


@pytest_twisted.ensureDeferred
async def test_cleaned_up_by_one(redis: redisserver.RedisServer) -> None:
    """Who comes second leaves it to the first, and its lock alone."""
    gone = kas(9).kas_id
    for command in LAYOUT.put(gone, [record("a", at=9)]):
        redis(*command)
    redis("SET", LAYOUT.cleaning(gone), "another kas")
    async with fleet(redis, 1) as kas_:
        assert await kas_.stores[0]._remove_dead(gone) is None
        assert redis("GET", LAYOUT.cleaning(gone)) == b"another kas"
        assert redis("HLEN", LAYOUT.agent("a")) == 1


@pytest_twisted.ensureDeferred
async def test_cleaning_up_behind_one_that_comes_back(
    redis: redisserver.RedisServer,
) -> None:
    """Nobody else cleans then; and it learns what was removed before it was seen."""
    async with fleet(redis, 1) as kas_:
        store = kas_.stores[0]
        lease, held = LAYOUT.lease(b"9"), LAYOUT.held(b"9")

        class Between:
            """Our client, and what happens between two of its commands."""

            transaction = store.client.transaction

            def call(self, *command: Any) -> Any:
                if command[0] == "HSCAN":
                    redis("SET", lease, "alive")
                return store.client.call(*command)

        async def cleaning() -> int | None:
            """What it removes; the kas comes back between two transactions."""
            removing = Deferred.fromCoroutine(one._remove_dead(b"9"))
            while not removing.called:
                await store.client.call("PING")
                if clock.getDelayedCalls():
                    # It was removed while it came back: its lease went with it.
                    seen.append(redis("EXISTS", lease))
                    redis("SET", lease, "alive")
                    redis("HSET", held, Place("new", b"i").to_field(), "x")
                    clock.advance(CLEAN_PAUSE)
            return await removing

        clock = Clock()
        one = RedisStore(kas(1), store._settings, store._runtime, clock=clock)
        one.client = Between()  # type: ignore[assignment]
        seen: list[int] = []
        for command in LAYOUT.put(b"9", [record(f"agent-{n}") for n in range(300)]):
            redis(*command)
        assert await cleaning() is None
        assert seen == [0]
        assert redis("HEXISTS", held, Place("new", b"i").to_field()) == 1
        # The lock is still there for whoever comes next.
        redis("DEL", lease)
        assert await cleaning() is None
        assert redis("HEXISTS", held, Place("new", b"i").to_field()) == 1


@pytest_twisted.ensureDeferred
async def test_a_write_that_found_too_many_waiting(
    redis: redisserver.RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with fleet(redis, 1) as kas_:
        with monkeypatch.context() as patched:
            patched.setattr("kas.redis.connection.MAX_WAITING", 0)
            kas_.all[0].connected(record("a", at=1))
            kas_.clock.advance(BATCH_SECONDS)
            assert kas_.stores[0].client.up
        assert redis("EXISTS", LAYOUT.agent("a")) == 0
        await kas_.passes(LEASE_INTERVAL, LEASE_INTERVAL / 4)
        await kas_.quiet()
        assert redis("HLEN", LAYOUT.agent("a")) == 1
