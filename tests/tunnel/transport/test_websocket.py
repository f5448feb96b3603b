"""A WebSocket: how it is opened from both sides, what passes it, and how it ends."""

from __future__ import annotations

import struct
from typing import Any

from twisted.internet.defer import CancelledError
from twisted.internet.error import ConnectionDone, ConnectionLost
from twisted.internet.interfaces import IConsumer, IPushProducer
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from tests.tunnel.producers import Producer
from tests.tunnel.session.harness import MemoryEndpoint, Recorders
from tests.tunnel.transport.websocket_layer import (
    BINARY,
    CLOSE,
    CONT,
    PING,
    PONG,
    TEXT,
    ServerTestCase,
    frame,
    request,
    server_frame,
)
from tunnel.transport.layer import CLOSE_TIMEOUT
from tunnel.transport.negotiation import HANDSHAKE_TIMEOUT
from tunnel.transport.websocket import (
    MAX_ANSWER_BYTES,
    MAX_MESSAGE_BYTES,
    MAX_REQUEST_BYTES,
    SUBPROTOCOL,
    WebSocketClientEndpoint,
    WebSocketError,
)
from tunnel.transport.websocket_core import MAX_PONG_BYTES


class RequestTests(ServerTestCase):
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
            426, "upgrade", "Upgrade: websocket", "for agentk", "proxy"
        )

    def test_wrong_method(self) -> None:
        self.layer.dataReceived(request().replace(b"GET", b"POST"))
        self.assert_declined(405, "request", "GET")

    def test_old_http(self) -> None:
        """What nginx sends unless it is told proxy_http_version 1.1."""
        self.layer.dataReceived(request().replace(b"HTTP/1.1", b"HTTP/1.0"))
        self.assert_declined(426, "upgrade", "use HTTP/1.1")

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


class PathTests(RequestTests):
    """All of the above, with the one path that is served."""

    path = "/some/path"

    def test_other_path(self) -> None:
        self.layer.dataReceived(request().replace(b"/some/path", b"/elsewhere"))
        self.assert_declined(404, "path", "/some/path")


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
                ("kas.example:81 responded with 301 Moved", "https://new.example/"),
            ),
            (
                b"HTTP/1.1 403 Forbidden\r\nContent-Length: 15\r\n\r\nblocked by WAF\n",
                "status",
                ("responded with 403 Forbidden", ": blocked by WAF"),
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
                ("responded with 200 OK", "<html>no no"),
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

    def test_repeated_request(self) -> None:
        """A page may show the request; its credentials stay out of the message."""
        connecting = self.connect(Authorization="Bearer token-of-mine")
        page = b"you sent token-of-mine"
        head = b"HTTP/1.1 403 Forbidden\r\nContent-Length: %d\r\n\r\n" % len(page)
        self.answer(head + page)
        message = self.refused(connecting, "status", "you sent ***")
        self.assertNotIn("token-of-mine", message)

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
        self.refused(
            connecting, "timeout", "did not respond to the upgrade within 10 s"
        )
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


class MessageTests(ServerTestCase):
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


class MessagesOverPathTests(MessageTests):
    """The same where only one path is served."""

    path = "/some/path"
