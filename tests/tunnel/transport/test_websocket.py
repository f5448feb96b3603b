"""What passes an open WebSocket, and how it ends."""

from __future__ import annotations

import struct

from twisted.internet.error import ConnectionDone, ConnectionLost
from twisted.python.failure import Failure

from tests.tunnel.session.harness import Producer
from tests.tunnel.transport.websocket_layer import (
    BINARY,
    CLOSE,
    CONT,
    PING,
    PONG,
    TEXT,
    ServerTestCase,
    frame,
    server_frame,
)
from tunnel.transport.layer import CLOSE_TIMEOUT
from tunnel.transport.websocket import MAX_MESSAGE_BYTES, MAX_PONG_BYTES


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


class PathTests(MessageTests):
    """The same where only one path is served."""

    path = "/some/path"
