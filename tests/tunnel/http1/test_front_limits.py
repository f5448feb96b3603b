"""What a client cannot spend at the front (S01, S05), each limit exceeded."""

from __future__ import annotations

from typing import Any

from twisted.internet.task import Clock

from tests.tunnel.http1.fronts import OK, FrontCase
from tests.tunnel.http1.wire import Wire
from tunnel.http1 import FrontFactory, FrontLimits


class LimitTests(FrontCase):
    """The limits that `FrontLimits` names, at their defaults."""

    def test_header_bytes(self) -> None:
        """431 as soon as there is too much, complete or not (S05)."""
        start = b"GET / HTTP/1.1\r\nHost: a\r\n"
        for end in (b"", b"\r\n\r\n"):
            wire = self.connect()
            wire.receive(start + b"A: " + b"x" * 66000 + end)
            self.assertIn(b" 431 ", wire.taken())
        self.assertEqual(self.handler.exchanges, [])

    def test_endless_head_in_small_pieces(self) -> None:
        """Nothing is kept beyond the limit (S05)."""
        self.wire.receive(b"GET / HTTP/1.1\r\nHost: a\r\n")
        for _ in range(5000):
            self.wire.receive(b"A: bbbbbbbbbbbb\r\n")
        self.assertIn(b" 431 ", self.wire.taken())
        self.assertEqual(self.wire.protocol._buffer, b"")

    def test_header_count(self) -> None:
        """One line more than allowed."""
        lines = b"GET / HTTP/1.1\r\nHost: a\r\n" + b"A: b\r\n" * 199
        self.wire.receive(lines + b"\r\n")
        self.answer()
        self.wire.taken()
        self.wire.receive(lines + b"A: b\r\n\r\n")
        self.assertIn(b" 431 ", self.wire.taken())

    def test_slow_head(self) -> None:
        """A byte a second does not help: 408 after ten (S01)."""
        for _ in range(9):
            self.wire.receive(b"G")
            self.clock.advance(1)
            self.assertEqual(self.wire.taken(), b"")
        self.clock.pump([1.0] * 2)
        self.assertIn(b" 408 ", self.wire.taken())
        self.clock.pump([1.0] * 6)
        self.assertTrue(self.wire.aborted)

    def test_silent_connection(self) -> None:
        """One that never says a word closes without a word."""
        self.clock.pump([1.0] * 11)
        self.assertTrue(self.wire.disconnecting)
        self.assertEqual(self.wire.taken(), b"")

    def test_idle_connection(self) -> None:
        """Kept for a minute after an answer."""
        self.wire.receive(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        self.answer()
        self.wire.taken()
        self.clock.pump([1.0] * 59)
        self.assertFalse(self.wire.disconnecting)
        self.clock.pump([1.0] * 2)
        self.assertTrue(self.wire.disconnecting)
        self.assertEqual(self.wire.taken(), b"")

    def test_slow_body(self) -> None:
        """A minute without a byte is 408, and the handler learns of it (S01)."""
        self.wire.receive(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n")
        self.clock.pump([1.0] * 59)
        self.wire.receive(b"x")
        self.clock.pump([1.0] * 59)
        self.assertEqual(self.wire.taken(), b"")
        self.clock.pump([1.0] * 3)
        self.assertIn(b" 408 ", self.wire.taken())
        self.assertEqual(len(self.handler.gone), 1)

    def test_slow_body_that_we_stopped(self) -> None:
        """Time in which we do not read is not the client's fault."""
        self.wire.receive(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n")
        self.handler.exchange.pauseProducing()
        self.clock.pump([1.0] * 300)
        self.assertEqual(self.wire.taken(), b"")
        self.assertEqual(self.handler.gone, [])

    def test_long_answer(self) -> None:
        """A watch lives two hours without a byte (lesson 31)."""
        self.wire.receive(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        self.handler.exchange.send_head(OK, -1)
        self.clock.pump([1.0] * 7200)
        self.assertFalse(self.wire.disconnecting)
        self.handler.exchange.write(b"x")
        self.assertTrue(self.turn().endswith(b"1\r\nx\r\n"))

    def test_pipelined_bytes(self) -> None:
        """A client that does not wait is no longer read."""
        self.wire.receive(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        for _ in range(100):
            self.wire.receive(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n" * 1000)
        self.assertEqual(self.wire.producerState, "paused")
        self.assertLess(len(self.wire.protocol._buffer), 128 * 1024)
        self.handler.on_request = lambda exchange: self.answer(exchange=exchange)
        self.answer(exchange=self.handler.exchanges[0])
        self.assertEqual(len(self.handler.exchanges), 100_001)

    def test_tls_to_a_plain_port(self) -> None:
        """An answer that says what is wrong, at once."""
        self.wire.receive(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
        self.assertIn(b"TLS was sent to a port without TLS", self.wire.taken())


class ConnectionLimitTests(FrontCase):
    """`FrontLimits.max_connections`."""

    limits = FrontLimits(max_connections=2)

    def test_one_too_many(self) -> None:
        """With requests in all: 503 and Retry-After; room again when one has left."""
        second = self.connect()
        for wire in (self.wire, second):
            wire.receive(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        del self.handler.exchanges[:]
        third = self.connect()
        self.clock.advance(0)
        written = third.taken()
        self.assertIn(b" 503 ", written)
        self.assertIn(b"Retry-After: 1\r\n", written)
        third.receive(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        self.assertEqual(self.handler.exchanges, [])
        third.lose()
        second.lose()
        fourth = self.connect()
        fourth.receive(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        self.assertEqual(len(self.handler.exchanges), 1)

    def test_longest_idle_gives_way(self) -> None:
        """One that has no request under way leaves for a new one, the oldest first."""
        second = self.connect()
        self.wire.receive(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        third = self.connect()
        self.assertTrue(second.aborted)
        self.assertFalse(self.wire.aborted)
        self.answer()
        fourth = self.connect()
        self.assertTrue(third.aborted)
        self.assertFalse(self.wire.aborted or fourth.aborted)
        second.settle()
        third.settle()
        self.assertEqual(len(self.factory.connections), 2)


class UnreadTests(FrontCase):
    """A client that asks and does not read its answers."""

    def setUp(self) -> None:
        super().setUp()
        self.held = 0
        self.handler.on_request = lambda exchange: self.answer(b"x" * 1000, exchange)
        self.wire.unsent = lambda: self.held  # type: ignore[attr-defined]

    def test_waits(self) -> None:
        """It is asked to read first, and then has all its answers."""
        request = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
        self.wire.receive(request)
        self.held = 64 * 1024 + 1
        self.wire.receive(request * 3, request)
        self.assertEqual(len(self.handler.exchanges), 1)
        self.assertEqual(self.wire.producerState, "paused")
        self.clock.advance(1)
        self.assertEqual(len(self.handler.exchanges), 1)
        self.held = 0
        self.clock.advance(1)
        self.assertEqual(len(self.handler.exchanges), 5)
        self.clock.pump([1.0] * 59)
        self.assertFalse(self.wire.disconnecting)

    def test_never_reads(self) -> None:
        """It is dropped after a minute without a byte read."""
        self.held = 64 * 1024 + 2
        self.wire.receive(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        self.clock.pump([1.0] * 30)
        self.held -= 1
        self.clock.pump([1.0] * 60)
        self.assertFalse(self.wire.aborted)
        self.clock.pump([1.0] * 2)
        self.assertTrue(self.wire.aborted)

    def test_never_reads_the_last(self) -> None:
        """Nor does one keep its descriptor that was closed for being idle."""
        self.wire.receive(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        self.held = 1000
        self.clock.pump([1.0] * 62)
        self.assertTrue(self.wire.disconnecting)
        self.assertFalse(self.wire.aborted)
        self.clock.pump([1.0] * 62)
        self.assertTrue(self.wire.aborted)


class SweepTests(FrontCase):
    """One timer for all connections."""

    def test_one_timer(self) -> None:
        """A thousand connections and requests hang on one delayed call."""
        wires = [self.connect() for _ in range(1000)]
        for wire in wires:
            wire.receive(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        self.assertEqual(len(self.clock.getDelayedCalls()), 1)
        for wire in [self.wire, *wires]:
            wire.lose()
        self.clock.pump([1.0] * 2)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_writer(self) -> None:
        """The program may lend a faster way to write."""
        written: list[tuple[Any, bytes]] = []
        factory = FrontFactory(
            self.handler, Clock(), write=lambda tcp, data: written.append((tcp, data))
        )
        wire = Wire(factory.buildProtocol(None))
        wire.receive(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        self.answer()
        self.assertEqual([tcp for tcp, _ in written], [wire])
