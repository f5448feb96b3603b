"""Out through an HTTP proxy: which one, the CONNECT request, and every answer."""

from __future__ import annotations

import base64
from typing import Any

import pytest_twisted
from twisted.internet import reactor as _reactor
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.endpoints import HostnameEndpoint, TCP4ServerEndpoint
from twisted.internet.error import (
    ConnectionDone,
    ConnectionLost,
    ConnectionRefusedError,
)
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from tests.tunnel.session.harness import (
    HalfCloseableRecorder,
    MemoryEndpoint,
    Recorder,
    Recorders,
    bounded,
)
from tests.tunnel.transport.tls_layer import server_context, trusting
from tunnel.errors import ConfigurationError
from tunnel.transport.proxy import (
    CONNECT_TIMEOUT,
    MAX_HEAD_BYTES,
    HTTPConnectEndpoint,
    ProxyError,
    ProxyURL,
    proxy_for,
)
from tunnel.transport.tlsio import TLSClientEndpoint, wrap_server


class ProxyForTests(SynchronousTestCase):
    def proxy(self, scheme: str, host: str, port: int, **environ: str) -> Any:
        return proxy_for(scheme, host, port, environ)

    def test_variables(self) -> None:
        """By scheme; lower case first; empty means none."""
        both = {"https_proxy": "http://low:1", "HTTPS_PROXY": "http://up:2"}
        self.assertEqual(self.proxy("https", "k", 1, **both).host, "low")
        self.assertEqual(self.proxy("wss", "k", 1, **both).host, "low")
        self.assertIsNone(self.proxy("http", "k", 1, **both))
        self.assertEqual(self.proxy("https", "k", 1, HTTPS_PROXY="http://up:2").port, 2)
        self.assertEqual(self.proxy("ws", "k", 1, http_proxy="h").host, "h")
        self.assertIsNone(self.proxy("https", "k", 1, https_proxy=" "))
        self.assertIsNone(self.proxy("https", "k", 1))

    def test_urls(self) -> None:
        for value, expected in (
            ("http://proxy:3128", ProxyURL("http", "proxy", 3128)),
            ("proxy:3128", ProxyURL("http", "proxy", 3128)),
            ("http://proxy/", ProxyURL("http", "proxy", 80)),
            ("https://proxy", ProxyURL("https", "proxy", 443)),
            ("http://[::1]:8", ProxyURL("http", "::1", 8)),
            ("http://me:a%40b@p:1", ProxyURL("http", "p", 1, ("me", "a@b"))),
            ("http://me@p:1", ProxyURL("http", "p", 1, ("me", ""))),
        ):
            self.assertEqual(self.proxy("https", "k", 1, https_proxy=value), expected)
        shown = repr(self.proxy("https", "k", 1, https_proxy="http://me:hunter2@p:1"))
        self.assertNotIn("hunter2", shown)

    def test_bad_urls(self) -> None:
        """Named by the variable, and without the value: it may hold a password."""
        for value, words in (
            ("socks5://me:hunter2@p:1080", "not supported"),
            ("http://me:hunter2@p:port", "not a URL"),
            ("http://me:hunter2@", "no host"),
        ):
            error = self.assertRaises(
                ConfigurationError, self.proxy, "https", "k", 1, HTTPS_PROXY=value
            )
            self.assertIn("$HTTPS_PROXY", str(error))
            self.assertIn(words, str(error))
            self.assertNotIn("hunter2", str(error))

    def test_exceptions(self) -> None:
        for host, no_proxy, excepted in (
            ("kas.example", "kas.example", True),
            ("a.kas.example", "kas.example", True),
            ("a.kas.example", ".kas.example", True),
            ("kas.example", ".kas.example", True),
            ("a.kas.example", "*.kas.example", True),
            ("xkas.example", "kas.example", False),
            ("kas.example.evil", "kas.example", False),
            ("KAS.example.", "kas.EXAMPLE", True),
            ("kas.example", "*", True),
            ("kas.example", "a, b kas.example", True),
            ("kas.example", "kas.example:8150", True),
            ("kas.example", "kas.example:443", False),
            ("kas.example", "", False),
            ("kas.example", ", ,", False),
            ("kas.example", ".", False),
            ("10.1.2.3", "10.0.0.0/8", True),
            ("11.1.2.3", "10.0.0.0/8", False),
            ("10.1.2.3", "10.1.2.3", True),
            ("10.1.2.3", "10.1.2.3:8150", True),
            ("10.1.2.3", "10.1.2.3:1", False),
            ("10.1.2.3", ".3", False),
            ("2001:db8::5", "2001:db8::/32", True),
            ("2001:db8::5", "[2001:db8::5]:8150", True),
            ("2001:db8::5", "[2001:db8::5]:1", False),
            ("2001:db8::5", "10.0.0.0/8", False),
            ("localhost", "", True),
            ("LOCALHOST.", "", True),
            ("127.0.0.9", "", True),
            ("::1", "", True),
        ):
            found = self.proxy(
                "https", host, 8150, https_proxy="http://p:1", no_proxy=no_proxy
            )
            self.assertEqual(found is None, excepted, (host, no_proxy))
        self.assertIsNone(
            self.proxy("https", "k", 1, https_proxy="http://p:1", NO_PROXY="k")
        )


reactor: Any = _reactor

OK = b"HTTP/1.1 200 Connection established\r\nVia: 1.1 proxy\r\n\r\n"


class ConnectTests(SynchronousTestCase):
    kind: type[Recorder] = Recorder

    def setUp(self) -> None:
        self.clock = Clock()
        self.below = MemoryEndpoint()
        self.above = Recorders(self.kind)

    def connect(self, host: str = "kas.example", **options: Any) -> Deferred[Any]:
        endpoint = HTTPConnectEndpoint(self.below, host, 8150, self.clock, **options)
        return endpoint.connect(self.above)

    def answer(self, data: bytes) -> None:
        self.below.protocol.dataReceived(data)

    def refused(self, connecting: Deferred[Any], label: str) -> str:
        """The failure is of that kind; its message."""
        error = self.failureResultOf(connecting, ProxyError).value
        self.assertEqual(error.label, label)
        self.assertEqual(self.above.made, [])
        return str(error)

    def test_request(self) -> None:
        self.connect(headers=[("X-Team", "blue")])
        self.assertEqual(
            self.below.transport.value(),
            b"CONNECT kas.example:8150 HTTP/1.1\r\nHost: kas.example:8150\r\n"
            b"X-Team: blue\r\n\r\n",
        )

    def test_credentials(self) -> None:
        self.connect("2001:db8::1", credentials=("me", "pä:ss"))
        request = self.below.transport.value()
        self.assertTrue(request.startswith(b"CONNECT [2001:db8::1]:8150 HTTP/1.1\r\n"))
        basic = base64.b64encode("me:pä:ss".encode())
        self.assertIn(b"Proxy-Authorization: Basic " + basic + b"\r\n", request)

    def test_line_break(self) -> None:
        self.assertRaises(ValueError, self.connect, headers=[("X", "a\r\nEvil: b")])
        self.assertRaises(ValueError, self.connect, "a\r\nb")

    def test_established(self) -> None:
        """The protocol gets the transport itself, once the proxy agreed."""
        connecting = self.connect()
        self.assertNoResult(connecting)
        self.answer(OK)
        protocol = self.successResultOf(connecting)
        self.assertIs(protocol.transport, self.below.transport)
        self.answer(b"hello")
        self.assertEqual(protocol.chunks, [b"hello"])
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.below.protocol.connectionLost(Failure(ConnectionDone()))
        self.assertTrue(protocol.lost.check(ConnectionDone))

    def test_split_anywhere(self) -> None:
        """However the answer and what follows are cut, no byte is lost or added."""
        stream = OK + b"\r\n\r\nfirst bytes of the destination"
        for cut in range(1, len(stream)):
            self.setUp()
            connecting = self.connect()
            self.answer(stream[:cut])
            self.answer(stream[cut:])
            protocol = self.successResultOf(connecting)
            self.assertEqual(protocol.received, stream[len(OK) :])
        self.setUp()
        connecting = self.connect()
        for byte in stream:
            self.answer(bytes([byte]))
        protocol = self.successResultOf(connecting)
        self.assertEqual(protocol.received, stream[len(OK) :])

    def test_result_before_data(self) -> None:
        """Who waits for the connection can prepare before its first bytes arrive."""
        order: list[str] = []
        self.above.prepare = lambda p: setattr(
            p, "on_data", lambda _: order.append("data")
        )
        connecting = self.connect()
        connecting.addCallback(lambda _: order.append("result"))
        self.answer(OK + b"early")
        self.assertEqual(order, ["result", "data"])

    def test_odd_but_right(self) -> None:
        """Interim answers, no phrase, bare line feeds, a length that means nothing."""
        for head in (
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
            b"HTTP/1.0 200\r\n\r\n",
            b"HTTP/1.0 200 OK\nX: y\n\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n",
        ):
            self.setUp()
            connecting = self.connect()
            self.answer(head + b"x")
            self.assertEqual(self.successResultOf(connecting).received, b"x")

    def test_status(self) -> None:
        """The message names proxy, status, and what to do or what the proxy wrote."""
        connecting = self.connect(credentials=("me", "hunter2"))
        self.answer(b"HTTP/1.1 407 Proxy Authentication Required\r\nA: b\r\n\r\n<html>")
        message = self.refused(connecting, "status")
        self.assertTrue(
            message.startswith(
                "proxy 192.0.2.7:3128 responded with 407 Proxy Authentication "
                "Required: "
            )
        )
        self.assertIn("user name and password", message)
        self.assertNotIn("hunter2", message)
        self.assertTrue(self.below.transport.disconnecting)
        self.setUp()
        connecting = self.connect(proxy_name="proxy:3128")
        self.answer(b"HTTP/1.1 502 Bad Gateway\r\n\r\nno route\r\n\x1b[31mto kas" * 50)
        message = self.refused(connecting, "status")
        self.assertTrue(
            message.startswith(
                "proxy proxy:3128 responded with 502 Bad Gateway: no route"
            )
        )
        self.assertNotIn("\x1b", message)
        self.assertLess(len(message), 300)

    def test_repeated_request(self) -> None:
        """A proxy may show the request; its credentials stay out of the message."""
        more = [("X-Key", "token-of-mine")]
        connecting = self.connect(credentials=("me", "hunter2"), headers=more)
        request = self.below.transport.value()
        self.answer(b"HTTP/1.1 502 Bad Gateway\r\n\r\n" + request)
        message = self.refused(connecting, "status")
        self.assertIn("Proxy-Authorization: ***", message)
        self.assertIn("X-Key: ***", message)

    def test_not_http(self) -> None:
        for answer in (
            b"SSH-2.0-OpenSSH_9.2\r\n",
            b"\x15\x03\x01\x00\x02\x02\x28",
            b"HTTP/1.1 OK\r\n\r\n",
            b"HTTP/1.",
        ):
            self.setUp()
            connecting = self.connect()
            self.answer(answer)
            if answer == b"HTTP/1.":
                self.assertNoResult(connecting)
                self.answer(b"x nonsense\r\n\r\n")
            self.assertIn("does not use HTTP", self.refused(connecting, "not-http"))
            self.answer(b"more of it")

    def test_endless_head(self) -> None:
        connecting = self.connect()
        self.answer(b"HTTP/1.1 200 OK\r\n")
        line = b"X: " + b"y" * 1019 + b"\r\n"
        for _ in range(MAX_HEAD_BYTES // len(line) - 1):
            self.answer(line)
        self.assertNoResult(connecting)
        self.answer(line * 2)
        self.refused(connecting, "too-large")
        self.setUp()
        connecting = self.connect()
        self.answer(b"HTTP/1.1 200 OK\r\n" + line * 16 + b"\r\n")
        self.refused(connecting, "too-large")

    def test_large_first_bytes(self) -> None:
        """The limit is for the head; what follows may be as long as it likes."""
        connecting = self.connect()
        self.answer(OK + bytes(MAX_HEAD_BYTES))
        self.assertEqual(len(self.successResultOf(connecting).received), MAX_HEAD_BYTES)

    def test_timeout(self) -> None:
        connecting = self.connect()
        self.answer(OK[:20])
        self.clock.advance(CONNECT_TIMEOUT)
        self.assertIn(
            "did not respond within 30 s", self.refused(connecting, "timeout")
        )
        self.assertTrue(self.below.transport.disconnected)

    def test_closed(self) -> None:
        connecting = self.connect()
        self.below.protocol.readConnectionLost()
        self.refused(connecting, "closed")
        self.below.protocol.connectionLost(Failure(ConnectionLost()))
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_cancel(self) -> None:
        connecting = self.connect()
        connecting.cancel()
        self.failureResultOf(connecting, CancelledError)
        self.assertTrue(self.below.transport.disconnected)
        self.below.protocol.connectionLost(Failure(ConnectionLost()))

    def test_half_close(self) -> None:
        """A protocol that knows no half-close sees the end of the connection."""
        connecting = self.connect()
        self.answer(OK)
        self.successResultOf(connecting)
        self.below.protocol.readConnectionLost()
        self.assertTrue(self.below.transport.disconnecting)


class HalfCloseableConnectTests(SynchronousTestCase):
    def test_half_close(self) -> None:
        """A protocol that knows half-close is told."""
        below, above = MemoryEndpoint(), Recorders(HalfCloseableRecorder)
        endpoint = HTTPConnectEndpoint(below, "k", 1, Clock())
        connecting = endpoint.connect(above)
        below.protocol.dataReceived(OK)
        protocol: Any = self.successResultOf(connecting)
        below.protocol.readConnectionLost()
        below.protocol.writeConnectionLost()
        self.assertEqual((protocol.read_lost, protocol.write_lost), (1, 1))
        self.assertFalse(below.transport.disconnecting)


class SmallProxy(Recorder):
    """A CONNECT proxy of twenty lines, which ignores what it is asked to reach."""

    target = 0

    def dataReceived(self, data: bytes) -> None:
        super().dataReceived(data)
        if self.received.endswith(b"\r\n\r\n") and self.received.startswith(b"CONNECT"):
            self.wire.pauseProducing()
            outer = self

            class Inner(Recorder):
                def connectionMade(self) -> None:
                    outer.other = self  # type: ignore[attr-defined]
                    outer.wire.write(OK)
                    outer.on_data = self.wire.write
                    outer.wire.resumeProducing()

                def dataReceived(self, data: bytes) -> None:
                    outer.wire.write(data)

                def connectionLost(self, reason: Failure = None) -> None:  # type: ignore[assignment]
                    outer.wire.loseConnection()

            inner = Recorders(Inner)
            HostnameEndpoint(reactor, "127.0.0.1", self.target).connect(inner)

    def connectionLost(self, reason: Failure = None) -> None:  # type: ignore[assignment]
        super().connectionLost(reason)
        self.other.wire.loseConnection()  # type: ignore[attr-defined]


@pytest_twisted.ensureDeferred
async def test_tls_through_a_proxy() -> None:
    """Real sockets: TLS to the destination runs inside the proxy's connection."""
    server = Recorders()
    listen: Any = TCP4ServerEndpoint(reactor, 0, interface="127.0.0.1").listen
    port: Any = await listen(wrap_server(server, server_context, reactor))
    SmallProxy.target = port.getHost().port
    proxy = Recorders(SmallProxy)
    proxy_port: Any = await listen(proxy)
    through = HTTPConnectEndpoint(
        HostnameEndpoint(reactor, "127.0.0.1", proxy_port.getHost().port),
        "kas.example",
        8150,
        reactor,
    )
    endpoint = TLSClientEndpoint(through, trusting, "kas.example", reactor)
    client: Any = await bounded(endpoint.connect(Recorders()))
    client.wire.write(bytes(300_000))
    other = server.made[0] if server.made else await server.next()
    await other.until(300_000)
    other.wire.write(b"pong")
    assert await client.until(4) == b"pong"
    client.wire.loseConnection()
    assert (await client.end()).check(ConnectionDone)
    assert (await other.end()).check(ConnectionDone)
    assert proxy.made[0].received.startswith(b"CONNECT kas.example:8150 HTTP/1.1\r\n")
    await proxy.made[0].end()
    await port.stopListening()
    await proxy_port.stopListening()
    try:
        await bounded(through.connect(Recorders()))
    except ConnectionRefusedError:
        pass
    else:
        raise AssertionError("connected to a proxy that is gone")
