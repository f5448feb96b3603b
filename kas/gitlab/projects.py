"""The projects of agents: where their repositories are, and what GitLab is told."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from kas.gitlab.client import GitLabClient
from kas.gitlab.reading import Said
from tunnel.errors import CallError, Status
from tunnel.interfaces import AgentProject, GitalyAddress

__all__ = ["AgentProjects"]

#: Agents of which it is known: ten times those that a kas is made for.
MAX_PROJECTS = 100_000


class AgentProjects:
    """
    What ``agent_info`` said beside who the agent is.

    :param client: None: there is no GitLab.
    """

    _log = Logger()

    def __init__(self, client: GitLabClient | None = None) -> None:
        self._client = client
        #: The one that was told longest ago stands first.
        self._known: OrderedDict[str, AgentProject] = OrderedDict()

    def get(self, agent_id: str) -> AgentProject | None:
        """Of an agent; None: GitLab said nothing of it."""
        return self._known.get(agent_id)

    def told(self, agent_id: str, said: dict[str, Any]) -> None:
        """GitLab answered with *said* for an agent; what cannot be read is left out."""
        try:
            project = _project(Said(said, "agent_info"))
        except CallError as error:
            self._log.warn(
                "the repository of agent {agent_id} is unknown: {reason}",
                agent_id=agent_id,
                reason=error.message,
            )
            return
        self._known.pop(agent_id, None)
        if project is not None:
            self._known[agent_id] = project
            if len(self._known) > MAX_PROJECTS:
                self._known.popitem(last=False)

    def register(self, agent_id: str, configuration: Mapping[str, Any]) -> None:
        """Tell GitLab how an agent of its own is configured; nothing waits for it."""
        if self._client is None or agent_id not in self._known:
            return
        body = {"agent_id": int(agent_id), "agent_config": configuration}
        telling = Deferred.fromCoroutine(self._register(self._client, body))
        telling.addErrback(
            lambda failure: self._log.failure("telling GitLab failed", failure)
        )

    async def _register(self, client: GitLabClient, body: Mapping[str, Any]) -> None:
        try:
            await client.post("agent_configuration", body)
        except CallError as error:
            tell = self._log.warn
            if error.status is Status.NOT_FOUND:
                tell = self._log.debug  # the agent was deleted
            tell(
                "GitLab does not know how agent {agent_id} is configured: {reason}",
                agent_id=body["agent_id"],
                reason=error.message,
            )


def _project(said: Said) -> AgentProject | None:
    gitaly, repository = (
        said.optional("gitaly_info"),
        said.optional("gitaly_repository"),
    )
    if gitaly is None or repository is None:
        return None
    features = gitaly.optional("features")
    full_path = repository.text("gl_project_path", optional=True)
    return AgentProject(
        full_path=full_path,
        default_branch=said.text("default_branch", optional=True),
        repository=GitalyAddress(
            address=gitaly.text("address"),
            token=gitaly.text("token", optional=True),
            features=()
            if features is None
            else tuple((name, features.text(name)) for name in sorted(features.names)),
            storage_name=repository.text("storage_name"),
            relative_path=repository.text("relative_path"),
            git_object_directory=repository.text("git_object_directory", optional=True),
            git_alternate_object_directories=repository.texts(
                "git_alternate_object_directories"
            ),
            gl_repository=repository.text("gl_repository", optional=True),
            gl_project_path=full_path,
        ),
    )
