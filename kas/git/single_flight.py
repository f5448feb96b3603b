"""One question at a time, and one answer for all who wait for the same."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from tunnel.errors import CallError

__all__ = ["SingleFlight"]


class SingleFlight:
    """
    Asks what a ref is at; callers that come while it is asked share the next question.

    :param ask: asks; it is not called again until it is done.
    """

    def __init__(self, ask: Callable[[str], Awaitable[str]]) -> None:
        self._ask = ask
        self._asking: _Question | None = None
        self._next: dict[str, _Question] = {}

    def get(self, ref: str) -> Deferred[str]:
        """
        Return the commit of *ref*, resolved after this call.

        Cancelling it leaves the request to the other callers.
        """
        question = self._next.setdefault(ref, _Question())
        waiter: Deferred[str] = Deferred(question.waiters.discard)
        question.waiters.add(waiter)
        self._go_on()
        return waiter

    def _go_on(self) -> None:
        if self._asking is not None or not self._next:
            return
        ref = next(iter(self._next))
        self._asking = question = self._next.pop(ref)
        asking = Deferred.fromCoroutine(self._asked(ref))
        asking.addBoth(self._answered, question)

    async def _asked(self, ref: str) -> str:
        return await self._ask(ref)

    def _answered(self, result: str | Failure, question: _Question) -> None:
        self._asking = None
        waiters, question.waiters = question.waiters, set()
        for waiter in waiters:
            if waiter.called:
                continue
            if isinstance(result, Failure):
                error: Any = result.value
                if isinstance(error, CallError):
                    # A new one for each: a raise adds its frames to it.
                    error = CallError(error.status, error.message)
                waiter.errback(Failure(error))
            else:
                waiter.callback(result)
        self._go_on()


class _Question:
    """One question, and all who wait for its answer."""

    def __init__(self) -> None:
        self.waiters: set[Deferred[str]] = set()
