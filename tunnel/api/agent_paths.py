"""Paths of modules at the listener for kubectl."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

import attrs
from zope.interface import Attribute, Interface

from tunnel.api.users import Access

__all__ = [
    "AgentPathRequest",
    "AgentPathsStarted",
    "IAgentPath",
    "IAgentPathResponse",
    "IAgentPaths",
]


@attrs.frozen
class AgentPathRequest:
    """
    A request below ``/agents/<agent>/<name>``, whose credential kas has checked.

    :ivar access: the rights of the client at the agent.
    :ivar path: the path below the name, percent-encoded as the client sent it; it
        begins with a slash.
    :ivar query: the query without ``?``, as the client sent it.
    :ivar fields: values of the header fields, by name in lower case; without
        credentials.
    """

    access: Access
    method: str
    path: str
    query: str = attrs.field(repr=False)
    fields: Mapping[str, str] = attrs.field(repr=False)
    body: bytes = attrs.field(repr=False)


class IAgentPathResponse(Interface):
    """The response to an `AgentPathRequest`: at once, or part by part."""

    def respond(status: int, content_type: str, body: bytes) -> None:
        """Send a complete response."""

    def stream(status: int, content_type: str) -> None:
        """Begin a response of unknown length; it ends when `IAgentPath.answer` ends."""

    def write(data: bytes) -> Awaitable[None]:
        """
        Send a part of the body, and wait while the client reads too slowly.
        """


class IAgentPath(Interface):
    """Implementation of the paths below one name."""

    max_body_bytes: int = Attribute("Maximum bytes of the body of a request.")

    is_kubernetes: bool = Attribute(
        "Whether the paths below the name are paths of the Kubernetes API, so that the "
        "audit log contains the objects of the requests."
    )

    def answer(
        request: AgentPathRequest, response: IAgentPathResponse
    ) -> Awaitable[None]:
        """
        Respond to a request; cancelled if the client leaves or its credential is
        revoked.

        After an exception, the client gets an error 500, or, if the response has begun,
        an incomplete response.  kas logs every exception but a
        `tunnel.errors.CallError`.
        """

    def render_error(status: int, message: str) -> tuple[str, bytes]:
        """
        Return content type and body of an error of kas itself, such as 401 or 429, in
        the format that the clients of this path understand.
        """


class IAgentPaths(Interface):
    """
    Capability of the module ``kubernetes_api``: see `ICapabilities`.

    Paths of modules have the same host, port and credentials as the Kubernetes API, so
    a client needs only one address.  The limits on concurrent requests apply to both.
    """

    def serve(name: str, path: IAgentPath) -> Callable[[], None]:
        """
        Serve requests for ``/agents/<agent>/<name>/…``, also of read-only credentials.

        The path must not change anything in the cluster, because kas lets read-only
        credentials use it with any method.

        :param name: 1 to 32 lower-case letters and hyphens; not ``api`` or another
            first part of a path of API servers.
        :return: a function that withdraws the path; call it when the module stops.
        :raises ValueError: the name is invalid, or served already.
        """


@attrs.frozen
class AgentPathsStarted:
    """In kas: `IAgentPaths` is available, for the first time or after a restart."""
