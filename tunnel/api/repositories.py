"""Git repositories in kas' configuration, for each module that reads some."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping
from pathlib import Path
from urllib.parse import urlsplit

import attrs

from tunnel.api.agents import ConnectedAgent
from tunnel.api.git import GitAddress, GitalyAddress
from tunnel.api.modules import IServerModuleApi
from tunnel.config import ExistingFile, Invalid, field
from tunnel.errors import CallError, Status

__all__ = [
    "RepositorySettings",
    "agents_match",
    "is_period",
    "project_of",
    "readable_repository",
]

#: Minimum number of seconds between two checks of a repository; each check is a fetch.
MIN_PERIOD = 1.0

#: Maximum number of repositories that a message names.
SHOWN = 5


def is_period(instance: object, attribute: object, value: float) -> None:
    """Validate the time between two checks of a repository."""
    if value <= 0:
        raise ValueError("must be more than 0")
    if value < MIN_PERIOD:
        raise ValueError(f"must be at least {MIN_PERIOD:g}s")


def _is_url(instance: object, attribute: object, value: str) -> None:
    try:
        url = urlsplit(value)
        port = url.port
    except ValueError:
        # Omit Python's message, because it repeats the text in place of the port.
        raise ValueError(
            "this is not a URL; write https://git.example.org/group/project.git"
        ) from None
    if not value:
        return
    # Messages omit the value, because it may contain a password.
    if url.scheme not in ("http", "https") or not url.hostname or port == 0:
        raise ValueError("write https://git.example.org/group/project.git")
    if url.username or url.password:
        raise ValueError(
            "it must not contain a user name or password: use credentials_file"
        )


def project_of(api: IServerModuleApi, agent: ConnectedAgent) -> str | None:
    """
    Return the path of an agent's project at GitLab; None if GitLab does not have the
    agent.

    The path is empty if this kas does not know it: the agent is connected to another
    kas, or GitLab did not report it.
    """
    project = api.gitlab.project(agent.agent_id)
    if project is not None:
        return project.full_path
    return "" if agent.project_id else None


def agents_match(
    patterns: Iterable[str], agent_name: str, project: str | None = None
) -> bool:
    """
    Tell whether one of *patterns* names an agent.

    Names of agents are unique in the identity file, so a pattern without a project's
    path, ``NAME``, matches these agents.  At GitLab, several projects may have an agent
    of the same name, so agents of GitLab only match a pattern with the project's path,
    ``PATH:NAME``.

    :param project: see `project_of`.
    """
    name = agent_name if project is None else f"{project}:{agent_name}"
    return any(
        fnmatch.fnmatchcase(name, one)
        for one in patterns
        if (":" in one) == (project is not None)
    )


@attrs.frozen(kw_only=True)
class RepositorySettings:
    """One entry of ``repositories`` in the configuration of a module."""

    path: Path | None = field(default=None, doc="a folder with a Git repository")
    url: str = field(default="", doc="of a Git server over HTTP", validator=_is_url)
    credentials_file: ExistingFile | None = field(
        default=None, doc="one line, user:password, for the Git server"
    )
    ca_certificate_file: ExistingFile | None = field(
        default=None, doc="PEM certificates that sign the server's"
    )
    branch: str = field(default="HEAD", doc="the branch; HEAD is the default branch")
    agents: tuple[str, ...] = field(
        default=("*",),
        doc="names of agents, with * for any characters; of GitLab's agents "
        "<path of the project>:<name>",
    )

    def __attrs_post_init__(self) -> None:
        if (self.path is None) == (not self.url):
            raise Invalid("write either path or url")
        if self.path is not None and self.credentials_file is not None:
            raise Invalid("a path needs no credentials", "credentials_file")

    @property
    def address(self) -> GitAddress:
        """Return the address of the repository."""
        return GitAddress(
            path=self.path,
            url=self.url,
            credentials_file=self.credentials_file,
            ca_certificate_file=self.ca_certificate_file,
        )

    def has(self, agent_name: str, project: str | None = None) -> bool:
        """
        Tell whether this repository contains the configuration of an agent of this
        name.

        :param project: path of the agent's project at GitLab, see `project_of`.
        """
        return agents_match(self.agents, agent_name, project)


def readable_repository(
    api: IServerModuleApi,
    repositories: Mapping[str, RepositorySettings],
    agent: ConnectedAgent,
    wanted: str,
    section: str,
) -> tuple[str, GitAddress | GitalyAddress, int]:
    """
    Return the name, address and GitLab project of a repository that an agent may read.

    :param repositories: the repositories in the module's configuration, by name.
    :param wanted: the name of a repository, or the path of the agent's own project at
        GitLab; empty for the first repository that the agent may read.
    :param section: the key of *repositories* in kas' configuration, for messages.
    :raises CallError: FAILED_PRECONDITION if the agent may not read the repository.
    """
    project = api.gitlab.project(agent.agent_id)
    own = project_of(api, agent)
    if project is not None and wanted in ("", own):
        return project.full_path, project.repository, agent.project_id
    names = [
        name for name, one in repositories.items() if one.has(agent.agent_name, own)
    ]
    for name in names:
        if wanted in ("", name):
            return name, repositories[name].address, 0
    # Do not reveal whether a repository exists that the agent may not read.
    which = f"the repository {wanted[:200]!r}" if wanted else "a repository"
    found = ([] if own is None else [own]) + names
    more = "" if len(found) <= SHOWN else ", …"
    readable = f"; it may read: {', '.join(found[:SHOWN])}{more}" if found else ""
    raise CallError(
        Status.FAILED_PRECONDITION,
        f"agent {agent.agent_name} may not read {which}: list it in {section} of kas' "
        f"configuration file, with this agent in agents{readable}",
    )
