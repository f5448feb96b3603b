"""What all negotiations share: how many of them there may be."""

from __future__ import annotations

from typing import Any

from twisted.internet.address import IPv4Address
from twisted.internet.error import ConnectionDone
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.logger import LogEvent, globalLogPublisher
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from tests.tunnel.session.harness import Recorders
from tunnel.transport.layer import Layer
from tunnel.transport.negotiation import MAX_NEGOTIATING, Handover, LayerFactory

ADDRESS = IPv4Address("TCP", "192.0.2.1", 4711)
DONE = Failure(ConnectionDone())


class _OneByte(Handover):
    """Is content with the first byte."""

    def negotiate(self, data: bytes) -> None:
        self.hand_over(data)


class RoomTests(SynchronousTestCase):
    """From accept to the end of the negotiation a connection takes a place."""

    def setUp(self) -> None:
        above = Factory.forProtocol(Protocol)
        self.layers = LayerFactory(above, Clock(), 10, _OneByte)
        self.warnings: list[LogEvent] = []
        observer: Any = self.warned
        globalLogPublisher.addObserver(observer)
        self.addCleanup(globalLogPublisher.removeObserver, observer)

    def warned(self, event: LogEvent) -> None:
        if event["log_level"].name == "warn":
            self.warnings.append(event)

    def accept(self) -> Any:
        protocol = self.layers.buildProtocol(ADDRESS)
        if protocol is not None:
            protocol.makeConnection(StringTransport())
        return protocol

    def test_too_many(self) -> None:
        """One more is not taken, and is worth one line."""
        taken = [self.accept() for _ in range(MAX_NEGOTIATING)]
        self.assertNotIn(None, taken)
        self.assertEqual([self.accept() for _ in range(3)], [None] * 3)
        self.assertEqual(len(self.warnings), 1)

    def test_on_a_layer(self) -> None:
        """What the layer decodes goes to the protocol above, without a detour."""
        for stays, seen in (False, b"xy"), (True, b"x"):
            self.patch(_OneByte, "stays", stays)
            recorders = Recorders()
            upper = LayerFactory(recorders, Clock(), 10, _OneByte)
            lower: Any = LayerFactory(upper, Clock(), 10, Layer).buildProtocol(ADDRESS)
            lower.makeConnection(StringTransport())
            lower.open_above()
            handover = lower._above
            lower.hand_up(b"x")
            handover.dataReceived = lambda data: None
            lower.hand_up(b"y")
            (above,) = recorders.made
            self.assertIs(above.transport, lower)
            self.assertEqual(above.received, seen)
            lower.connectionLost(DONE)
            self.assertTrue(above.lost.check(ConnectionDone))

    def test_places_come_back(self) -> None:
        """By success, by the peer's end, and by the deadline; once each."""
        self.layers.room = lambda: 3
        done, lost, late = (self.accept() for _ in range(3))
        done.dataReceived(b"x")
        self.assertEqual(self.layers.negotiating, 2)
        lost.connectionLost(DONE)
        lost.connectionLost(DONE)
        self.assertEqual(self.layers.negotiating, 1)
        self.layers.clock.advance(10)  # type: ignore[attr-defined]
        # Its descriptor is free when it is closed, and not before.
        self.assertEqual(self.layers.negotiating, 1)
        late.connectionLost(DONE)
        done.connectionLost(DONE)
        self.assertEqual(self.layers.negotiating, 0)
