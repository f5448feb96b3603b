"""The agents that a user of the page may reach, and what kas knows of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from twisted.internet.interfaces import IReactorTime

from tunnel.api import ConnectedAgent, IAgents, Reach
from tunnel.errors import CallError, Status
from tunnel.toolkit.single_flight import SingleFlight

__all__ = ["ReachedAgents"]

#: Seconds for which the list of all connections is remembered: with Redis, kas asks
#: it for each agent, and each user opens the same page.
REMEMBERED_SECONDS: Final = 2.0


class ReachedAgents:
    """
    Answers about the agents of one user.

    :param now: returns the time of day.
    """

    def __init__(
        self, agents: IAgents, clock: IReactorTime, now: Callable[[], float]
    ) -> None:
        self._agents = agents
        self._clock = clock
        self._now = now
        self._connections = SingleFlight(self._find)
        self._found: dict[str, ConnectedAgent] = {}
        self._found_at = -REMEMBERED_SECONDS

    async def answer(self, reach: Callable[[], Awaitable[Reach]]) -> dict[str, Any]:
        """
        Return the agents as JSON.

        :param reach: returns the agents that the user may reach.
        :raises CallError: see `IUsers.reach`, except for UNIMPLEMENTED.
        """
        try:
            found = await reach()
        except CallError as error:
            if error.status is not Status.UNIMPLEMENTED:
                raise
            found = Reach("", "", (), is_complete=False)
        reason = ""
        if not found.is_complete:
            reason = "kas cannot list all clusters of this user; open one by its name"
        try:
            connected = await self._connected()
        except CallError as error:
            connected, reason = {}, error.message
        agents = []
        for one in found.agents:
            about: dict[str, Any] = {
                "id": one.agent_id,
                "name": one.agent_name,
                "labels": dict(one.labels),
                "connected": one.agent_id in connected,
            }
            agent = connected.get(one.agent_id)
            if agent is not None:
                about["agentkVersion"] = agent.version
                about["kubernetesVersion"] = agent.kubernetes_version.git_version
            agents.append(about)
        return {
            "agents": agents,
            "asOf": self._now(),
            "complete": found.is_complete,
            "reason": reason,
        }

    async def _connected(self) -> dict[str, ConnectedAgent]:
        """Return one connection of each agent."""
        if self._clock.seconds() - self._found_at >= REMEMBERED_SECONDS:
            await self._connections.get()
        return self._found

    async def _find(self) -> None:
        found = await self._agents.find()
        # The newest connection decides about the versions.
        found = sorted(found, key=lambda one: one.connected_at)
        self._found = {one.agent_id: one for one in found}
        self._found_at = self._clock.seconds()
