"""The client side: connections that were dead already, and a hostile origin."""

from __future__ import annotations

from tests.tunnel.http1.pools import HELLO, PoolCase
from tests.tunnel.http1.wire import Wire
from tunnel.http1 import UpstreamError, UpstreamLimits


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
