"""Waits for work that may survive its cancellation."""

from __future__ import annotations

from typing import Any, TypeVar

from twisted.internet.defer import Deferred, TimeoutError
from twisted.internet.interfaces import IReactorTime
from twisted.python.failure import Failure

from tunnel.toolkit.timers import cancel_call

__all__ = ["within"]

_T = TypeVar("_T")


def within(work: Deferred[_T], seconds: float, clock: IReactorTime) -> Deferred[_T]:
    """
    Return the result of *work*, or a failure with `TimeoutError`.

    `Deferred.addTimeout` only cancels the work, and then waits for it.  Code such as
    ``while True: try: … except Exception: log`` swallows the cancellation, and would
    hold its caller forever.  Here, the caller continues without the work, whose later
    result is dropped.

    :param seconds: the time until the work is cancelled and no longer awaited.
    """
    waiter: Deferred[_T] = Deferred(lambda _: work.cancel())

    is_late = False

    def give_up() -> None:
        nonlocal is_late
        is_late = True
        work.cancel()
        if not waiter.called:
            waiter.errback(too_late)

    too_late = TimeoutError(seconds, "the work did not end in time")
    call = clock.callLater(seconds, give_up)

    def end(result: Any) -> None:
        cancel_call(call)
        if waiter.called:
            return
        if isinstance(result, Failure):
            # The failure of late work is that it was cancelled.
            waiter.errback(too_late if is_late else result)
        else:
            waiter.callback(result)

    work.addBoth(end)
    return waiter
