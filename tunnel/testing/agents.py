"""The connected agents in tests of server halves."""

from __future__ import annotations

from zope.interface import implementer

from tunnel.api import ConnectedAgent, IAgents
from tunnel.testing.ends import AGENT

__all__ = ["FakeAgents"]


@implementer(IAgents)
class FakeAgents:
    """`IAgents` with one connected agent, ``1`` or ``agent-1``."""

    def __init__(self) -> None:
        #: Problems of agents that the module reported, by their ids.
        self.problems: dict[str, str] = {}

    def connected(self) -> list[ConnectedAgent]:
        return [AGENT]

    async def find(
        self, agent_id: str = "", project_id: int = 0
    ) -> list[ConnectedAgent]:
        return [
            agent
            for agent in self.connected()
            if agent_id in ("", agent.agent_id) and project_id in (0, agent.project_id)
        ]

    def show_problem(self, agent_id: str, agent_name: str, problem: str) -> None:
        self.problems[agent_id] = problem
        if not problem:
            del self.problems[agent_id]
