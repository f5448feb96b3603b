"""GitLab: projects of agents, and requests to it."""

from __future__ import annotations

from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Mapping,
)
from typing import Any

import attrs
from zope.interface import Attribute, Interface

from tunnel.api.git import GitalyAddress

__all__ = [
    "AgentProject",
    "IGitLab",
    "IGitLabResponse",
    "IProjects",
]


@attrs.frozen(kw_only=True)
class AgentProject:
    """The GitLab project of an agent's registration."""

    #: Path of the project with its groups; empty if GitLab does not report it.
    full_path: str
    default_branch: str
    repository: GitalyAddress


class IGitLabResponse(Interface):
    """
    A response of GitLab; its body is read part by part, while GitLab waits.

    ``async for part in response`` yields the whole body; close a response that you do
    not read to its end.  Reading fails with a `tunnel.errors.CallError`.
    """

    status: int = Attribute(
        "Status code of the response; redirects (3xx) are not followed."
    )
    headers: Mapping[str, tuple[str, ...]] = Attribute(
        "Header fields by name in lower case, without cookies and connection fields."
    )

    def __aiter__() -> AsyncIterator[bytes]:
        """Iterate over the parts of the body."""

    def read(limit: int = 1024 * 1024) -> Awaitable[bytes]:
        """
        Return the rest of the body.

        :raises CallError: RESOURCE_EXHAUSTED if the rest has more than *limit* bytes.
        """

    def close() -> None:
        """Stop reading; does nothing after the end."""


class IGitLab(Interface):
    """
    GitLab's API for this module, reached through kas; no other path is accessible.
    """

    def request(
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes | AsyncIterable[bytes] = b"",
        timeout: float = 60.0,
    ) -> Awaitable[IGitLabResponse]:
        """
        Send a request to ``/api/v4/internal/kubernetes/modules/<module>`` and *path*.

        Returns a response of any status.  kas adds its signature and the agent's token;
        it does not forward credentials, cookies or upgrades in *headers*.

        :param path: empty, or beginning with ``/``; percent-encoded, without a query.
        :param body: with bytes, GitLab learns the length in advance.
        :param timeout: seconds until DEADLINE_EXCEEDED, at most an hour, including the
            response's body.
        :raises CallError: with the reason: FAILED_PRECONDITION if ``gitlab`` is missing
            in the configuration of kas; UNAVAILABLE if kas cannot reach GitLab, agentk
            cannot reach kas, or kas does not know the agent's token;
            RESOURCE_EXHAUSTED if too many requests of this agent, or of all agents, are
            in progress; INVALID_ARGUMENT if the request is invalid; DEADLINE_EXCEEDED
            if the timeout passed.
        """


class IProjects(Interface):
    """
    Projects of agents at GitLab, and reports about them: `IServerModuleApi.gitlab`.
    """

    def project(agent_id: str) -> AgentProject | None:
        """Return GitLab's latest data on an agent's project; None if there is none."""

    def register_configuration(agent_id: str, configuration: Mapping[str, Any]) -> None:
        """
        Report an agent's configuration to GitLab, if the agent is registered there.
        """
