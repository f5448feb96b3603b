"""Delayed calls: cancelled, made sooner, and with names."""

from __future__ import annotations

from twisted.internet.interfaces import IDelayedCall
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tunnel.toolkit.timers import Timers, call_by, cancel_call


class TimersTests(SynchronousTestCase):
    """By name."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.timers = Timers(self.clock)
        self.called: list[str] = []

    def later(self, name: str, seconds: float, word: str = "") -> None:
        self.timers.later(name, seconds, lambda: self.called.append(word or name))

    def test_the_last_of_a_name_counts(self) -> None:
        self.later("a", 1.0, "early")
        self.later("a", 2.0, "late")
        self.later("b", 2.0)
        self.assertIn("a", self.timers)
        self.clock.advance(2.0)
        self.assertEqual(self.called, ["late", "b"])
        self.assertNotIn("a", self.timers)

    def test_one_that_plans_itself_again(self) -> None:
        def again() -> None:
            self.called.append("tick")
            self.timers.later("a", 1.0, again)

        self.timers.later("a", 1.0, again)
        self.clock.pump([1.0, 1.0, 1.0])
        self.assertEqual(self.called, ["tick"] * 3)
        self.assertIn("a", self.timers)

    def test_cancel(self) -> None:
        self.assertFalse(self.timers.cancel("a"))
        self.later("a", 1.0)
        self.assertTrue(self.timers.cancel("a"))
        self.assertFalse(self.timers.cancel("a"))
        self.later("b", 1.0)
        self.clock.advance(1.0)
        # It is over, and was there.
        self.assertTrue(self.timers.cancel("b"))
        self.assertEqual(self.called, ["b"])

    def test_cancel_all(self) -> None:
        self.later("a", 1.0)
        self.later("b", 1.0)
        self.timers.cancel_all()
        self.assertEqual(self.clock.getDelayedCalls(), [])


class CancelTests(SynchronousTestCase):
    """`cancel_call`."""

    def test_whatever_became_of_it(self) -> None:
        """One that is due is not made; whatever else it is does no harm."""
        clock = Clock()
        called: list[str] = []
        due = clock.callLater(2, called.append, "due")
        made = clock.callLater(1, called.append, "made")
        clock.advance(1)
        for call in (due, due, made, None):
            cancel_call(call)
        clock.advance(1)
        self.assertEqual((called, clock.getDelayedCalls()), (["made"], []))


class SoonerTests(SynchronousTestCase):
    """`call_by`."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.called: list[float] = []
        self.call: IDelayedCall | None = None

    def by(self, when: float) -> None:
        def action() -> None:
            self.called.append(self.clock.seconds())

        self.call = call_by(when, self.call, action, self.clock)

    def test_the_earliest_counts(self) -> None:
        for when in (3, 2, 4):
            self.by(when)
        self.clock.pump([1] * 5)
        self.assertEqual(self.called, [2])

    def test_again(self) -> None:
        """One that was made keeps nothing from being planned."""
        self.by(1)
        self.clock.advance(1)
        self.by(2)
        self.clock.advance(1)
        self.assertEqual(self.called, [1, 2])

    def test_what_is_past(self) -> None:
        """It is made in the next turn."""
        self.clock.advance(5)
        self.by(1)
        self.clock.advance(0)
        self.assertEqual(self.called, [5])
