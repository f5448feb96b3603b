"""What the workers of one kas count together."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from kas.agents.acceptor import ConnectionRate
from kas.identity.failed_checks import Asker, FailedChecks, NoTurn
from kas.workers import limits
from kas.workers.limits import MAX_KEYS, STEPS, SharedCount, SharedLimits
from tests.kas.workers.stores import stores


class Connected:
    """Limits of some workers, which hear each other at once."""

    def __init__(self, count: int) -> None:
        self.told = 0
        self.all = [
            SharedLimits(count, self._teller(number), stores())
            for number in range(count)
        ]

    def _teller(self, number: int) -> Callable[[str, str, int], None]:
        def tell(limit: str, key: str, amount: int) -> None:
            self.told += 1
            for other, one in enumerate(self.all):
                if other != number:
                    one.used(str(number), limit, key, amount)

        return tell


class UnderWayTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.workers = Connected(3)
        self.counts = [one.under_way("requests", 120) for one in self.workers.all]

    def test_what_is_little_is_told_to_nobody(self) -> None:
        for amount in range(1, self.counts[0].step):
            self.counts[0].here("a", amount)
        self.counts[0].here("a", 0)
        self.assertEqual(self.workers.told, 0)

    def test_what_passes_a_step_is(self) -> None:
        one, two, three = self.counts
        for amount in range(1, 41):
            one.here("a", amount)
        two.here("a", 25)
        self.assertEqual(self.workers.told, 4 + 1)
        self.assertEqual([each.elsewhere["a"] for each in self.counts], [20, 40, 60])
        one.here("a", 0)
        self.assertEqual([each.elsewhere["a"] for each in self.counts], [20, 0, 20])
        self.assertEqual(three.elsewhere, {"a": 20})

    def test_what_a_worker_had_ends_with_it(self) -> None:
        one, two, three = self.counts
        one.here("a", 40)
        two.here("a", 20)
        self.workers.all[2].ended("0")
        self.assertEqual(three.elsewhere, {"a": 20})
        self.workers.all[2].ended("1")
        self.assertEqual(three.elsewhere, {})

    def test_a_module_that_is_made_again(self) -> None:
        """What others had under way before counts, and what it had ended."""
        one, two, _ = self.counts
        one.here("a", 40)
        two.here("a", 20)
        again = self.workers.all[1].under_way("requests", 120)
        self.assertEqual(again.elsewhere, {"a": 40})
        again.here("a", 0)
        self.assertEqual(one.elsewhere, {})

    def test_what_one_that_begins_is_told(self) -> None:
        self.counts[0].here("a", 45)
        self.counts[0].here("b", 3)
        self.assertEqual(list(self.workers.all[0].uses()), [("requests", "a", 40)])

    def test_too_many_keys(self) -> None:
        self.patch(limits, "MAX_KEYS", 2)
        self.assertGreater(MAX_KEYS, 2)
        for key in "abc":
            self.counts[0].here(key, 10)
        self.assertEqual(self.counts[1].elsewhere, {"a": 10, "b": 10})
        self.counts[0].here("c", 0)
        self.counts[0].here("a", 0)
        self.assertEqual(self.counts[1].elsewhere, {"b": 10})

    def test_a_limit_that_is_not_known(self) -> None:
        self.workers.all[0].used("1", "other", "a", 5)
        self.assertEqual(self.counts[0].elsewhere, {})


@given(
    limit=st.integers(4, 200),
    count=st.integers(2, 8),
    steps=st.lists(st.tuples(st.integers(0, 7), st.booleans()), max_size=300),
)
def test_the_limit_is_kept(
    limit: int, count: int, steps: list[tuple[int, bool]]
) -> None:
    """All together never have more than a quarter above it."""
    workers = Connected(count)
    counts = [one.under_way("requests", limit) for one in workers.all]
    here = [0] * count
    for number, begins in steps:
        number %= count
        if not begins:
            here[number] = max(0, here[number] - 1)
        elif here[number] + 1 + counts[number].elsewhere["a"] <= limit:
            here[number] += 1
        counts[number].here("a", here[number])
        unknown = (count - 1) * (counts[number].step - 1)
        assert sum(here) <= limit + unknown
        assert unknown <= limit / STEPS


class HappeningTests(SynchronousTestCase):
    """Rates are counted by all."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.workers = Connected(2)

    def test_connections_of_a_token(self) -> None:
        rates = [ConnectionRate(3, self.clock) for _ in range(2)]
        for rate, one in zip(rates, self.workers.all, strict=True):
            rate.tell = one.happening("connections", rate.count)
        self.assertTrue(rates[0].allows("a") and rates[1].allows("a"))
        self.assertTrue(rates[0].allows("a"))
        self.assertFalse(rates[0].allows("a") or rates[1].allows("a"))
        self.assertTrue(rates[1].allows("b"))
        self.clock.advance(61)
        self.assertTrue(rates[1].allows("a"))

    def test_failed_checks_of_an_address(self) -> None:
        checks = [FailedChecks(3, self.clock) for _ in range(2)]
        for each, one in zip(checks, self.workers.all, strict=True):
            each.tell = one.happening("failed", each.count)
        asker = Asker("x", 1, b"")
        self.assertEqual([checks[n].begin(asker) for n in (0, 1, 0)], [None] * 3)
        with self.assertRaises(NoTurn):
            checks[1].begin(asker)
        checks[0].succeeded(asker)
        self.assertIsNone(checks[1].begin(asker))
        with self.assertRaises(NoTurn):
            checks[0].begin(asker)

    def test_nothing_is_remembered_of_a_worker(self) -> None:
        self.workers.all[0].happening("connections", lambda key, amount: None)
        self.workers.all[0].ended("1")
        self.assertEqual(list(self.workers.all[0].uses()), [])


def test_a_small_limit_is_exact() -> None:
    count = SharedCount.of(3, 4, lambda key, amount: None)
    assert count.step == 1
