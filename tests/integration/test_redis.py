"""Our Redis client against Redis itself: every way in, and every way to fail."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_twisted
from twisted.internet import reactor as _reactor
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.logger import ILogObserver, LogEvent, globalLogPublisher
from zope.interface import implementer

from kas.config_redis import Redis, RedisSentinel, RedisServer, RedisTls
from kas.redis import RedisClient, RedisRefused, RedisUnavailable
from kas.redis.connection import MAX_WAITING
from kas.redis.dialling import Dialler
from tests.integration import redisserver
from tests.integration.processes import Process, eventually
from tests.integration.redisserver import until
from tests.tunnel.net import certificates

reactor: Any = _reactor

_CHANNEL = "p:txkas1:events"
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

    def redis_message(self, data: bytes) -> None:
        self.messages.append(data)


@contextlib.asynccontextmanager
async def client(
    settings: Redis, wait: bool = True
) -> AsyncIterator[tuple[RedisClient, Owner]]:
    """A client that runs."""
    made = RedisClient(settings, reactor, lambda: 0.0, _CHANNEL, _PROBE)
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


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[redisserver.RedisServer]:
    server = redisserver.RedisServer(tmp_path)
    yield server
    server.stop()


@implementer(ILogObserver)
class Log(list[LogEvent]):
    """What is logged."""

    def __call__(self, event: LogEvent) -> None:
        self.append(event)


@pytest.fixture
def events() -> Iterator[Log]:
    """What is logged meanwhile."""
    found = Log()
    globalLogPublisher.addObserver(found)
    yield found
    globalLogPublisher.removeObserver(found)


def tcp(server: redisserver.RedisServer, **more: Any) -> Redis:
    """Settings for it."""
    address = RedisServer(address=f"127.0.0.1:{server.port}")
    return Redis(server=address, **{"write_timeout": 0.5, "dial_timeout": 2.0, **more})


async def failure(waiting: Deferred[Any]) -> Exception:
    """What it fails with."""
    try:
        got = await waiting
    except (RedisUnavailable, RedisRefused) as error:
        return error
    raise AssertionError(f"it worked: {got}")


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
        await one.call("PUBLISH", _CHANNEL, b"\x00news")
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
    redis: redisserver.RedisServer, tmp_path: Path, events: Log
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
    redis: redisserver.RedisServer, tmp_path: Path, events: Log
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
        sum("log_format" in e and "cannot be used" in e["log_format"] for e in events)
        == 1
    )


class TlsServer:
    """A Redis with TLS that wants a client's certificate."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ca = Path(certificates.authority().write(folder))
        cert, key = certificates.server_identity().write(folder, "server")
        mine = certificates.client_identity().write(folder, "client")
        self.cert, self.key = map(Path, mine)
        self.tls_port = redisserver.free_port()
        self.server = redisserver.RedisServer(
            folder,
            "redis-tls",
            *("--tls-port", str(self.tls_port), "--tls-cert-file", cert),
            *("--tls-key-file", key, "--tls-ca-cert-file", self.ca),
        )

    def settings(self, host: str = "localhost", **tls: Any) -> Redis:
        files = {
            "ca_certificate_file": self.ca,
            "certificate_file": self.cert,
            "key_file": self.key,
        }
        return Redis(
            server=RedisServer(address=f"{host}:{self.tls_port}"),
            tls=RedisTls(enabled=True, **{**files, **tls}),
        )


@pytest.fixture
def tls(tmp_path: Path) -> Iterator[TlsServer]:
    made = TlsServer(tmp_path)
    yield made
    made.server.stop()


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
@pytest_twisted.ensureDeferred
async def test_tls(tls: TlsServer, host: str) -> None:
    async with client(tls.settings(host)) as (one, _):
        assert await one.call("SET", "p:k", b"x" * 100_000) == b"OK"
        assert await one.call("GET", "p:k") == b"x" * 100_000


@pytest_twisted.ensureDeferred
async def test_tls_with_a_ca_that_did_not_sign(tls: TlsServer, tmp_path: Path) -> None:
    other = Path(certificates.other_authority().write(tmp_path, "other.crt"))
    received = tls.server.info("total_connections_received")
    async with client(tls.settings(ca_certificate_file=other), wait=False) as (one, _):
        await until(lambda: one.reason.count(":") > 1, "a reason")
        assert "certificate" in one.reason
        await failure(one.call("PING"))
    assert int(tls.server.info("total_connections_received")) > int(received)
    # No command of ours arrived: the handshake comes first.
    assert "cmdstat_auth" not in tls.server("INFO", "commandstats").decode()
    assert "cmdstat_subscribe" not in tls.server("INFO", "commandstats").decode()


@pytest_twisted.ensureDeferred
async def test_tls_with_another_name(tls: TlsServer) -> None:
    tls.server("CONFIG", "SET", "bind", "127.0.0.1 127.0.0.2")
    async with client(tls.settings("127.0.0.2"), wait=False) as (one, _):
        await until(lambda: "not connected" not in one.reason, "a reason")
        assert "certificate is not for '127.0.0.2'" in one.reason
        await failure(one.call("PING"))


@pytest_twisted.ensureDeferred
async def test_tls_without_a_client_certificate(tls: TlsServer) -> None:
    settings = tls.settings(certificate_file=None, key_file=None)
    async with client(settings, wait=False) as (one, owner):
        await until(lambda: "not connected" not in one.reason, "a reason")
        assert not one.up
        assert owner.said == []


@pytest_twisted.ensureDeferred
async def test_tls_to_a_server_without(redis: redisserver.RedisServer) -> None:
    settings = tcp(redis, tls=RedisTls(enabled=True))
    async with client(settings, wait=False) as (one, _):
        await until(lambda: "not connected" not in one.reason, "a reason")
        assert not one.up


@pytest_twisted.ensureDeferred
async def test_stopped_and_continued(
    redis: redisserver.RedisServer, events: Log
) -> None:
    """SIGSTOP: one time limit, then every call fails at once until it answers again."""
    async with client(tcp(redis)) as (one, owner):
        assert redis.process is not None
        redis.process.child.send_signal(signal.SIGSTOP)
        began = time.monotonic()
        waiting = [one.call("GET", "p:k") for _ in range(MAX_WAITING + 5)]
        # More than may wait fail without waiting.
        for busy in waiting[MAX_WAITING:]:
            assert "too many" in str(await failure(busy))
        assert "within 0.5 s" in str(await failure(waiting[0]))
        assert 0.4 < time.monotonic() - began < 5
        for one_of_them in waiting[1:MAX_WAITING]:
            await failure(one_of_them)
        refused = one.counters.refused
        began = time.monotonic()
        for _ in range(1000):
            await failure(one.call("GET", "p:k"))
        assert time.monotonic() - began < 1
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
    assert sum("cannot be used" in line for line in lines) == 1
    assert sum("works" in line for line in lines) == 2


@pytest_twisted.ensureDeferred
async def test_restarted(redis: redisserver.RedisServer) -> None:
    async with client(tcp(redis)) as (one, owner):
        redis.stop()
        await until(lambda: not one.up and not one.listening, "down")
        await failure(one.call("PING"))
        redis.start()
        await until(lambda: one.up and one.listening, "up again")
        redis("PUBLISH", _CHANNEL, "again")
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
        redis("REPLICAOF", "127.0.0.1", redisserver.free_port())
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
    address = RedisServer(address=f"127.0.0.1:{redisserver.free_port()}")
    async with client(Redis(server=address), wait=False) as (one, owner):
        await until(lambda: "refused" in one.reason, "a reason")
        assert "refused" in str(await failure(one.call("PING")))
        assert owner.said == []


class Sentinels:
    """A master, a replica and a sentinel, all with passwords and TLS."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ca = Path(certificates.authority().write(folder))
        cert, key = certificates.server_identity().write(folder, "server")
        (folder / "password").write_text("data-secret")
        (folder / "sentinel-password").write_text("sentinel-secret")
        self.tls = (
            *("--tls-cert-file", cert, "--tls-key-file", key),
            *("--tls-ca-cert-file", str(self.ca), "--tls-auth-clients", "no"),
            *("--tls-replication", "yes"),
        )
        self.ports = [redisserver.free_port() for _ in range(3)]
        login = ("--user", "kas", "on", ">data-secret", "~*", "&*", "+@all")
        self.master = redisserver.RedisServer(
            folder, "one", "--tls-port", str(self.ports[0]), *self.tls, *login
        )
        self.replica = redisserver.RedisServer(
            *(folder, "two", "--tls-port", str(self.ports[1]), *self.tls, *login),
            *("--replicaof", "127.0.0.1", str(self.ports[0])),
        )
        eventually(
            lambda: self.replica.info("master_link_status") == "up", 15, "replica"
        )
        configuration = folder / "sentinel.conf"
        configuration.write_text(
            f"sentinel monitor main 127.0.0.1 {self.ports[0]} 1\n"
            "sentinel down-after-milliseconds main 500\n"
            "sentinel failover-timeout main 2000\n"
            "requirepass sentinel-secret\n"
        )
        self.sentinel = Sentinel(folder, configuration, str(self.ports[2]), *self.tls)

    def settings(self) -> Redis:
        nobody = f"127.0.0.1:{redisserver.free_port()}"
        return Redis(
            sentinel=RedisSentinel(
                master_name="main",
                addresses=(nobody, f"127.0.0.1:{self.ports[2]}"),
                sentinel_password_file=self.folder / "sentinel-password",
            ),
            username="kas",
            password_file=self.folder / "password",
            tls=RedisTls(enabled=True, ca_certificate_file=self.ca),
            write_timeout=0.5,
        )

    def stop(self) -> None:
        for one in (self.sentinel, self.master, self.replica):
            one.stop()


class Sentinel(redisserver.RedisServer):
    """A server that watches others."""

    def __init__(
        self, folder: Path, configuration: Path, port: str, *more: str
    ) -> None:
        self.configuration = configuration
        super().__init__(folder, "sentinel", "--tls-port", port, *more)

    def start(self) -> None:
        self.process = Process(
            self.name,
            [
                *(self.program, self.configuration, "--sentinel", "--port", "0"),
                *self.options,
            ],
            self.folder / "sentinel.log",
        )
        self.process.wait_for(r"\+slave")


@pytest.fixture
def sentinels(tmp_path: Path) -> Iterator[Sentinels]:
    made = Sentinels(tmp_path)
    yield made
    made.stop()


@pytest_twisted.ensureDeferred
async def test_failover(sentinels: Sentinels, events: Log) -> None:
    """Through sentinels to the master, and to the next one when that is gone."""
    async with client(sentinels.settings()) as (one, owner):
        await one.call("SET", "p:k", "x")
        assert sentinels.master("GET", "p:k") == b"x"
        await until(lambda: sentinels.replica("GET", "p:k") == b"x", "replicated")
        sentinels.master.stop()
        await until(lambda: not one.up, "down")
        await until(lambda: one.up and one.listening, "the replica is the master", 60)
        await one.call("SET", "p:k", "y")
        assert sentinels.replica("GET", "p:k") == b"y"
        sentinels.replica("PUBLISH", _CHANNEL, "here")
        await until(lambda: owner.messages, "news of the new master")
    assert "-secret" not in repr(events)


@pytest_twisted.ensureDeferred
async def test_failover_that_cuts_nothing(
    sentinels: Sentinels, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sentinels are asked now and then, so an old master is not kept."""
    monkeypatch.setattr("kas.redis.client.SENTINEL_INTERVAL", 0.2)
    async with client(sentinels.settings()) as (one, _):

        async def elsewhere(dialler: Dialler) -> tuple[str, int]:
            return "127.0.0.1", sentinels.ports[1]

        with monkeypatch.context() as patched:
            patched.setattr(Dialler, "_ask_sentinels", elsewhere)
            await until(lambda: "READONLY" in one.reason, "the other one")
        await until(lambda: one.up and one.listening, "up again")


@pytest_twisted.ensureDeferred
async def test_sentinels_that_do_not_know(sentinels: Sentinels) -> None:
    settings = sentinels.settings()
    assert settings.sentinel is not None
    other = RedisSentinel(
        master_name="other",
        addresses=settings.sentinel.addresses,
        sentinel_password_file=settings.sentinel.sentinel_password_file,
    )
    unknown = Redis(sentinel=other, tls=settings.tls)
    async with client(unknown, wait=False) as (one, _):
        await until(lambda: "knows no master 'other'" in one.reason, "a reason")
