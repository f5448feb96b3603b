"""The site of the observability listeners: pages, and what holds a connection."""

from __future__ import annotations

from twisted.internet.address import IPv4Address, IPv6Address, UNIXAddress
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IAddress
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.tunnel.http1.wire import Wire
from tunnel.program.site import (
    LIMITS,
    MAX_CONNECTIONS,
    RESERVED,
    Page,
    Site,
    as_json,
    plain,
)

GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
REMOTE = IPv4Address("TCP", "192.0.2.1", 1)
LOCAL = (
    IPv4Address("TCP", "127.0.0.1", 1),
    IPv6Address("TCP", "::1", 1),
    IPv6Address("TCP", "::ffff:127.0.0.1", 1),
    UNIXAddress(None),
)


class _Case(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.site = Site(
            {"/": lambda: plain("alive"), "/status ü": lambda: as_json({"a": 1})},
            self.clock,
        )

    def connect(self, address: IAddress = REMOTE) -> Wire:
        return Wire(self.site.buildProtocol(address))

    def ask(self, wire: Wire, request: bytes = GET) -> bytes:
        wire.receive(request)
        self.clock.advance(0)
        return wire.taken()


class PageTests(_Case):
    """What is answered to what."""

    def test_pages(self) -> None:
        """By path, whatever follows a question mark; HEAD has no body."""
        wire = self.connect()
        answer = self.ask(wire)
        self.assertIn(b"200 OK", answer)
        self.assertTrue(answer.endswith(b"\r\n\r\nalive\n"))
        target = b"/status%20%c3%bc?x=1"
        answer = self.ask(wire, GET.replace(b" / ", b" " + target + b" "))
        self.assertTrue(answer.endswith(b'\r\n\r\n{"a": 1}\n'))
        self.assertIn(b"Content-Type: application/json", answer)
        answer = self.ask(wire, GET.replace(b"GET", b"HEAD"))
        self.assertIn(b"Content-Length: 6", answer)
        self.assertTrue(answer.endswith(b"\r\n\r\n"))
        self.assertFalse(wire.disconnecting)

    def test_another_method(self) -> None:
        """A page is for GET and HEAD."""
        answer = self.ask(self.connect(), GET.replace(b"GET", b"POST"))
        self.assertIn(b"405 Method Not Allowed", answer)
        self.assertIn(b"Allow: GET", answer)

    def test_made_later(self) -> None:
        """A page may take its time; a failure is 500, and logged."""
        later: list[Deferred[Page]] = []

        async def slow() -> Page:
            later.append(Deferred())
            return await later[-1]

        self.site = Site({"/": slow}, self.clock)
        wire = self.connect()
        self.assertEqual(self.ask(wire), b"")
        self.assertEqual(self.site.making, 1)
        later[0].callback(plain("at last"))
        self.clock.advance(0)
        self.assertTrue(wire.taken().endswith(b"at last\n"))
        self.ask(wire)
        later[1].errback(ZeroDivisionError())
        self.clock.advance(0)
        self.assertIn(b" 500 ", wire.taken())
        self.assertEqual(self.site.making, 0)
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    def test_nothing_there(self) -> None:
        """404, also for what is no text."""
        wire = self.connect()
        for path in (b"/other", b"/%ff", b"/%", b"/%00%0d%0a"):
            answer = self.ask(wire, GET.replace(b" / ", b" " + path + b" "))
            self.assertIn(b"404 Not Found", answer)

    def test_bad_host(self) -> None:
        """400, and no traceback."""
        answer = self.ask(self.connect(), GET.replace(b"x", b"\xff"))
        self.assertIn(b"400 Bad Request", answer)
        self.assertTrue(answer.endswith(b"Host is repeated or malformed\n"))

    def test_bodies(self) -> None:
        """None is read: 413 at once, and what comes is dropped within a limit."""
        chunked = b"Transfer-Encoding: chunked\r\n\r\n"
        for head in (b"Content-Length: 1\r\n\r\n", chunked):
            wire = self.connect()
            self.assertIn(b"413 ", self.ask(wire, GET[:-2] + head))
            for _ in range(100):
                wire.receive(b"5\r\nhello\r\n" * 4096)
            self.assertTrue(wire.aborted)
            self.assertEqual(wire.taken(), b"")
            self.assertEqual(wire.protocol._buffer, b"")


class TimeTests(_Case):
    """Slow clients have to connect again."""

    def test_idle(self) -> None:
        """A minute between two scrapes is fine."""
        wire = self.connect()
        for _ in range(3):
            self.assertIn(b"alive", self.ask(wire))
            self.clock.pump([1.0] * int(LIMITS.idle_seconds - 1))
            self.assertFalse(wire.disconnecting)
        self.clock.pump([1.0] * 2)
        self.assertTrue(wire.disconnecting)

    def test_slow_head(self) -> None:
        """A byte now and then does not keep a connection."""
        wire = self.connect()
        for _ in range(int(LIMITS.header_seconds) + 1):
            wire.receive(b"G")
            self.clock.advance(1)
        self.assertIn(b" 408 ", wire.taken())


class NumberTests(_Case):
    """How many connections there may be."""

    def test_longest_idle_gives_way(self) -> None:
        """A new one is served always; the one that asked last stays."""
        wires = [self.connect() for _ in range(MAX_CONNECTIONS)]
        self.ask(wires[0])
        for n in range(1, MAX_CONNECTIONS):
            self.assertIn(b"alive", self.ask(self.connect()))
            self.assertTrue(wires[n].aborted)
            self.assertEqual(len(self.site.others.connections), MAX_CONNECTIONS)
        self.assertFalse(wires[0].aborted)

    def test_reserve(self) -> None:
        """Whatever comes from elsewhere, this machine has its own connections."""
        for address in LOCAL:
            local = self.connect(address)
            for _ in range(MAX_CONNECTIONS + RESERVED):
                self.connect()
            self.assertFalse(local.aborted)
            self.assertIn(b"alive", self.ask(local))

    def test_reserve_is_bounded(self) -> None:
        """They give way to each other."""
        first = self.connect(LOCAL[0])
        for _ in range(RESERVED):
            self.connect(LOCAL[0])
        self.assertTrue(first.aborted)
        self.assertEqual(len(self.site.local.connections), RESERVED)
