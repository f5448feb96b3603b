"""Waits for work that may survive its cancellation, or must."""

from __future__ import annotations

from typing import Any, TypeVar

from twisted.internet.defer import CancelledError, Deferred, TimeoutError
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.python.failure import Failure

from tunnel.toolkit.timers import cancel_call

__all__ = ["shielded", "within"]

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


async def shielded(work: Deferred[_T], seconds: float, clock: IReactorTime) -> _T:
    """
    Return the result of *work*, and continue the work if the caller is cancelled.

    The caller's cancellation takes effect when the work has ended.  This is for a
    request whose effect must be recorded: the server may have acted on it already.

    :param seconds: the time from the cancellation until the work is cancelled and no
        longer awaited.
    :raises CancelledError: if the caller was cancelled.
    """
    ends: list[_T | Failure] = []
    waiter: Deferred[None] = Deferred()
    cancelled: CancelledError | None = None
    call: IDelayedCall | None = None
    is_late = False

    def wake() -> None:
        if not waiter.called:
            waiter.callback(None)

    def end(result: _T | Failure) -> None:
        ends.append(result)
        wake()

    def give_up() -> None:
        nonlocal is_late
        is_late = True
        work.cancel()
        wake()

    work.addBoth(end)
    while not (ends or is_late):
        try:
            await waiter
        except CancelledError as error:
            cancelled = error
            waiter = Deferred()
            call = call or clock.callLater(seconds, give_up)
    cancel_call(call)
    if cancelled is not None:
        raise cancelled
    (result,) = ends
    if isinstance(result, Failure):
        result.raiseException()
    return result
