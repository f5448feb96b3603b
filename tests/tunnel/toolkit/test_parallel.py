"""Several things at the same time, and what becomes of them when it is enough."""

from __future__ import annotations

from functools import partial

from twisted.internet.defer import CancelledError, Deferred
from twisted.trial.unittest import SynchronousTestCase

from tunnel.toolkit.parallel import in_parallel


class ParallelTests(SynchronousTestCase):
    """`in_parallel`."""

    def setUp(self) -> None:
        self.begun: dict[int, Deferred[int]] = {}

    async def call(self, number: int) -> int:
        self.begun[number] = Deferred()
        return await self.begun[number]

    def run_all(self, count: int, limit: int) -> Deferred[list[int]]:
        calls = [partial(self.call, number) for number in range(count)]
        return Deferred.fromCoroutine(in_parallel(calls, limit))

    def test_so_many_at_a_time(self) -> None:
        done = self.run_all(5, 2)
        self.assertEqual(list(self.begun), [0, 1])
        self.begun[1].callback(11)
        self.assertEqual(list(self.begun), [0, 1, 2])
        for number in (0, 2, 3, 4):
            self.begun[number].callback(number)
        self.assertEqual(self.successResultOf(done), [0, 11, 2, 3, 4])

    def test_thousands_that_are_done_at_once(self) -> None:
        async def call(number: int) -> int:
            return number

        calls = (partial(call, number) for number in range(5000))
        done = Deferred.fromCoroutine(in_parallel(calls))
        self.assertEqual(self.successResultOf(done), list(range(5000)))

    def test_the_first_failure_ends_all(self) -> None:
        done = self.run_all(5, 2)
        self.begun[1].errback(ValueError("no"))
        self.assertEqual(str(self.failureResultOf(done, ValueError).value), "no")
        self.assertLessEqual(set(self.begun), {0, 1, 2})
        self.assertTrue(self.begun[0].called)

    def test_cancelled(self) -> None:
        """None of those that wait is begun by that."""
        done = self.run_all(5000, 3)
        done.cancel()
        self.failureResultOf(done, CancelledError)
        self.assertEqual(len(self.begun), 3)
        self.assertTrue(all(one.called for one in self.begun.values()))
