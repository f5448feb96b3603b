"""Waiting for something that nobody announces."""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

#: Seconds between two looks.
STEP = 0.1


async def until(
    true: Callable[[], bool], clock: IReactorTime, seconds: float, step: float = STEP
) -> bool:
    """
    Wait until *true* says so, at most *seconds*.

    :return: whether it did.
    """
    while not true():
        if seconds <= 0:
            return False
        pause: Deferred[None] = Deferred()
        clock.callLater(step, pause.callback, None)
        await pause
        seconds -= step
    return True
