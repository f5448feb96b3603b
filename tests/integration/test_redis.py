"""Our Redis client against Redis itself: every way in, and every way to fail."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest_twisted
from twisted.logger import LogEvent

from kas.config.redis import Redis
from kas.redis import RedisRefused
from kas.redis.connection import MAX_WAITING
from tests.integration import redisserver
from tests.integration.redisclients import CHANNEL, client, failure, tcp
from tests.integration.redisserver import until
from tools.ports import free_port
from tunnel.config import RedisServer


@pytest_twisted.ensureDeferred
async def test_values_and_order_stay_as_they_are(
    redis: redisserver.RedisServer,
) -> None:
    async with client(tcp(redis)) as (one, owner):
        for value in (b"00123", b"1.50", b"\xff\x00\r\n", b"", "ä".encode()):
            first = one.call("SET", "p:k", value)
            second = one.call("GET", "p:k")
            one.call("SET", "p:k", "later")
            assert await second == value
            assert await first == b"OK"
        assert await one.call("GET", "p:none") is None
        commands = [("SET", "p:a", b"1"), ("HSET", "p:h", "f", b"01"), ("GET", "p:a")]
        assert await one.transaction(commands) == [b"OK", 1, b"1"]
        assert await one.transaction([("HGETALL", "p:h")]) == [[b"f", b"01"]]
        await one.call("PUBLISH", CHANNEL, b"\x00news")
        await until(lambda: owner.messages, "a message")
        assert owner.messages == [b"\x00news"]
        assert owner.said.count("up") == 1


@pytest_twisted.ensureDeferred
async def test_an_error_of_one_command_is_its_own(
    redis: redisserver.RedisServer,
) -> None:
    async with client(tcp(redis)) as (one, owner):
        redis("SET", "p:text", "secret-value")
        error = await failure(one.call("HGETALL", "p:text"))
        assert isinstance(error, RedisRefused)
        assert error.code == "WRONGTYPE"
        results = await one.transaction(
            [("SET", "p:a", 1), ("HGETALL", "p:text"), ("SET", "p:b", 2)]
        )
        assert isinstance(results[1], RedisRefused)
        assert redis("GET", "p:b") == b"2"
        # What Redis does not even queue stops all of it.
        error = await failure(one.transaction([("SET", "p:c", 1), ("NONSENSE", "x")]))
        assert isinstance(error, RedisRefused)
        assert redis("GET", "p:c") is None
        assert one.up
        assert owner.said.count("down") == 0


@pytest_twisted.ensureDeferred
async def test_database(redis: redisserver.RedisServer) -> None:
    async with client(tcp(redis, database_index=3)) as (one, _):
        await one.call("SET", "p:k", "x")
        assert redis("GET", "p:k") is None
        assert "db3:keys=" in redis("INFO", "keyspace").decode()


@pytest_twisted.ensureDeferred
async def test_unix(redis: redisserver.RedisServer) -> None:
    address = RedisServer(address=str(redis.socket))
    async with client(Redis(server=address, network="unix")) as (one, _):
        assert await one.call("PING") == b"PONG"


_ACL = (
    *("reset", "on", ">first-secret", "~p:txkas1:*", "&p:txkas1:*", "-@all"),
    *("+set", "+publish", "+subscribe", "+multi", "+exec", "+ping", "+get"),
)


@pytest_twisted.ensureDeferred
async def test_user_of_an_acl_whose_password_changes(
    redis: redisserver.RedisServer, tmp_path: Path, events: list[LogEvent]
) -> None:
    redis("ACL", "SETUSER", "kas", *_ACL)
    password = tmp_path / "password"
    password.write_text("first-secret\n")
    settings = tcp(redis, username="kas", password_file=password)
    async with client(settings) as (one, _):
        assert await one.call("GET", "p:txkas1:x") is None
        redis("ACL", "SETUSER", "kas", "resetpass", ">second-secret")
        redis("CLIENT", "KILL", "USER", "kas")
        await until(lambda: "WRONGPASS" in one.reason, "refused")
        password.write_text("second-secret\n")
        await until(lambda: one.up and one.listening, "up again")
        # What kas must not do turns out while it is done.
        error = await failure(one.call("GET", "other:key"))
        assert "NOPERM" in str(error)
        redis("ACL", "DELUSER", "kas")
        await until(lambda: not one.up, "down")
    said = repr(events)
    assert "WRONGPASS" in said
    assert "first-secret" not in said
    assert "second-secret" not in said


@pytest_twisted.ensureDeferred
async def test_a_wrong_password_is_said_once(
    redis: redisserver.RedisServer, tmp_path: Path, events: list[LogEvent]
) -> None:
    password = tmp_path / "password"
    password.write_text("wrong-secret")
    redis("CONFIG", "SET", "requirepass", "right-secret")
    redis("ACL", "SETUSER", "default", "on")
    settings = tcp(redis, password_file=password)
    async with client(settings, wait=False) as (one, owner):
        await until(lambda: "WRONGPASS" in one.reason, "refused")
        tries = one.connections
        await until(lambda: one.connections >= tries + 4, "more tries")
        error = await failure(one.call("PING"))
        assert "WRONGPASS" in str(error)
        assert owner.said == []
    assert "-secret" not in repr(events)
    assert (
        sum("log_format" in e and "is unavailable" in e["log_format"] for e in events)
        == 1
    )


@pytest_twisted.ensureDeferred
async def test_stopped_and_continued(
    redis: redisserver.RedisServer, events: list[LogEvent]
) -> None:
    """SIGSTOP: one time limit, then every call fails at once until it answers again."""
    settings = tcp(redis, write_timeout=0.5, dial_timeout=2.0)
    async with client(settings) as (one, owner):
        assert redis.process is not None
        redis.process.child.send_signal(signal.SIGSTOP)
        waiting = [one.call("GET", "p:k") for _ in range(MAX_WAITING + 5)]
        # More than may wait fail without waiting.
        for busy in waiting[MAX_WAITING:]:
            assert "too many" in str(await failure(busy))
        assert "within 0.5 s" in str(await failure(waiting.pop(MAX_WAITING - 1)))
        for one_of_them in waiting[: MAX_WAITING - 1]:
            assert one_of_them.called
            await failure(one_of_them)
        refused = one.counters.refused
        for _ in range(1000):
            at_once = one.call("GET", "p:k")
            assert at_once.called
            await failure(at_once)
        assert one.counters.refused == refused + 1000
        # The probe goes to a server that accepts connections and says nothing.
        tried = one.connections
        await until(lambda: one.connections > tried + 1, "probes")
        assert not one.up
        redis.process.child.send_signal(signal.SIGCONT)
        await until(lambda: one.up and one.listening, "up again")
        assert await one.call("PING") == b"PONG"
        assert [x for x in owner.said if x in ("up", "down")] == ["up", "down", "up"]
    lines = [str(e["log_format"]) for e in events if "log_format" in e]
    assert sum("is unavailable" in line for line in lines) == 1
    assert sum("is available" in line for line in lines) == 2


@pytest_twisted.ensureDeferred
async def test_restarted(redis: redisserver.RedisServer) -> None:
    async with client(tcp(redis)) as (one, owner):
        redis.stop()
        await until(lambda: not one.up and not one.listening, "down")
        await failure(one.call("PING"))
        redis.start()
        await until(lambda: one.up and one.listening, "up again")
        redis("PUBLISH", CHANNEL, "again")
        await until(lambda: owner.messages, "subscribed again")
        for word in ("up", "listening"):
            assert owner.said.count(word) == 2


@pytest_twisted.ensureDeferred
async def test_killed_connections(redis: redisserver.RedisServer) -> None:
    async with client(tcp(redis)) as (one, owner):
        redis("CLIENT", "KILL", "TYPE", "pubsub")
        await until(lambda: owner.said.count("listening") == 2, "subscribed again")
        assert "down" not in owner.said
        redis("CLIENT", "KILL", "TYPE", "normal")
        await until(lambda: owner.said.count("up") == 2, "up again")
        assert await one.call("PING") == b"PONG"


@pytest_twisted.ensureDeferred
async def test_out_of_memory(redis: redisserver.RedisServer) -> None:
    async with client(tcp(redis)) as (one, _):
        redis("CONFIG", "SET", "maxmemory", "1")
        error = await failure(one.transaction([("SET", "p:k", "x")]))
        assert "OOM" in str(error)
        assert not one.up
        tried = one.connections
        await until(lambda: one.connections > tried + 1, "probes")
        assert not one.up, "a Redis that only reads is no use"
        redis("CONFIG", "SET", "maxmemory", "0")
        await until(lambda: one.up, "up again")


@pytest_twisted.ensureDeferred
async def test_became_a_replica(redis: redisserver.RedisServer) -> None:
    async with client(tcp(redis)) as (one, _):
        redis("REPLICAOF", "127.0.0.1", free_port())
        await until(
            lambda: (
                one.call("SET", "p:k", "x").addErrback(lambda f: None) and not one.up
            ),
            "READONLY or cut",
        )
        await until(lambda: "READONLY" in one.reason, "READONLY")
        redis("REPLICAOF", "NO", "ONE")
        await until(lambda: one.up, "up again")


@pytest_twisted.ensureDeferred
async def test_nobody_there(tmp_path: Path) -> None:
    address = RedisServer(address=f"127.0.0.1:{free_port()}")
    async with client(Redis(server=address), wait=False) as (one, owner):
        await until(lambda: "refused" in one.reason, "a reason")
        assert "refused" in str(await failure(one.call("PING")))
        assert owner.said == []
