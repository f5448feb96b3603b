"""One port for the tunnel and for the tunnel inside a WebSocket."""

from __future__ import annotations

from typing import Any

from twisted.internet.error import ConnectionDone
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from tests.tunnel.session.harness import (
    CountingTransport,
    HalfCloseableRecorder,
    Recorders,
)
from tests.tunnel.transport.websocket_layer import ADDRESS, BINARY, frame, request
from tunnel.transport.first_bytes import SniffError, TunnelOrWebSocketFactory
from tunnel.transport.negotiation import HANDSHAKE_TIMEOUT, NegotiationError
from tunnel.transport.websocket import wrap_websocket_server


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
