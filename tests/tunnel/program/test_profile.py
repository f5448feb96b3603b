"""Where the process spends its time."""

from __future__ import annotations

import signal
import sys
from types import FrameType

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tunnel.program.profile import MAX_DEPTH, MAX_STACKS, RATE, Profiler
from tunnel.program.site import Page


class ProfilerTests(SynchronousTestCase):
    """Signals are made up here; a real process makes real ones."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.timer: list[float] = []
        self.profiler = Profiler(self.clock, 10.0, self.timer.append)
        before = signal.getsignal(signal.SIGPROF)
        self.addCleanup(signal.signal, signal.SIGPROF, before)

    def begin(self) -> Deferred[Page]:
        return Deferred.fromCoroutine(self.profiler.page())

    def sample(self, frame: FrameType | None = None) -> None:
        self.profiler.sample(signal.SIGPROF, frame or sys._getframe())

    def test_profile(self) -> None:
        """Stacks, the outermost call first, and how often each was met."""
        profile = self.begin()
        self.assertEqual(self.timer, [1 / RATE])
        for _ in range(3):
            self.sample()
        self.clock.advance(10)
        page = self.successResultOf(profile)
        self.assertEqual(self.timer, [1 / RATE, 0])
        (line,) = page.body.decode().splitlines()
        stack, _, count = line.rpartition(" ")
        self.assertEqual(count, "3")
        name = "tests/tunnel/program/test_profile.py:ProfilerTests.sample"
        self.assertTrue(name.endswith(stack.rpartition(";")[2]), stack)

    def test_one_at_a_time(self) -> None:
        """The second is refused, and the next one begins with nothing."""
        profile = self.begin()
        self.assertEqual(self.successResultOf(self.begin()).status, 409)
        self.sample()
        self.clock.advance(10)
        self.assertTrue(self.successResultOf(profile).body)
        # Late, as signals can be.
        self.sample()
        profile = self.begin()
        self.clock.advance(10)
        self.assertEqual(self.successResultOf(profile).body, b"")

    def test_many_stacks(self) -> None:
        """What they are is forgotten, and not how many."""
        profile = self.begin()
        for number in range(MAX_STACKS + 3):
            self.sample(_frame(f"f{number}"))
        self.clock.advance(10)
        lines = self.successResultOf(profile).body.decode().splitlines()
        self.assertEqual(len(lines), MAX_STACKS + 1)
        self.assertIn("(other stacks) 3", lines)

    def test_depth(self) -> None:
        """The inner end is kept."""
        profile = self.begin()
        self._deep(MAX_DEPTH)
        self.clock.advance(10)
        stack = self.successResultOf(profile).body.decode().rpartition(" ")[0]
        self.assertEqual(stack.count(";") + 1, MAX_DEPTH)
        self.assertTrue(stack.endswith(".sample"))

    def _deep(self, more: int) -> None:
        if more:
            self._deep(more - 1)
        else:
            self.sample()


def _frame(name: str) -> FrameType:
    """A frame of a function that is called *name*."""
    found: dict[str, FrameType] = {}
    source = f"def {name}(): found['frame'] = here()\n{name}()"
    exec(source, {"found": found, "here": lambda: sys._getframe(1)})
    return found["frame"]
