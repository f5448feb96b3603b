"""The server side: exchanges, one after the other, and how they end."""

from __future__ import annotations

import gc
import weakref

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.task import Clock

from tests.tunnel.http1.fronts import OK, FrontCase, Recorder
from tests.tunnel.http1.wire import Wire
from tunnel.http1 import Exchange, FrontFactory


class IsolationTests(FrontCase):
    """One connection that fails does not stop the others of its owner."""

    def broken(self, name: str) -> Wire:
        wire = self.connect()

        def fail(*arguments: object) -> None:
            raise ZeroDivisionError(name)

        setattr(wire.protocol, name, fail)
        return wire

    def test_flush(self) -> None:
        """They write, in this turn and in later ones."""
        wires = [self.connect() for _ in range(20)]
        wires.insert(10, self.broken("_write"))
        for count in (1, 2):
            for wire in wires:
                wire.protocol.send(b"x")
            self.clock.advance(0)
            good = [wire for wire in wires if wire.writes]
            self.assertEqual({wire.writes for wire in good}, {count})
            self.assertEqual(len(good), 20)
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 2)

    def test_sweep(self) -> None:
        """Those that are late are found, and again a second later."""
        self.broken("sweep")
        late = self.connect()
        self.clock.pump([1] * int(self.limits.idle_seconds + 2))
        self.assertTrue(late.disconnecting)
        self.assertGreater(len(self.flushLoggedErrors(ZeroDivisionError)), 2)


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
            wire = Wire(FrontFactory(handler, self.clock).buildProtocol(None))
            for size in 0, 3:
                head = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n"
                wire.receive(head % size + b"x" * size)
                holder = handler.alive[-1]()
                if holder is not None:
                    holder.answer()
                del holder
                self.assertIsNone(handler.alive[-1]())


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
        self.assertEqual(self.wire.taken().count(b"200 OK"), 1000)

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
    factory = FrontFactory(handler, clock)
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
    targets = [request.split(b" ")[1] for request in requests]
    assert [exchange.head.target for exchange in handler.exchanges] == targets
    assert wire.taken().count(b"200 OK") == len(requests)
    assert handler.body == b"hello" * sum(b"POST" in r for r in requests)
