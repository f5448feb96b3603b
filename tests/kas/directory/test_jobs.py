"""What is done in the background has a name, and is done once at a time."""

from __future__ import annotations

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from kas.directory.jobs import Jobs


class JobsTests(SynchronousTestCase):
    """By name."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.done: list[str] = []
        self.ended: list[tuple[str, type[BaseException] | None]] = []
        self.jobs = Jobs(self.clock, self.end)

    def end(self, name: str, failure: Failure | None) -> None:
        self.assertNotIn(name, self.jobs.running)
        self.ended.append((name, None if failure is None else failure.type))

    async def work(self, name: str, seconds: float = 1.0) -> None:
        self.assertIn(name, self.jobs.running)
        await self.jobs.pause(seconds)
        self.done.append(name)

    def test_what_is_planned_again_is_planned_once(self) -> None:
        """The last plan of a name is the one that counts."""
        self.jobs.later("a", 1.0, lambda: self.done.append("early"))
        self.jobs.later("a", 2.0, lambda: self.done.append("late"))
        self.assertIn("a", self.jobs.planned)
        self.clock.advance(3.0)
        self.assertEqual((self.done, self.jobs.planned), (["late"], {}))

    def test_each_once_at_a_time(self) -> None:
        """What runs is not begun again; other names are."""
        self.jobs.run("a", self.work("a"))
        self.jobs.run("a", self.work("a"))
        self.jobs.run("b", self.work("b"))
        self.clock.advance(1.0)
        self.assertEqual(self.done, ["a", "b"])
        self.jobs.run("a", self.work("a"))
        self.clock.advance(1.0)
        self.assertEqual(self.ended, [("a", None), ("b", None), ("a", None)])

    def test_why_it_failed_is_told(self) -> None:
        """Nothing of it is logged here."""

        async def fail() -> None:
            raise ValueError

        self.jobs.run("a", fail())
        self.assertEqual(self.ended, [("a", ValueError)])

    def test_stop(self) -> None:
        """What runs is cancelled, and nothing begins any more."""
        self.jobs.later("a", 1.0, lambda: self.done.append("a"))
        self.jobs.run("b", self.work("b"))
        self.jobs.stop()
        self.jobs.later("c", 1.0, lambda: self.done.append("c"))
        self.jobs.run("d", self.work("d"))
        never: Deferred[None] = self.jobs.pause(1.0)
        never.addErrback(lambda failure: failure.trap(CancelledError))
        never.cancel()
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.assertEqual((self.done, self.ended), ([], [("b", CancelledError)]))
