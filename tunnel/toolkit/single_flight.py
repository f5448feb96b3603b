"""Calls whose result goes to all callers that wait for it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

__all__ = ["SingleFlight"]

T = TypeVar("T")


class SingleFlight(Generic[T]):
    """
    One call at a time, and the callers that wait for its result.

    Cancelling one caller's Deferred does not affect the others.  Results are not
    cached: the next caller after the end of a call starts another one.

    :param call: starts the call; runs again only after its end.
    :param abandon: whether to cancel the call when its last caller has left.
    :param ended: called after each call, when its callers have the result.
    """

    def __init__(
        self,
        call: Callable[[], Awaitable[T]],
        *,
        abandon: bool = False,
        ended: Callable[[], None] = lambda: None,
    ) -> None:
        self._call = call
        self._after = ended
        self._abandon = abandon
        self._running: Deferred[T] | None = None
        self._waiters: set[Deferred[T]] = set()

    @property
    def running(self) -> bool:
        """Whether the call has started and not ended."""
        return self._running is not None

    def get(self) -> Deferred[T]:
        """Return the result of the running call, or of one that starts now."""
        waiter = self.wait()
        self.start()
        return waiter

    def wait(self) -> Deferred[T]:
        """Return the result of the running call, or of the next one."""
        waiter: Deferred[T] = Deferred(self.leave)
        self._waiters.add(waiter)
        return waiter

    def start(self) -> None:
        """Start a call unless one runs."""
        if self._running is None:
            self._running = calling = Deferred.fromCoroutine(self._called())
            # If the call has already ended, `_ended` runs inside this statement, and a
            # waiting caller may start another call.
            calling.addBoth(self._ended)

    def leave(self, waiter: Deferred[T]) -> None:
        """Forget *waiter*, which was cancelled or has a result from elsewhere."""
        if waiter in self._waiters:
            self._waiters.discard(waiter)
            if self._abandon and not self._waiters:
                self.cancel()

    def cancel(self) -> None:
        """Cancel the call, if it runs; its callers get a CancelledError."""
        if self._running is not None:
            self._running.cancel()

    async def _called(self) -> T:
        return await self._call()

    def _ended(self, result: T | Failure) -> None:
        self._running = None
        waiters, self._waiters = self._waiters, set()
        for waiter in waiters:
            # The result of one caller may have cancelled another one.
            if waiter.called:
                continue
            if isinstance(result, Failure):
                waiter.errback(result)
            else:
                waiter.callback(result)
        self._after()
