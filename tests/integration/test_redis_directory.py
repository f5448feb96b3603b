"""Directories that share a Redis: what they find, what it costs, how they heal."""

from __future__ import annotations

import contextlib
import re
import signal
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import pytest_twisted
from twisted.internet import reactor as _reactor
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock, deferLater

from kas.config_redis import Redis, RedisServer
from kas.directory import redis_news, redis_store
from kas.directory.lookups import LOOK_INTERVAL
from kas.directory.records import AgentRecord
from kas.directory.redis_cleaning import clean
from kas.directory.redis_layout import RECORD_MS, Layout, Place
from kas.directory.redis_store import (
    BATCH_RECORDS,
    BATCH_SECONDS,
    LEASE_INTERVAL,
    RedisStore,
)
from kas.directory.shared import SharedDirectory
from kas.directory.store import StoreDown
from kas.pb import store_pb2
from kas.redis.client import PING_INTERVAL
from tests.integration import redisserver
from tests.integration.processes import ROOT
from tests.integration.redisserver import until
from tests.kas.directory.memory import kas, record
from tunnel.errors import CallError

reactor: Any = _reactor

LAYOUT = Layout("gitlab-kas")
_STEP = BATCH_SECONDS


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[redisserver.RedisServer]:
    server = redisserver.RedisServer(tmp_path)
    yield server
    server.stop()


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
            write_timeout=1.0,
            **settings,
        )
        self.stores: list[RedisStore] = []
        self.all: list[SharedDirectory] = []
        for number in range(1, size + 1):
            self.add(number)

    def add(self, number: int) -> SharedDirectory:
        """One more kas; not started yet."""
        store = RedisStore(
            kas(number), self.settings, reactor, lambda: 0.5, clock=self.clock
        )
        directory = SharedDirectory(
            *(kas(number), store, self.clock, lambda: 0.5),
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
        for store in self.stores:
            while store._jobs.running or store._changed:
                self.clock.advance(_STEP)
                await self.answered(store)
        for store in self.stores:
            await self.answered(store)

    async def answered(self, store: RedisStore) -> None:
        """Until Redis has answered, and what it published was taken in."""
        if store.client.up:
            await store.client.call("PING")
        for one in self.stores:
            news = one.client._news.connection
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

    async def routes(self, directory: SharedDirectory, agent_id: str) -> Sequence[Any]:
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
        one.watch("b", lambda: told.append("b"))
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
async def test_flushed(redis: redisserver.RedisServer) -> None:
    """Within one interval everything is there again, and news correct the others."""
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
        redis("PUBLISH", LAYOUT.channel, b"x" * (redis_news.MAX_EVENT_BYTES + 1))
        await kas_.quiet()
        assert await kas_.routes(one, "good") == [record("good", at=2)]
        assert kas_.stores[0].client.up
        assert kas_.stores[0].malformed == 2
        with pytest.raises(StoreDown):
            await kas_.stores[0].find("poisoned")


@pytest_twisted.ensureDeferred
async def test_a_storm_is_few_transactions(redis: redisserver.RedisServer) -> None:
    async with fleet(redis) as kas_:
        two = kas_.all[1]
        before = kas_.stores[1]._leased._sequence
        for number in range(10 * BATCH_RECORDS):
            two.connected(record(f"agent-{number}", at=2))
        await kas_.quiet()
        assert kas_.stores[1]._leased._sequence - before == 10
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
                await until(lambda: not store._jobs.running, "written")  # noqa: B023
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
    text = (ROOT / "docs/operating.rst").read_text()
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

        def cleaning(pause: Any) -> Deferred[int | None]:
            between: Any = Between()
            arguments = (between, LAYOUT, b"9")
            return Deferred.fromCoroutine(
                clean(*arguments, by=b"1", count=BATCH_RECORDS, pause=pause)
            )

        async def back(seconds: float) -> None:
            # It was removed while it came back: its lease went with it.
            seen.append(redis("EXISTS", lease))
            redis("SET", lease, "alive")
            redis("HSET", held, Place("new", b"i").to_field(), "x")

        seen: list[int] = []
        for command in LAYOUT.put(b"9", [record(f"agent-{n}") for n in range(300)]):
            redis(*command)
        assert await cleaning(back) is None
        assert seen == [0]
        assert redis("HEXISTS", held, Place("new", b"i").to_field()) == 1
        # The lock is still there for whoever comes next.
        redis("DEL", lease)
        assert await cleaning(back) is None
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


@pytest_twisted.ensureDeferred
async def test_messages_are_of_bounded_size(
    redis: redisserver.RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with fleet(redis) as kas_:
        one, two = kas_.all
        records = [record(f"agent-{n}", at=2) for n in range(100)]
        size = records[0].to_message().ByteSize()
        monkeypatch.setattr(redis_news, "EVENT_BYTES", 10 * size)
        for change in (two.connected, two.disconnected):
            before = one.news_received
            for each in records:
                change(each)
            await kas_.quiet()
            assert 3 <= one.news_received - before <= 10
