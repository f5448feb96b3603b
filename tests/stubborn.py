"""A coroutine that does not end when a caller cancels it."""

from __future__ import annotations

from typing import NoReturn

from twisted.internet.defer import CancelledError, Deferred

__all__ = ["stubborn"]


async def stubborn() -> NoReturn:
    """Survive every cancellation."""
    while True:
        try:
            await Deferred()
        except CancelledError:
            continue
