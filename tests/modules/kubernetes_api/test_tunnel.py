"""Both halves over a real tunnel in memory: frames, credit, resets."""

from __future__ import annotations

from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from modules.kubernetes_api.agent import KubernetesApiAgent
from modules.kubernetes_api.server import KubernetesApiServer
from tests.modules.kubernetes_api.cases import CHUNKED, EXEC, HELLO, SWITCH
from tests.modules.kubernetes_api.pair import ALICE, Cluster
from tests.tunnel.http1.wire import Wire
from tunnel.testing import ModulePair

CREDENTIAL = b"Host: a\r\nAuthorization: Bearer user:1:alice\r\n"


class TunnelTests(SynchronousTestCase):
    """The module with the streams it was made for."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.pair = ModulePair(self.clock, cluster=Cluster())
        self.agent = self.pair.agent_half(KubernetesApiAgent)
        self.server = self.pair.server_half(KubernetesApiServer)
        self.server.api.users.tokens = {"alice": ALICE}
        self.pair.start()

    def run_all(self) -> None:
        for _ in range(50):
            self.clock.advance(0)
            self.pair.pipe.flush()

    def client(self, data: bytes) -> Wire:
        wire = Wire(self.server.front.buildProtocol(None))
        wire.receive(data)
        self.run_all()
        return wire

    @property
    def origin(self) -> Wire:
        wire: Wire = self.agent.cluster.connections.wires[-1]
        return wire

    def assert_clean(self) -> None:
        self.run_all()
        self.assertEqual(self.server.metrics.in_flight, 0)
        self.assertEqual(self.agent.metrics.in_flight, 0)
        for end in (self.pair.agent, self.pair.server):
            self.assertEqual(len(end.tunnel._streams), 0)

    def test_get(self) -> None:
        """A request and its answer, three times on the same connections."""
        wire = Wire(self.server.front.buildProtocol(None))
        for _ in range(3):
            wire.receive(b"GET /api?x HTTP/1.1\r\n" + CREDENTIAL + b"\r\n")
            self.run_all()
            self.assertIn(b"GET /api?x HTTP/1.1\r\n", self.origin.taken())
            self.origin.receive(HELLO)
            self.run_all()
            self.assertTrue(wire.taken().endswith(b"\r\n\r\nhello"))
        self.assert_clean()

    def test_large_bodies(self) -> None:
        """4 MiB each way, with a reader that stops half-way."""
        size = 4 * 1024 * 1024
        wire = self.client(
            b"PUT /api HTTP/1.1\r\nContent-Length: %d\r\n" % size + CREDENTIAL + b"\r\n"
        )
        producer = self.origin.producer
        assert producer is not None
        producer.pauseProducing()
        for _ in range(size // 65536):
            wire.receive(b"x" * 65536)
            self.run_all()
        self.assertEqual(wire.producerState, "paused")
        self.origin.taken()
        producer.resumeProducing()
        self.run_all()
        self.assertEqual(len(self.origin.taken()), size)
        self.origin.receive(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
        self.run_all()
        assert wire.producer is not None
        wire.producer.pauseProducing()
        for _ in range(size // 65536):
            self.origin.receive(b"y" * 65536)
            self.run_all()
        self.assertEqual(self.origin.producerState, "paused")
        wire.producer.resumeProducing()
        self.run_all()
        self.assertEqual(wire.taken().count(b"y"), size)
        self.assert_clean()

    def test_exec(self) -> None:
        """Early bytes of both sides, then each half by itself."""
        wire = self.client(b"\r\n".join(EXEC) + b"\r\n" + CREDENTIAL + b"\r\nearly")
        self.origin.taken()
        self.origin.receive(SWITCH + b"first")
        self.run_all()
        self.assertTrue(wire.taken().endswith(b"\r\n\r\nfirst"))
        self.assertEqual(self.origin.taken(), b"early")
        wire.receive_end()
        self.run_all()
        self.assertTrue(self.origin.half_closed)
        self.origin.receive(b"last")
        self.origin.receive_end()
        self.run_all()
        self.assertEqual(wire.taken(), b"last")
        self.assertTrue(wire.disconnecting)
        self.assert_clean()

    def exec(self) -> Wire:
        wire = self.client(b"\r\n".join(EXEC) + b"\r\n" + CREDENTIAL + b"\r\n")
        self.origin.receive(SWITCH)
        self.run_all()
        wire.taken()
        return wire

    def exec_unread(self) -> tuple[Wire, int]:
        """A client that does not read, and how much waits for it."""
        wire = self.exec()
        assert wire.producer is not None
        wire.producer.pauseProducing()
        size = 0
        while self.origin.producerState == "producing":
            self.origin.receive(b"y" * 16384)
            size += 16384
            self.run_all()
        return wire, size

    def assert_reads(self, wire: Wire, size: int) -> None:
        assert wire.producer is not None
        wire.producer.resumeProducing()
        self.run_all()
        self.assertEqual(len(wire.taken()), size)
        self.assertTrue(wire.half_closed)
        wire.receive_end()
        wire.settle()
        self.assert_clean()

    def test_all_of_the_output(self) -> None:
        """It reaches a client that reads long after the API server closed."""
        wire, size = self.exec_unread()
        self.origin.receive_end()
        for _ in range(120):
            self.clock.advance(1)
            self.run_all()
        self.assertTrue(self.origin.aborted, "nobody needs it any more")
        self.assert_reads(wire, size)

    def test_all_of_the_output_with_late_input(self) -> None:
        """An API server that closed answers every byte with a reset."""
        for ended in (True, False):
            wire, size = self.exec_unread()
            if ended:
                self.origin.receive_end()
            wire.receive(b"late")
            self.run_all()
            self.assertEqual(self.origin.taken()[-4:], b"late")
            self.origin.lose(clean=False)
            wire.receive(b"later")
            self.run_all()
            self.assert_reads(wire, size)

    def test_input_that_nobody_takes(self) -> None:
        """It is dropped once the API server is gone, and holds nothing."""
        wire = self.exec()
        origin = self.origin
        assert origin.producer is not None
        origin.producer.pauseProducing()
        for _ in range(10):
            wire.receive(b"x" * 16384)
            self.run_all()
        origin.receive_end()
        origin.lose(clean=False)
        self.run_all()
        self.assertTrue(wire.half_closed)
        wire.receive_end()
        wire.settle()
        self.assert_clean()
        for end in (self.pair.agent, self.pair.server):
            self.assertEqual(end.tunnel.session.open_streams, 0)

    def test_client_leaves(self) -> None:
        """Everything is freed at once, at both ends."""
        wire = self.client(b"GET /watch HTTP/1.1\r\n" + CREDENTIAL + b"\r\n")
        self.origin.receive(CHUNKED + b"1\r\nx\r\n")
        self.run_all()
        wire.lose(clean=False)
        self.run_all()
        self.assertTrue(self.origin.aborted)
        self.assert_clean()

    def test_tunnel_is_lost(self) -> None:
        """502 before the head, a break after it."""
        early = self.client(b"GET /a HTTP/1.1\r\n" + CREDENTIAL + b"\r\n")
        late = self.client(b"GET /b HTTP/1.1\r\n" + CREDENTIAL + b"\r\n")
        self.origin.receive(CHUNKED)
        self.run_all()
        transport: Any = self.pair.server.tunnel.transport
        transport.loseConnection()
        self.run_all()
        self.assertIn(b" 502 ", early.taken())
        self.assertTrue(late.aborted)
        self.assertEqual(self.server.metrics.in_flight, 0)

    def test_heads_of_every_size_near_the_limit(self) -> None:
        """Each is sent on or refused with a 431, and none stays under way."""
        for size in range(59_000, 65_600, 97):
            filler = b"".join(b"X%d: %s\r\n" % (n, b"a" * 8000) for n in range(7))
            rest = b"Y: %s\r\n" % (b"b" * (size - len(filler)))
            wire = self.client(
                b"GET /api HTTP/1.1\r\n" + CREDENTIAL + filler + rest + b"\r\n"
            )
            if wire.value():
                self.assertIn(b" 431 ", wire.value()[:20])
            wire.lose()
        self.assert_clean()

    def test_failure_to_open_ends_the_request(self) -> None:
        """Or it would count against its credential for ever."""

        def fail(*_: Any, **__: Any) -> Any:
            raise ZeroDivisionError("ours")

        self.server.api.calls.open_stream = fail
        wire = self.client(b"GET /api HTTP/1.1\r\n" + CREDENTIAL + b"\r\n")
        self.assertIn(b" 500 ", wire.value()[:20])
        self.assertNotIn(b"ours", wire.value())
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        self.assert_clean()
