"""Our Redis client through sentinels: to the master, and to the next one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import pytest_twisted
from twisted.logger import LogEvent

from kas.config.redis import Redis
from kas.redis.dialling import Dialler
from tests.integration import redisserver
from tests.integration.processes import PATIENCE, Process, eventually
from tests.integration.redisclients import CHANNEL, client
from tests.integration.redisserver import until
from tests.tunnel.transport import certificates
from tools.ports import free_port
from tunnel.config import RedisSentinel, RedisTls


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
        self.ports = [free_port() for _ in range(3)]
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
        nobody = f"127.0.0.1:{free_port()}"
        return Redis(
            sentinel=RedisSentinel(
                master_name="main",
                addresses=(nobody, f"127.0.0.1:{self.ports[2]}"),
                sentinel_password_file=self.folder / "sentinel-password",
            ),
            username="kas",
            password_file=self.folder / "password",
            tls=RedisTls(enabled=True, ca_certificate_file=self.ca),
            write_timeout=PATIENCE,
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
async def test_failover(sentinels: Sentinels, events: list[LogEvent]) -> None:
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
        sentinels.replica("PUBLISH", CHANNEL, "here")
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
        await until(lambda: "does not know a master 'other'" in one.reason, "a reason")
