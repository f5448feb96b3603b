"""Streams that survive their path, by themselves, over paths of ours."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from twisted.internet.task import Clock
from twisted.logger import capturedLogs

from tests.tunnel.asserts import assert_session_ends
from tests.tunnel.producers import Producer
from tests.tunnel.session.paths import GRACE, ID, LIMITS, LOST, Path, ResumableTestCase
from tunnel.api import ConnectedAgent
from tunnel.errors import (
    CallError,
    ErrorCode,
    ProtocolError,
    SessionClosed,
    Status,
    StreamReset,
)
from tunnel.pb import tunnel_pb2 as pb
from tunnel.session.resume import Keeper, ResumableStream, ResumeLimits
from tunnel.testing import RecordingReceiver
from tunnel.testing.ends import connected


class WriteTests(ResumableTestCase):
    """Who writes, and when it has to wait."""

    def test_a_path_that_is_full(self) -> None:
        stream, path = self.opener()
        producer = Producer()
        stream.registerProducer(producer, True)
        path.full_changed(True)
        self.assertEqual((stream.full, producer.told[-1]), (True, "pause"))
        path.full_changed(False)
        self.assertEqual((stream.full, producer.told[-1]), (False, "resume"))
        path.full_changed(True)
        late = Producer()
        stream.unregisterProducer()
        stream.registerProducer(late, True)
        self.assertEqual(late.told, ["pause"])
        # A new path begins empty.
        path.receiver.stream_closed(LOST)
        stream.resumed(Path(), 0)  # type: ignore[arg-type]
        self.assertEqual(late.told[-1], "resume")
        # One that is full of what was sent again does not.
        stream.stream_closed(LOST)
        full = Path()
        full.full = True
        stream.resumed(full, 0)  # type: ignore[arg-type]
        self.assertEqual((stream.full, late.told[-1]), (True, "pause"))

    def test_producers_push(self) -> None:
        stream, _ = self.opener()
        with self.assertRaises(ValueError):
            stream.registerProducer(Producer(), False)
        stream.end(None)
        late = Producer()
        stream.registerProducer(late, True)
        self.assertEqual(late.told, ["stop"])

    def test_nothing_after_the_end(self) -> None:
        stream, path = self.opener()
        stream.send_headers(b"head", fin=True)
        for late in (stream.finish, lambda: stream.write(b"x")):
            late()
        stream.send_headers(b"x")
        self.assertEqual(path.told, [("headers", b"head"), "fin"])
        self.assertFalse(stream.closed)
        stream.end(None)
        self.assertTrue(stream.closed)
        stream.end(None)
        stream.write(b"x")
        self.assertEqual(self.receiver.closed, [None])
        self.assert_nothing_left()

    def test_a_producer_that_goes_on_at_once(self) -> None:
        """What it gives while the stream goes on comes after what was kept, once."""
        keeper = self.keeper
        path: Any = Path()
        made: list[Any] = []

        def accept(stream: Any, open_: pb.Open) -> RecordingReceiver:
            made.append(stream)
            return RecordingReceiver()

        keeper.accept(path, pb.Open(resume_id=ID), accept)
        (stream,) = made
        left = [bytes([65 + number]) * 60 for number in range(4)]

        class Chunks(Producer):
            def resumeProducing(self) -> None:
                super().resumeProducing()
                while left and not stream.full:
                    stream.write(left.pop(0))

        producer = Chunks()
        stream.registerProducer(producer, True)
        producer.resumeProducing()
        self.assertEqual(len(left), 2)
        path.receiver.stream_closed(LOST)
        new: Any = Path()
        resume = pb.Resume(resume_id=ID, received=120)
        new.receiver = keeper.resume(new, resume)
        sent = b"".join(one for one in path.told + new.told if isinstance(one, bytes))
        self.assertEqual(sent, b"A" * 60 + b"B" * 60 + b"C" * 60 + b"D" * 60)


class AckTests(ResumableTestCase):
    """Telling the other end what it need not keep."""

    def test_within_a_moment(self) -> None:
        _, path = self.opener()
        path.receiver.headers_received(b"head")
        path.receiver.data_received(b"body")
        self.assertEqual(self.receiver.headers, [b"head"])
        self.assertEqual(self.receiver.data, b"body")
        self.assertEqual(path.told, [])
        self.clock.advance(LIMITS.ack_delay)
        self.assertEqual(path.told, [("ack", 8)])
        self.clock.advance(LIMITS.ack_delay)
        self.assertEqual(path.told, [("ack", 8)])
        path.receiver.data_received(b"more")
        self.clock.advance(LIMITS.ack_delay)
        self.assertEqual(path.told, [("ack", 8), ("ack", 12)])

    def test_much_at_once(self) -> None:
        _, path = self.opener()
        path.receiver.data_received(b"x" * (LIMITS.ack_every - 1))
        path.receiver.data_received(b"x")
        self.assertEqual(path.told, [("ack", LIMITS.ack_every)])
        # The one that was planned has nothing new to say.
        self.clock.advance(LIMITS.ack_delay)
        self.assertEqual(path.told, [("ack", LIMITS.ack_every)])

    def test_without_a_path(self) -> None:
        """It is told with RESUME."""
        stream, path = self.opener()
        path.receiver.data_received(b"body")
        path.receiver.stream_closed(LOST)
        self.clock.advance(LIMITS.ack_delay)
        self.assertEqual((path.told, stream.received), ([], 4))


class LossTests(ResumableTestCase):
    """The end that looks for another path."""

    def test_goes_on_where_it_was(self) -> None:
        stream, path = self.opener()
        stream.send_headers(b"head")
        stream.write(b"body")
        stream.acked(6)
        path.receiver.stream_closed(LOST)
        stream.write(b"more")
        stream.finish()
        self.assertEqual((self.lost, stream.has_path), ([None], False))
        new: Any = Path()
        stream.resumed(new, 7)
        self.assertEqual(new.told, [b"ymore", "fin"])
        self.assertEqual((self.keeper.lost, self.keeper.resumed), (1, 1))
        self.assertEqual(self.clock.getDelayedCalls(), [])
        new.receiver.fin_received()
        new.receiver.stream_closed(None)
        self.assertEqual(self.receiver.closed, [None])
        self.assert_nothing_left()

    def test_the_end_of_what_comes_is_told_once(self) -> None:
        """It may come again by another path, where it was not acknowledged."""
        stream, path = self.opener()
        path.receiver.fin_received()
        self.assertTrue(self.receiver.finished)
        self.receiver.finished = False
        path.receiver.stream_closed(LOST)
        stream.fin_received()
        self.assertFalse(self.receiver.finished)

    def test_headers_are_cut_like_bytes(self) -> None:
        stream, path = self.opener()
        stream.send_headers(b"head")
        path.receiver.stream_closed(LOST)
        new: Any = Path()
        stream.resumed(new, 1)
        self.assertEqual(new.told, [("headers", b"ead")])

    def test_impossible_counts(self) -> None:
        for received in (1, 9):
            stream, path = self.opener()
            stream.write(b"body")
            stream.acked(2)
            path.receiver.stream_closed(LOST)
            new: Any = Path()
            stream.resumed(new, received)
            self.assertEqual(new.told, ["PROTOCOL"])
            self.assertFalse(stream.has_path)
            stream.end(LOST)
        self.assert_nothing_left()

    def test_grace(self) -> None:
        _, path = self.opener()
        path.receiver.stream_closed(LOST)
        self.clock.advance(GRACE - 0.1)
        self.assertEqual(self.receiver.closed, [])
        self.clock.advance(0.1)
        self.assertEqual((self.receiver.closed, self.keeper.expired), ([LOST], 1))
        self.assert_nothing_left()

    def test_what_is_no_loss_of_the_path(self) -> None:
        revoked = SessionClosed(ErrorCode.UNAUTHENTICATED, "revoked")
        for reason in (revoked, StreamReset(ErrorCode.INTERNAL), None):
            _, path = self.opener()
            path.receiver.stream_closed(reason)
            self.assertEqual(self.receiver.closed.pop(), reason)
        self.assertEqual(self.lost, [])
        _, path = self.opener()
        path.receiver.stream_closed(StreamReset(ErrorCode.PATH_LOST))
        self.assertEqual(self.lost, [None])

    def test_reset_without_a_path(self) -> None:
        stream, path = self.opener()
        producer = Producer()
        stream.registerProducer(producer, True)
        path.receiver.stream_closed(LOST)
        stream.stopProducing()
        self.assertEqual(producer.told[-1], "stop")
        self.assertEqual(len(self.receiver.closed), 1)
        self.assert_nothing_left()
        # A path that is closed afterwards says nothing new.
        stream.stream_closed(LOST)
        self.assertEqual(len(self.receiver.closed), 1)

    def test_reset_on_a_path(self) -> None:
        stream, path = self.opener()
        stream.reset(ErrorCode.CANCELLED, "enough")
        self.assertEqual((path.told, len(self.receiver.closed)), (["CANCELLED"], 1))
        self.assert_nothing_left()

    def test_two_ends(self) -> None:
        """The second one came by the newer path."""
        stream, path = self.opener()
        path.receiver.fin_received()
        self.receiver.finished = False
        path.receiver.stream_closed(LOST)
        new: Any = Path()
        stream.resumed(new, 0)
        new.receiver.fin_received()
        self.assertFalse(self.receiver.finished)

    def test_a_reader_that_is_paused_stays_so(self) -> None:
        stream, path = self.opener()
        stream.pauseProducing()
        path.receiver.stream_closed(LOST)
        new: Any = Path()
        stream.resumed(new, 0)
        self.assertEqual((path.told, new.told), (["pause"], ["pause"]))
        stream.resumeProducing()
        self.assertEqual(new.told[-1], "resume")
        new.receiver.stream_closed(LOST)
        stream.pauseProducing()
        stream.resumeProducing()
        last: Any = Path()
        stream.resumed(last, 0)
        self.assertEqual(last.told, [])

    def test_agent(self) -> None:
        """Known without a path, too: it is the same one."""
        path = Path()
        path.agent = ConnectedAgent("7", "seven", b"i", 1, 0.0)
        stream, _ = self.opener(path)
        self.assertEqual(stream.agent, path.agent)
        stream.stream_closed(LOST)
        self.assertEqual(stream.agent, path.agent)


class KeptTests(ResumableTestCase):
    """What is kept, and how much of it."""

    def test_until_it_is_acknowledged(self) -> None:
        stream, path = self.opener()
        stream.send_headers(b"head")
        stream.write(b"")
        stream.write(b"body")
        self.assertEqual(path.told, [("headers", b"head"), b"", b"body"])
        self.assertEqual(self.keeper.held, 8)
        stream.acked(2)
        self.assertEqual(self.keeper.held, 6)
        stream.acked(2)
        stream.acked(1)
        self.assertEqual(self.keeper.held, 6)
        stream.acked(7)
        stream.acked(8)
        self.assertEqual(self.keeper.held, 0)

    def test_more_than_was_sent(self) -> None:
        stream, path = self.opener()
        stream.write(b"body")
        stream.acked(5)
        self.assertEqual(path.told[-1], "PROTOCOL")
        self.assertEqual(len(self.receiver.closed), 1)
        self.assert_nothing_left()

    def test_a_stream_that_keeps_much_waits(self) -> None:
        """The limit of one stream holds its producer, and costs nothing else."""
        stream, _ = self.opener()
        producer = Producer()
        stream.registerProducer(producer, True)
        stream.write(b"x" * LIMITS.kept_per_stream)
        self.assertFalse(stream.full)
        stream.write(b"x")
        self.assertTrue(stream.full)
        self.assertEqual(producer.told[-1], "pause")
        # The pauses are short: a long path would run dry meanwhile.
        stream.acked(LIMITS.kept_per_stream // 8)
        self.assertTrue(stream.full)
        stream.acked(3 + LIMITS.kept_per_stream // 8)
        self.assertEqual((stream.full, producer.told[-1]), (False, "resume"))

    def test_all_of_them_together(self) -> None:
        """The stream that would pass the limit of all loses its buffer, and goes on."""
        others = [self.opener()[0] for _ in range(2)]
        for other in others:
            other.write(b"x" * LIMITS.kept_per_stream)
        stream, path = self.opener()
        stream.write(b"x" * 51)
        self.assertEqual(self.keeper.held, 2 * LIMITS.kept_per_stream)
        stream.write(b"more")
        stream.acked(10)
        self.assertEqual(path.told[-1], b"more")
        self.assertFalse(self.receiver.closed)
        # It ends with its path.
        path.receiver.stream_closed(LOST)
        self.assertEqual((self.receiver.closed, self.lost), ([LOST], []))
        others[0].end(None)
        others[1].end(None)
        self.assert_nothing_left()

    def test_all_of_them_together_without_a_path(self) -> None:
        stream, path = self.opener()
        path.receiver.stream_closed(LOST)
        stream.write(b"x" * (LIMITS.kept + 1))
        assert_session_ends(self.receiver.closed, ErrorCode.MEMORY)
        self.assert_nothing_left()

    def owned(self, owner: str = "") -> tuple[ResumableStream, Path]:
        stream = ResumableStream(
            self.keeper, ID, RecordingReceiver(), lambda: None, owner
        )
        path: Any = Path()
        stream.attach(path)
        return stream, path

    def test_one_owner_does_not_keep_everything(self) -> None:
        """Who never acknowledges loses what survives, and nobody else does."""
        self.keeper.limits = attrs.evolve(LIMITS, kept_per_owner=120)
        bad = [self.owned("bad")[0] for _ in range(3)]
        good, _ = self.owned("good")
        for stream in bad:
            stream.write(b"x" * 60)
        good.write(b"y" * 60)
        self.assertEqual([one.goes_on(0) for one in bad], [True, True, False])
        self.assertTrue(good.goes_on(0))
        self.assertEqual(self.keeper.held, 180)
        for stream in (*bad, good):
            stream.buffer.give_up()
        self.assertEqual((self.keeper.held, self.keeper._held_by), (0, {}))

    def test_small_pieces_are_joined(self) -> None:
        """A byte that is kept by itself costs a hundred."""
        stream, _ = self.owned()
        for _ in range(50):
            stream.write(b"x")
        self.assertEqual(len(stream.buffer.pieces), 1)
        stream.send_headers(b"h")
        stream.write(b"y")
        self.assertEqual(len(stream.buffer.pieces), 3)
        stream.acked(51)
        self.assertEqual(list(stream.buffer.pieces), [(False, b"y")])


class AcceptTests(ResumableTestCase):
    """The end that is asked to go on."""

    def test_goes_on(self) -> None:
        stream, path = self.accepted()
        stream.write(b"answer")
        path.receiver.data_received(b"request")
        path.receiver.stream_closed(LOST)
        stream.write(b" and more")
        new = self.resume(2)
        self.assertEqual(new.told, [("resumed", 7), b"swer and more"])
        self.assertEqual(self.receiver.data, b"request")
        self.assertFalse(self.receiver.closed)

    def test_before_the_loss_is_known(self) -> None:
        """The opener knows better: the old path is let go."""
        _, path = self.accepted()
        new = self.resume()
        self.assertEqual(path.told, ["CANCELLED"])
        self.assertEqual((path.receiver, path.full_changed), (None, None))
        self.assertFalse(self.receiver.closed)
        new.receiver.data_received(b"x")
        self.assertEqual(self.receiver.data, b"x")

    def test_unusable_ids(self) -> None:
        self.accepted()
        for wrong in (b"", b"short", ID, b"r" * 17):
            with self.assertRaises(ProtocolError) as caught:
                self.accepted(wrong)
            self.assertEqual(caught.exception.code, ErrorCode.PROTOCOL)

    def test_what_is_not_known(self) -> None:
        stream, path = self.accepted()
        stream.write(b"answer")
        path.receiver.stream_closed(LOST)
        for received, resume_id in ((0, b"x" * 16), (7, ID)):
            with self.assertRaises(ProtocolError) as caught:
                self.resume(received, resume_id)
            self.assertEqual(caught.exception.code, ErrorCode.NOT_RESUMABLE)
        self.clock.advance(GRACE)
        self.assertEqual(self.receiver.closed, [LOST])
        with self.assertRaises(ProtocolError):
            self.resume()
        self.assert_nothing_left()

    def test_a_receiver_that_is_refused(self) -> None:
        def accept(stream: Any, open_: pb.Open) -> Any:
            stream.write(b"too early")
            raise ProtocolError(ErrorCode.UNKNOWN_METHOD, "no")

        with self.assertRaises(ProtocolError):
            self.accepted(accept=accept)
        self.assert_nothing_left()

    def test_lingers(self) -> None:
        """The end may be on its way when the path breaks."""
        stream, path = self.accepted()
        path.receiver.fin_received()
        stream.write(b"answer")
        stream.finish()
        path.receiver.stream_closed(None)
        self.assertEqual((self.receiver.closed, self.keeper.held), ([None], 6))
        new = self.resume(3)
        self.assertEqual(new.told, [("resumed", 0), b"wer", "fin"])
        self.clock.advance(GRACE)
        self.assert_nothing_left()

    def test_lingering_ends_in_turn(self) -> None:
        for number in range(2):
            stream, path = self.accepted(bytes([number]) * 16)
            stream.write(b"answer")
            path.receiver.stream_closed(None)
            self.clock.advance(GRACE / 2)
        self.clock.advance(0)
        self.assertEqual((len(self.keeper), self.keeper.held), (1, 6))
        self.clock.advance(GRACE / 2)
        self.assert_nothing_left()

    def test_lingering_is_bounded(self) -> None:
        for number in range(LIMITS.lingering + 2):
            stream, path = self.accepted(bytes([number]) * 16)
            stream.write(b"answer")
            path.receiver.stream_closed(None)
        self.assertEqual(len(self.keeper), LIMITS.lingering)
        self.assertEqual(self.keeper.held, 6 * LIMITS.lingering)
        with self.assertRaises(ProtocolError):
            self.resume(0, bytes(16))
        self.keeper.stop()
        self.assert_nothing_left()

    def test_the_process_stops(self) -> None:
        stream, path = self.accepted()
        stream.write(b"answer")
        path.receiver.data_received(b"x")
        self.keeper.stop()
        self.assertEqual(path.told[-1], "SHUTDOWN")
        self.assertEqual(len(self.receiver.closed), 1)
        self.assert_nothing_left()

    def test_defaults(self) -> None:
        """One stream cannot use up what all of them have."""
        limits = ResumeLimits()
        self.assertLess(limits.kept_per_stream * 4, limits.kept)
        self.assertLess(limits.ack_every * 4, limits.kept_per_stream)
        with self.assertRaises(attrs.exceptions.FrozenInstanceError):
            limits.kept = 0  # type: ignore[misc]


class FailingEnd(RecordingReceiver):
    """A receiver with a bug at the end of its stream."""

    def stream_closed(self, reason: Exception | None) -> None:
        super().stream_closed(reason)
        raise ValueError("bug")


def test_one_end_fails() -> None:
    """A receiver that fails at the end of its stream keeps no other from its own."""
    keeper = Keeper(Clock(), lambda: GRACE, LIMITS)
    receivers = FailingEnd(), RecordingReceiver()
    for number, receiver in enumerate(receivers):
        stream = ResumableStream(keeper, bytes([number]) * 16, receiver)
        keeper._accepted[stream.resume_id] = stream
    with capturedLogs() as events:
        keeper.stop()
    assert [len(one.closed) for one in receivers] == [1, 1]
    assert len(events) == 1


def test_a_producer_fails_at_the_end() -> None:
    """The receiver is told all the same."""
    receiver = RecordingReceiver()
    stream = ResumableStream(Keeper(Clock(), lambda: GRACE, LIMITS), ID, receiver)
    producer: Any = Producer()
    producer.stopProducing = lambda: 1 / 0
    stream.registerProducer(producer, True)
    with capturedLogs() as events:
        stream.end(LOST)
    assert (receiver.closed, len(events)) == ([LOST], 1)


@pytest.mark.parametrize("resume_id", [b"", ID], ids=["plain", "resumable"])
@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ProtocolError(ErrorCode.UNKNOWN_METHOD, "no"), ErrorCode.UNKNOWN_METHOD),
        (CallError(Status.RESOURCE_EXHAUSTED, "too many"), ErrorCode.REFUSED),
    ],
    ids=["unknown", "refused"],
)
def test_the_opener_learns_the_reason(
    resume_id: bytes, error: Exception, code: ErrorCode
) -> None:
    """Also of a resumable stream; otherwise kas would not try another replica."""
    clock = Clock()
    dialler, listener, pipe = connected(clock)
    keeper = Keeper(clock, lambda: GRACE, LIMITS)

    def accept(stream: Any, open_: pb.Open) -> Any:
        raise error

    def opened(stream: Any, open_: pb.Open) -> Any:
        if open_.resume_id:
            return keeper.accept(stream, open_, accept)
        return accept(stream, open_)

    listener.stream_opened = opened  # type: ignore[method-assign]
    receiver = RecordingReceiver()
    dialler.tunnel.open_stream(pb.Open(method="/a/B", resume_id=resume_id), receiver)
    pipe.flush()
    (closed,) = receiver.closed
    assert isinstance(closed, StreamReset)
    assert closed.code is code
