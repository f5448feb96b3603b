"""Delayed calls: functions that cancel or advance them, and calls with names."""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.interfaces import IDelayedCall, IReactorTime

__all__ = ["Timers", "call_by", "cancel_call"]


def cancel_call(call: IDelayedCall | None) -> None:
    """Cancel *call* if it exists and is still due."""
    if call is not None and call.active():
        call.cancel()


def call_by(
    when: float,
    call: IDelayedCall | None,
    action: Callable[[], object],
    clock: IReactorTime,
) -> IDelayedCall:
    """
    Return a call of *action* that is due at *when*, or sooner.

    :param when: a time of *clock*.
    :param call: the planned call; it is cancelled if it is later.
    """
    if call is not None and call.active():
        if call.getTime() <= when:
            return call
        call.cancel()
    return clock.callLater(max(0.0, when - clock.seconds()), action)


class Timers:
    """
    A set of delayed calls, at most one for each name: a later call replaces an earlier
    one.
    """

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._calls: dict[str, IDelayedCall] = {}

    def __contains__(self, name: str) -> bool:
        """Tell whether a call of this name is due."""
        call = self._calls.get(name)
        return call is not None and bool(call.active())

    def later(self, name: str, seconds: float, action: Callable[[], object]) -> None:
        """Call *action* after *seconds*; this replaces an earlier call of this name."""
        self.cancel(name)
        self._calls[name] = self._clock.callLater(seconds, action)

    def cancel(self, name: str) -> bool:
        """
        Cancel a call; return whether one was planned, even if it was already made.
        """
        call = self._calls.pop(name, None)
        cancel_call(call)
        return call is not None

    def cancel_all(self) -> None:
        """Cancel all calls."""
        for name in tuple(self._calls):
            self.cancel(name)
