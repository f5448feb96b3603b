"""Work that a newer event makes obsolete."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

from twisted.internet.defer import CancelledError, Deferred, ensureDeferred
from twisted.python.failure import Failure

__all__ = ["Interruptible"]

_T = TypeVar("_T")


class Interruptible:
    """
    The steps of a loop, which an event may interrupt.

    `interrupt` ends the step that runs, and the loop continues with newer data.
    Cancelling the loop ends the loop and its current step, even while an interrupted
    step is cleaning up.

        while True:
            steps.begin()
            commit = self.newest
            await steps.run(self.apply(commit))

    :ivar is_interrupted: whether `interrupt` was called since `begin`.
    """

    def __init__(self) -> None:
        self.is_interrupted = False
        self._running: Deferred[Any] | None = None

    def begin(self) -> None:
        """Record that the next steps use current data."""
        self.is_interrupted = False

    def interrupt(self) -> None:
        """End the step that runs, if any."""
        self.is_interrupted = True
        if self._running is not None:
            self._running.cancel()

    async def run(self, work: Coroutine[Any, Any, _T] | Deferred[_T]) -> _T | None:
        """
        Return the result of a step; None if `interrupt` ended it.

        Steps run one after the other.
        """
        cancelled = False

        def cancel(_: Deferred[_T]) -> None:
            nonlocal cancelled
            cancelled = True
            running.cancel()

        waiter: Deferred[_T] = Deferred(cancel)
        #: The end of a step that cleans up after the loop was cancelled.
        late: Deferred[_T] = Deferred()

        def end(result: _T | Failure) -> None:
            self._running = None
            (late if waiter.called else waiter).callback(result)

        self._running = running = ensureDeferred(work)
        running.addBoth(end)
        try:
            return await waiter
        except CancelledError:
            if not cancelled and self.is_interrupted:
                return None
            if self._running is running:
                await late
            raise
