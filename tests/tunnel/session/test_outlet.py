"""What leaves a tunnel, and how much of it at once."""

from __future__ import annotations

from typing import Any

import attrs
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.tunnel.session.streams import StreamTestCase
from tunnel.pb import tunnel_pb2 as pb
from tunnel.session import outlet
from tunnel.session.keepalive import Keepalive, Timing
from tunnel.session.outlet import FIRST, PORTION, QUICK, SLOW
from tunnel.session.protocol import TunnelProtocol
from tunnel.testing import Pipe, RecordingReceiver, connected
from tunnel.testing.ends import End
from tunnel.transport.kernel_buffers import UNSENT
from tunnel.util.flusher import Flusher
from tunnel.wire.limits import DEFAULT_LIMITS, KIB, SLICE
from tunnel.wire.session import Session


@attrs.define(eq=False)
class PullProducer:
    """Writes one piece each time it is asked."""

    consumer: Any
    left: int

    def resumeProducing(self) -> None:
        self.left -= 1
        self.consumer.write(b"x" * 4096)
        if not self.left:
            self.consumer.unregisterProducer()

    def stopProducing(self) -> None:
        pass


class OutletTests(StreamTestCase):
    def written(self, *blocked: float) -> list[int]:
        """KiB of each write, to a socket that takes no more for so long after each."""
        stream, _, _ = self.open()
        tunnel = self.kas.tunnel
        sizes: list[int] = []
        assert tunnel.transport is not None
        write = tunnel.transport.write

        def noted(data: bytes) -> None:
            sizes.append(len(data) // KIB)
            write(data)
            if blocked:
                tunnel.outlet.pauseProducing()

        self.patch(tunnel.transport, "write", noted)
        stream.write(bytes(200 * KIB))
        self.clock.advance(0)
        for seconds in blocked:
            self.clock.advance(seconds)
            tunnel.outlet.resumeProducing()
        return sizes

    def test_portions_follow_the_path(self) -> None:
        """A slow socket gets little at once: what comes later stands behind it."""
        least = SLICE // KIB
        self.assertEqual(
            self.written(*[2 * PORTION] * 3, *[PORTION / 2] * 2),
            [FIRST // KIB, least, least, least, 2 * least, 4 * least],
        )

    def test_portions_grow_on_a_fast_path(self) -> None:
        """It is not known before the first writes that it is one."""
        first = FIRST // KIB
        self.assertEqual(self.written()[:2], [first, 2 * first])

    def test_slow_path(self) -> None:
        """The kernel holds one small portion, until several in turn left at once."""
        bounds: list[int] = []
        self.patch(outlet, "bound_unsent", lambda transport, size: bounds.append(size))
        one = self.kas.tunnel.outlet

        def blocked(seconds: float, times: int) -> None:
            for _ in range(times):
                one.pauseProducing()
                self.clock.advance(seconds)
                one.resumeProducing()

        blocked(SLOW / 2, QUICK - 1)
        blocked(2 * SLOW, 1)
        blocked(SLOW / 2, QUICK - 1)
        self.assertEqual(bounds, [])
        blocked(SLOW / 2, 1)
        self.assertEqual(bounds, [UNSENT])
        blocked(2 * SLOW, 2)
        self.assertEqual(bounds, [UNSENT, SLICE])

    def test_pull_producer(self) -> None:
        """One that gives a piece at a time is asked until it is done."""
        stream, _, accepted = self.open()
        producer = PullProducer(stream, 300)
        stream.registerProducer(producer, False)
        self.pipe.flush()
        self.assertEqual(len(accepted.data), 300 * 4096)


class BackPressureTests(SynchronousTestCase):
    """A connection that takes nothing."""

    def test_session_keeps_what_the_socket_does_not_take(self) -> None:
        """One flush at most is handed over, and control frames are first after it."""
        clock = Clock()
        agent, kas, pipe = connected(clock, capacity=10_000)
        agent.dispatcher.handle_stream(
            "tests", "/s/M", lambda stream, open_: RecordingReceiver()
        )
        stream = kas.open_stream("/s/M", RecordingReceiver())
        pipe.flush()
        transport: Any = kas.tunnel.transport
        pipe.cut = True
        for _ in range(40):
            stream.write(b"x" * 6_000)
            clock.advance(0)
        self.assertLess(len(transport.buffer), 20_000)
        pipe.cut = False
        pipe.flush()
        self.assertEqual(agent.tunnel.session.buffered, 0)

    def test_one_flush_for_a_turn(self) -> None:
        """However many streams have written."""
        clock = Clock()
        writes: list[bytes] = []
        flusher = Flusher(clock)
        tunnel = TunnelProtocol(
            Session(dialler=False),
            End(clock, dialler=False, limits=DEFAULT_LIMITS),
            clock=clock,
            flusher=flusher,
            keepalive=Keepalive(clock),
            timing=Timing(),
        )
        dialler = End(clock, dialler=True, limits=DEFAULT_LIMITS)
        pipe = Pipe(clock, dialler.tunnel, tunnel)
        dialler.tunnel.hello(pb.Hello())
        pipe.flush()
        transport: Any = tunnel.transport
        transport.write = writes.append
        for _ in range(50):
            tunnel.open_stream(pb.Open(method="/s/M"), RecordingReceiver(), fin=True)
        self.assertEqual(writes, [])
        pipe.flush()
        self.assertEqual(len(writes), 1)
