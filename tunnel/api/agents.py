"""Agents that are connected to kas."""

from __future__ import annotations

from collections.abc import (
    Awaitable,
)

import attrs
from zope.interface import Interface

__all__ = [
    "ConnectedAgent",
    "IAgents",
    "KubernetesVersion",
]


@attrs.frozen
class KubernetesVersion:
    """Version of the API server next to an agent; empty where unknown."""

    major: str = ""
    minor: str = ""
    git_version: str = ""
    platform: str = ""


@attrs.frozen
class ConnectedAgent:
    """One connection of an agent, as a kas sees it."""

    agent_id: str
    agent_name: str
    instance_id: bytes
    generation: int
    #: Unix time in seconds.
    connected_at: float
    version: str = ""
    commit_id: str = ""
    pod_namespace: str = ""
    pod_name: str = ""
    kubernetes_version: KubernetesVersion = KubernetesVersion()
    #: ID of the GitLab project that the agent belongs to; 0 without a project.
    project_id: int = 0
    services: frozenset[str] = frozenset()
    #: Reason why the agent cannot reach its cluster, as text for users; empty if it
    #: can.
    cluster_problem: str = ""
    #: Architecture of the agent's machine.  Only the kas that holds the connection
    #: knows this attribute and *telemetry*, which describes the agent's installation
    #: under GitLab's names.
    architecture: str = ""
    telemetry: tuple[tuple[str, str], ...] = ()


class IAgents(Interface):
    """The connected agents: `IServerModuleApi.agents`."""

    def connected() -> list[ConnectedAgent]:
        """Return every connection that this kas holds now."""

    def find(
        agent_id: str = "", project_id: int = 0
    ) -> Awaitable[list[ConnectedAgent]]:
        """
        Return the connections of one agent, of the agents of a project, or of all
        agents, to any kas.

        :raises CallError: UNAVAILABLE if the agents of other kas cannot be looked up.
        """

    def show_problem(agent_id: str, agent_name: str, problem: str) -> None:
        """
        Set the problem that ``kasctl status`` shows for an agent.

        :param problem: at most 1000 characters; an empty text removes the problem.
        """
