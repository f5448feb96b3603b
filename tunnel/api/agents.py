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
    #: The project that the agent belongs to; 0: none.
    project_id: int = 0
    services: frozenset[str] = frozenset()
    #: Why the agent cannot reach its cluster, as text for users; empty: it can.
    cluster_problem: str = ""
    #: Of its machine; known to the kas that it is connected to, as is *telemetry*: how
    #: it was installed, by GitLab's names.
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
        Return the connections of an agent, of a project's agents, or all, at any kas.

        :raises CallError: UNAVAILABLE, no kas can know.
        """

    def show_problem(agent_id: str, agent_name: str, problem: str) -> None:
        """
        Have ``kasctl status`` show what is wrong with an agent.

        :param problem: at most 1000 characters; empty: nothing is wrong.
        """
