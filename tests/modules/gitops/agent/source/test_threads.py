"""Threads that read texts: nothing ends one, and its slot is taken until it ends."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.trial.unittest import SynchronousTestCase

from modules.gitops.agent.source import threads
from modules.gitops.agent.source.threads import (
    COMMIT_THREADS,
    PREVIEW_THREADS,
    TextThreads,
)


class TextThreadsTests(SynchronousTestCase):
    """`TextThreads`."""

    def setUp(self) -> None:
        self.begun: dict[str, Deferred[Any]] = {}
        self.patch(threads, "deferToThread", self.begin)
        self.threads = TextThreads(2)

    def begin(self, work: Any, *args: Any) -> Deferred[Any]:
        (name,) = args
        # As `deferToThread`: cancelling it ends nothing.
        self.begun[name] = Deferred()
        return self.begun[name]

    def run_of(self, name: str) -> Deferred[Any]:
        return Deferred.fromCoroutine(self.threads.run(str, name))

    def test_cancelled(self) -> None:
        """Who asks again and again takes no more threads than there are slots."""
        for name in "abcdefgh":
            asked = self.run_of(name)
            asked.cancel()
            self.failureResultOf(asked, CancelledError)
        self.assertEqual(list(self.begun), ["a", "b"])
        waits = self.run_of("z")
        self.assertEqual(list(self.begun), ["a", "b"])
        self.begun["a"].callback("nobody wants it")
        self.assertEqual(list(self.begun), ["a", "b", "z"])
        self.begun["z"].callback("Z")
        self.assertEqual(self.successResultOf(waits), "Z")

    def test_fails(self) -> None:
        """The error comes out, and the slot is free again."""
        for _ in range(5):
            asked = self.run_of("a")
            self.begun["a"].errback(ValueError("wrong"))
            self.failureResultOf(asked, ValueError)
        gone = self.run_of("a")
        gone.cancel()
        self.failureResultOf(gone, CancelledError)
        self.begun["a"].errback(ValueError("wrong, and nobody wants to know"))
        self.assertEqual(self.flushLoggedErrors(), [])

    def test_all_together(self) -> None:
        """The reactor's pool has threads for other work, too."""
        self.assertLess(COMMIT_THREADS + PREVIEW_THREADS, 10)
