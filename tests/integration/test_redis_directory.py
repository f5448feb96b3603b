"""Directories that share a Redis: what they find, and what they do not believe."""

from __future__ import annotations

import attrs
import pytest_twisted
from twisted.internet.defer import Deferred
from twisted.logger import LogEvent, formatEvent

from kas.directory import redis_layout
from kas.directory.redis_layout import RECORD_MS, SEEN_MS
from kas.directory.redis_store import BATCH_SECONDS, LEASE_INTERVAL, STOP_SECONDS
from kas.pb import store_pb2
from tests.integration import redisserver
from tests.integration.directories import LAYOUT, NOW, fleet, keys
from tests.kas.directory.memory import kas, record


@pytest_twisted.ensureDeferred
async def test_what_one_has_the_other_finds(redis: redisserver.RedisServer) -> None:
    async with fleet(redis, 3) as kas_:
        one, two, three = kas_.all
        there = record("a", at=2, project_id=7)
        two.connected(there)
        await kas_.quiet()
        assert await kas_.routes(one, "a") == [there]
        assert await kas_.routes(two, "a") == []
        told: list[str] = []
        assert await kas_.routes(one, "b") == []
        one.wait("b", lambda: told.append("b"))
        other = record("b", instance=2, at=3)
        three.connected(other)
        await kas_.quiet()
        assert told == ["b"]
        assert list(one.routes("b")) == [other]
        assert await one.agents(project_id=7) == [there]
        assert await one.agents(agent_id="b") == [other]
        assert sorted(await one.agents(), key=repr) == sorted([there, other], key=repr)
        assert {peer.kas_id for peer in one.peers()} == {kas(2).kas_id, kas(3).kas_id}
        two.disconnected(there)
        await kas_.quiet()
        assert list(one.routes("a")) == []
        assert not {key for key in keys(redis) if "agent:a" in key or "project" in key}


@pytest_twisted.ensureDeferred
async def test_everything_expires_and_what_belongs_together_together(
    redis: redisserver.RedisServer,
) -> None:
    async with fleet(redis) as kas_:
        kas_.all[0].connected(record("a", at=1, project_id=7))
        await kas_.quiet()
        left = {key: redis("PTTL", key) for key in keys(redis)}
        assert all(key.startswith("gitlab-kas:txkas1:") for key in left)
        assert all(0 < one <= RECORD_MS for one in left.values())
        names = ("agent:a", "project:7", f"held:{kas(1).kas_id.hex()}")
        for name in names:
            assert left[f"gitlab-kas:txkas1:{name}"] > RECORD_MS - 60_000


@pytest_twisted.ensureDeferred
async def test_when_agents_were_seen(redis: redisserver.RedisServer) -> None:
    """All learn when an agent left: by itself, with its kas, or as that died."""
    async with fleet(redis, 3) as kas_:
        one, two, three = kas_.all
        two.connected(record("left", at=2))
        two.connected(record("with-its-kas", at=2))
        three.connected(record("of-a-dead-kas", at=3))
        await kas_.quiet()
        names = ["left", "with-its-kas", "of-a-dead-kas", "never"]
        assert await one.last_seen(names) == {}
        two.disconnected(record("left", at=2))
        await kas_.quiet()
        first = NOW + kas_.clock.seconds()
        assert await one.last_seen(names) == {"left": first}
        await two.stop()
        assert (await one.last_seen(names))["with-its-kas"] == first
        # Killed: nothing is written, and its lease goes.
        kas_.stores[2].client.stop()
        kas_.stores[2]._stopping = True
        redis("DEL", LAYOUT.lease(kas(3).kas_id))
        await kas_.passes(4 * LEASE_INTERVAL, LEASE_INTERVAL / 4)
        last = (await one.last_seen(names))["of-a-dead-kas"]
        assert first < last <= NOW + kas_.clock.seconds()
        assert 0 < redis("PTTL", LAYOUT.seen("left")) <= SEEN_MS
        redis("SET", LAYOUT.seen("left"), "not a number")
        redis("DEL", LAYOUT.seen("with-its-kas"))
        redis("RPUSH", LAYOUT.seen("with-its-kas"), "of another type")
        assert await one.last_seen(names) == {"of-a-dead-kas": last}


@pytest_twisted.ensureDeferred
async def test_nothing_stays_behind(redis: redisserver.RedisServer) -> None:
    async with fleet(redis) as kas_:
        one, two = kas_.all
        gone = [record(f"agent-{n}", at=1, project_id=n) for n in range(450)]
        for each in gone:
            one.connected(each)
        await kas_.quiet()
        assert await kas_.routes(two, "agent-1") == [gone[1]]
        # One that ends within the last moment.
        one.disconnected(gone[0])
        await one.stop()
        await kas_.answered(kas_.stores[1])
        assert list(two.routes("agent-1")) == []
        # It said goodbye, so nobody tries to reach it any more.
        assert list(two.peers()) == []
        assert kas(1).kas_id.hex() not in str(keys(redis))
        assert not {key for key in keys(redis) if "agent:" in key or "project:" in key}
        assert redis("SMEMBERS", LAYOUT.everyone) == [kas(2).kas_id]


@pytest_twisted.ensureDeferred
async def test_a_look_up_ignores_the_dead_and_buries_them(
    redis: redisserver.RedisServer,
) -> None:
    async with fleet(redis) as kas_:
        one, two = kas_.all
        dead, alive = record("a", at=9), record("a", instance=2, at=2)
        two.connected(alive)
        await kas_.quiet()
        for command in LAYOUT.put(dead.kas_id, [dead]):
            redis(*command)
        assert redis("HLEN", LAYOUT.agent("a")) == 2
        assert await kas_.routes(one, "a") == [alive]
        await kas_.quiet()
        assert redis("HLEN", LAYOUT.agent("a")) == 1


@pytest_twisted.ensureDeferred
async def test_a_look_up_meets_a_kas_that_is_new(
    redis: redisserver.RedisServer,
) -> None:
    async with fleet(redis, 1) as kas_:
        there = record("a", at=9)
        lease = store_pb2.Lease(kas=kas(9).to_message(), sequence=1)
        redis("SET", LAYOUT.lease(there.kas_id), lease.SerializeToString())
        for command in LAYOUT.put(there.kas_id, [there]):
            redis(*command)
        assert await kas_.routes(kas_.all[0], "a") == [there]
        assert list(kas_.all[0].peers()) == [kas(9)]


@pytest_twisted.ensureDeferred
async def test_moved_and_superseded(redis: redisserver.RedisServer) -> None:
    async with fleet(redis) as kas_:
        one, two = kas_.all
        older, newer = record("a", at=1), record("a", generation=2, at=2)
        one.connected(older)
        await kas_.quiet()
        two.connected(newer)
        await kas_.quiet()
        assert kas_.superseded[:1] == [older]
        one.disconnected(older)
        await kas_.quiet()
        assert await kas_.routes(one, "a") == [newer]
        assert await two.agents(agent_id="a") == [newer]


@pytest_twisted.ensureDeferred
async def test_who_does_not_know_is_told_again(redis: redisserver.RedisServer) -> None:
    """An agent's older connection comes to a kas after its newer one elsewhere."""
    async with fleet(redis) as kas_:
        one, two = kas_.all
        two.connected(record("a", generation=2, at=2))
        await kas_.quiet()
        assert kas_.superseded == []
        older = record("a", at=1)
        one.connected(older)
        await kas_.quiet()
        assert kas_.superseded == [older]


@pytest_twisted.ensureDeferred
async def test_what_a_newer_connection_wrote_stays(
    redis: redisserver.RedisServer,
) -> None:
    """The end of an older one, or of one that was never written, removes nothing."""
    async with fleet(redis, 1) as kas_:
        (store,) = kas_.stores
        newer = record("a", at=1, generation=2)
        store.put(newer)
        store.remove(record("a", at=1))
        store.remove(record("b", at=1))
        await kas_.quiet()
        assert await store.find("a") == [newer]
        store.remove(newer)
        await kas_.quiet()
        assert await store.find("a") == []


@pytest_twisted.ensureDeferred
async def test_changes_without_a_pause(redis: redisserver.RedisServer) -> None:
    """None waits for longer than the time for which they are collected."""
    async with fleet(redis, 1) as kas_:
        (store,) = kas_.stores
        for name, seconds in (("a", 0.75 * BATCH_SECONDS), ("b", 0.25 * BATCH_SECONDS)):
            store.put(record(name, at=1))
            await kas_.answered(store)
            assert not redis("EXISTS", LAYOUT.agent("a"))
            kas_.clock.advance(seconds)
        await kas_.answered(store)
        assert redis("EXISTS", LAYOUT.agent("a"), LAYOUT.agent("b")) == 2


@pytest_twisted.ensureDeferred
async def test_draining_is_told_at_once(redis: redisserver.RedisServer) -> None:
    """Everything else that others know of a kas comes with its next lease."""
    async with fleet(redis, 1) as kas_:
        (store,) = kas_.stores
        key = LAYOUT.lease(kas(1).kas_id)

        def told() -> tuple[int, bool]:
            found = store_pb2.Lease.FromString(redis("GET", key)).kas
            return found.agents, found.draining

        me = attrs.evolve(kas(1), agents=3)
        store.update(me)
        kas_.clock.advance(0)
        await kas_.quiet()
        assert told() == (0, False)
        store.update(attrs.evolve(me, draining=True))
        kas_.clock.advance(0)
        await kas_.quiet()
        assert told() == (3, True)
        store.update(attrs.evolve(me, agents=4))
        kas_.clock.advance(0)
        await kas_.quiet()
        assert told() == (4, False)
        store.update(attrs.evolve(me, agents=5))
        await kas_.passes(LEASE_INTERVAL * 1.1, LEASE_INTERVAL / 4)
        assert told() == (5, False)


@pytest_twisted.ensureDeferred
async def test_stops_though_redis_does_not_answer(
    redis: redisserver.RedisServer, events: list[LogEvent]
) -> None:
    """What is ours stays then, which is said, and goes with its lease."""
    async with fleet(redis, 1) as kas_:
        (store,) = kas_.stores
        kas_.all[0].connected(record("a", at=1))
        await kas_.quiet()
        redis("CLIENT", "PAUSE", 60_000, "WRITE")
        stopping = Deferred.fromCoroutine(store.stop())
        kas_.clock.advance(STOP_SECONDS - 0.1)
        assert not stopping.called
        kas_.clock.advance(0.1)
        await stopping
        said = [formatEvent(one) or "" for one in events]
        assert (
            len([one for one in said if "stay until other kas remove them" in one]) == 1
        )
        redis("CLIENT", "UNPAUSE")
        assert redis("EXISTS", LAYOUT.agent("a"))
        kas_.all.clear()


@pytest_twisted.ensureDeferred
async def test_another_project(redis: redisserver.RedisServer) -> None:
    async with fleet(redis, 1) as kas_:
        one = kas_.all[0]
        one.connected(record("a", at=1, project_id=7))
        await kas_.quiet()
        one.connected(record("a", at=1, generation=2, project_id=8))
        await kas_.quiet()
        assert redis("EXISTS", LAYOUT.project(7)) == 0
        assert redis("HLEN", LAYOUT.project(8)) == 1
        assert redis("HLEN", LAYOUT.agent("a")) == 1
        assert redis("HLEN", LAYOUT.held(kas(1).kas_id)) == 1


@pytest_twisted.ensureDeferred
async def test_what_others_write_there(redis: redisserver.RedisServer) -> None:
    """Wrong types and garbage harm what they touch, and nothing else."""
    async with fleet(redis) as kas_:
        one, two = kas_.all
        redis("SET", LAYOUT.agent("poisoned"), "text")
        two.connected(record("poisoned", at=2))
        two.connected(record("good", at=2))
        redis("HSET", LAYOUT.agent("good"), "x", b"\xff\xff")
        redis("PUBLISH", LAYOUT.channel, b"\xff\xff")
        redis("PUBLISH", LAYOUT.channel, b"x" * (redis_layout.MAX_EVENT_BYTES + 1))
        await kas_.quiet()
        assert await kas_.routes(one, "good") == [record("good", at=2)]
        assert kas_.stores[0].client.up
        assert kas_.stores[0].malformed == 2
        # It was removed, and written again.
        found = await kas_.stores[0].find("poisoned")
        assert found == [record("poisoned", at=2)]
