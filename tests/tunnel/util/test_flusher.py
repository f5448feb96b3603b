"""One turn, one write for everybody."""

from __future__ import annotations

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tunnel.util.flusher import Flusher


class _Connection:
    def __init__(self, flusher: Flusher, fails: bool = False) -> None:
        self.flusher, self.fails, self.flushed = flusher, fails, 0

    def flush(self) -> None:
        if self.fails:
            raise SystemExit
        self.flushed += 1


class FlusherTests(SynchronousTestCase):
    """Connections with output."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.flusher = Flusher(self.clock)

    def test_once_in_a_turn(self) -> None:
        """However often it is marked."""
        one = _Connection(self.flusher)
        for _ in range(3):
            self.flusher.mark(one)
        self.assertEqual(one.flushed, 0)
        self.clock.advance(0)
        self.assertEqual(one.flushed, 1)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_one_that_fails(self) -> None:
        """The others write, then and later."""
        others = [_Connection(self.flusher) for _ in range(20)]
        for number, one in enumerate([*others, _Connection(self.flusher, True)]):
            self.flusher.mark(one)
            if number == 10:
                self.flusher.mark(_Connection(self.flusher, True))
        self.clock.advance(0)
        self.assertEqual({one.flushed for one in others}, {1})
        self.assertEqual(len(self.flushLoggedErrors(SystemExit)), 2)
        self.flusher.mark(others[0])
        self.clock.advance(0)
        self.assertEqual(others[0].flushed, 2)
