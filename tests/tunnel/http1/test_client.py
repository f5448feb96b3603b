"""The client side: connections found closed, hostile upstreams, and upgrades."""

from __future__ import annotations

from tests.tunnel.http1.pools import HELLO, SWITCH, Answer, PoolCase
from tests.tunnel.http1.wire import Wire
from tunnel.http1 import UpstreamError, UpstreamLimits, UpstreamRequest


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
