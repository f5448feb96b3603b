"""Streams that are over here, and whose last bytes the peer does not take."""

from __future__ import annotations

from tests.tunnel.session.streams import Accepted, StreamTestCase
from tunnel.session.keepalive import BUDGET_INTERVAL
from tunnel.session.leftovers import STUCK


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
