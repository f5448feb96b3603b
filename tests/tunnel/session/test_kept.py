"""What streams keep for their other end, and how much of it."""

from __future__ import annotations

from typing import Any

import attrs

from tests.tunnel.session.harness import Producer
from tests.tunnel.session.paths import ID, LIMITS, LOST, Path, ResumableTestCase
from tunnel.errors import ErrorCode, SessionClosed
from tunnel.session.resumable import ResumableStream
from tunnel.testing import RecordingReceiver


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
        """Who would pass the limit of all keeps nothing any more, and goes on."""
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
        (reason,) = self.receiver.closed
        assert isinstance(reason, SessionClosed)
        self.assertEqual(reason.code, ErrorCode.MEMORY)
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
            stream.kept.give_up()
        self.assertEqual((self.keeper.held, self.keeper._held_by), (0, {}))

    def test_small_pieces_are_joined(self) -> None:
        """A byte that is kept by itself costs a hundred."""
        stream, _ = self.owned()
        for _ in range(50):
            stream.write(b"x")
        self.assertEqual(len(stream.kept.pieces), 1)
        stream.send_headers(b"h")
        stream.write(b"y")
        self.assertEqual(len(stream.kept.pieces), 3)
        stream.acked(51)
        self.assertEqual(list(stream.kept.pieces), [(False, b"y")])
