"""The client side: pooling, framing, retries, upgrades, a hostile origin."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionRefusedError, DNSLookupError
from twisted.internet.interfaces import IStreamClientEndpoint
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from tests.tunnel.http1.wire import Wire
from tunnel.http1 import (
    CHUNKED,
    ResponseHead,
    UpstreamError,
    UpstreamLimits,
    UpstreamPool,
    UpstreamRequest,
)


@implementer(IStreamClientEndpoint)
class Endpoint:
    """Connects when the test says so."""

    def __init__(self) -> None:
        self.attempts: list[tuple[Any, Deferred[Any]]] = []
        self.cancelled = 0
        self.wires: list[Wire] = []
        self.at_once = True
        #: What a cancelled attempt fails with, if not as Deferreds do.
        self.on_cancel: Exception | None = None

    def connect(self, factory: Any) -> Deferred[Any]:
        attempt: Deferred[Any] = Deferred(self._cancel)
        self.attempts.append((factory, attempt))
        if self.at_once:
            self.succeed()
        return attempt

    def _cancel(self, attempt: Deferred[Any]) -> None:
        self.cancelled += 1
        self.attempts = [pair for pair in self.attempts if pair[1] is not attempt]
        if self.on_cancel is not None:
            attempt.errback(self.on_cancel)

    def succeed(self) -> Wire:
        factory, attempt = self.attempts.pop(0)
        protocol = factory.buildProtocol(None)
        wire = Wire(protocol)
        self.wires.append(wire)
        attempt.callback(protocol)
        return wire

    def fail(self, error: Exception) -> None:
        self.attempts.pop(0)[1].errback(error)


class Answer:
    """A receiver that notes everything."""

    def __init__(self) -> None:
        self.informational: list[int] = []
        self.head: ResponseHead | None = None
        self.body = b""
        self.trailers: list[bytes] = []
        self.failures: list[Exception] = []
        self.on_start: Callable[[], None] = lambda: None

    @property
    def status(self) -> int:
        assert self.head is not None
        return self.head.status

    def response_informational(self, head: ResponseHead) -> None:
        self.informational.append(head.status)

    def response_started(self, head: ResponseHead) -> None:
        self.head = head
        self.on_start()

    def response_data(self, data: bytes) -> None:
        self.body += data

    def response_finished(self, trailers: bytes) -> None:
        self.trailers.append(trailers)

    def response_failed(self, reason: Exception) -> None:
        self.failures.append(reason)


HELLO = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"


class PoolCase(SynchronousTestCase):
    """One pool on an endpoint of the test."""

    limits = UpstreamLimits()

    def setUp(self) -> None:
        self.clock = Clock()
        self.endpoint = Endpoint()
        self.pool = UpstreamPool(lambda: self.endpoint, self.clock, limits=self.limits)

    @property
    def wire(self) -> Wire:
        return self.endpoint.wires[-1]

    def send(
        self, method: bytes = b"GET", **rest: Any
    ) -> tuple[Answer, UpstreamRequest]:
        answer = Answer()
        request = self.pool.request(method, b"/x?y", b"\r\nHost: a", answer, **rest)
        return answer, request

    def turn(self) -> bytes:
        self.clock.advance(0)
        return self.wire.taken()

    def assert_empty(self) -> None:
        """Nothing is left of any request."""
        self.assertEqual(self.pool.connections, set())
        self.assertEqual(
            (
                self.pool.idle_count,
                self.pool.waiting_count,
                self.pool.connecting_count,
            ),
            (0, 0, 0),
        )


class PoolTests(PoolCase):
    """Requests, answers, and the connections between."""

    def test_get(self) -> None:
        """One write out, the answer in, the connection kept."""
        answer, _ = self.send()
        self.assertEqual(self.wire.taken(), b"GET /x?y HTTP/1.1\r\nHost: a\r\n\r\n")
        self.wire.receive(HELLO)
        self.assertEqual((answer.body, answer.trailers), (b"hello", [b""]))
        self.assertEqual(self.pool.idle_count, 1)
        self.send()
        self.assertEqual(len(self.endpoint.wires), 1)

    def test_cut_at_every_offset(self) -> None:
        """All kinds of answers, wherever the network cuts them."""
        for method, whole, body, trailers in (
            (b"GET", HELLO, b"hello", b""),
            (
                b"GET",
                b"HTTP/1.1 103 Early Hints\r\nA: b\r\n\r\n"
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
                b"2\r\nhe\r\n3\r\nllo\r\n0\r\nX: y\r\n\r\n",
                b"hello",
                b"\r\nX: y",
            ),
            (b"HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", b"", b""),
            (
                b"GET",
                b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n",
                b"",
                b"",
            ),
            (b"GET", b"HTTP/1.1 204 No Content\r\n\r\n", b"", b""),
            (b"GET", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", b"", b""),
        ):
            for cut in range(1, len(whole)):
                answer, _ = self.send(method)
                self.wire.receive(whole[:cut], whole[cut:])
                self.assertEqual(answer.body, body, (whole, cut))
                self.assertEqual(answer.trailers, [trailers], (whole, cut))
        self.assertEqual(len(self.endpoint.wires), 1)

    def test_until_close(self) -> None:
        """A clean end completes it, a broken one does not."""
        for clean in (True, False):
            answer, _ = self.send()
            self.wire.receive(b"HTTP/1.0 200 OK\r\n\r\nabc")
            self.wire.lose(clean)
            self.assertEqual(answer.body, b"abc")
            self.assertEqual(answer.trailers, [b""] if clean else [])
            self.assertEqual(len(answer.failures), 0 if clean else 1)
        self.assert_empty()

    def test_truncated(self) -> None:
        """Less than promised is a failure, however clean the end."""
        for head in (
            b"Content-Length: 9\r\n\r\nabc",
            b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
        ):
            answer, _ = self.send()
            self.wire.receive(b"HTTP/1.1 200 OK\r\n" + head)
            self.wire.receive_end()
            self.wire.settle()
            self.assertEqual((answer.body, answer.trailers), (b"abc", []))
            self.assertEqual(len(answer.failures), 1)
        self.assert_empty()

    def test_not_kept(self) -> None:
        """Connection: close and HTTP/1.0 are believed."""
        for head in (
            b"HTTP/1.1 200 OK\r\nConnection: close\r\n",
            b"HTTP/1.0 200 OK\r\n",
        ):
            answer, _ = self.send()
            self.wire.receive(head + b"Content-Length: 2\r\n\r\nhi")
            self.assertEqual(answer.trailers, [b""])
            self.assertTrue(self.wire.disconnecting)
            self.assertEqual(self.pool.idle_count, 0)

    def test_gzip_is_not_touched(self) -> None:
        """The body is the client's."""
        answer, _ = self.send()
        self.wire.receive(
            b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\n"
            b"\x1f\x8b\x08\x00"
        )
        self.assertEqual(answer.body, b"\x1f\x8b\x08\x00")
        assert answer.head is not None
        self.assertIn(b"Content-Encoding: gzip", answer.head.fields)

    def test_redirect_is_not_followed(self) -> None:
        """P05: wherever it points, it goes to the client."""
        answer, _ = self.send()
        self.wire.receive(
            b"HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/\r\n"
            b"Content-Length: 0\r\n\r\n"
        )
        self.assertEqual(answer.status, 302)
        self.assertEqual(len(self.endpoint.wires), 1)
        self.assertEqual(self.turn().count(b"HTTP/1.1"), 1)

    def test_sized_body(self) -> None:
        """Head and first bytes leave together; the length is kept to."""
        _, request = self.send(b"PUT", length=5)
        request.write(b"hel")
        request.write(b"lo")
        request.finish()
        self.assertEqual(
            self.wire.taken(),
            b"PUT /x?y HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
        )
        self.assertEqual(self.wire.writes, 1)

    def test_wrong_body_length(self) -> None:
        """What the origin would read as a second request is never sent."""
        for body in (b"hello, ", b"hel"):
            answer, request = self.send(b"PUT", length=5)
            request.write(body)
            request.finish()
            self.assertEqual(len(answer.failures), 1)
            self.assertTrue(self.wire.aborted)
            self.wire.settle()
        self.assert_empty()

    def test_chunked_body(self) -> None:
        """Of unknown length, with trailers, and Expect."""
        answer, request = self.send(b"POST", length=CHUNKED, expect_continue=True)
        self.assertIn(b"Expect: 100-continue\r\n", self.turn())
        self.wire.receive(b"HTTP/1.1 100 Continue\r\n\r\n")
        self.assertEqual(answer.informational, [100])
        request.write(b"hello")
        self.assertEqual(self.turn(), b"5\r\nhello\r\n")
        request.finish(b"\r\nA: b")
        self.assertEqual(self.turn(), b"0\r\nA: b\r\n\r\n")
        self.wire.receive(HELLO)
        self.assertEqual(self.pool.idle_count, 1)

    def test_early_answer(self) -> None:
        """An answer before the body's end spoils the connection only."""
        answer, request = self.send(b"POST", length=10)
        request.write(b"abc")
        self.wire.receive(HELLO)
        self.assertEqual(answer.body, b"hello")
        self.assertTrue(self.wire.disconnecting)
        request.write(b"more")
        request.finish()
        self.assertEqual((self.pool.idle_count, answer.failures), (0, []))

    def test_body_before_the_connection(self) -> None:
        """What came early waits, and its producer waits with it."""
        self.endpoint.at_once = False
        _, request = self.send(b"PUT", length=5)
        calls: list[str] = []
        request.registerProducer(_producer(calls), True)
        self.assertEqual(calls, ["pause"])
        request.write(b"hel")
        wire = self.endpoint.succeed()
        self.assertEqual(calls, ["pause", "resume"])
        request.write(b"lo")
        self.clock.advance(0)
        self.assertIsNotNone(wire.producer)
        request.finish()
        self.assertIsNone(wire.producer)
        self.assertTrue(wire.taken().endswith(b"\r\n\r\nhello"))

    def test_paused_answer(self) -> None:
        """A receiver that stops stops the origin, and loses nothing."""
        answer, request = self.send()
        request.pauseProducing()
        self.assertEqual(self.wire.producerState, "paused")
        self.wire.receive(HELLO)
        self.assertIsNone(answer.head)
        request.resumeProducing()
        self.assertEqual(answer.body, b"hello")

    def test_paused_when_the_origin_leaves(self) -> None:
        """Bytes that were read are delivered before the end is told."""
        answer, request = self.send()
        answer.on_start = request.pauseProducing
        self.wire.receive(b"HTTP/1.0 200 OK\r\n\r\nabc")
        self.assertEqual(answer.body, b"")
        self.wire.lose()
        self.assertEqual((answer.body, answer.trailers), (b"abc", [b""]))

    def test_abort_at_every_phase(self) -> None:
        """10,000 aborted requests leave nothing behind."""
        for number in range(10_000):
            phase = number % 6
            self.endpoint.at_once = phase != 0
            answer, request = self.send(b"POST", length=10)
            if phase >= 2:
                request.write(b"abc")
            if phase >= 3:
                self.wire.receive(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200")
            if phase >= 4:
                self.wire.receive(b" OK\r\nContent-Length: 10\r\n\r\nabc")
            if phase == 5:
                request.write(b"defghij")
                request.finish()
            request.abort()
            request.abort()
            request.write(b"x")
            request.finish()
            self.assertEqual((answer.trailers, answer.failures), ([], []))
            if phase:
                self.assertTrue(self.wire.aborted)
                self.wire.settle()
            self.endpoint.wires.clear()
        self.assert_empty()
        self.assertEqual(self.endpoint.attempts, [])
        self.clock.pump([1.0] * 3)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_receiver_fails(self) -> None:
        """A bug in one receiver ends its request, and nothing else."""
        answer, _ = self.send()

        def fail() -> None:
            raise RuntimeError("bug")

        answer.on_start = fail
        self.wire.receive(HELLO)
        self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 1)
        self.assertEqual(len(answer.failures), 1)
        self.assertTrue(self.wire.aborted)

    def test_close(self) -> None:
        """Everything fails, and later requests as well."""
        busy, _ = self.send()
        self.endpoint.at_once = False
        waiting, _ = self.send()
        self.pool.close()
        self.wire.settle()
        late, _ = self.send()
        for answer in (busy, waiting, late):
            self.assertEqual(len(answer.failures), 1)
        self.assert_empty()


class RetryTests(PoolCase):
    """A kept connection that was dead already."""

    def keep_one(self) -> Wire:
        self.send()
        self.wire.receive(HELLO)
        self.wire.taken()
        return self.wire

    def test_get_is_sent_again(self) -> None:
        """On a new connection, unseen by the receiver."""
        old = self.keep_one()
        answer, _ = self.send()
        self.assertIn(b"GET /x", old.taken())
        old.lose(clean=False)
        self.assertIsNot(self.wire, old)
        self.assertIn(b"GET /x", self.wire.taken())
        self.wire.receive(HELLO)
        self.assertEqual((answer.body, answer.failures), (b"hello", []))

    def test_not_sent_again(self) -> None:
        """Nothing that could be done twice, nor after a byte of the answer."""
        for case in ("POST", "body", "partial", "fresh"):
            if case != "fresh":
                self.keep_one()
            method = b"POST" if case == "POST" else b"GET"
            answer, request = self.send(method, length=3 if case == "body" else 0)
            if case == "body":
                request.write(b"abc")
                request.finish()
            if case == "partial":
                self.wire.receive(b"H")
            wire = self.wire
            wire.lose(clean=False)
            self.assertIs(self.wire, wire, case)
            self.assertEqual(len(answer.failures), 1, case)
        self.assert_empty()

    def test_all_kept_ones_are_dead(self) -> None:
        """After a restart of the origin one request goes through them, boundedly."""
        answers = [self.send()[0] for _ in range(10)]
        for wire in list(self.endpoint.wires):
            wire.receive(HELLO)
        self.assertEqual(self.pool.idle_count, 10)
        answer, _ = self.send()
        self.endpoint.at_once = False
        for wire in reversed(list(self.endpoint.wires)):
            wire.lose()
        self.endpoint.succeed().receive(HELLO)
        self.assertEqual((answer.body, answer.failures), (b"hello", []))
        self.assertTrue(all(each.body == b"hello" for each in answers))

    def test_closed_while_idle(self) -> None:
        """A connection that the origin closed is not used, seen or unseen."""
        self.keep_one().receive_end()
        answer, _ = self.send()
        self.assertEqual(len(self.endpoint.wires), 2)
        self.wire.receive(HELLO)
        self.assertEqual(answer.body, b"hello")


class HostileOriginTests(PoolCase):
    """What an origin cannot do to us or to the next client."""

    def test_broken_answers(self) -> None:
        """P06: ambiguous answers fail, and their connection goes."""
        for data in (
            b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nA: b\rSet-Cookie: c\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nA: b\nSet-Cookie: c\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
            b"garbage\r\n\r\n",
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n"
            b"Connection: upgrade\r\n\r\n",
            b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 300 + b"\r\n",
            b"HTTP/1.1 200 OK\r\nA: " + b"x" * 70000,
            b"HTTP/1.1 200 OK\r\nA: " + b"x" * 70000 + b"\r\n\r\n",
            b"HTTP/1.1 103 x\r\n\r\n" * 21,
        ):
            answer, _ = self.send()
            self.wire.receive(data)
            self.assertEqual(len(answer.failures), 1, data[:60])
            self.assertIsInstance(answer.failures[0], UpstreamError)
            self.assertTrue(self.wire.aborted, data[:60])
            self.wire.settle()
        self.assert_empty()

    def test_surplus_is_not_the_next_answer(self) -> None:
        """Bytes behind an answer poison nobody."""
        for whole in (
            HELLO,
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
            b"5\r\nhello\r\n0\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        ):
            first, _ = self.send()
            waiting = self.wire
            waiting.receive(whole + b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")
            self.assertEqual(first.trailers, [b""])
            self.assertTrue(waiting.disconnecting)
            second, _ = self.send()
            self.assertIsNot(self.wire, waiting)
            self.wire.receive(HELLO)
            self.assertEqual(second.body, b"hello")
            self.pool.close()
            self.setUp()

    def test_surplus_while_another_waits(self) -> None:
        """Not even when a request takes the connection over at once."""
        self.pool.limits = UpstreamLimits(max_connections=1)
        self.send()
        second, _ = self.send()
        self.wire.receive(HELLO + b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")
        self.assertIsNone(second.head)
        self.wire.settle()
        self.wire.receive(HELLO)
        self.assertEqual(second.body, b"hello")

    def test_speaks_unasked(self) -> None:
        """An idle connection that sends anything is dropped."""
        self.send()
        self.wire.receive(HELLO)
        self.wire.receive(b"HTTP/1.1 200 OK\r\n")
        self.assertTrue(self.wire.aborted)
        self.send()
        self.assertEqual(len(self.endpoint.wires), 2)


SWITCH = (
    b"HTTP/1.1 101 Switching Protocols\r\n"
    b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
)


class UpgradeTests(PoolCase):
    """Connections that change protocol."""

    def upgrade(self) -> tuple[Answer, UpstreamRequest]:
        return self.send(upgrade=b"websocket")

    def test_raw_both_ways(self) -> None:
        """Early bytes of the origin, cut at every offset, and half-closes."""
        whole = SWITCH + b"first"
        for cut in range(1, len(whole)):
            answer, request = self.upgrade()
            self.assertIn(
                b"Connection: Upgrade\r\nUpgrade: websocket\r\n", self.wire.taken()
            )
            self.wire.receive(whole[:cut], whole[cut:])
            self.assertEqual((answer.status, answer.body), (101, b"first"), cut)
            request.write(b"out")
            self.assertEqual(self.turn(), b"out")
            self.wire.receive_end()
            self.assertEqual(answer.trailers, [b""])
            self.assertFalse(self.wire.disconnecting)
            request.finish()
            self.assertTrue(self.wire.disconnecting)
            self.wire.settle()
            self.assertEqual(answer.failures, [])
        self.assert_empty()

    def test_our_half_first(self) -> None:
        """The origin may go on after we finished."""
        answer, request = self.upgrade()
        self.wire.receive(SWITCH)
        request.finish()
        self.assertTrue(self.wire.half_closed)
        self.wire.receive(b"more")
        self.wire.receive_end()
        self.assertEqual((answer.body, answer.trailers), (b"more", [b""]))
        self.assertTrue(self.wire.disconnecting)

    def test_connection_of_its_own(self) -> None:
        """Neither from the pool, nor ever back."""
        self.send()
        self.wire.receive(HELLO)
        self.upgrade()
        self.assertEqual(len(self.endpoint.wires), 2)
        self.wire.receive(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
        self.assertTrue(self.wire.disconnecting, "a refused one is closed")
        self.assertEqual(self.pool.idle_count, 1)

    def test_refused(self) -> None:
        """P03: 200, 302 and 403 are plain answers; no pipe."""
        for status in (b"200 OK", b"302 Found", b"403 Forbidden"):
            answer, request = self.upgrade()
            self.wire.taken()
            self.wire.receive(
                b"HTTP/1.1 " + status + b"\r\nContent-Length: 2\r\n\r\nno"
            )
            request.write(b"GET /secret HTTP/1.1\r\n\r\n")
            self.assertEqual(self.turn(), b"")
            self.assertEqual((answer.body, answer.trailers), (b"no", [b""]))

    def test_another_protocol(self) -> None:
        """An origin that switches to something else is not followed."""
        answer, _ = self.upgrade()
        self.wire.receive(SWITCH.replace(b"websocket", b"h2c"))
        self.assertEqual(len(answer.failures), 1)

    def test_broken(self) -> None:
        """A break after our half is told, too."""
        answer, request = self.upgrade()
        self.wire.receive(SWITCH)
        request.finish()
        self.wire.lose(clean=False)
        self.assertEqual(len(answer.failures), 1)
        self.assert_empty()

    def test_broken_after_the_end(self) -> None:
        """
        The answer was read to its end, and is complete.

        An origin that is done closes while we still send, and its kernel resets.
        """
        answer, request = self.upgrade()
        self.wire.receive(SWITCH + b"all of it")
        self.wire.receive_end()
        request.write(b"a ping")
        self.wire.lose(clean=False)
        self.assertEqual((answer.body, answer.trailers), (b"all of it", [b""]))
        self.assertEqual(answer.failures, [])
        request.write(b"another")
        request.finish()
        self.assert_empty()

    def test_half_closed_for_ever(self) -> None:
        """Nobody holds a connection with nothing but one half of it."""
        answer, request = self.upgrade()
        self.wire.receive(SWITCH)
        self.clock.pump([1.0] * 7200)
        self.assertFalse(self.wire.aborted)
        self.wire.receive_end()
        self.clock.pump([1.0] * 50)
        request.write(b"x")
        self.clock.pump([1.0] * 50)
        self.assertFalse(self.wire.aborted)
        self.clock.pump([1.0] * 12)
        self.assertTrue(self.wire.aborted)
        self.assertEqual(answer.failures, [], "the answer itself is whole")
        self.wire.settle()
        self.assert_empty()

    def test_our_half_closed_for_ever(self) -> None:
        """An origin that never ends after we did."""
        answer, request = self.upgrade()
        self.wire.receive(SWITCH)
        request.finish()
        self.clock.pump([1.0] * 62)
        self.assertTrue(self.wire.aborted)
        self.assertEqual(len(answer.failures), 1)


class LimitTests(PoolCase):
    """`UpstreamLimits`, each exceeded."""

    limits = UpstreamLimits(max_connections=2, max_idle=1, max_waiting=2)

    def test_waiting(self) -> None:
        """Beyond the connections requests wait, beyond the waiting they fail."""
        answers = [self.send()[0] for _ in range(5)]
        self.assertEqual(len(self.endpoint.wires), 2)
        self.assertEqual(len(answers[4].failures), 1)
        self.assertEqual(_status(answers[4]), 503)
        self.endpoint.wires[0].receive(HELLO)
        self.assertEqual(answers[0].body, b"hello")
        self.endpoint.wires[0].receive(HELLO)
        self.assertEqual(answers[2].body, b"hello", "first come, first served")

    def test_waiting_too_long(self) -> None:
        """A place that does not get free in half a minute is 503."""
        answers = [self.send()[0] for _ in range(3)]
        self.clock.pump([1.0] * 29)
        self.assertEqual(answers[2].failures, [])
        self.clock.pump([1.0] * 2)
        self.assertEqual(_status(answers[2]), 503)
        self.assertEqual(answers[0].failures, [])

    def test_waiting_request_gets_the_place_of_a_lost_one(self) -> None:
        """A connection that breaks makes room."""
        self.send()
        self.send()
        third, _ = self.send()
        self.endpoint.wires[0].lose()
        self.assertEqual(len(self.endpoint.wires), 3)
        self.wire.receive(HELLO)
        self.assertEqual(third.body, b"hello")

    def test_idle(self) -> None:
        """No more than allowed are kept, and those not for ever."""
        self.send()
        self.send()
        for wire in self.endpoint.wires:
            wire.receive(HELLO)
        self.assertEqual(self.pool.idle_count, 1)
        self.assertEqual([w.disconnecting for w in self.endpoint.wires], [False, True])
        self.clock.pump([1.0] * 46)
        self.assertTrue(self.endpoint.wires[0].disconnecting)
        self.send()
        self.assertEqual(self.endpoint.wires[0].taken().count(b"GET"), 1)

    def test_upgrade_takes_an_idle_place(self) -> None:
        """A kept connection never keeps an exec out."""
        self.send()
        self.send()
        self.endpoint.wires[0].receive(HELLO)
        answer, _ = self.send(upgrade=b"websocket")
        self.assertTrue(self.endpoint.wires[0].disconnecting)
        self.endpoint.wires[0].settle()
        self.wire.receive(SWITCH)
        self.assertEqual(answer.status, 101)

    def test_connecting_fails(self) -> None:
        """One refused attempt fails one request."""
        self.endpoint.at_once = False
        first, _ = self.send()
        second, _ = self.send()
        self.endpoint.fail(ConnectionRefusedError())
        self.assertEqual((len(first.failures), second.failures), (1, []))
        self.assertEqual(_status(first), 502)
        self.endpoint.succeed().receive(HELLO)
        self.assertEqual(second.body, b"hello")

    def test_one_of_two_leaves(self) -> None:
        """
        Its attempt is cancelled, and whatever that ends with is nobody else's.

        Twisted's endpoints by name fail a cancelled lookup with `DNSLookupError`.
        """
        self.endpoint.at_once = False
        self.endpoint.on_cancel = DNSLookupError("cancelled")
        for leaves in (0, 1):
            pair = [self.send(), self.send()]
            pair[leaves][1].abort()
            self.assertEqual(self.pool.connecting_count, 1)
            self.assertEqual(self.endpoint.cancelled, leaves + 1)
            (stays, _) = pair[1 - leaves]
            self.assertEqual(stays.failures, [])
            wire = self.endpoint.succeed()
            wire.receive(HELLO)
            self.assertEqual(stays.body, b"hello")
            wire.lose()
        self.assert_empty()

    def test_connecting_takes_too_long(self) -> None:
        """504 after ten seconds."""
        self.endpoint.at_once = False
        answer, _ = self.send()
        self.clock.pump([1.0] * 11)
        self.assertEqual(_status(answer), 504)
        self.assertEqual(self.endpoint.cancelled, 1)
        self.assert_empty()

    def test_endpoint_cannot_be_made(self) -> None:
        """Say, a certificate that does not load."""

        def broken() -> IStreamClientEndpoint:
            raise OSError("no such file: ca.crt")

        pool = UpstreamPool(broken, self.clock)
        answer = Answer()
        pool.request(b"GET", b"/", b"", answer)
        self.assertIn("no such file", str(answer.failures[0]))


class ManyTests(PoolCase):
    """Lesson 43."""

    def test_two_thousand_watches(self) -> None:
        """Each has a connection of its own, and a plain GET still gets through."""
        answers = [self.send()[0] for _ in range(2000)]
        wires = list(self.endpoint.wires)
        for wire in wires:
            wire.receive(
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nnew\r\n"
            )
        self.assertTrue(all(answer.body == b"new" for answer in answers))
        plain, _ = self.send()
        self.wire.receive(HELLO)
        self.assertEqual(plain.body, b"hello")
        self.assertLessEqual(len(self.clock.getDelayedCalls()), 1)


def _status(answer: Answer) -> int:
    (error,) = answer.failures
    assert isinstance(error, UpstreamError)
    return error.status


def _producer(calls: list[str]) -> Any:
    class Producer:
        def pauseProducing(self) -> None:
            calls.append("pause")

        def resumeProducing(self) -> None:
            calls.append("resume")

        def stopProducing(self) -> None:
            calls.append("stop")

    return Producer()
