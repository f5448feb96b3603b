"""The tunnel's bytes inside a WebSocket."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import struct
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_twisted
from twisted.internet import reactor as _reactor
from twisted.internet.address import IPv4Address
from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.internet.endpoints import HostnameEndpoint, TCP4ServerEndpoint
from twisted.internet.error import ConnectionDone, ConnectionLost
from twisted.internet.interfaces import IConsumer, IPushProducer, IStreamClientEndpoint
from twisted.internet.task import Clock, deferLater
from twisted.internet.threads import deferToThread
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase
from websockets.sync.client import connect as blocking_connect
from zope.interface import implementer
from zope.interface.verify import verifyObject

from tests.tunnel.net.bulk import SIZE, Sink, Stuffer
from tests.tunnel.net.harness import (
    CountingTransport,
    HalfCloseableRecorder,
    Producer,
    Recorder,
    Recorders,
    bounded,
)
from tests.tunnel.net.tls_layer import server_context, trusting
from tunnel.net.layer import CLOSE_TIMEOUT
from tunnel.net.negotiation import HANDSHAKE_TIMEOUT, NegotiationError
from tunnel.net.tlsio import TLSClientEndpoint, wrap_server
from tunnel.net.websocket import (
    MAX_ANSWER_BYTES,
    MAX_MESSAGE_BYTES,
    MAX_PONG_BYTES,
    MAX_REQUEST_BYTES,
    SUBPROTOCOL,
    SniffError,
    TunnelOrWebSocketFactory,
    WebSocketClientEndpoint,
    WebSocketError,
    wrap_websocket_server,
)

reactor: Any = _reactor

ADDRESS = IPv4Address("TCP", "192.0.2.1", 4711)
KEY = "dGhlIHNhbXBsZSBub25jZQ=="

FIN, CONT, TEXT, BINARY, CLOSE, PING, PONG = 0x80, 0, 1, 2, 8, 9, 10


def request(**headers: str) -> bytes:
    """An upgrade request; a header of None is left out."""
    lines = {
        "Host": "kas.example",
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec_WebSocket_Key": KEY,
        "Sec_WebSocket_Version": "13",
        "Sec_WebSocket_Protocol": SUBPROTOCOL,
        **headers,
    }
    text = "".join(
        f"{name.replace('_', '-')}: {value}\r\n"
        for name, value in lines.items()
        if value
    )
    return f"GET /some/path?x=1 HTTP/1.1\r\n{text}\r\n".encode()


def frame(opcode: int, payload: bytes = b"", fin: bool = True) -> bytes:
    """A frame as a client sends it, masked with zeros."""
    first = opcode | (FIN if fin else 0)
    if len(payload) < 126:
        head = struct.pack(">BB", first, 0x80 | len(payload))
    elif len(payload) < 65536:
        head = struct.pack(">BBH", first, 0x80 | 126, len(payload))
    else:
        head = struct.pack(">BBQ", first, 0x80 | 127, len(payload))
    return head + bytes(4) + payload


def server_frame(opcode: int, payload: bytes = b"", fin: bool = True) -> bytes:
    """A small frame as a server sends it."""
    return struct.pack(">BB", opcode | (FIN if fin else 0), len(payload)) + payload


class ServerTests(SynchronousTestCase):
    kind: type[Recorder] = Recorder
    path: str | None = None

    def setUp(self) -> None:
        self.clock = Clock()
        self.above = Recorders(self.kind)
        self.failures: list[NegotiationError] = []
        self.accept()

    def accept(self) -> None:
        self.transport = CountingTransport()
        factory = wrap_websocket_server(
            self.above, self.clock, self.path, failed=self.failures.append
        )
        layer: Any = factory.buildProtocol(ADDRESS)
        self.layer = layer
        self.layer.makeConnection(self.transport)

    def establish(self) -> Any:
        self.layer.dataReceived(request())
        self.assertTrue(self.transport.value().startswith(b"HTTP/1.1 101 "))
        self.transport.clear()
        return self.above.made[-1]

    def assert_declined(self, status: int, label: str, *words: str) -> None:
        """One answer with that status and these words; nothing was made above."""
        answer = self.transport.value().decode()
        self.assertTrue(answer.startswith(f"HTTP/1.1 {status} "), answer)
        for word in words:
            self.assertIn(word, answer)
        self.assertEqual([error.label for error in self.failures], [label])
        self.assertEqual(self.above.made, [])
        self.assertTrue(self.transport.disconnecting)
        self.layer.dataReceived(b"more")
        self.layer.connectionLost(Failure(ConnectionDone()))
        self.assertEqual(self.clock.getDelayedCalls(), [])

    # the request

    def test_accepted(self) -> None:
        protocol = self.establish()
        self.assertEqual(protocol.made, 1)
        for interface in (IConsumer, IPushProducer):
            verifyObject(interface, self.layer)

    def test_answer(self) -> None:
        self.layer.dataReceived(request())
        answer = self.transport.value().decode().lower()
        self.assertIn("sec-websocket-protocol: txkas-tunnel.v1\r\n", answer)
        self.assertIn("sec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo=\r\n", answer)
        self.assertNotIn("extensions", answer)

    def test_compression_is_not_negotiated(self) -> None:
        self.layer.dataReceived(request(Sec_WebSocket_Extensions="permessage-deflate"))
        self.assertNotIn(b"deflate", self.transport.value())

    def test_split_anywhere(self) -> None:
        """However request and first frames are cut, no byte is lost."""
        stream = request() + frame(BINARY, b"hello") + frame(BINARY, b"world")
        for cut in range(1, len(stream)):
            self.accept()
            self.layer.dataReceived(stream[:cut])
            self.layer.dataReceived(stream[cut:])
            self.assertEqual(self.above.made[-1].received, b"helloworld")

    def test_wrong_subprotocol(self) -> None:
        self.layer.dataReceived(request(Sec_WebSocket_Protocol="ws-tunnel"))
        self.assert_declined(400, "subprotocol", "txkas-tunnel.v1", "ws-tunnel")

    def test_no_subprotocol(self) -> None:
        self.layer.dataReceived(request(Sec_WebSocket_Protocol=""))
        self.assert_declined(400, "subprotocol", "txkas-tunnel.v1", "none")

    def test_no_upgrade(self) -> None:
        """A browser, a health check, or a proxy that drops the headers."""
        self.layer.dataReceived(request(Upgrade="", Connection="close"))
        self.assert_declined(
            426, "upgrade", "Upgrade: websocket", "agentk connects here", "proxy"
        )

    def test_wrong_method(self) -> None:
        self.layer.dataReceived(request().replace(b"GET", b"POST"))
        self.assert_declined(405, "request", "GET")

    def test_old_http(self) -> None:
        """What nginx sends unless it is told proxy_http_version 1.1."""
        self.layer.dataReceived(request().replace(b"HTTP/1.1", b"HTTP/1.0"))
        self.assert_declined(426, "upgrade", "speak HTTP/1.1")

    def test_no_http(self) -> None:
        self.layer.dataReceived(b"\x00\x00\x00\x10 tunnel?\r\n\r\n")
        self.assert_declined(400, "not-http")

    def test_long_request(self) -> None:
        cookie = "c" * 8000
        self.layer.dataReceived(request(Cookie=cookie, X_Token=cookie)[:-2])
        self.layer.dataReceived(b"A: " + b"a" * 8000)
        self.assert_declined(431, "too-large")

    def test_long_request_in_one_piece(self) -> None:
        cookie = "c" * 7000
        self.layer.dataReceived(request(A=cookie, B=cookie, C=cookie))
        self.assert_declined(431, "too-large")

    def test_long_first_frame(self) -> None:
        """The limit is for the request; what follows it may be longer."""
        self.layer.dataReceived(request() + frame(BINARY, bytes(MAX_REQUEST_BYTES)))
        self.assertEqual(len(self.above.made[0].received), MAX_REQUEST_BYTES)

    def test_slow_request(self) -> None:
        for byte in request()[:30]:
            self.clock.advance(HANDSHAKE_TIMEOUT / 29)
            self.layer.dataReceived(bytes([byte]))
        self.assertEqual([error.label for error in self.failures], ["timeout"])
        self.assertTrue(self.transport.disconnected)
        self.layer.connectionLost(Failure(ConnectionDone()))

    # messages

    def test_messages(self) -> None:
        """Messages of one chunk arrive as one piece; text around them is nobody's."""
        protocol = self.establish()
        self.layer.dataReceived(frame(BINARY, b"one ") + frame(BINARY, b"two"))
        self.assertEqual(protocol.chunks, [b"one two"])
        self.assertIsInstance(protocol.chunks[0], bytes)

    def test_fragments(self) -> None:
        """A message in fragments, with a ping between them."""
        protocol = self.establish()
        self.layer.dataReceived(frame(BINARY, b"a", fin=False))
        self.layer.dataReceived(frame(PING, b"?") + frame(CONT, b"b", fin=False))
        self.layer.dataReceived(frame(CONT, b"c") + frame(BINARY, b"d"))
        self.assertEqual(protocol.received, b"abcd")
        self.assertEqual(self.transport.value(), server_frame(PONG, b"?"))

    def test_write(self) -> None:
        """One write, one message, one write below; large ones are cut."""
        protocol = self.establish()
        self.transport.writes = 0
        protocol.transport.write(b"hello")
        self.assertEqual(self.transport.value(), server_frame(BINARY, b"hello"))
        self.assertEqual(self.transport.writes, 1)
        self.transport.clear()
        protocol.transport.write(bytes(600 * 1024))
        self.assertEqual(self.transport.writes, 2)
        self.assertEqual(len(self.transport.value()), 600 * 1024 + 3 * 10)
        self.transport.clear()
        protocol.transport.write(b"")
        protocol.transport.writeSequence([b"a", b"b"])
        self.assertEqual(self.transport.value(), server_frame(BINARY, b"ab"))

    def test_text(self) -> None:
        protocol = self.establish()
        self.layer.dataReceived(frame(BINARY, b"good") + frame(TEXT, b"hello"))
        self.assertEqual(protocol.received, b"good")
        self.assertIn(struct.pack(">H", 1003), self.transport.value())
        self.assertTrue(self.transport.disconnecting)
        self.layer.connectionLost(Failure(ConnectionDone()))
        self.assertIn("binary", str(protocol.lost.value))

    def test_broken_frame(self) -> None:
        """A frame that breaks the rules is answered by code 1002."""
        protocol = self.establish()
        self.layer.dataReceived(frame(BINARY, b"good") + server_frame(BINARY, b"bare"))
        self.assertEqual(protocol.received, b"good")
        self.assertIn(struct.pack(">H", 1002), self.transport.value())
        self.assertTrue(self.transport.disconnecting)
        protocol.wire.write(b"dropped")
        self.layer.dataReceived(b"more")
        self.layer.connectionLost(Failure(ConnectionDone()))
        self.assertTrue(protocol.lost.check(ConnectionLost))

    def test_message_too_large(self) -> None:
        """Refused at its header; the limit itself is allowed, and is for all parts."""
        protocol = self.establish()
        self.layer.dataReceived(frame(BINARY, bytes(MAX_MESSAGE_BYTES)))
        self.assertEqual(len(protocol.received), MAX_MESSAGE_BYTES)
        self.layer.dataReceived(frame(BINARY, bytes(MAX_MESSAGE_BYTES), fin=False))
        self.assertFalse(self.transport.disconnecting)
        self.layer.dataReceived(frame(CONT, b"x")[:6])
        self.assertIn(struct.pack(">H", 1009), self.transport.value())
        self.assertTrue(self.transport.disconnecting)
        self.accept()
        self.establish()
        self.layer.dataReceived(frame(BINARY, bytes(MAX_MESSAGE_BYTES + 1))[:14])
        self.assertTrue(self.transport.disconnecting)

    def test_ping_flood(self) -> None:
        """Answers that nobody reads are bounded; read ones are not counted."""
        protocol = self.establish()
        pings = frame(PING, b"x" * 100) * 100
        self.transport.held = 0
        for _ in range(2 * MAX_PONG_BYTES // 10_200):
            self.layer.dataReceived(pings)
        self.assertFalse(self.transport.disconnected)
        self.transport.held = 1
        for _ in range(MAX_PONG_BYTES // 10_200):
            self.layer.dataReceived(pings)
        self.assertFalse(self.transport.disconnected)
        self.layer.dataReceived(pings)
        self.assertTrue(self.transport.disconnected)
        self.layer.connectionLost(Failure(ConnectionLost()))
        self.assertIn("pings", str(protocol.lost.value))

    # flow control

    def test_producer(self) -> None:
        protocol = self.establish()
        producer = Producer()
        protocol.wire.registerProducer(producer, True)
        self.assertIs(self.transport.producer, producer)
        self.layer.dataReceived(frame(CLOSE, struct.pack(">H", 1000)))
        self.assertEqual(producer.told, ["stop"])
        late = Producer()
        protocol.wire.registerProducer(late, True)
        self.assertEqual(late.told, ["stop"])

    def test_paused(self) -> None:
        """What a pause came too late for is held, the end included."""
        protocol = self.establish()
        protocol.wire.pauseProducing()
        self.assertEqual(self.transport.producerState, "paused")
        self.layer.dataReceived(frame(BINARY, b"a"))
        self.layer.dataReceived(frame(BINARY, b"b") + frame(CLOSE))
        self.assertEqual(protocol.chunks, [])
        protocol.wire.write(b"after their close: dropped")
        protocol.wire.resumeProducing()
        self.clock.advance(0)
        self.assertEqual(protocol.chunks, [b"ab"])
        self.assertTrue(self.transport.disconnecting)
        self.assertEqual(self.transport.value(), server_frame(CLOSE))

    # the end

    def test_lose_connection(self) -> None:
        """Close frame, then waiting for the answer, then the end."""
        protocol = self.establish()
        protocol.wire.write(b"bye")
        protocol.wire.loseConnection()
        close = server_frame(CLOSE, struct.pack(">H", 1000))
        self.assertEqual(self.transport.value(), server_frame(BINARY, b"bye") + close)
        self.assertFalse(self.transport.disconnecting)
        self.layer.dataReceived(frame(BINARY, b"late"))
        self.layer.dataReceived(frame(CLOSE, struct.pack(">H", 1000)))
        self.assertTrue(self.transport.disconnecting)
        self.assertEqual(protocol.chunks, [])
        self.layer.connectionLost(Failure(ConnectionDone()))
        self.assertTrue(protocol.lost.check(ConnectionDone))
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_lose_connection_without_answer(self) -> None:
        protocol = self.establish()
        self.transport.held = 0
        protocol.wire.loseConnection()
        self.clock.advance(CLOSE_TIMEOUT)
        self.assertTrue(self.transport.disconnected)
        self.layer.connectionLost(Failure(ConnectionLost()))
        self.assertTrue(protocol.lost.check(ConnectionLost))

    def test_peer_closes(self) -> None:
        """Ordinary codes are a clean end, all others a loss that names the code."""
        for payload, expected, words in (
            (struct.pack(">H", 1000), ConnectionDone, ""),
            (struct.pack(">H", 1001) + b"restart", ConnectionDone, ""),
            (b"", ConnectionDone, ""),
            (struct.pack(">H", 1002) + b"bad", ConnectionLost, "1002"),
            (struct.pack(">H", 1011) + b"oops", ConnectionLost, "oops"),
        ):
            self.accept()
            protocol = self.establish()
            self.layer.dataReceived(frame(BINARY, b"x") + frame(CLOSE, payload))
            self.assertEqual(self.transport.value(), server_frame(CLOSE, payload))
            self.assertTrue(self.transport.disconnecting)
            self.layer.connectionLost(Failure(ConnectionDone()))
            self.assertTrue(protocol.lost.check(expected))
            self.assertIn(words, str(protocol.lost.value))
            self.assertEqual(protocol.received, b"x")

    def test_end_without_close(self) -> None:
        for how in ("connectionLost", "readConnectionLost"):
            self.accept()
            protocol = self.establish()
            if how == "readConnectionLost":
                self.layer.readConnectionLost()
                self.assertTrue(self.transport.disconnected)
            self.layer.connectionLost(Failure(ConnectionDone()))
            self.assertTrue(protocol.lost.check(ConnectionLost))
            self.assertIn("close frame", str(protocol.lost.value))

    def test_abort(self) -> None:
        protocol = self.establish()
        protocol.on_data = lambda _: protocol.wire.abortConnection()
        self.layer.dataReceived(frame(BINARY, b"x"))
        self.layer.dataReceived(frame(BINARY, b"y"))
        self.assertEqual(protocol.received, b"x")
        self.assertTrue(self.transport.disconnected)


class PathTests(ServerTests):
    """All of the above, with the one path that is served."""

    path = "/some/path"

    def test_other_path(self) -> None:
        self.layer.dataReceived(request().replace(b"/some/path", b"/elsewhere"))
        self.assert_declined(404, "path", "/some/path")


@implementer(IStreamClientEndpoint)
class MemoryEndpoint:
    def __init__(self) -> None:
        self.transport = CountingTransport()
        self.protocol: Any = None

    def connect(self, factory: Any) -> Deferred[Any]:
        self.protocol = factory.buildProtocol(ADDRESS)
        self.protocol.makeConnection(self.transport)
        return succeed(self.protocol)


class ClientTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.below = MemoryEndpoint()
        self.above = Recorders()

    def connect(self, url: str = "ws://kas.example:81/p?q=1", **headers: str) -> Any:
        endpoint = WebSocketClientEndpoint(
            self.below, url, list(headers.items()), self.clock
        )
        return endpoint.connect(self.above)

    def answer(self, data: bytes) -> None:
        self.below.protocol.dataReceived(data)

    def accepting(self, subprotocol: str = SUBPROTOCOL) -> bytes:
        """What a server answers to the request that was sent."""
        from websockets.utils import accept_key

        lines = self.below.transport.value().decode().split("\r\n")
        (key,) = [line[19:] for line in lines if line.startswith("Sec-WebSocket-Key: ")]
        chosen = f"Sec-WebSocket-Protocol: {subprotocol}\r\n" if subprotocol else ""
        return (
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n"
            "Connection: Upgrade\r\n"
            f"Sec-WebSocket-Accept: {accept_key(key)}\r\n{chosen}\r\n"
        ).encode()

    def refused(self, connecting: Any, label: str, *words: str) -> str:
        error = self.failureResultOf(connecting, WebSocketError).value
        self.assertEqual(error.label, label)
        for word in words:
            self.assertIn(word, str(error))
        self.assertEqual(self.above.made, [])
        self.assertTrue(
            self.below.transport.disconnecting or self.below.transport.disconnected
        )
        self.below.protocol.connectionLost(Failure(ConnectionDone()))
        self.assertEqual(self.clock.getDelayedCalls(), [])
        return str(error)

    def test_request(self) -> None:
        self.connect(Authorization="Bearer x", User_Agent="mine")
        request = self.below.transport.value().decode()
        self.assertTrue(request.startswith("GET /p?q=1 HTTP/1.1\r\n"))
        for line in (
            "Host: kas.example:81",
            "Sec-WebSocket-Protocol: txkas-tunnel.v1",
            "Authorization: Bearer x",
            "Sec-WebSocket-Version: 13",
        ):
            self.assertIn(f"\r\n{line}\r\n", request)
        self.assertNotIn("Origin", request)
        self.assertNotIn("Extensions", request)

    def test_headers(self) -> None:
        """Ours can be replaced, but not a line broken."""
        self.connect(Host="front.example")
        request = self.below.transport.value().decode()
        self.assertIn("\r\nHost: front.example\r\n", request)
        self.assertEqual(request.count("Host:"), 1)
        self.assertRaises(ValueError, self.connect, X="a\r\nY: b")
        endpoint = WebSocketClientEndpoint(
            self.below, "ws://k", [("Authorization", "Bearer hunter2")], self.clock
        )
        self.assertNotIn("hunter2", repr(endpoint))

    def test_split_anywhere(self) -> None:
        self.connect()
        length = len(self.accepting()) + 7
        for cut in range(1, length):
            self.setUp()
            connecting = self.connect()
            stream = self.accepting() + server_frame(BINARY, b"hello")
            self.answer(stream[:cut])
            self.answer(stream[cut:])
            self.assertEqual(self.successResultOf(connecting).received, b"hello")

    def test_closed_at_once(self) -> None:
        """A close frame right behind the answer still is an open and a close."""
        connecting = self.connect()
        self.answer(self.accepting() + server_frame(CLOSE, struct.pack(">H", 1001)))
        protocol = self.successResultOf(connecting)
        self.assertTrue(self.below.transport.disconnecting)
        self.below.protocol.connectionLost(Failure(ConnectionDone()))
        self.assertTrue(protocol.lost.check(ConnectionDone))

    def test_masked(self) -> None:
        """What a client sends is masked, and reads right at a server."""
        connecting = self.connect()
        self.answer(self.accepting())
        protocol = self.successResultOf(connecting)
        self.below.transport.clear()
        protocol.wire.write(b"hello" * 10)
        self.assertNotIn(b"hello", self.below.transport.value())
        self.assertEqual(len(self.below.transport.value()), 2 + 4 + 50)

    def test_refusals(self) -> None:
        """Whatever answers instead of kas: the message says what it was."""
        page = b"<html>" + b"no " * 500
        for answer, label, words in (
            (
                b"HTTP/1.1 301 Moved\r\nLocation: https://new.example/\r\n"
                b"Content-Length: 0\r\n\r\n",
                "status",
                ("kas.example:81 answered 301 Moved", "https://new.example/"),
            ),
            (
                b"HTTP/1.1 403 Forbidden\r\nContent-Length: 15\r\n\r\nblocked by WAF\n",
                "status",
                ("answered 403 Forbidden", ": blocked by WAF"),
            ),
            (
                b"HTTP/1.1 502 Bad Gateway\r\nTransfer-Encoding: chunked\r\n\r\n"
                b"4\r\noops\r\n0\r\n\r\n",
                "status",
                ("502 Bad Gateway", ": oops"),
            ),
            (
                b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n" + page,
                "status",
                ("answered 200 OK", "<html>no no"),
            ),
            (
                b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\n"
                b"Connection: Upgrade\r\n\r\n",
                "upgrade",
                ("did not upgrade", "Upgrade"),
            ),
            (b"SSH-2.0-OpenSSH_9.2\r\n", "not-http", ("HTTP/1.1",)),
        ):
            self.setUp()
            connecting = self.connect()
            self.answer(answer)
            self.assertLess(len(self.refused(connecting, label, *words)), 400)

    def test_page_without_length(self) -> None:
        """A page that ends with the connection is in the message as well."""
        for half_closed in (False, True):
            self.setUp()
            connecting = self.connect()
            self.answer(b"HTTP/1.1 503 Busy\r\n\r\ncome back later")
            self.assertNoResult(connecting)
            if half_closed:
                self.below.protocol.readConnectionLost()
            self.below.protocol.connectionLost(Failure(ConnectionDone()))
            error = self.failureResultOf(connecting, WebSocketError).value
            self.assertIn("503 Busy", str(error))
            self.assertIn("come back later", str(error))

    def test_wrong_subprotocol(self) -> None:
        for chosen in ("", "other"):
            self.setUp()
            connecting = self.connect()
            self.answer(self.accepting(chosen))
            self.refused(connecting, "subprotocol", "kas.example:81")

    def test_endless_head(self) -> None:
        connecting = self.connect()
        self.answer(b"HTTP/1.1 200 OK\r\n")
        line = b"X: " + b"y" * 1019 + b"\r\n"
        for _ in range(MAX_ANSWER_BYTES // len(line) - 1):
            self.answer(line)
        self.assertNoResult(connecting)
        self.answer(line * 2)
        self.refused(connecting, "too-large")

    def test_timeout(self) -> None:
        connecting = self.connect()
        self.clock.advance(HANDSHAKE_TIMEOUT)
        self.refused(connecting, "timeout", "did not answer the upgrade within 10 s")
        self.setUp()
        connecting = self.connect()
        self.answer(b"HTTP/1.1 504 Slow\r\nContent-Length: 90\r\n\r\nhalf a")
        self.clock.advance(HANDSHAKE_TIMEOUT)
        self.refused(connecting, "timeout", "504 Slow", "half a")

    def test_closed(self) -> None:
        connecting = self.connect()
        self.below.protocol.connectionLost(Failure(ConnectionLost("reset")))
        error = self.failureResultOf(connecting, WebSocketError).value
        self.assertEqual(error.label, "closed")

    def test_cancel(self) -> None:
        connecting = self.connect()
        connecting.cancel()
        self.failureResultOf(connecting, CancelledError)
        self.assertTrue(self.below.transport.disconnected)
        self.below.protocol.connectionLost(Failure(ConnectionLost()))


class SniffTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.raw, self.web = Recorders(HalfCloseableRecorder), Recorders()
        self.failures: list[NegotiationError] = []
        factory = TunnelOrWebSocketFactory(
            self.raw,
            wrap_websocket_server(self.web, self.clock),
            self.clock,
            failed=self.failures.append,
        )
        factory.doStart()
        factory.doStop()
        self.transport = CountingTransport()
        protocol: Any = factory.buildProtocol(ADDRESS)
        protocol.makeConnection(self.transport)
        self.protocol = protocol

    def test_raw(self) -> None:
        """A tunnel, byte by byte; it writes to the transport itself."""
        for byte in b"\x00\x00\x01\x00hello":
            self.protocol.dataReceived(bytes([byte]))
        (protocol,) = self.raw.made
        self.assertEqual(protocol.received, b"\x00\x00\x01\x00hello")
        self.assertIs(protocol.transport, self.transport)
        self.assertEqual(self.web.made, [])
        self.protocol.readConnectionLost()
        self.assertEqual(protocol.read_lost, 1)
        self.protocol.connectionLost(Failure(ConnectionDone()))
        self.assertTrue(protocol.lost.check(ConnectionDone))

    def test_websocket(self) -> None:
        stream = request() + frame(BINARY, b"hello")
        for cut in (1, 2, 3, 4, 5):
            self.setUp()
            self.protocol.dataReceived(stream[:cut])
            self.protocol.dataReceived(stream[cut:])
            self.assertEqual(self.web.made[0].received, b"hello")
            self.assertEqual(self.raw.made, [])

    def test_nearly_a_websocket(self) -> None:
        self.protocol.dataReceived(b"GE")
        self.assertEqual(self.raw.made, [])
        self.protocol.dataReceived(b"M")
        self.assertEqual(self.raw.made[0].received, b"GEM")

    def test_silence(self) -> None:
        self.clock.advance(HANDSHAKE_TIMEOUT)
        self.assertTrue(self.transport.disconnected)
        self.assertIsInstance(self.failures[0], SniffError)
        self.assertEqual(self.failures[0].label, "timeout")
        self.protocol.connectionLost(Failure(ConnectionDone()))
        self.assertEqual(self.raw.made + self.web.made, [])


# real sockets


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
            ("plain", "answered 426"),
            ("dead", "answered 502 Bad Gateway"),
            ("moved", "/good"),
            ("nothing", "answered 404 Not Found"),
        ):
            try:
                await dial(port, f"ws://127.0.0.1:{port}/{path}")
            except WebSocketError as error:
                assert error.label == "status"
                assert words in str(error)
            else:
                raise AssertionError(path)
        assert [failure.label for failure in failures] == ["upgrade"]
