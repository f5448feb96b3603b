"""The pool: which connection a request gets, what waits, and for how long."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest
from twisted.internet.error import ConnectionRefusedError, DNSLookupError
from twisted.internet.interfaces import IStreamClientEndpoint
from twisted.internet.task import Clock
from twisted.logger import capturedLogs, formatEvent

from tests.builds import sources_only
from tests.tunnel.http1.pools import (
    HELLO,
    SWITCH,
    Answer,
    Endpoint,
    PoolCase,
    status_of,
)
from tests.tunnel.producers import Producer
from tunnel.http1 import CHUNKED, HttpServerFactory, UpstreamLimits, UpstreamPool


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
        producer = Producer()
        request.registerProducer(producer, True)
        self.assertEqual(producer.told, ["pause"])
        request.write(b"hel")
        wire = self.endpoint.succeed()
        self.assertEqual(producer.told, ["pause", "resume"])
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

    def test_give_up(self) -> None:
        """The requests of one owner fail, whether sent or not; others' go on."""
        mine, _ = self.send()
        theirs, _ = self.send()
        self.endpoint.at_once = False
        my_waiting, _ = self.send()
        their_waiting, _ = self.send()
        owned = (mine, my_waiting)
        self.pool.give_up(lambda receiver: receiver in owned)
        for answer in owned:
            self.assertEqual(status_of(answer), 503)
        for answer in (theirs, their_waiting):
            self.assertEqual(answer.failures, [])
        self.endpoint.wires[1].receive(HELLO)
        self.assertEqual(theirs.body, b"hello")
        self.endpoint.wires[1].receive(HELLO)
        self.assertEqual(their_waiting.body, b"hello")


class LimitTests(PoolCase):
    """`UpstreamLimits`, each exceeded."""

    limits = UpstreamLimits(max_connections=2, max_idle=1, max_waiting=2)

    def test_waiting(self) -> None:
        """Beyond the connections requests wait, beyond the waiting they fail."""
        answers = [self.send()[0] for _ in range(5)]
        self.assertEqual(len(self.endpoint.wires), 2)
        self.assertEqual(len(answers[4].failures), 1)
        self.assertEqual(status_of(answers[4]), 503)
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
        self.assertEqual(status_of(answers[2]), 503)
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
        self.assertEqual(status_of(first), 502)
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
        self.assertEqual(status_of(answer), 504)
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


class FailingAnswer(Answer):
    """A receiver with a bug where its request fails."""

    def response_failed(self, reason: Exception) -> None:
        super().response_failed(reason)
        raise ValueError("bug")


@pytest.mark.parametrize("byte", [b" ", b"\r", b"\n", b"\0", b"\t", b"\x7f"], ids=repr)
def test_a_target_is_one_target(byte: bytes) -> None:
    """No caller can put a second request into the target of the first."""
    endpoint = Endpoint()
    pool = UpstreamPool(lambda: endpoint, Clock())
    with pytest.raises(ValueError, match="not the target"):
        pool.request(b"GET", b"/a" + byte + b"b", b"\r\nHost: x", Answer())
    assert not endpoint.wires


@pytest.mark.parametrize("end", ["close", "give up", "no connection", "too long"])
def test_one_receiver_fails(end: str) -> None:
    """A receiver that fails when its request does keeps no other from being told."""
    clock, endpoint = Clock(), Endpoint()
    endpoint.at_once = False
    pool = UpstreamPool(lambda: endpoint, clock)
    answers = FailingAnswer(), Answer()
    for answer in answers:
        pool.request(b"GET", b"/", b"\r\nHost: a", answer)
    with capturedLogs() as events:
        if end == "close":
            pool.close()
        elif end == "give up":
            pool.give_up(lambda receiver: True)
        elif end == "too long":
            pool._swept(clock.seconds() + pool.limits.waiting_seconds)
        else:
            endpoint.fail(ConnectionRefusedError())
            endpoint.succeed().receive(HELLO)
    second = 0 if end == "no connection" else 1
    assert [len(one.failures) for one in answers] == [1, second]
    assert answers[1].body == (b"" if second else b"hello")
    assert [formatEvent(one) for one in events if "log_failure" in one] == [
        "a receiver failed while handling a failed request"
    ]


@sources_only
@pytest.mark.parametrize("name", ["close_if_idle", "abort"])
def test_one_connection_fails(name: str) -> None:
    """The other connections of a server are closed all the same."""
    calls: list[str] = []
    factory = HttpServerFactory(Mock(), Clock())
    good, bad = Mock(), Mock()
    setattr(bad, name, lambda: 1 / 0)
    setattr(good, name, lambda: calls.append(name))
    connections: Any = [bad, good]
    factory.connections = connections
    with capturedLogs() as events:
        if name == "abort":
            factory.abort_all()
        else:
            factory.drain()
    assert (calls, len(events)) == ([name], 1)
