"""Notices of agents that rights in their clusters have changed, at a limited rate."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from twisted.internet.interfaces import IDelayedCall, IReactorTime

from tunnel.toolkit.timers import cancel_call

__all__ = ["NOTICE_SECONDS", "RightsNotices"]

#: Minimum number of seconds between two notices of one agent.  agentk sends two within
#: four seconds, and then one in ten seconds.  Each makes the queries about the agent
#: run again, so an agent that sends thousands would keep kas busy.
NOTICE_SECONDS: Final = 1.0


class RightsNotices:
    """
    Passes on the notices of all agents: the first one of an agent at once, and others
    together, later.

    :param notify: called with the id of the agent.
    """

    def __init__(self, clock: IReactorTime, notify: Callable[[str], None]) -> None:
        self._clock = clock
        self._notify = notify
        #: The call that ends the pause of each agent whose notice was passed on, and
        #: whether another one has arrived since.
        self._pauses: dict[str, IDelayedCall] = {}
        self._again: set[str] = set()

    def received(self, agent_id: str) -> None:
        """Handle a notice."""
        if agent_id in self._pauses:
            self._again.add(agent_id)
        else:
            self._pass_on(agent_id)

    def stop(self) -> None:
        """Drop the notices that wait."""
        pauses, self._pauses = self._pauses, {}
        self._again.clear()
        for call in pauses.values():
            cancel_call(call)

    def _pass_on(self, agent_id: str) -> None:
        self._pauses[agent_id] = self._clock.callLater(
            NOTICE_SECONDS, partial(self._paused, agent_id)
        )
        self._notify(agent_id)

    def _paused(self, agent_id: str) -> None:
        del self._pauses[agent_id]
        if agent_id in self._again:
            self._again.discard(agent_id)
            self._pass_on(agent_id)
