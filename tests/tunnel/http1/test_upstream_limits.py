"""The client side: what waits, what is kept, and for how long."""

from __future__ import annotations

from twisted.internet.error import ConnectionRefusedError, DNSLookupError
from twisted.internet.interfaces import IStreamClientEndpoint

from tests.tunnel.http1.pools import HELLO, SWITCH, Answer, PoolCase, status_of
from tunnel.http1 import UpstreamLimits, UpstreamPool


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
