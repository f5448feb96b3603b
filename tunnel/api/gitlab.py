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
    """The project of GitLab that an agent is registered in."""

    #: Empty where GitLab does not say it.
    full_path: str
    default_branch: str
    repository: GitalyAddress


class IGitLabResponse(Interface):
    """
    Response of GitLab, whose body is read part by part, while GitLab waits.

    ``async for part in response`` yields all of it; close a response that you do not
    read to its end.  Reading fails with a `tunnel.errors.CallError`.
    """

    status: int = Attribute("Of the answer; redirects (3xx) are not followed.")
    headers: Mapping[str, tuple[str, ...]] = Attribute(
        "By name in lower case, without cookies and connection fields."
    )

    def __aiter__() -> AsyncIterator[bytes]:
        """Iterate over the parts of the body."""

    def read(limit: int = 1024 * 1024) -> Awaitable[bytes]:
        """
        Return the rest of the body.

        :raises CallError: RESOURCE_EXHAUSTED, it has more than *limit* bytes.
        """

    def close() -> None:
        """Read no more; does nothing after the end."""


class IGitLab(Interface):
    """GitLab, asked through kas: what it has for this module, and nothing else."""

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

        It returns a response of any status.  kas adds its signature and the agent's
        token; it does not forward credentials, cookies and upgrades in *headers*.

        :param path: empty, or beginning with ``/``; percent-encoded, without a query.
        :param body: bytes have a known length for GitLab.
        :param timeout: seconds until DEADLINE_EXCEEDED, at most an hour, including the
            response's body.
        :raises CallError: GitLab did not respond, and the message names the place:
            FAILED_PRECONDITION, kas has no ``gitlab`` in its configuration;
            UNAVAILABLE, kas cannot reach GitLab, or agentk cannot reach kas;
            RESOURCE_EXHAUSTED, too many requests of this agent; INVALID_ARGUMENT, the
            request is invalid; DEADLINE_EXCEEDED.
        """


class IProjects(Interface):
    """Projects of agents at GitLab: `IServerModuleApi.gitlab`."""

    def project(agent_id: str) -> AgentProject | None:
        """Return GitLab's last information on an agent's project; None without any."""

    def register_configuration(agent_id: str, configuration: Mapping[str, Any]) -> None:
        """Tell GitLab, where it has the agent, how the agent is configured."""
