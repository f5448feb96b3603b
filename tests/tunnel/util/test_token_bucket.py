"""How often something may happen."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tunnel.toolkit.token_bucket import TokenBucket


class TokenBucketTests(SynchronousTestCase):
    """`TokenBucket`: three at once, two a second."""

    def setUp(self) -> None:
        self.bucket = TokenBucket(3, 2, 100.0)

    def spent(self, now: float) -> int:
        """How often it may happen at that time."""
        count = 0
        while self.bucket.spend(now):
            count += 1
        return count

    def test_at_once_and_later(self) -> None:
        self.assertEqual(
            [self.spent(now) for now in (100, 100.4, 101, 200)], [3, 0, 2, 3]
        )

    def test_a_clock_that_is_not_exact(self) -> None:
        """Five tenths of a second are half a second."""
        self.spent(100)
        now = 100.0
        for _ in range(5):
            now += 0.1
        self.assertTrue(self.bucket.spend(now))

    def test_a_time_before(self) -> None:
        """It adds nothing, and costs nothing."""
        self.spent(100)
        self.assertEqual([self.spent(now) for now in (99, 100, 100.5)], [0, 0, 1])

    def test_earned(self) -> None:
        self.spent(100)
        self.bucket.earn()
        self.assertEqual(self.spent(100), 1)
        self.bucket.earn(50)
        self.assertEqual(self.spent(100), 3)
