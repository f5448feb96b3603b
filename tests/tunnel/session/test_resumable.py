"""A stream that survives its path, by itself, over paths of ours."""

from __future__ import annotations

from typing import Any

from tests.tunnel.session.harness import Producer
from tests.tunnel.session.paths import GRACE, ID, LIMITS, LOST, Path, ResumableTestCase
from tunnel.errors import ErrorCode, SessionClosed, StreamReset
from tunnel.interfaces import ConnectedAgent
from tunnel.pb import tunnel_pb2 as pb
from tunnel.testing import RecordingReceiver


class WriteTests(ResumableTestCase):
    """Who writes, and when it has to wait."""

    def test_a_path_that_is_full(self) -> None:
        stream, path = self.opener()
        producer = Producer()
        stream.registerProducer(producer, True)
        path.producer.pauseProducing()
        self.assertEqual((stream.full, producer.told[-1]), (True, "pause"))
        path.producer.resumeProducing()
        self.assertEqual((stream.full, producer.told[-1]), (False, "resume"))
        path.producer.pauseProducing()
        late = Producer()
        stream.unregisterProducer()
        stream.registerProducer(late, True)
        self.assertEqual(late.told, ["pause"])
        path.producer.stopProducing()
        # A new path begins empty.
        path.receiver.stream_closed(LOST)
        stream.resumed(Path(), 0)  # type: ignore[arg-type]
        self.assertEqual(late.told[-1], "resume")

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
        stream.end(None)
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
        self.assertEqual(path.told, [])
        self.clock.advance(LIMITS.ack_delay)
        self.assertEqual(path.told, [("ack", 8)])
        self.clock.advance(LIMITS.ack_delay)
        self.assertEqual(path.told, [("ack", 8)])

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
