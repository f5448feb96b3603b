"""The site of the observability listeners: what holds a connection, and how long."""

from __future__ import annotations

from typing import Any

from twisted.internet.address import IPv4Address
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.resource import Resource

from tunnel import site
from tunnel.site import HEAD_TIMEOUT, IDLE_TIMEOUT, QuietSite

GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


class Page(Resource):
    """Says one word."""

    isLeaf = True

    def render(self, request: Any) -> bytes:
        """The word."""
        return b"alive"


class _Case(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.site = QuietSite(Page(), reactor=self.clock)

    def connect(self) -> tuple[Any, Any]:
        address = IPv4Address("TCP", "127.0.0.1", 1)
        channel = self.site.buildProtocol(address)
        transport: Any = StringTransport()
        if channel is not None:
            channel.makeConnection(transport)
        return channel, transport


class TimeTests(_Case):
    """Who is slow has to come anew."""

    def test_answers(self) -> None:
        """One request after the other on one connection; then it is closed."""
        channel, transport = self.connect()
        for _ in range(3):
            channel.dataReceived(GET)
            self.assertIn(b"200 OK", transport.value())
            self.assertTrue(transport.value().endswith(b"alive"))
            transport.clear()
            self.clock.advance(IDLE_TIMEOUT - 1)
        self.assertFalse(transport.disconnecting)
        self.clock.advance(1)
        self.assertTrue(transport.disconnecting)

    def test_slow_head(self) -> None:
        """A byte now and then does not keep a connection."""
        channel, transport = self.connect()
        for _ in range(int(HEAD_TIMEOUT) - 1):
            channel.dataReceived(b"G")
            self.clock.advance(1)
        self.assertFalse(transport.disconnecting)
        channel.dataReceived(b"G")
        self.clock.advance(1)
        self.assertTrue(transport.disconnecting)

    def test_slow_body(self) -> None:
        """Nor does a body."""
        channel, transport = self.connect()
        channel.dataReceived(GET[:-2] + b"Content-Length: 100\r\n\r\n")
        for _ in range(int(HEAD_TIMEOUT)):
            channel.dataReceived(b"x")
            self.clock.advance(1)
        self.assertTrue(transport.disconnecting)

    def test_slow_head_later(self) -> None:
        """Nor a head that follows an answer."""
        channel, transport = self.connect()
        channel.dataReceived(GET)
        for _ in range(int(IDLE_TIMEOUT)):
            channel.dataReceived(b"G")
            self.clock.advance(1)
        self.assertTrue(transport.disconnecting)

    def test_pipelined(self) -> None:
        """Requests that came together are all answered, and then waited for."""
        channel, transport = self.connect()
        channel.dataReceived(GET * 3)
        self.assertEqual(transport.value().count(b"200 OK"), 3)
        self.clock.advance(IDLE_TIMEOUT)
        self.assertTrue(transport.disconnecting)

    def test_nothing_is_left(self) -> None:
        """A connection that ends leaves no timer behind."""
        channel, _ = self.connect()
        channel.connectionLost(None)
        self.assertEqual(self.clock.getDelayedCalls(), [])


class NumberTests(_Case):
    """How many may be there."""

    def test_too_many(self) -> None:
        """One more is not served; when one went there is room again."""
        self.patch(site, "MAX_CONNECTIONS", 2)
        first, _ = self.connect()
        self.connect()
        self.assertEqual(self.connect()[0], None)
        first.connectionLost(None)
        channel, transport = self.connect()
        channel.dataReceived(GET)
        self.assertIn(b"alive", transport.value())
