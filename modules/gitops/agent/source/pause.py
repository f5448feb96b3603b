"""The pause before kas is asked again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred

from tunnel.api import IAgentModuleApi
from tunnel.toolkit.timers import cancel_call

__all__ = ["ASK_FIRST", "ASK_MOST", "pause"]

#: Seconds before kas is asked again, at first and at most, as GitLab's agent has them;
#: and before what could not be read or told now is tried again.
ASK_FIRST, ASK_MOST = 10.0, 300.0


async def pause(
    api: IAgentModuleApi,
    seconds: float,
    random: Callable[[], float],
    over: Deferred[None] | None = None,
) -> None:
    """
    Wait for *seconds*; once agentk is connected to kas again, `ASK_FIRST` at most.

    :param random: from 0 to 1: not all agents of a kas that comes back ask it at once.
    :param over: ends the pause early when the caller fires it.
    """
    over = Deferred() if over is None else over
    call = api.clock.callLater(seconds, over.callback, None)

    def sooner(_: Any) -> None:
        left = call.getTime() - api.clock.seconds()
        call.reset(min(left, ASK_FIRST * random()))

    end = api.subscribe("tunnel.connected", sooner)
    try:
        await over
    finally:
        end()
        cancel_call(call)
