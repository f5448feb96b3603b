"""A tunnel: what it writes at once, and streams whose last bytes wait."""

from __future__ import annotations

from typing import Any

import attrs
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.tunnel.session.streams import Accepted, StreamTestCase
from tunnel.pb import tunnel_pb2 as pb
from tunnel.session import protocol
from tunnel.session.keepalive import BUDGET_INTERVAL, Keepalive, Timing
from tunnel.session.protocol import FIRST, PORTION, QUICK, SLOW, STUCK, TunnelProtocol
from tunnel.testing import Pipe, RecordingReceiver, connected
from tunnel.testing.ends import End
from tunnel.transport.sockets import UNSENT
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


class WritingTests(StreamTestCase):
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
                tunnel.writer.pauseProducing()

        self.patch(tunnel.transport, "write", noted)
        stream.write(bytes(200 * KIB))
        self.clock.advance(0)
        for seconds in blocked:
            self.clock.advance(seconds)
            tunnel.writer.resumeProducing()
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
        self.patch(
            protocol, "bound_unsent", lambda transport, size: bounds.append(size)
        )
        one = self.kas.tunnel.writer

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


class LeftoverTests(StreamTestCase):
    def leave_behind(self) -> Accepted:
        """A stream that is over here, while the peer does not take its last bytes."""
        stream, receiver, accepted = self.open()
        accepted.stream.pauseProducing()
        stream.write(b"x" * 6 * self.agent.tunnel.session.limits.initial_window)
        stream.finish()
        accepted.stream.finish()
        self.pipe.flush()
        self.assertEqual(receiver.closed, [None])
        self.assertEqual(self.kas.tunnel.session.open_streams, 1)
        return accepted

    def later(self, seconds: float) -> None:
        for _ in range(round(seconds)):
            self.clock.advance(1)
            self.pipe.flush()

    def test_last_bytes_that_nobody_takes(self) -> None:
        """They are not kept for as long as the session lives."""
        accepted = self.leave_behind()
        self.later(BUDGET_INTERVAL * STUCK)
        self.assertEqual(accepted.closed, [])
        self.later(BUDGET_INTERVAL * 2)
        self.assertEqual(len(accepted.closed), 1)
        for end in (self.kas, self.agent):
            self.assertEqual(end.tunnel.session.open_streams, 0)
        self.assertEqual(self.kas.tunnel._leftovers, {})

    def test_last_bytes_that_are_taken_late(self) -> None:
        """While some of them move, so does the rest."""
        accepted = self.leave_behind()
        take = accepted.data_received
        window = self.agent.tunnel.session.limits.initial_window

        def take_some(data: bytes) -> None:
            take(data)
            if len(accepted.data) >= wanted:
                accepted.stream.pauseProducing()

        accepted.data_received = take_some  # type: ignore[method-assign]
        for _ in range(3):
            self.later(BUDGET_INTERVAL * (STUCK - 1))
            wanted = len(accepted.data) + window
            accepted.stream.resumeProducing()
            self.pipe.flush()
        self.assertEqual(self.kas.tunnel.session.open_streams, 1)
        accepted.data_received = take  # type: ignore[method-assign]
        accepted.stream.resumeProducing()
        self.pipe.flush()
        self.assertEqual(accepted.closed, [None])
        self.assertEqual(self.kas.tunnel.session.open_streams, 0)
