"""What directories ask of a Redis: how much, how often, and with which rights."""

from __future__ import annotations

import re
import signal
from pathlib import Path
from typing import Any

import pytest
import pytest_twisted
from twisted.internet.defer import Deferred

from kas.directory import redis_layout, redis_store
from kas.directory.cache import LOOK_INTERVAL
from kas.directory.redis_layout import RECORD_MS
from kas.directory.redis_store import BATCH_RECORDS, LEASE_INTERVAL
from kas.redis.client import PING_INTERVAL
from tests.integration import redisserver
from tests.integration.directories import LAYOUT, fleet, keys
from tests.integration.processes import ROOT
from tests.integration.redisserver import until
from tests.kas.directory.memory import kas, record


@pytest_twisted.ensureDeferred
async def test_a_slow_redis_does_not_keep_the_process(
    redis: redisserver.RedisServer,
) -> None:
    async with fleet(redis) as kas_:
        kas_.all[0].connected(record("a", at=1))
        await kas_.quiet()
        assert redis.process is not None
        redis.process.child.send_signal(signal.SIGSTOP)
        stopping = Deferred.fromCoroutine(kas_.all[0].stop())
        waiting = stopping.called
        kas_.clock.advance(redis_store.STOP_SECONDS)
        assert (waiting, stopping.called) == (False, True)
        redis.process.child.send_signal(signal.SIGCONT)


@pytest_twisted.ensureDeferred
async def test_a_storm_is_few_transactions(redis: redisserver.RedisServer) -> None:
    async with fleet(redis) as kas_:
        two = kas_.all[1]
        before = kas_.stores[1]._sequence
        for number in range(10 * BATCH_RECORDS):
            two.connected(record(f"agent-{number}", at=2))
        await kas_.quiet()
        assert kas_.stores[1]._sequence - before == 10
        assert redis("HLEN", LAYOUT.held(kas(2).kas_id)) == 10 * BATCH_RECORDS


@pytest_twisted.ensureDeferred
async def test_idle_agents_cost_next_to_nothing(
    redis: redisserver.RedisServer,
) -> None:
    """Ten thousand agents at three kas, for an hour; at most 50 commands a second."""
    async with fleet(redis, 3) as kas_:
        for number in range(10_000):
            at = number % 3 + 1
            one = record(f"agent-{number}", at=at, project_id=number + 1)
            kas_.all[at - 1].connected(one)
        await kas_.quiet()
        watched = LAYOUT.agent("agent-5000")
        redis("PEXPIRE", watched, 1000 * 3600)
        before = redis.commands()
        hour, step = 3600.0, LEASE_INTERVAL
        for _ in range(int(hour / step)):
            kas_.clock.advance(step)
            for store in kas_.stores:
                await until(lambda: not store._running, "written")  # noqa: B023
        # Signs of life of subscribers go by the clock on the wall.
        rate = (redis.commands() - before - 1) / hour + 3 / PING_INTERVAL
        assert 0.5 < rate <= 50
        # Each was kept from expiring, and is still found.
        assert redis("PTTL", watched) > RECORD_MS - 1000 * 3600
        assert redis("HLEN", LAYOUT.held(kas(1).kas_id)) == 3334


@pytest_twisted.ensureDeferred
async def test_requests_cost_nothing(redis: redisserver.RedisServer) -> None:
    async with fleet(redis) as kas_:
        one, two = kas_.all
        two.connected(record("a", at=2))
        await kas_.quiet()
        await kas_.routes(one, "a")
        before = redis.commands()
        for _ in range(2000):
            assert one.routes("a")
        for _ in range(2000):
            one.routes("absent")
            one.look_again("absent")
        await kas_.answered(kas_.stores[0])
        await until(lambda: not one._lookups.running, "an answer")
        # INFO, the look-up, and the three PINGs of this test.
        assert redis.commands() - before == 1 + 1 + 3
        kas_.clock.advance(LOOK_INTERVAL)
        await until(lambda: not one._lookups.running, "an answer")
        assert redis.commands() - before == 5 + 1 + 1


@pytest_twisted.ensureDeferred
async def test_the_rights_that_the_documentation_names_are_enough(
    redis: redisserver.RedisServer, tmp_path: Path
) -> None:
    text = (ROOT / "docs/several_kas.rst").read_text()
    found = re.search(r"ACL SETUSER (.*?)\n\n", text, re.DOTALL)
    assert found is not None
    redis("ACL", "SETUSER", *found[1].replace("\\", " ").split())
    password = tmp_path / "password"
    password.write_text("secret\n")
    settings: dict[str, Any] = {"username": "kas", "password_file": password}
    async with fleet(redis, 2, **settings) as kas_:
        one, two = kas_.all
        gone = record("gone", at=9, project_id=7)
        for command in LAYOUT.put(gone.kas_id, [gone]):
            redis(*command)
        redis("SADD", LAYOUT.everyone, gone.kas_id)
        there = record("a", at=2, project_id=7)
        two.connected(there)
        await kas_.settled()
        assert await kas_.routes(one, "a") == [there]
        assert await one.agents() == [there]
        assert await one.agents(project_id=7) == [there]
        await kas_.passes(LEASE_INTERVAL * 2, LEASE_INTERVAL / 4)
        await kas_.quiet()
        # Something that went while nobody could write it down.
        for command in LAYOUT.put(kas(2).kas_id, [record("left", at=2)]):
            redis(*command)
        redis("CLIENT", "KILL", "USER", "kas")
        await until(lambda: not any(s.client.up for s in kas_.stores), "down")
        await kas_.settled()
        assert not redis("EXISTS", LAYOUT.agent("left"))
        assert all(store.client.up for store in kas_.stores)
        await two.stop()
        assert redis("ACL", "LOG") == []
        assert kas(9).kas_id.hex() not in str(keys(redis))
        assert redis("SMEMBERS", LAYOUT.everyone) == [kas(1).kas_id]


@pytest_twisted.ensureDeferred
async def test_messages_are_of_bounded_size(
    redis: redisserver.RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with fleet(redis) as kas_:
        one, two = kas_.all
        records = [record(f"agent-{n}", at=2) for n in range(100)]
        size = records[0].to_message().ByteSize()
        monkeypatch.setattr(redis_layout, "EVENT_BYTES", 10 * size)
        for change in (two.connected, two.disconnected):
            before = one.events_received
            for each in records:
                change(each)
            await kas_.quiet()
            assert 3 <= one.events_received - before <= 10
