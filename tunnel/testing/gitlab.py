"""Projects of agents at GitLab, in tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zope.interface import implementer

from tunnel.api import AgentProject, IProjects

__all__ = ["FakeProjects"]


@implementer(IProjects)
class FakeProjects:
    """`IProjects` with projects from the test."""

    def __init__(self) -> None:
        #: Agents' projects, by the ids of agents.
        self.projects: dict[str, AgentProject] = {}
        #: Agents' configurations that were posted to GitLab.
        self.registered: list[tuple[str, dict[str, Any]]] = []

    def project(self, agent_id: str) -> AgentProject | None:
        return self.projects.get(agent_id)

    def register_configuration(
        self, agent_id: str, configuration: Mapping[str, Any]
    ) -> None:
        self.registered.append((agent_id, dict(configuration)))
