"""Waits for conditions that no event announces."""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater

#: Seconds between two checks.
STEP = 0.1


async def until(
    true: Callable[[], bool], clock: IReactorTime, seconds: float, step: float = STEP
) -> bool:
    """
    Wait until *true* returns True, for at most *seconds*.

    :returns: whether *true* returned True in time.
    """
    end = clock.seconds() + seconds
    while not true():
        left = end - clock.seconds()
        if left <= 0:
            return False
        await deferLater(clock, min(step, left))
    return True


async def rest_of(period: float, since: float, clock: IReactorTime) -> None:
    """Wait until *period* seconds have passed since the time *since*."""
    await until(lambda: False, clock, period - (clock.seconds() - since))
