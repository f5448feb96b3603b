"""Streams that the other side opened, and asks for again."""

from __future__ import annotations

from typing import Any

import attrs

from tests.tunnel.session.paths import GRACE, ID, LIMITS, LOST, ResumableTestCase
from tunnel.errors import ErrorCode, ProtocolError
from tunnel.pb import tunnel_pb2 as pb
from tunnel.session.keeper import ResumeLimits


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
        self.assertEqual((path.receiver, path.producer), (None, None))
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
