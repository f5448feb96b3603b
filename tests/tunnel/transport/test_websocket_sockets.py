"""WebSockets over real sockets, against other people's and through a real proxy."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_twisted
from twisted.internet import reactor as _reactor
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import HostnameEndpoint, TCP4ServerEndpoint
from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import IStreamClientEndpoint
from twisted.internet.task import deferLater
from twisted.internet.threads import deferToThread
from websockets.sync.client import connect as blocking_connect

from tests.tunnel.session.bulk import SIZE, Sink, Stuffer
from tests.tunnel.session.harness import Recorders, bounded
from tests.tunnel.transport.tls_layer import server_context, trusting
from tunnel.transport.first_bytes import TunnelOrWebSocketFactory
from tunnel.transport.negotiation import NegotiationError
from tunnel.transport.tlsio import TLSClientEndpoint, wrap_server
from tunnel.transport.websocket import (
    SUBPROTOCOL,
    WebSocketClientEndpoint,
    WebSocketError,
    wrap_websocket_server,
)

reactor: Any = _reactor


@contextlib.asynccontextmanager
async def listening(factory: Any) -> AsyncIterator[int]:
    port: Any = await TCP4ServerEndpoint(reactor, 0, interface="127.0.0.1").listen(
        factory
    )
    try:
        yield port.getHost().port
    finally:
        await port.stopListening()


def dial(port: int, url: str, tls: bool = False, factory: Any = None) -> Deferred[Any]:
    endpoint: IStreamClientEndpoint = HostnameEndpoint(reactor, "127.0.0.1", port)
    if tls:
        endpoint = TLSClientEndpoint(
            endpoint, lambda: trusting(alpn=("http/1.1",)), "localhost", reactor
        )
    client = WebSocketClientEndpoint(endpoint, url, (), reactor)
    return bounded(client.connect(factory or Recorders()))


async def exchange(client: Any, server: Recorders) -> None:
    """Both say something large, then the client ends it."""
    client.wire.write(b"ping" + bytes(400_000))
    other = server.made[0] if server.made else await server.next()
    await other.until(400_004)
    other.wire.write(b"pong" + bytes(400_000))
    assert (await client.until(400_004)).startswith(b"pong")
    client.wire.loseConnection()
    assert (await client.end()).check(ConnectionDone)
    assert (await other.end()).check(ConnectionDone)


@pytest_twisted.ensureDeferred
async def test_one_port_for_both() -> None:
    """TLS, and inside it either the tunnel or a WebSocket."""
    raw, web = Recorders(), Recorders()
    either = TunnelOrWebSocketFactory(raw, wrap_websocket_server(web, reactor), reactor)
    async with listening(wrap_server(either, server_context, reactor)) as port:
        client = await dial(port, "wss://localhost/any", tls=True)
        await exchange(client, web)
        assert raw.made == []
        tls = TLSClientEndpoint(
            HostnameEndpoint(reactor, "127.0.0.1", port), trusting, "localhost", reactor
        )
        client = await bounded(tls.connect(Recorders()))
        client.wire.write(b"\x00\x00\x00\x05hello")
        other = raw.made[0] if raw.made else await raw.next()
        assert (await other.until(9)).endswith(b"hello")
        # Though the sniffer between them knows half-close, this protocol does not.
        client.wire.loseConnection()
        assert (await other.end()).check(ConnectionDone)
        assert (await client.end()).check(ConnectionDone)


@pytest_twisted.ensureDeferred
async def test_bulk_with_paused_reader() -> None:
    """A paused reader stops its sender through WebSocket and TLS."""
    server = Recorders(Sink)
    factory = wrap_server(
        wrap_websocket_server(server, reactor), server_context, reactor
    )
    async with listening(factory) as port:
        client = await dial(port, "wss://k/", tls=True, factory=Recorders(Sink))
        other = server.made[0] if server.made else await server.next()
        other.wire.pauseProducing()
        up, down = Stuffer(client.wire), Stuffer(other.wire)
        up.start()
        down.start()
        await bounded(client.full)
        assert other.count == 0
        assert up.paused and up.sent < SIZE
        assert up.peak < 64 * 1024 + 2 * 100_100
        other.wire.resumeProducing()
        await bounded(other.full)
        assert other.digest.digest() == up.digest.digest()
        assert client.digest.digest() == down.digest.digest()
        client.wire.loseConnection()
        await client.end()
        await other.end()


@pytest_twisted.ensureDeferred
async def test_blocking_client() -> None:
    """The websockets package's own client: messages, fragments, ping, close."""
    server = Recorders()
    server.prepare = lambda p: setattr(p, "on_data", lambda data: p.wire.write(data))

    def talk(port: int) -> bytes:
        with blocking_connect(
            f"ws://127.0.0.1:{port}/x", subprotocols=[SUBPROTOCOL], proxy=None
        ) as client:
            client.send(b"hello")
            got = b""
            while len(got) < 5:
                got += bytes(client.recv(timeout=20))  # type: ignore[arg-type]
            client.send([b"a", b"b", b"c"])
            while len(got) < 8:
                got += bytes(client.recv(timeout=20))  # type: ignore[arg-type]
            assert client.ping().wait(20)
            return got

    async with listening(wrap_websocket_server(server, reactor)) as port:
        assert await deferToThread(talk, port) == b"helloabc"
        assert (await server.made[0].end()).check(ConnectionDone)


NGINX = """
daemon off; pid {dir}/pid; error_log {dir}/error.log; worker_processes 1;
events {{ worker_connections 64; }}
http {{
    access_log off;
    client_body_temp_path {dir}/a; proxy_temp_path {dir}/b;
    fastcgi_temp_path {dir}/c; uwsgi_temp_path {dir}/d; scgi_temp_path {dir}/e;
    server {{
        listen 127.0.0.1:{port};
        location /good {{
            proxy_pass http://127.0.0.1:{upstream};
            proxy_http_version 1.1;
            proxy_set_header Upgrade $http_upgrade;
            proxy_set_header Connection "upgrade";
        }}
        location /plain {{ proxy_pass http://127.0.0.1:{upstream}; }}
        location /dead {{ proxy_pass http://127.0.0.1:1; }}
        location / {{ return 404; }}
        location /moved {{ return 301 /good; }}
    }}
}}
"""


@contextlib.asynccontextmanager
async def nginx(directory: Path, upstream: int) -> AsyncIterator[int]:
    """nginx on a free port, in front of *upstream*."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    configuration = directory / "nginx.conf"
    configuration.write_text(NGINX.format(dir=directory, port=port, upstream=upstream))
    if os.getuid() == 0:
        os.chmod(directory, 0o755)
    process = subprocess.Popen(
        ["nginx", "-p", str(directory), "-c", str(configuration), "-e", "stderr"],
        stderr=subprocess.DEVNULL,
    )
    try:
        for _ in range(200):
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            await deferLater(reactor, 0.02)
        yield port
    finally:
        process.terminate()
        await deferToThread(process.wait, 20)


@pytest.mark.skipif(shutil.which("nginx") is None, reason="no nginx")
@pytest_twisted.ensureDeferred
async def test_behind_nginx(tmp_path: Path) -> None:
    """Through a real proxy; and what a misconfigured one answers is understood."""
    server = Recorders()
    failures: list[NegotiationError] = []
    factory = wrap_websocket_server(server, reactor, failed=failures.append)
    async with listening(factory) as upstream, nginx(tmp_path, upstream) as port:
        client = await dial(port, f"ws://127.0.0.1:{port}/good/x")
        await exchange(client, server)
        for path, words in (
            ("plain", "responded with 426"),
            ("dead", "responded with 502 Bad Gateway"),
            ("moved", "/good"),
            ("nothing", "responded with 404 Not Found"),
        ):
            try:
                await dial(port, f"ws://127.0.0.1:{port}/{path}")
            except WebSocketError as error:
                assert error.label == "status"
                assert words in str(error)
            else:
                raise AssertionError(path)
        assert [failure.label for failure in failures] == ["upgrade"]
