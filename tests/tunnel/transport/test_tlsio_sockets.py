"""TLS over real sockets, against other people's TLS."""

from __future__ import annotations

import contextlib
import shutil
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_twisted
from twisted.internet import reactor as _reactor
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.endpoints import (
    HostnameEndpoint,
    SSL4ServerEndpoint,
    TCP4ServerEndpoint,
    wrapClientTLS,
)
from twisted.internet.error import (
    ConnectionDone,
    ConnectionLost,
    ConnectionRefusedError,
)
from twisted.internet.protocol import Factory
from twisted.internet.ssl import Certificate, PrivateCertificate, optionsForClientTLS
from twisted.internet.task import Clock
from twisted.internet.threads import deferToThread

from tests.tunnel.session.bulk import SIZE, Sink, Stuffer
from tests.tunnel.session.harness import HalfCloseableRecorder, Recorders, bounded
from tests.tunnel.transport import certificates
from tests.tunnel.transport.tls_layer import server_context, trusting
from tunnel.transport.tls import TLSHandshakeError, client_context, name_mismatch
from tunnel.transport.tlsio import HANDSHAKE_TIMEOUT, TLSClientEndpoint, wrap_server

reactor: Any = _reactor


@contextlib.asynccontextmanager
async def listening(factory: Factory, wrap: bool = True) -> AsyncIterator[int]:
    """A port with TLS in front of *factory*."""
    wrapped: Any = wrap_server(factory, server_context, reactor) if wrap else factory
    endpoint = TCP4ServerEndpoint(reactor, 0, interface="127.0.0.1")
    port: Any = await endpoint.listen(wrapped)
    try:
        yield port.getHost().port
    finally:
        await port.stopListening()


def endpoint_to(
    port: int, name: str = "localhost", context: Any = None, clock: Any = None
) -> TLSClientEndpoint:
    return TLSClientEndpoint(
        HostnameEndpoint(reactor, "127.0.0.1", port),
        context or trusting,
        name,
        clock or reactor,
    )


async def connect(port: int, factory: Factory, **options: Any) -> Any:
    return await bounded(endpoint_to(port, **options).connect(factory))


async def failure_of(deferred: Deferred[Any]) -> BaseException:
    try:
        result = await bounded(deferred)
    except Exception as error:
        return error
    raise AssertionError(f"connected: {result}")


@pytest_twisted.ensureDeferred
async def test_both_ends_ours() -> None:
    """connect fires after the handshake; bytes go both ways; the end is clean."""
    server = Recorders()
    async with listening(server) as port:
        client = await connect(port, Recorders())
        assert client.wire.negotiated_alpn == "txkas/1"
        der = certificates.server_identity().certificate_der
        assert client.wire.getPeerCertificate() == der
        client.wire.setTcpNoDelay(True)
        client.wire.setTcpKeepAlive(True)
        assert client.wire.getTcpNoDelay() and client.wire.getTcpKeepAlive()
        client.wire.write(b"ping")
        other = server.made[0] if server.made else await server.next()
        await other.until(4)
        other.wire.write(b"pong")
        assert await client.until(4) == b"pong"
        client.wire.loseConnection()
        assert (await other.end()).check(ConnectionDone)
        assert (await client.end()).check(ConnectionDone)


@pytest_twisted.ensureDeferred
async def test_bulk_with_paused_reader() -> None:
    """20 MB each way at once; a paused reader stops its sender at little memory."""
    server = Recorders(Sink)
    async with listening(server) as port:
        client = await connect(port, Recorders(Sink))
        other = server.made[0] if server.made else await server.next()
        other.wire.pauseProducing()
        up, down = Stuffer(client.wire), Stuffer(other.wire)
        up.start()
        down.start()
        await bounded(client.full)
        # The server read nothing: what the client got rid of is in socket buffers.
        assert other.count == 0
        assert up.paused and up.sent < SIZE
        assert up.peak < 64 * 1024 + 2 * 100_000
        other.wire.resumeProducing()
        await bounded(other.full)
        assert other.digest.digest() == up.digest.digest()
        assert client.digest.digest() == down.digest.digest()
        assert up.pauses > 1
        client.wire.loseConnection()
        await client.end()
        await other.end()


@pytest_twisted.ensureDeferred
async def test_blocking_client() -> None:
    """The plain ssl module: echo, then an orderly close from its side."""
    server = Recorders()
    server.prepare = lambda p: setattr(p, "on_data", lambda data: p.wire.write(data))
    blob = bytes(range(256)) * 4096  # 1 MiB

    def talk(port: int) -> bytes:
        with socket.create_connection(("127.0.0.1", port), timeout=20) as plain:
            with trusting().wrap_socket(plain, server_hostname="localhost") as tls:
                got = b""
                for start in range(0, len(blob), 65536):
                    tls.sendall(blob[start : start + 65536])
                    while len(got) < start + 65536:
                        got += tls.recv(1 << 20)
                tls.unwrap()  # waits for the answer to our close_notify
                return got

    async with listening(server) as port:
        assert await deferToThread(talk, port) == blob
        assert (await server.made[0].end()).check(ConnectionDone)


@pytest_twisted.ensureDeferred
async def test_half_close() -> None:
    """The other side reads our end, and what it sends after that still arrives."""
    server = Recorders(HalfCloseableRecorder)

    def talk(port: int) -> bytes:
        with socket.create_connection(("127.0.0.1", port), timeout=20) as plain:
            with trusting().wrap_socket(plain, server_hostname="localhost") as tls:
                got = b""
                while piece := tls.recv(100):
                    got += piece
                tls.sendall(b"thanks")
                tls.unwrap()
                return got

    server.prepare = lambda p: setattr(
        p,
        "on_connected",
        lambda p: (p.wire.write(b"all of it"), p.wire.loseWriteConnection()),
    )
    async with listening(server) as port:
        assert await deferToThread(talk, port) == b"all of it"
        (protocol,) = server.made
        assert (await protocol.end()).check(ConnectionDone)
        assert protocol.received == b"thanks"
        assert protocol.write_lost == 1


@pytest_twisted.ensureDeferred
async def test_truncated() -> None:
    """A peer that ends TCP without close_notify does not end cleanly."""
    server = Recorders(HalfCloseableRecorder)

    def talk(port: int) -> None:
        plain = socket.create_connection(("127.0.0.1", port), timeout=20)
        tls = trusting().wrap_socket(plain, server_hostname="localhost")
        tls.sendall(b"half a mess")
        tls.close()

    async with listening(server) as port:
        await deferToThread(talk, port)
        protocol = server.made[0] if server.made else await server.next()
        reason = await protocol.end()
        assert reason.check(ConnectionLost)
        assert "close_notify" in str(reason.value)
        assert protocol.received == b"half a mess"


@pytest_twisted.ensureDeferred
async def test_last_words_to_a_slow_reader() -> None:
    """loseConnection sends everything first, even if the peer reads late."""
    server = Recorders()
    size = 8 * 1024 * 1024
    server.prepare = lambda p: setattr(
        p,
        "on_connected",
        lambda p: (p.wire.write(bytes(size)), p.wire.loseConnection()),
    )

    def read_all(tls: ssl.SSLSocket) -> int:
        count = 0
        while piece := tls.recv(1 << 16):
            count += len(piece)
        tls.close()
        return count

    def dial(port: int) -> ssl.SSLSocket:
        plain = socket.create_connection(("127.0.0.1", port), timeout=20)
        return trusting().wrap_socket(plain, server_hostname="localhost")

    async with listening(server) as port:
        tls = await deferToThread(dial, port)
        protocol = server.made[0] if server.made else await server.next()
        assert protocol.lost is None
        assert await deferToThread(read_all, tls) == size
        assert (await protocol.end()).check(ConnectionDone)


@pytest_twisted.ensureDeferred
async def test_twisted_client() -> None:
    """pyOpenSSL as Twisted uses it, as the client."""
    server = Recorders()
    root = Certificate.loadPEM(certificates.authority().pem.encode())
    async with listening(server) as port:
        endpoint = wrapClientTLS(
            optionsForClientTLS("localhost", trustRoot=root),
            HostnameEndpoint(reactor, "127.0.0.1", port),
        )
        client: Any = await bounded(endpoint.connect(Recorders()))
        client.wire.write(b"hello")
        other = server.made[0] if server.made else await server.next()
        assert await other.until(5) == b"hello"
        other.wire.write(bytes(200_000))
        await client.until(200_000)
        other.wire.loseConnection()
        assert (await client.end()).check(ConnectionDone)
        assert (await other.end()).check(ConnectionDone)


@pytest_twisted.ensureDeferred
async def test_twisted_server() -> None:
    """pyOpenSSL as Twisted uses it, as the server."""
    identity = certificates.server_identity()
    pem = (identity.certificate_pem + identity.key_pem()).decode("ascii")
    server = Recorders()
    endpoint = SSL4ServerEndpoint(
        reactor, 0, PrivateCertificate.loadPEM(pem).options(), interface="127.0.0.1"
    )
    port: Any = await endpoint.listen(server)
    # Twisted's server answers names in ALPN that it was not told with an alert.
    client = await connect(
        port.getHost().port, Recorders(), context=lambda: trusting(alpn=())
    )
    client.wire.write(bytes(200_000))
    other = server.made[0] if server.made else await server.next()
    await other.until(200_000)
    other.wire.write(b"hello")
    assert await client.until(5) == b"hello"
    client.wire.loseConnection()
    assert (await other.end()).check(ConnectionDone)
    assert (await client.end()).check(ConnectionDone)
    await port.stopListening()


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl")
@pytest_twisted.ensureDeferred
async def test_openssl_client(tmp_path: Path) -> None:
    """``openssl s_client`` verifies us, talks, and sees TLS 1.3 and no ticket."""
    ca = certificates.authority().write(tmp_path)
    server = Recorders()
    server.prepare = lambda p: setattr(
        p,
        "on_data",
        lambda data: (p.wire.write(data.upper()), p.wire.loseConnection()),
    )

    def talk(port: int) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            f"openssl s_client -connect 127.0.0.1:{port} -CAfile {ca} "
            "-verify_hostname localhost -verify_return_error -alpn txkas/1",
            shell=True,
            input="hello\n",
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )

    async with listening(server) as port:
        result = await deferToThread(talk, port)
        assert "Verify return code: 0 (ok)" in result.stdout
        assert "ALPN protocol: txkas/1" in result.stdout
        assert "New, TLSv1.3" in result.stdout
        assert "Session-ID" not in result.stdout
        assert (await server.made[0].end()).check(ConnectionDone)
        assert server.made[0].received == b"hello\n"


@pytest_twisted.ensureDeferred
async def test_for_whom_a_certificate_is() -> None:
    """A second connection tells it, when it is signed by whom we trust; bytes: none."""
    server = Recorders()

    def endpoint(port: int, context: Any, clock: Any = reactor) -> TLSClientEndpoint:
        return TLSClientEndpoint(
            HostnameEndpoint(reactor, "127.0.0.1", port),
            context,
            "192.0.2.2",
            clock,
            any_name_source=lambda: trusting(any_name=True),
        )

    factory = Recorders()
    async with listening(server) as port:
        error = await failure_of(endpoint(port, trusting).connect(factory))
        assert isinstance(error, TLSHandshakeError)
        assert str(error) == (
            "the certificate there is for localhost, kas.example, 127.0.0.1, and not "
            "for '192.0.2.2'"
        )
        assert error.names == ("localhost", "kas.example", "127.0.0.1")
        assert not factory.made
        other = server.made[0] if server.made else await server.next()
        assert (await other.end()).check(ConnectionDone)
        assert other.received == b""
        # Of no certificate that we do not trust anything is told.
        error = await failure_of(endpoint(port, client_context).connect(factory))
        assert isinstance(error, TLSHandshakeError) and error.label == "untrusted"


def test_names_in_an_error() -> None:
    """They are the peer's: their number has an end, and they move no cursor."""
    names = [f"{number}.example" for number in range(12)]
    error = name_mismatch("kas", ["\x1b[2J", *names])
    assert "9.example and 2 more, and not for 'kas'" in str(error)
    assert "\x1b" not in str(error)
    assert "no name at all" in str(name_mismatch("kas", []))


@pytest_twisted.ensureDeferred
async def test_connect_fails_clearly() -> None:
    """Wrong name, wrong CA, no TLS, nobody there: each says so, nothing is made."""
    factory = Recorders()
    async with listening(Recorders()) as port:
        error = await failure_of(endpoint_to(port, "evil.example").connect(factory))
        assert isinstance(error, TLSHandshakeError) and error.label == "name-mismatch"
        error = await failure_of(
            endpoint_to(port, context=client_context).connect(factory)
        )
        assert isinstance(error, TLSHandshakeError) and error.label == "untrusted"
    assert isinstance(
        await failure_of(endpoint_to(port).connect(factory)), ConnectionRefusedError
    )

    def broken() -> ssl.SSLContext:
        raise ValueError("no context today")

    error = await failure_of(endpoint_to(port, context=broken).connect(factory))
    assert isinstance(error, ValueError)
    plain = Recorders()
    plain.prepare = lambda p: setattr(
        p, "on_connected", lambda p: p.wire.write(b"220 mail.example ESMTP\r\n")
    )
    async with listening(plain, wrap=False) as port:
        error = await failure_of(endpoint_to(port).connect(factory))
        assert isinstance(error, TLSHandshakeError) and error.label == "not-tls"
        await plain.made[0].end()
    assert factory.made == []


@pytest_twisted.ensureDeferred
async def test_connect_to_a_silent_server() -> None:
    """It ends after the time limit, or when cancelled, and lets go of the socket."""
    silent = Recorders()
    clock = Clock()
    async with listening(silent, wrap=False) as port:
        connecting = endpoint_to(port, clock=clock).connect(Recorders())
        first = await silent.next()
        await first.until(100)  # the ClientHello
        clock.advance(HANDSHAKE_TIMEOUT)
        error = await failure_of(connecting)
        assert isinstance(error, TLSHandshakeError) and error.label == "timeout"
        assert await first.end()

        connecting = endpoint_to(port).connect(Recorders())
        second = await silent.next()
        await second.until(100)
        connecting.cancel()
        assert isinstance(await failure_of(connecting), CancelledError)
        assert await second.end()


@pytest_twisted.ensureDeferred
async def test_server_goes_away_in_the_handshake() -> None:
    rude = Recorders()
    rude.prepare = lambda p: setattr(p, "on_data", lambda _: p.wire.loseConnection())
    async with listening(rude, wrap=False) as port:
        error = await failure_of(endpoint_to(port).connect(Recorders()))
        assert isinstance(error, TLSHandshakeError) and error.label == "closed"
        await rude.made[0].end()
