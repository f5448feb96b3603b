"""
Projects of agents in GitLab: the addresses of their repositories, and posts of their
configuration to GitLab.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger
from zope.interface import implementer

from kas.gitlab.client import GitLabClient
from kas.gitlab.json_object import JsonObject
from tunnel.api import (
    AgentProject,
    GitalyAddress,
    IProjects,
)
from tunnel.errors import CallError, Status
from tunnel.toolkit.backoff import Backoff
from tunnel.toolkit.interruptible import Interruptible
from tunnel.toolkit.recent import Recent

__all__ = ["AgentProjects"]

#: Maximum number of agents with a known project: ten times the number of agents of a
#: large kas.
MAX_PROJECTS = 100_000

#: Seconds before kas posts a refused configuration to GitLab again: first and maximum
#: pause.  Until then, GitLab uses the permissions of the previous configuration.
TELL_FIRST, TELL_MOST = 10.0, 600.0

_T = TypeVar("_T")


@implementer(IProjects)
class AgentProjects:
    """
    Record of the agents' projects, from GitLab's responses to ``agent_info``.

    :param client: the client of GitLab; None if kas has no GitLab.
    :param jitter: returns a number between 0 and 1, for pauses.
    :param moved: called with the id of an agent whose repository has moved.
    """

    _log = Logger()

    def __init__(
        self,
        clock: IReactorTime,
        client: GitLabClient | None = None,
        jitter: Callable[[], float] = random.random,
        moved: Callable[[str], object] = lambda _: None,
    ) -> None:
        self._clock = clock
        self._client = client
        self._jitter = jitter
        self._moved = moved
        self._known: Recent[str, AgentProject] = Recent(MAX_PROJECTS)
        #: Last configuration of each agent that still has to be posted to GitLab.
        self._untold: dict[str, Mapping[str, Any]] = {}
        #: Running posts, by agent; each can be interrupted while it waits for its next
        #: attempt.
        self._telling: dict[str, Interruptible] = {}

    def project(self, agent_id: str) -> AgentProject | None:
        """Return the project of an agent; None if GitLab has not named it."""
        return self._known.get(agent_id)

    def update(self, agent_id: str, said: dict[str, Any]) -> None:
        """
        Record the project in GitLab's response *said* about an agent.

        An unreadable part is unknown from now on; the former project does not stay,
        because its path may give access to the agent.
        """
        unreadable: list[CallError] = []
        project = _project(JsonObject(said, "agent_info"), unreadable.append)
        for error in unreadable:
            self._log.warn(
                "a part of the project of agent {agent_id} is unknown: {reason}",
                agent_id=agent_id,
                reason=error.message,
            )
        before = self._known.pop(agent_id, None)
        if project is not None:
            self._known[agent_id] = project
            if before is not None and project != before:
                self._moved(agent_id)

    def register_configuration(
        self, agent_id: str, configuration: Mapping[str, Any]
    ) -> None:
        """
        Post the configuration of a GitLab agent in the background.

        Posts run one after the other, so that an older configuration never replaces a
        newer one, and are repeated until GitLab has accepted the last one.
        """
        if self._client is None or agent_id not in self._known:
            return
        self._untold[agent_id] = configuration
        if (pause := self._telling.get(agent_id)) is not None:
            pause.interrupt()
        else:
            self._telling[agent_id] = Interruptible()
            telling = Deferred.fromCoroutine(self._tell(self._client, agent_id))
            telling.addErrback(
                lambda failure: self._log.failure(
                    "posting a configuration to GitLab failed", failure
                )
            )
            telling.addBoth(lambda _: self._telling.pop(agent_id))

    async def _tell(self, client: GitLabClient, agent_id: str) -> None:
        backoff = Backoff(self._jitter, TELL_FIRST, TELL_MOST)
        while agent_id in self._untold:
            configuration = self._untold.pop(agent_id)
            body = {"agent_id": int(agent_id), "agent_config": configuration}
            try:
                await client.post("agent_configuration", body)
            except CallError as error:
                gone = error.status is Status.NOT_FOUND  # the agent was deleted
                tell = self._log.debug if gone else self._log.warn
                tell(
                    (
                        "GitLab did not accept the configuration of agent {agent_id}: "
                        "{reason}"
                    ),
                    agent_id=agent_id,
                    reason=error.message,
                )
                if not gone:
                    self._untold.setdefault(agent_id, configuration)
                    pause = self._telling[agent_id]
                    pause.begin()
                    await pause.run(deferLater(self._clock, backoff.pause()))
            else:
                backoff.reset()


def _project(
    said: JsonObject, unreadable: Callable[[CallError], object]
) -> AgentProject | None:
    """
    Return the project in a response; None without a readable repository.

    Its path is empty if any part of the response is unreadable.

    :param unreadable: called with the error of each unreadable part.
    """
    refused: list[CallError] = []

    def read(part: Callable[[], _T], otherwise: _T) -> _T:
        try:
            return part()
        except CallError as error:
            refused.append(error)
            unreadable(error)
            return otherwise

    repository = read(partial(_repository, said), None)
    branch = read(partial(said.text, "default_branch", optional=True), "")
    path = read(partial(_path, said), "")
    if repository is None:
        return None
    path = "" if refused else path
    repository = attrs.evolve(repository, gl_project_path=path)
    return AgentProject(full_path=path, default_branch=branch, repository=repository)


def _path(said: JsonObject) -> str:
    repository = said.optional("gitaly_repository")
    if repository is None:
        return ""
    return repository.text("gl_project_path", optional=True)


def _repository(said: JsonObject) -> GitalyAddress | None:
    gitaly = said.optional("gitaly_info")
    repository = said.optional("gitaly_repository")
    if gitaly is None or repository is None:
        return None
    features = gitaly.optional("features")
    return GitalyAddress(
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
    )
