"""The client side: connections that change protocol."""

from __future__ import annotations

from tests.tunnel.http1.pools import HELLO, SWITCH, Answer, PoolCase
from tunnel.http1 import UpstreamRequest


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
