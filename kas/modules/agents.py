"""The connected agents, and the problems that modules report about them."""

from __future__ import annotations

from collections.abc import Mapping

from zope.interface import implementer

from kas.agents.registry import Registry
from kas.routing.router import Router
from tunnel.api import ConnectedAgent, IAgents
from tunnel.hosting.scope import ModuleScope

__all__ = ["MAX_PROBLEM", "MAX_PROBLEMS", "AgentProblems", "ModuleAgents"]

#: Maximum number of agents' problems that one module may report: as many as a large kas
#: has agents.
MAX_PROBLEMS = 10_000

#: Maximum characters of one problem.
MAX_PROBLEM = 1000


class AgentProblems:
    """
    Table of the problems of agents, by module and agent id, each with the agent's name.
    """

    def __init__(self) -> None:
        self._by_module: dict[str, dict[str, tuple[str, str]]] = {}

    @property
    def by_module(self) -> Mapping[str, Mapping[str, tuple[str, str]]]:
        """Problems by module, only for modules that have reported some."""
        return self._by_module

    def show(self, module: str, agent_id: str, agent_name: str, problem: str) -> None:
        """Set the problem of an agent; an empty text removes it."""
        problems = self._by_module.setdefault(module, {})
        problems.pop(agent_id, None)
        if problem and len(problems) < MAX_PROBLEMS:
            problems[agent_id] = (agent_name, problem[:MAX_PROBLEM])

    def forget(self, module: str) -> None:
        """Drop the problems that a module has reported."""
        self._by_module.pop(module, None)


@implementer(IAgents)
class ModuleAgents:
    """Implementation of `IAgents` for one module."""

    def __init__(
        self,
        scope: ModuleScope,
        registry: Registry,
        router: Router,
        problems: AgentProblems,
    ) -> None:
        self._name = scope.name
        self._registry = registry
        self._router = router
        self._problems = problems
        scope.on_release(lambda: problems.forget(scope.name))

    def connected(self) -> list[ConnectedAgent]:
        """Return all connections of agents to this kas."""
        return [connection.agent for connection in self._registry]

    async def find(
        self, agent_id: str = "", project_id: int = 0
    ) -> list[ConnectedAgent]:
        """
        Return the connections of one agent, of the agents of one project, or of all
        agents.
        """
        found = await self._router.directory.agents(
            agent_id=agent_id, project_id=project_id
        )
        return [record.agent for record in found]

    def show_problem(self, agent_id: str, agent_name: str, problem: str) -> None:
        """Report a problem of an agent, for ``kasctl status``."""
        self._problems.show(self._name, agent_id, agent_name, problem)
