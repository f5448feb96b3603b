"""A token queue, in which requests wait."""

from __future__ import annotations

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from kas import request_queue as module
from kas.request_queue import RequestQueue
from tunnel.errors import CallError, Status


class RequestQueueTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.queue = RequestQueue(10.0, 3, self.clock)
        self.passed: list[int] = []

    def ask(self, count: int) -> list[Deferred[None]]:
        asked = []
        for number in range(count):
            one = self.queue.passed()
            one.addCallback(lambda _, number: self.passed.append(number), number)
            asked.append(one)
        return asked

    def test_burst_and_rate(self) -> None:
        """So many at once, then one after the other in their order."""
        self.ask(6)
        self.assertEqual(self.passed, [0, 1, 2])
        self.assertEqual(self.queue.waiting, 3)
        self.clock.advance(0.05)
        self.assertEqual(self.passed, [0, 1, 2])
        self.clock.advance(0.05)
        self.assertEqual(self.passed, [0, 1, 2, 3])
        self.clock.advance(0.2)
        self.assertEqual(self.passed, [0, 1, 2, 3, 4, 5])
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_fills_again(self) -> None:
        """After a pause there is a burst again, and no more than one."""
        self.ask(3)
        self.clock.advance(60)
        self.ask(4)
        self.assertEqual(len(self.passed), 6)

    def test_nobody_overtakes(self) -> None:
        """Who comes while others wait waits behind them."""
        self.ask(4)
        self.clock.advance(0.1)
        self.ask(1)
        self.assertEqual(self.passed, [0, 1, 2, 3])

    def test_given_up(self) -> None:
        """A turn that is given up is not spent."""
        asked = self.ask(5)
        asked[3].cancel()
        self.failureResultOf(asked[3], CancelledError)
        self.clock.advance(0.1)
        self.assertEqual(self.passed, [0, 1, 2, 4])

    def test_too_many(self) -> None:
        self.patch(module, "MAX_WAITING", 2)
        self.ask(5)
        failure = self.failureResultOf(self.queue.passed(), CallError)
        self.assertEqual(failure.value.status, Status.RESOURCE_EXHAUSTED)
        self.assertEqual(self.queue.waiting, 2)
