"""The server side: bodies of requests, early answers, back-pressure."""

from __future__ import annotations

from tests.tunnel.http1.fronts import OK, FrontCase
from tests.tunnel.producers import Producer


class BodyTests(FrontCase):
    """Bodies of requests, and what is left of them."""

    def test_chunked_with_trailers(self) -> None:
        """The handler sees neither chunks nor forbidden trailers."""
        self.wire.receive(
            b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
            b"3\r\nabc\r\n2\r\nde\r\n0\r\nX-A: b\r\nContent-Length: 5\r\n\r\n"
        )
        self.assertEqual(self.handler.body, b"abcde")
        self.assertEqual(self.handler.ends, [b"\r\nX-A: b"])

    def test_early_answer_closes(self) -> None:
        """What follows an unfinished body is never read as a request."""
        self.wire.receive(
            b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nabc"
        )
        self.answer()
        self.assertIn(b"Connection: close\r\n", self.wire.taken())
        self.assertTrue(self.wire.half_closed, "the client must be able to read it")
        self.assertFalse(self.wire.disconnecting)
        self.wire.receive(b"x" * 97 + b"GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n")
        self.assertEqual(len(self.handler.exchanges), 1)
        self.assertEqual(self.handler.body, b"abc")
        self.wire.receive_end()
        self.assertTrue(self.wire.disconnecting)

    def test_early_answer_is_drained_for_a_while_only(self) -> None:
        """Bounded in time, also for a client that trickles, and in bytes."""
        for unit in (b"", b"x", b"x" * 65536):
            wire = self.connect()
            wire.receive(
                b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9999999\r\n\r\n"
            )
            self.answer()
            for _ in range(17):
                if unit:
                    wire.receive(unit)
                if len(unit) < 2:
                    self.clock.advance(1)
            self.assertTrue(wire.aborted)

    def test_answer_while_the_body_goes_on(self) -> None:
        """Both directions at once; only the connection is not kept."""
        self.wire.receive(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nab")
        exchange = self.handler.exchange
        exchange.send_head(OK, -1)
        exchange.write(b"1")
        self.wire.receive(b"cd")
        self.assertEqual(self.handler.body, b"abcd")
        exchange.write(b"2")
        exchange.finish()
        self.assertIn(b"Connection: close", self.wire.taken())
        self.assertTrue(self.wire.disconnecting)

    def test_broken_chunks(self) -> None:
        """400, the handler learns of it, and nothing more is read."""
        self.wire.receive(
            b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"
            b"GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"
        )
        self.assertIn(b" 400 ", self.wire.taken())
        self.assertEqual(len(self.handler.gone), 1)
        self.assertEqual(len(self.handler.exchanges), 1)

    def test_broken_chunks_after_the_head(self) -> None:
        """An answer that has begun cannot become a 400: it breaks off."""
        self.wire.receive(
            b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        self.handler.exchange.send_head(OK, -1)
        self.wire.receive(b"zz\r\n")
        self.assertTrue(self.wire.aborted)

    def test_paused_reader(self) -> None:
        """While paused nothing is delivered and the transport is stopped."""
        self.wire.receive(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\n\r\n")
        exchange = self.handler.exchange
        exchange.pauseProducing()
        self.assertEqual(self.wire.producerState, "paused")
        self.wire.receive(b"abc", b"def")
        self.assertEqual(self.handler.body, b"")
        self.handler.on_body = lambda data: exchange.pauseProducing()
        exchange.resumeProducing()
        self.assertEqual(self.handler.body, b"abc")
        exchange.resumeProducing()
        self.assertEqual(self.handler.body, b"abcdef")
        self.assertEqual(self.handler.ends, [b""])
        self.answer()
        self.assertEqual(self.wire.producerState, "producing")

    def test_bytes_in_the_segment_of_a_paused_head(self) -> None:
        """A handler that pauses at once gets no body until it says so."""
        self.handler.on_request = lambda exchange: exchange.pauseProducing()
        self.wire.receive(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc")
        self.assertEqual(self.handler.body, b"")
        self.handler.exchange.resumeProducing()
        self.assertEqual(self.handler.body, b"abc")
        self.assertEqual(self.handler.ends, [b""])

    def test_slow_client_pauses_the_producer(self) -> None:
        """The answer's producer hangs on the client's socket (lesson 22)."""
        self.wire.receive(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        exchange = self.handler.exchange
        exchange.send_head(OK, -1)
        producer = Producer()
        exchange.registerProducer(producer, True)
        self.turn()
        assert self.wire.producer is not None
        self.wire.producer.pauseProducing()
        self.wire.producer.resumeProducing()
        self.assertEqual(producer.told, ["pause", "resume"])
        exchange.finish()
        self.assertIsNone(self.wire.producer)

    def test_whole_answer_never_registers(self) -> None:
        """What is complete in one turn costs no producer."""
        self.wire.receive(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        exchange = self.handler.exchange
        exchange.send_head(OK, 1)
        exchange.registerProducer(Producer(), True)
        exchange.write(b"x")
        self.assertIsNone(self.wire.producer)
        exchange.finish()
        self.assertIsNone(self.wire.producer)

    def test_large_body_holds_nothing(self) -> None:
        """64 MiB through: what is kept does not grow."""
        size = 64 * 1024 * 1024
        self.handler.body_received = lambda data: None  # type: ignore[method-assign]
        head = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % size
        self.wire.receive(head)
        piece = b"x" * 65536
        for _ in range(size // len(piece)):
            self.wire.receive(piece)
        self.assertEqual(self.wire.protocol._buffer, b"")
        self.assertEqual(self.handler.ends, [b""])
