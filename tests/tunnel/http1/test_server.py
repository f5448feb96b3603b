"""The server side: exchanges, bodies, limits, upgrades."""

from __future__ import annotations

import gc
import weakref
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.error import ConnectionDone
from twisted.internet.task import Clock
from twisted.python.failure import Failure

from tests.tunnel.http1.servers import OK, FrontCase, Recorder
from tests.tunnel.http1.wire import Wire
from tests.tunnel.producers import Producer
from tunnel.http1 import (
    Exchange,
    HttpServerFactory,
    HttpServerLimits,
)


class IsolationTests(FrontCase):
    """One connection that fails does not stop the others of its owner."""

    def breaks(self, *arguments: object) -> None:
        raise ZeroDivisionError

    def test_flush(self) -> None:
        """They write, in this turn and in later ones."""
        wires = [self.connect() for _ in range(20)]
        broken = self.connect()
        broken.protocol._write = self.breaks
        wires.insert(10, broken)
        for count in (1, 2):
            for wire in wires:
                wire.protocol.send(b"x")
            self.clock.advance(0)
            good = [wire for wire in wires if wire.writes]
            self.assertEqual({wire.writes for wire in good}, {count})
            self.assertEqual(len(good), 20)
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 2)

    def test_sweep(self) -> None:
        """Those that are late are found, and others in later sweeps."""
        for count in (1, 2):
            for _ in range(count):
                self.patch(self.connect(), "loseConnection", self.breaks)
            late = self.connect()
            self.clock.pump([1] * int(self.limits.idle_seconds + 2))
            self.assertTrue(late.disconnecting)
            self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), count)


class Holder:
    """Answers at once or later, and holds the exchange that holds it."""

    def __init__(self, exchange: Exchange) -> None:
        self.exchange = exchange

    def answer(self) -> None:
        self.exchange.send_head(OK, 0)
        self.exchange.finish()

    def body_received(self, data: bytes) -> None:
        pass

    def body_finished(self, trailers: bytes) -> None:
        pass

    def client_gone(self, reason: Exception) -> None:
        raise AssertionError(reason)


class Holders:
    """A handler that forgets whom it gave a request to."""

    def __init__(self, at_once: bool) -> None:
        self.at_once = at_once
        self.alive: list[weakref.ref[Holder]] = []

    def request_received(self, exchange: Exchange) -> Holder:
        holder = Holder(exchange)
        self.alive.append(weakref.ref(holder))
        if self.at_once:
            holder.answer()
        return holder


class GarbageTests(FrontCase):
    """What an answered request leaves behind: nothing, and at once."""

    def test_receiver_is_let_go(self) -> None:
        """The collector is not needed, however the request came and was answered."""
        gc.disable()
        self.addCleanup(gc.enable)
        for at_once in True, False:
            handler = Holders(at_once)
            wire = Wire(HttpServerFactory(handler, self.clock).buildProtocol(None))
            for size in 0, 3:
                head = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n"
                wire.receive(head % size + b"x" * size)
                holder = handler.alive[-1]()
                if holder is not None:
                    holder.answer()
                del holder
                self.assertIsNone(handler.alive[-1]())


class Note:
    """What is noted of a head is kept as long as the head."""


class KnownHeadTests(FrontCase):
    """Heads hold credentials: how long a connection remembers them."""

    def setUp(self) -> None:
        super().setUp()
        self.notes: list[weakref.ref[Note]] = []
        holders = Holders(at_once=True)

        def taken(exchange: Exchange) -> Holder:
            note = exchange.head.notes["seen"] = Note()
            self.notes.append(weakref.ref(note))
            return holders.request_received(exchange)

        self.served = self.handler.request_received
        self.handler.request_received = taken  # type: ignore[assignment,method-assign]

    def ask(self, wire: Wire) -> None:
        wire.receive(b"GET / HTTP/1.1\r\nHost: a\r\nAuthorization: b\r\n\r\n")
        self.clock.advance(0)

    @property
    def remembered(self) -> list[bool]:
        return [note() is not None for note in self.notes]

    def test_not_without_requests(self) -> None:
        """Ten seconds after the last one nothing is left."""
        self.ask(self.wire)
        self.clock.pump([1] * 9)
        self.assertEqual(self.remembered, [True])
        self.clock.pump([1] * 2)
        self.assertEqual(self.remembered, [False])

    def test_not_beside_a_long_answer(self) -> None:
        """What the client of a watch sent before it, ten seconds after that."""
        self.ask(self.wire)
        self.handler.request_received = self.served  # type: ignore[method-assign]
        self.wire.receive(b"GET /?watch=1 HTTP/1.1\r\nHost: a\r\n\r\n")
        for _ in range(11):
            self.handler.exchange.send_head(OK, -1)
            self.handler.exchange.write(b"event")
            self.clock.advance(1)
        self.assertEqual(self.remembered, [False])

    def test_not_in_an_upgraded_connection(self) -> None:
        """No request follows in one, however much it is used."""
        self.ask(self.wire)
        self.handler.request_received = self.served  # type: ignore[method-assign]
        self.wire.receive(
            b"GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: b\r\n\r\n"
        )
        self.assertEqual(self.remembered, [True])
        self.handler.exchange.upgrade(b"HTTP/1.1 101 Switching Protocols\r\n")
        self.assertEqual(self.remembered, [False])

    def test_not_behind_the_connection(self) -> None:
        """It goes with the connection, and no other connection knows of it."""
        self.ask(self.wire)
        other = self.connect()
        self.ask(other)
        # Of the same lines one is remembered, but for each connection its own.
        self.assertEqual(self.remembered, [True, True])
        self.wire.lose()
        self.assertEqual(self.remembered, [False, True])


class ExchangeTests(FrontCase):
    """Requests without anything special."""

    def test_head_and_body_leave_together(self) -> None:
        """One answer is one write."""
        self.wire.receive(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        self.answer()
        self.assertEqual(
            self.wire.taken(), b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"
        )
        self.assertEqual(self.wire.writes, 1)

    def test_cut_at_every_offset(self) -> None:
        """Where the network cuts makes no difference."""
        whole = b"POST /x?y HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc"
        for cut in range(1, len(whole)):
            self.handler.body = b""
            self.wire.receive(whole[:cut], whole[cut:])
            self.assertEqual(self.handler.body, b"abc", cut)
            self.assertEqual(self.handler.exchange.head.target, b"/x?y")
            self.answer()
        self.assertEqual(len(self.handler.exchanges), len(whole) - 1)
        self.assertEqual(self.handler.ends, [b""] * (len(whole) - 1))

    def test_pipelined_answers_keep_their_order(self) -> None:
        """The second request is not even begun before the first is answered."""
        self.wire.receive(b"GET /1 HTTP/1.1\r\nHost: a\r\n\r\n" * 3)
        for number in range(3):
            self.assertEqual(len(self.handler.exchanges), number + 1)
            self.answer(b"%d" % number)
        self.assertEqual(
            [part[-1:] for part in self.wire.taken().split(b"HTTP/1.1")[1:]],
            [b"0", b"1", b"2"],
        )

    def test_answers_given_at_once(self) -> None:
        """A handler may answer while it is called, for a thousand requests in a row."""
        self.handler.on_request = lambda exchange: self.answer(exchange=exchange)
        self.wire.receive(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n" * 1000)
        turns(self.clock)
        self.assertEqual(self.wire.taken().count(b"200 OK"), 1000)

    def test_others_have_their_turn(self) -> None:
        """Pipelined requests that are answered at once wait for the next turn."""
        self.handler.on_request = lambda exchange: self.answer(exchange=exchange)
        self.wire.receive(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n" * 5)
        self.assertEqual(len(self.handler.exchanges), 2)
        self.assertEqual(self.wire.producerState, "paused")
        turns(self.clock)
        self.assertEqual(len(self.handler.exchanges), 5)
        self.assertEqual(self.wire.producerState, "producing")

    def test_one_that_fails_in_its_next_turn(self) -> None:
        """It is cut, and the turns of others go on."""
        self.handler.on_request = lambda exchange: self.answer(exchange=exchange)
        other = self.connect()
        for wire in (self.wire, other):
            wire.receive(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n" * 5)
        self.patch(self.wire, "resumeProducing", lambda: 1 / 0)
        turns(self.clock)
        self.assertEqual(other.taken().count(b"200 OK"), 5)
        self.assertTrue(self.wire.disconnecting or self.wire.aborted)
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    def test_closed_before_its_next_turn(self) -> None:
        """Requests of a connection that was lost meanwhile are not served."""
        self.handler.on_request = lambda exchange: self.answer(exchange=exchange)
        self.wire.receive(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n" * 5)
        self.wire.protocol.connectionLost(Failure(ConnectionDone()))
        turns(self.clock)
        self.assertEqual(len(self.handler.exchanges), 2)

    def test_empty_line_before_a_request(self) -> None:
        """One is forgiven, two are not."""
        self.wire.receive(b"\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n")
        self.answer()
        self.wire.receive(b"\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n")
        self.assertIn(b" 400 ", self.wire.taken())

    def test_unknown_length_is_chunked(self) -> None:
        """Each write is a chunk, and trailers follow the last."""
        self.wire.receive(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        exchange = self.handler.exchange
        exchange.send_head(OK, -1)
        self.assertEqual(
            self.turn(), b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        exchange.write(b"hello")
        self.assertEqual(self.turn(), b"5\r\nhello\r\n")
        exchange.finish(b"\r\nA: b")
        self.assertEqual(self.turn(), b"0\r\nA: b\r\n\r\n")

    def test_small_write_leaves_in_this_turn(self) -> None:
        """A watch event of 40 bytes waits for nothing but the turn's end."""
        self.wire.receive(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        self.handler.exchange.send_head(OK, -1)
        self.turn()
        self.handler.exchange.write(b"x" * 40)
        self.clock.advance(0)
        self.assertEqual(self.wire.taken(), b"28\r\n" + b"x" * 40 + b"\r\n")

    def test_without_body(self) -> None:
        """HEAD, 204 and 304 have none, whatever the handler writes."""
        for method, block, length, expected in (
            (b"HEAD", OK, 5, b"Content-Length: 5\r\n\r\n"),
            (b"HEAD", OK, -1, b"200 OK\r\n\r\n"),
            (b"GET", b"HTTP/1.1 204 No Content\r\n", 0, b"No Content\r\n\r\n"),
            (b"GET", b"HTTP/1.1 304 Not Modified\r\n", -1, b"Not Modified\r\n\r\n"),
        ):
            self.wire.receive(method + b" / HTTP/1.1\r\nHost: a\r\n\r\n")
            exchange = self.handler.exchange
            exchange.send_head(block, length)
            exchange.write(b"never")
            exchange.finish()
            written = self.wire.taken()
            self.assertTrue(written.endswith(expected), written)
            self.assertNotIn(b"Transfer-Encoding", written)
        self.assertFalse(self.wire.disconnecting)

    def test_http_1_0(self) -> None:
        """No chunks: the end of the connection is the end of the body."""
        self.wire.receive(b"GET / HTTP/1.0\r\n\r\n")
        exchange = self.handler.exchange
        exchange.informational(b"HTTP/1.1 103 Early Hints\r\n")
        exchange.send_head(OK, -1)
        exchange.write(b"abc")
        exchange.finish()
        self.assertEqual(
            self.wire.taken(), b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nabc"
        )
        self.assertTrue(self.wire.disconnecting)

    def test_http_1_0_kept(self) -> None:
        """Kept alive where both sides can tell the end."""
        self.wire.receive(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        self.answer()
        self.assertIn(b"Connection: keep-alive\r\n", self.wire.taken())
        self.assertFalse(self.wire.disconnecting)

    def test_close_is_honoured(self) -> None:
        """A client that wants to close gets its answer and the end."""
        self.wire.receive(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        self.answer()
        self.assertIn(b"Connection: close\r\n", self.wire.taken())
        self.assertTrue(self.wire.disconnecting)

    def test_wrong_length_aborts(self) -> None:
        """Neither more nor less than promised looks like a whole answer."""
        for body in (b"abc", b"a"):
            wire = self.connect()
            wire.receive(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            exchange = self.handler.exchange
            exchange.send_head(OK, 2)
            exchange.write(body)
            exchange.finish()
            self.assertTrue(wire.aborted)

    def test_informational(self) -> None:
        """1xx answers precede the real one."""
        self.wire.receive(
            b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n"
            b"Expect: 100-continue\r\n\r\n"
        )
        self.assertTrue(self.handler.exchange.head.expect_continue)
        self.assertEqual(self.turn(), b"", "only the origin knows whether to go on")
        self.handler.exchange.informational(b"HTTP/1.1 100 Continue\r\n")
        self.assertEqual(self.turn(), b"HTTP/1.1 100 Continue\r\n\r\n")
        self.wire.receive(b"x")
        self.answer()
        self.assertTrue(self.wire.taken().startswith(OK))

    def test_client_leaves(self) -> None:
        """The handler is told once, and its answers go nowhere."""
        self.wire.receive(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        self.wire.lose(clean=False)
        self.assertEqual(len(self.handler.gone), 1)
        self.answer()
        self.handler.exchange.abort()
        self.clock.advance(0)
        self.assertEqual(len(self.handler.gone), 1)
        self.assertEqual(self.factory.connections, set())

    def test_client_closes_its_half(self) -> None:
        """That counts as leaving, and the connection goes."""
        self.wire.receive(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        self.wire.receive_end()
        self.assertEqual(len(self.handler.gone), 1)
        self.wire.settle()
        self.assertEqual(len(self.handler.gone), 1)

    def test_finished_exchange_is_not_told(self) -> None:
        """After the answer, what happens to the connection is no longer its matter."""
        self.wire.receive(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        self.answer()
        self.wire.lose()
        self.assertEqual(self.handler.gone, [])

    def test_handler_fails(self) -> None:
        """500 for this request; it is logged, and others go on."""

        def fail(exchange: Exchange) -> None:
            raise RuntimeError("bug")

        self.handler.on_request = fail
        self.wire.receive(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n" * 2)
        self.assertEqual(self.wire.taken().count(b" 500 "), 2)
        self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 2)

    def test_drain(self) -> None:
        """Idle connections close at once, busy ones after their answer."""
        busy = self.connect()
        busy.receive(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        self.factory.drain()
        self.assertTrue(self.wire.disconnecting)
        self.assertFalse(busy.disconnecting)
        self.answer()
        self.assertIn(b"Connection: close", busy.taken())
        self.assertTrue(busy.disconnecting)


def turns(clock: Clock) -> None:
    """Let all pipelined requests have their turns."""
    while any(call.getTime() <= clock.seconds() for call in clock.getDelayedCalls()):
        clock.advance(0)


REQUESTS = [
    b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n",
    b"POST /b HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
    b"POST /c HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n",
]


@given(st.lists(st.sampled_from(REQUESTS), max_size=6), st.data())
def test_any_cut_gives_the_same_requests(
    requests: list[bytes], data: st.DataObject
) -> None:
    """Pipelined requests of all kinds, cut anywhere, answered at once or later."""
    later = data.draw(st.booleans())
    handler = Recorder()
    clock = Clock()
    factory = HttpServerFactory(handler, clock)
    wire = Wire(factory.buildProtocol(None))

    def answer(exchange: Exchange) -> None:
        if exchange.complete and not exchange.finished:
            exchange.respond(200, b"", exchange.head.target)

    def finished(trailers: bytes) -> None:
        if not later:
            answer(handler.exchange)

    handler.on_request = lambda exchange: None if later else answer(exchange)
    handler.body_finished = finished  # type: ignore[method-assign]
    whole = b"".join(requests)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=8)))
    for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True):
        wire.receive(whole[a:b])
        while later and handler.exchanges and handler.exchange.complete:
            before = len(handler.exchanges)
            answer(handler.exchange)
            if len(handler.exchanges) == before:
                break
    turns(clock)
    targets = [request.split(b" ")[1] for request in requests]
    assert [exchange.head.target for exchange in handler.exchanges] == targets
    assert wire.taken().count(b"200 OK") == len(requests)
    assert handler.body == b"hello" * sum(b"POST" in r for r in requests)


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


class LimitTests(FrontCase):
    """The limits that `HttpServerLimits` names, at their defaults."""

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
        turns(self.clock)
        self.assertEqual(len(self.handler.exchanges), 100_001)

    def test_tls_to_a_plain_port(self) -> None:
        """An answer that says what is wrong, at once."""
        self.wire.receive(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
        self.assertIn(b"TLS was sent to a port without TLS", self.wire.taken())


class ConnectionLimitTests(FrontCase):
    """`HttpServerLimits.max_connections`."""

    limits = HttpServerLimits(max_connections=2)

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
        self.held = self.looks = 0
        self.size = 70_000
        self.handler.on_request = lambda exchange: self.answer(
            b"x" * self.size, exchange
        )
        self.wire.unsent = self.unsent  # type: ignore[attr-defined]

    def unsent(self) -> int:
        self.looks += 1
        return self.held

    def test_looks_once_it_may_be_too_much(self) -> None:
        """What was held at the last look, and what was written since."""
        request = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
        self.size = 10_000
        for count in range(1, 19):
            self.held = 50_000
            self.wire.receive(request)
            self.assertEqual(self.looks, 0 if count < 8 else (count - 6) // 2)
        self.held = 64 * 1024 + 1
        self.wire.receive(request, request)
        self.assertEqual(len(self.handler.exchanges), 19)

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
        self.wire.receive(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
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
        factory = HttpServerFactory(
            self.handler, Clock(), write=lambda tcp, data: written.append((tcp, data))
        )
        wire = Wire(factory.buildProtocol(None))
        wire.receive(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        self.answer()
        self.assertEqual([tcp for tcp, _ in written], [wire])


UPGRADE = (
    b"POST /exec HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\n"
    b"Upgrade: SPDY/3.1\r\nContent-Length: 0\r\n\r\n"
)
SWITCH = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: SPDY/3.1\r\n"


class UpgradeTests(FrontCase):
    """101, and raw bytes after it."""

    def test_first_bytes_are_not_lost(self) -> None:
        """Those that came with the request, cut at every offset (lesson 8)."""
        whole = UPGRADE + b"first bytes"
        for cut in range(1, len(whole)):
            handler = self.handler = Recorder()
            self.factory.handler = handler
            wire = self.connect()
            wire.receive(whole[:cut], whole[cut:])
            self.assertEqual(handler.body, b"", "before the 101 they wait")
            handler.exchange.upgrade(SWITCH)
            self.assertEqual(handler.body, b"first bytes", cut)
            self.clock.advance(0)
            self.assertEqual(wire.taken(), SWITCH + b"\r\n")

    def test_upgrade_inside_the_callback(self) -> None:
        """A handler may switch at once."""
        self.handler.on_request = lambda exchange: exchange.upgrade(SWITCH)
        self.wire.receive(UPGRADE + b"abc")
        self.assertEqual(self.handler.body, b"abc")

    def test_our_half_ends_inside_the_callback(self) -> None:
        """What the client still sends comes all the same, and so does its end."""

        def begin(exchange: Exchange) -> None:
            exchange.upgrade(SWITCH)
            exchange.finish()

        self.handler.on_request = begin
        self.wire.receive(UPGRADE)
        self.assertTrue(self.wire.half_closed)
        self.wire.receive(b"raw")
        self.assertEqual(self.handler.body, b"raw")
        self.wire.receive_end()
        self.assertEqual(self.handler.ends, [b""])
        self.wire.settle()
        self.assertEqual(self.handler.gone, [])

    def test_half_closes(self) -> None:
        """Each direction ends by itself, and the connection after both."""
        self.wire.receive(UPGRADE)
        exchange = self.handler.exchange
        exchange.upgrade(SWITCH)
        self.wire.receive(b"in")
        self.wire.receive_end()
        self.assertEqual(self.handler.ends, [b""])
        self.turn()
        exchange.write(b"out")
        self.assertEqual(self.turn(), b"out")
        self.assertFalse(self.wire.disconnecting)
        exchange.finish()
        self.assertTrue(self.wire.disconnecting)
        self.wire.settle()
        self.assertEqual(self.handler.gone, [])

    def test_our_half_first(self) -> None:
        """After `finish` the client may still send."""
        self.wire.receive(UPGRADE)
        self.handler.exchange.upgrade(SWITCH)
        self.handler.exchange.finish()
        self.assertTrue(self.wire.half_closed)
        self.wire.receive(b"more")
        self.assertEqual(self.handler.body, b"more")
        self.wire.receive_end()
        self.assertEqual(self.handler.ends, [b""])
        self.assertTrue(self.wire.disconnecting)

    def test_client_breaks_after_our_half(self) -> None:
        """Its half never ended: the handler must hear of it."""
        self.wire.receive(UPGRADE)
        self.handler.exchange.upgrade(SWITCH)
        self.handler.exchange.finish()
        self.wire.lose(clean=False)
        self.assertEqual(len(self.handler.gone), 1)

    def test_half_closed_for_ever(self) -> None:
        """One half alone lives while bytes move, and a minute longer."""
        self.wire.receive(UPGRADE)
        exchange = self.handler.exchange
        exchange.upgrade(SWITCH)
        self.clock.pump([1.0] * 7200)
        self.assertFalse(self.wire.aborted, "with both halves open, for ever")
        self.wire.receive_end()
        for _ in range(5):
            self.clock.pump([1.0] * 50)
            exchange.write(b"x")
        self.assertFalse(self.wire.aborted)
        self.clock.pump([1.0] * 62)
        self.assertTrue(self.wire.aborted)
        self.assertEqual(len(self.handler.gone), 1)

    def test_slow_reader(self) -> None:
        """What was written goes to the client, however long that takes."""
        self.wire.receive(UPGRADE)
        exchange = self.handler.exchange
        exchange.upgrade(SWITCH)
        exchange.write(b"last words")
        exchange.finish()
        self.clock.pump([1.0] * 62)
        self.assertTrue(self.wire.disconnecting)
        self.assertFalse(self.wire.aborted)
        self.assertEqual(len(self.handler.gone), 1)
        self.wire.settle()
        self.assertEqual(self.factory.connections, set())

    def test_refused_upgrade_is_plain_http(self) -> None:
        """P03: another status is an answer, then the connection closes; no pipe."""
        self.wire.receive(UPGRADE + b"GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n")
        self.handler.exchange.send_head(b"HTTP/1.1 403 Forbidden\r\n", 2)
        self.handler.exchange.write(b"no")
        self.handler.exchange.finish()
        self.assertIn(b"Connection: close\r\n", self.wire.taken())
        self.assertEqual(self.handler.body, b"")
        self.assertEqual(len(self.handler.exchanges), 1)
        self.wire.receive(b"GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n")
        self.assertEqual(len(self.handler.exchanges), 1)

    def test_not_asked_for(self) -> None:
        """Raw mode only for a request that wants it (CVE-2018-1002105)."""
        self.wire.receive(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        self.assertRaises(ValueError, self.handler.exchange.upgrade, SWITCH)

    def test_half_close_behind_a_wrapper(self) -> None:
        """Twisted's TLS passes the call to its socket and would cut records off."""

        class Wrapper:
            def __init__(self, wire: Wire) -> None:
                self.wire = wire

            def __getattr__(self, name: str) -> object:
                return getattr(self.wire, name)

        protocol = self.factory.buildProtocol(None)
        wire = Wire(self.factory.buildProtocol(None))
        protocol.makeConnection(Wrapper(wire))
        protocol.dataReceived(UPGRADE)
        self.handler.exchange.upgrade(SWITCH)
        self.handler.exchange.finish()
        self.assertFalse(wire.half_closed)
        self.assertTrue(wire.disconnecting)
