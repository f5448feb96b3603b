"""Our Redis client with TLS, against a Redis that wants a certificate of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_twisted

from kas.config.redis import Redis
from tests.integration import redisserver
from tests.integration.redisclients import client, failure, tcp
from tests.integration.redisserver import until
from tests.tunnel.transport import certificates
from tools.ports import free_port
from tunnel.config import RedisServer, RedisTls


class TlsServer:
    """A Redis with TLS that wants a client's certificate."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ca = Path(certificates.authority().write(folder))
        cert, key = certificates.server_identity().write(folder, "server")
        mine = certificates.client_identity().write(folder, "client")
        self.cert, self.key = map(Path, mine)
        self.tls_port = free_port()
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
    settings = tcp(redis, dial_timeout=2.0, tls=RedisTls(enabled=True))
    async with client(settings, wait=False) as (one, _):
        await until(lambda: "not connected" not in one.reason, "a reason")
        assert not one.up
