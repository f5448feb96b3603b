"""What a client asks for, and how it tells what answered instead."""

from __future__ import annotations

import struct
from typing import Any

from twisted.internet.defer import CancelledError
from twisted.internet.error import ConnectionDone, ConnectionLost
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from tests.tunnel.session.harness import MemoryEndpoint, Recorders
from tests.tunnel.transport.websocket_layer import BINARY, CLOSE, server_frame
from tunnel.transport.negotiation import HANDSHAKE_TIMEOUT
from tunnel.transport.websocket import SUBPROTOCOL, WebSocketError
from tunnel.transport.websocket_client import MAX_ANSWER_BYTES, WebSocketClientEndpoint


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
