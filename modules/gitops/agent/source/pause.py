"""Pause before a request to kas is repeated."""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.defer import Deferred

from tunnel.api import (
    IAgentModuleApi,
    TunnelConnected,
)
from tunnel.toolkit.timers import cancel_call

__all__ = ["ASK_FIRST", "ASK_MOST", "pause"]

#: Minimum and maximum seconds before a request to kas is repeated, as in GitLab's
#: agent; also for other failed reads and notifications.
ASK_FIRST, ASK_MOST = 10.0, 300.0


async def pause(
    api: IAgentModuleApi,
    seconds: float,
    random: Callable[[], float],
    over: Deferred[None] | None = None,
) -> None:
    """
    Wait for *seconds*, or at most `ASK_FIRST` after agentk has reconnected to kas.

    :param random: returns a number from 0 to 1, so that not all agents send their
        requests at once when kas returns.
    :param over: Deferred that the caller fires to end the pause early.
    """
    over = Deferred() if over is None else over
    call = api.clock.callLater(seconds, over.callback, None)

    def sooner(_: TunnelConnected) -> None:
        left = call.getTime() - api.clock.seconds()
        call.reset(min(left, ASK_FIRST * random()))

    end = api.events.subscribe(TunnelConnected, sooner)
    try:
        await over
    finally:
        end()
        cancel_call(call)
