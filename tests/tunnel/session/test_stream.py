"""Streams as transports: delivery, back-pressure, and their one end."""

from __future__ import annotations

from typing import Any

import attrs
from twisted.internet.defer import succeed
from twisted.internet.interfaces import IPullProducer, IPushProducer
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from tests.tunnel.asserts import assert_session_ends, assert_stream_reset
from tests.tunnel.session.streams import METHOD, StreamTestCase
from tunnel.api import IStream
from tunnel.errors import ErrorCode
from tunnel.pb import tunnel_pb2 as pb
from tunnel.session.stream import MAX_HELD_FRAMES
from tunnel.testing import RecordingReceiver, connected
from tunnel.wire.limits import KIB, Limits


class StreamTests(StreamTestCase):
    """One stream between two tunnels."""

    def test_request_and_response(self) -> None:
        """Both directions carry header blocks and bytes; both sides end once."""
        _, receiver, accepted = self.open(metadata=b"head", fin=True)
        self.assertEqual(accepted.headers, [b"head"])
        self.assertTrue(accepted.finished)
        accepted.stream.send_headers(b"200")
        accepted.stream.write(b"body")
        accepted.stream.finish()
        self.pipe.flush()
        self.assertEqual((receiver.headers, receiver.data), ([b"200"], b"body"))
        self.assertEqual((receiver.closed, accepted.closed), ([None], [None]))
        self.assertEqual((self.kas.tunnel.load, self.agent.tunnel.load), (0, 0))

    def test_half_close(self) -> None:
        """A side that finished goes on receiving."""
        stream, receiver, accepted = self.open()
        stream.finish()
        self.pipe.flush()
        self.assertTrue(accepted.finished)
        accepted.stream.write(b"late")
        self.pipe.flush()
        self.assertEqual(receiver.data, b"late")
        self.assertEqual(receiver.closed, [])

    def test_reset_is_told_to_both_sides(self) -> None:
        """Each with the code, and with who gave up."""
        stream, receiver, accepted = self.open()
        stream.reset(ErrorCode.CANCELLED, "enough")
        self.pipe.flush()
        for closed, by_peer in (receiver.closed, False), (accepted.closed, True):
            assert_stream_reset(closed, ErrorCode.CANCELLED, "enough", by_peer=by_peer)
        stream.write(b"into the void")
        stream.finish()
        stream.reset()
        self.assertEqual(len(receiver.closed), 1)

    def test_paused_reader_stops_its_writer_and_nobody_else(self) -> None:
        """What is held stays below one window, and another stream goes on."""
        stream, _, slow = self.open()
        _, _, _ = other = self.open()
        slow.stream.pauseProducing()
        producer = Producer(stream, 4_000_000)
        stream.registerProducer(producer, True)
        producer.resumeProducing()
        self.pipe.flush()
        self.assertTrue(producer.paused)
        self.assertEqual(slow.data, b"")
        held = self.agent.tunnel.session.buffered
        self.assertEqual(held, self.agent.tunnel.session.limits.initial_window)
        self.assertLess(producer.sent, held + 200 * KIB)
        other[0].write(b"hello")
        self.pipe.flush()
        self.assertEqual(other[2].data, b"hello")
        slow.stream.resumeProducing()
        self.pipe.flush()
        self.assertEqual(len(slow.data), 4_000_000)
        self.assertEqual(self.agent.tunnel.session.buffered, 0)

    def test_receiver_that_fails_loses_its_stream_alone(self) -> None:
        """The fault is logged and told as INTERNAL, without its text."""
        stream, receiver, accepted = self.open()
        _, _, innocent = other = self.open()

        def fail(data: bytes) -> None:
            raise ZeroDivisionError("secret detail")

        accepted.data_received = fail  # type: ignore[method-assign]
        stream.write(b"x")
        self.pipe.flush()
        text = "the receiver failed"
        assert_stream_reset(receiver.closed, ErrorCode.INTERNAL, text)
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        other[0].write(b"fine")
        self.pipe.flush()
        self.assertEqual(innocent.data, b"fine")

    def test_resumable_that_fails_loses_its_stream_alone(self) -> None:
        """An ACK may let a producer go on, which is not ours."""

        class Failing:
            def acked(self, received: int) -> None:
                raise ZeroDivisionError

        stream, receiver, accepted = self.open()
        other, _, other_accepted = self.open()
        stream.resumable = Failing()
        accepted.stream.ack(1)
        self.pipe.flush()
        self.assertEqual((len(receiver.closed), len(accepted.closed)), (1, 1))
        other.write(b"still here")
        self.pipe.flush()
        self.assertEqual(other_accepted.data, b"still here")
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    def test_producer_that_fails_at_the_end(self) -> None:
        """The receiver is told nevertheless."""

        class Failing:
            def stopProducing(self) -> None:
                raise ZeroDivisionError

        stream, receiver, _ = self.open()
        stream.registerProducer(Failing(), True)
        stream.reset()
        self.assertEqual(len(receiver.closed), 1)
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    def test_receiver_that_fails_at_the_end_is_logged(self) -> None:
        """And the tunnel goes on."""
        stream, receiver, _ = self.open()

        def fail(reason: Exception | None) -> None:
            raise ZeroDivisionError

        receiver.stream_closed = fail  # type: ignore[method-assign]
        stream.reset()
        self.pipe.flush()
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        self.open()

    def test_unknown_method(self) -> None:
        """Is a reset that names it."""
        receiver = RecordingReceiver()
        self.kas.open_stream("/no/Such", receiver)
        self.pipe.flush()
        text = "/no/Such is not served here"
        assert_stream_reset(receiver.closed, ErrorCode.UNKNOWN_METHOD, text)

    def test_accept_that_fails(self) -> None:
        """Is INTERNAL for the caller, and logged."""

        def fail(stream: IStream, open_: Any) -> Any:
            raise ZeroDivisionError

        self.agent.dispatcher.handle_stream("tests", "/tests.Raw/Fail", fail)
        receiver = RecordingReceiver()
        self.kas.open_stream("/tests.Raw/Fail", receiver)
        self.pipe.flush()
        assert_stream_reset(receiver.closed, ErrorCode.INTERNAL)
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    def test_pausing_within_delivery_keeps_order(self) -> None:
        """A receiver may pause and resume while it is being told."""
        stream, _, accepted = self.open()
        seen: list[bytes] = []

        def take(data: bytes) -> None:
            seen.append(data)
            accepted.stream.pauseProducing()

        accepted.data_received = take  # type: ignore[method-assign]
        for number in range(5):
            stream.write(b"%d" % number)
            self.pipe.flush()
        stream.finish()
        self.pipe.flush()
        self.assertEqual(seen, [b"0"])
        while not accepted.finished:
            accepted.stream.resumeProducing()
        self.assertEqual(b"".join(seen), b"01234")

    def test_connection_lost_ends_every_stream(self) -> None:
        """Each side is told why, exactly once."""
        _, receiver, accepted = self.open()
        self.agent.tunnel.end(ErrorCode.SHUTDOWN, "bye")
        self.pipe.flush()
        for closed in (receiver.closed, accepted.closed):
            assert_session_ends(closed, ErrorCode.SHUTDOWN)
        self.assertEqual(len(self.agent.closed), 1)
        self.assertEqual(len(self.kas.closed), 1)

    def test_stream_that_holds_too_much_is_shed(self) -> None:
        """The session's cap takes the largest, and the tunnel lives."""
        self.join(limits=Limits(session_bytes=300 * KIB))
        first, receiver, slow = self.open()
        second, _, slow_too = self.open()
        slow.stream.pauseProducing()
        slow_too.stream.pauseProducing()
        first.write(b"x" * 250 * KIB)
        self.pipe.flush()
        second.write(b"y" * 100 * KIB)
        self.pipe.flush()
        assert_stream_reset(slow.closed, ErrorCode.MEMORY, by_peer=False)
        self.assertEqual(len(receiver.closed), 1)
        slow_too.stream.resumeProducing()
        self.assertEqual(len(slow_too.data), 100 * KIB)

    def test_stream_whose_peer_does_not_read_is_shed(self) -> None:
        """Its receiver and its producer are told, though the socket is full."""
        self.join(limits=Limits(queued_bytes=300 * KIB, queued_high=200 * KIB))
        first, receiver, accepted = self.open()
        second, other, _ = self.open()
        self.kas.tunnel.writer.pauseProducing()
        producer = Producer(first, 0)
        first.registerProducer(producer, True)
        first.write(b"x" * 250 * KIB)
        self.assertTrue(producer.paused)
        second.write(b"y" * 100 * KIB)
        self.assertEqual(receiver.closed, [])
        self.pipe.flush()
        text = "too many bytes waited to be sent"
        assert_stream_reset(receiver.closed, ErrorCode.MEMORY, text, by_peer=False)
        self.assertEqual((producer.stopped, other.closed), (True, []))
        self.kas.tunnel.writer.resumeProducing()
        self.pipe.flush()
        assert_stream_reset(accepted.closed, ErrorCode.MEMORY, text, by_peer=True)

    def test_small_frames_cost_a_paused_reader_little_more_than_bytes(self) -> None:
        """They are joined while they wait, and arrive as they were sent."""
        stream, _, slow = self.open()
        slow.stream.pauseProducing()
        for number in range(20_000):
            stream.write(b"%d" % (number % 10))
            if number % 500 == 0:
                self.pipe.flush()
        stream.finish()
        self.pipe.flush()
        self.assertLess(len(slow.stream._held), 10)
        slow.stream.resumeProducing()
        self.assertEqual(slow.data, b"0123456789" * 2_000)
        self.assertTrue(slow.finished)

    def test_frames_that_cannot_be_joined_are_bounded(self) -> None:
        """The stream that brings more of them is reset, and the tunnel lives."""
        stream, receiver, slow = self.open()
        slow.stream.pauseProducing()
        for number in range(MAX_HELD_FRAMES + 1):
            stream.send_headers(b"x")
            if number % 500 == 0:
                self.pipe.flush()
        self.pipe.flush()
        assert_stream_reset(receiver.closed, ErrorCode.MEMORY)
        self.open()

    def test_loseConnection_drops_what_still_comes(self) -> None:
        """And closes once the other side finished."""
        stream, receiver, accepted = self.open()
        stream.loseConnection()
        accepted.stream.writeSequence([b"too ", b"late"])
        accepted.stream.finish()
        self.pipe.flush()
        self.assertEqual(receiver.data, b"")
        self.assertEqual(receiver.closed, [None])

    def test_nothing_is_left_after_ten_thousand_aborts(self) -> None:
        """At every phase of a stream, by either side."""
        for number in range(2_500):
            stream, _, accepted = self.open()
            if number % 5 == 0:
                stream.reset()
            elif number % 5 == 1:
                accepted.stream.write(b"some")
                stream.reset()
            elif number % 5 == 2:
                stream.write(b"some")
                accepted.stream.reset()
            elif number % 5 == 3:
                accepted.stream.pauseProducing()
                stream.write(b"held")
                self.pipe.flush()
                stream.reset()
            else:
                stream.stopProducing()
            self.pipe.flush()
            self.accepted.clear()
        for end in (self.agent, self.kas):
            self.assertEqual(end.tunnel.load, 0)
            self.assertEqual(end.tunnel.session.open_streams, 0)
            self.assertEqual(end.tunnel.session.buffered, 0)
        # The two sweeps, and nothing else.
        self.assertEqual(len(self.clock.getDelayedCalls()), 2)


@attrs.define(eq=False)
@implementer(IPushProducer)
class Producer:
    """Writes until it is told to pause."""

    consumer: Any
    total: int
    sent: int = 0
    paused: bool = False
    stopped: bool = False

    def resumeProducing(self) -> None:
        self.paused = False
        while not self.paused and self.sent < self.total:
            count = min(16 * KIB, self.total - self.sent)
            self.sent += count
            self.consumer.write(b"x" * count)
        if self.sent == self.total:
            self.consumer.unregisterProducer()

    def pauseProducing(self) -> None:
        self.paused = True

    def stopProducing(self) -> None:
        self.stopped = True


class ProducerEndTests(SynchronousTestCase):
    """What becomes of a producer when its stream ends."""

    def test_producer_is_stopped_with_its_stream(self) -> None:
        """And one that comes too late is stopped at once."""
        agent, kas, _ = connected(Clock())
        agent.dispatcher.handle_stream(
            "tests", METHOD, lambda stream, open_: RecordingReceiver()
        )
        stream = kas.open_stream(METHOD, RecordingReceiver())
        producer = Producer(stream, 10**9)
        stream.registerProducer(producer, True)
        self.assertRaises(RuntimeError, stream.registerProducer, producer, True)
        stream.reset()
        self.assertTrue(producer.stopped)
        late = Producer(stream, 1)
        stream.registerProducer(late, True)
        self.assertTrue(late.stopped)


class Answering(RecordingReceiver):
    """Returns something, as what calls a file or is a coroutine does."""

    def headers_received(self, block: bytes) -> Any:
        super().headers_received(block)
        return succeed(None)

    def data_received(self, data: bytes) -> Any:
        super().data_received(data)
        return len(data)

    def fin_received(self) -> Any:
        super().fin_received()
        return self

    def stream_closed(self, reason: Exception | None) -> Any:
        super().stream_closed(reason)
        return True


class TransportTests(StreamTestCase):
    """What a stream is besides: a transport like any other of Twisted's."""

    def test_what_a_receiver_returns_is_nobodys(self) -> None:
        receiver = Answering()
        self.kas.open_stream(METHOD, receiver).finish()
        self.pipe.flush()
        stream: Any = self.accepted[-1].stream
        stream.send_headers(b"head")
        stream.write(b"one")
        self.pipe.flush()
        stream.write(b" two")
        stream.finish()
        self.pipe.flush()
        self.assertEqual((receiver.headers, receiver.data), ([b"head"], b"one two"))
        self.assertEqual((receiver.finished, receiver.closed), (True, [None]))

    def test_who_is_there(self) -> None:
        stream, _, accepted = self.open()
        tunnel = self.kas.tunnel
        self.assertIs(stream.getPeer(), tunnel.peer_address)
        self.assertIs(stream.getHost(), tunnel.host_address)
        agent: Any = object()
        tunnel.agent = agent
        self.assertIs(stream.agent, agent)
        self.assertIsNone(accepted.stream.agent)

    def test_charge(self) -> None:
        """Its bytes count as the holder's, of which other streams count, too."""
        stream, _, _ = self.open()
        stream.charge("7")
        known = self.kas.tunnel.session._by_id[stream.stream_id]
        self.assertEqual(known.holder, "7")

    def test_sequence_and_last_headers(self) -> None:
        stream, _, accepted = self.open()
        stream.writeSequence([b"a", b"b"])
        stream.send_headers(b"last", fin=True)
        self.pipe.flush()
        self.assertEqual((accepted.data, accepted.headers[1:]), (b"ab", [b"last"]))
        self.assertTrue(accepted.finished)

    def test_nothing_after_the_end(self) -> None:
        """What comes after FIN is dropped, and is no mistake."""
        stream, receiver, accepted = self.open()
        stream.finish()
        stream.write(b"late")
        stream.send_headers(b"late")
        stream.finish()
        self.pipe.flush()
        self.assertEqual((accepted.data, accepted.headers[1:]), (b"", []))
        self.assertEqual((accepted.finished, receiver.closed), (True, []))

    def test_full(self) -> None:
        """A producer that comes while the stream is full waits at once."""
        stream, _, accepted = self.open()
        accepted.stream.pauseProducing()
        self.assertFalse(stream.full)
        stream.write(b"x" * 1024 * KIB)
        self.assertIs(stream.full, True)
        producer = Producer(stream, 1)
        stream.registerProducer(producer, True)
        self.assertTrue(producer.paused)
        accepted.stream.resumeProducing()
        self.pipe.flush()
        self.assertEqual((stream.full, producer.sent), (False, 1))

    def test_pull_producer(self) -> None:
        """One that gives a piece at a time is asked for each, until it leaves."""
        stream, _, accepted = self.open()
        pulled = Pulled(stream, 40)
        stream.registerProducer(pulled, False)
        self.pipe.flush()
        self.assertEqual(len(accepted.data), 40 * 16 * KIB)
        self.assertEqual(pulled.left, 0)
        self.assertEqual(self.kas.tunnel.writer.pulling, {})
        self.assertIsNone(stream._producer)

    def test_pull_producer_waits(self) -> None:
        """... while the other end takes no more."""
        stream, _, accepted = self.open()
        accepted.stream.pauseProducing()
        pulled = Pulled(stream, 400)
        stream.registerProducer(pulled, False)
        self.pipe.flush()
        self.assertTrue(stream.full)
        self.assertGreater(pulled.left, 300)
        accepted.stream.resumeProducing()
        self.pipe.flush()
        self.assertEqual(len(accepted.data), 400 * 16 * KIB)

    def test_ack_of_a_stream_that_is_not_resumable(self) -> None:
        stream, receiver, accepted = self.open()
        accepted.stream.ack(1)
        self.pipe.flush()
        self.assertEqual(receiver.closed, [])
        stream.write(b"fine")
        self.pipe.flush()
        self.assertEqual(accepted.data, b"fine")

    def test_accepts_to_resume(self) -> None:
        """RESUMED says how much came before."""
        told: list[int] = []

        class Resumed:
            def resumed(self, path: Any, received: int) -> None:
                told.append(received)

        resumed: list[Any] = []

        def accept(stream: Any, resume: pb.Resume) -> RecordingReceiver:
            resumed.append(stream)
            stream.accept_resume(42)
            return RecordingReceiver()

        self.agent.stream_resumed = accept  # type: ignore[method-assign]
        resume = pb.Resume(resume_id=b"r" * 16)
        stream: Any = self.kas.tunnel.open_stream(resume, RecordingReceiver())
        stream.resumable = Resumed()
        self.pipe.flush()
        self.assertEqual((told, len(resumed)), ([42], 1))

    def test_gives_up_what_it_held(self) -> None:
        """Credit of bytes that nobody takes any more goes back."""
        stream, _, accepted = self.open()
        accepted.stream.pauseProducing()
        stream.write(b"x" * 1000)
        self.pipe.flush()
        self.assertEqual(self.agent.tunnel.session.buffered, 1000)
        accepted.stream.loseConnection()
        self.pipe.flush()
        self.assertEqual(self.agent.tunnel.session.buffered, 0)
        self.assertEqual(accepted.data, b"")

    def test_delivery_within_delivery(self) -> None:
        """What a receiver causes to arrive comes after what it is being given."""
        stream, _, accepted = self.open()
        order: list[bytes] = []

        def take(data: bytes) -> None:
            if not order:
                accepted.stream.arrived(False, b"two", False)
                accepted.stream.pauseProducing()
                accepted.stream.resumeProducing()
            order.append(bytes(data))

        accepted.data_received = take  # type: ignore[method-assign]
        known = self.agent.tunnel.session._by_id[accepted.stream.stream_id]
        known.window.received(3)
        self.agent.tunnel.session._streams.buffered += 3
        stream.write(b"one")
        self.pipe.flush()
        self.assertEqual(order, [b"one", b"two"])
        self.assertEqual(self.agent.tunnel.session.buffered, 0)


@implementer(IPullProducer)
@attrs.define(eq=False)
class Pulled:
    """Gives one piece whenever it is asked."""

    consumer: Any
    left: int

    def resumeProducing(self) -> None:
        self.left -= 1
        self.consumer.write(b"x" * 16 * KIB)
        if not self.left:
            self.consumer.unregisterProducer()

    def stopProducing(self) -> None:
        self.left = 0
