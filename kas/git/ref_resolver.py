"""Resolver of refs, which sends one request at a time; callers share requests."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import NoReturn

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from tunnel.errors import CallError
from tunnel.toolkit.single_flight import SingleFlight

__all__ = ["RefResolver"]


class RefResolver:
    """
    Resolver of refs; callers that arrive during a request share the next request.

    :param ask: resolves a ref; not called again before the last call has finished.
    """

    def __init__(self, ask: Callable[[str], Awaitable[str]]) -> None:
        self._ask = ask
        self._running = False
        self._next: dict[str, SingleFlight[str]] = {}

    def get(self, ref: str) -> Deferred[str]:
        """
        Return the commit of *ref*, which is resolved after this call.

        Cancelling the result does not affect the request for other callers.
        """
        if ref not in self._next:
            self._next[ref] = SingleFlight(partial(self._ask, ref), ended=self._ended)
        waiter = self._next[ref].wait()
        self._go_on()
        return waiter.addErrback(_copy_error)

    def _go_on(self) -> None:
        if self._running or not self._next:
            return
        self._running = True
        ref = next(iter(self._next))
        self._next.pop(ref).start()

    def _ended(self) -> None:
        self._running = False
        self._go_on()


def _copy_error(failure: Failure) -> NoReturn:
    # Create a new exception for each caller, because raising it adds frames to its
    # traceback.
    failure.trap(CallError)
    error = failure.value
    assert isinstance(error, CallError)
    raise CallError(error.status, error.message)
