"""Calls of protobuf services: answered by a module, or sent to the other side."""

from __future__ import annotations

from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Mapping,
)
from typing import Any

from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message import Message
from zope.interface import Attribute, Interface

from tunnel.api.streams import (
    DEFAULT_OPTIONS,
    IOpening,
    IStream,
    IStreamReceiver,
    StreamOptions,
)
from tunnel.api.users import Access

__all__ = [
    "CLIENT_ADDRESS",
    "OPERATOR",
    "IAgentCalls",
    "ICalls",
    "IClientCall",
    "IServerCalls",
    "IServiceClient",
]


#: Key of a call's metadata in the external API: the client's address as kas sees it;
#: empty for a call through a Unix socket.
CLIENT_ADDRESS = "client-address"


#: Key of a call's metadata: the operating system user of `kasctl`, as `kasctl` reports
#: it.
OPERATOR = "kasctl-operator"


class IClientCall(Interface):
    """A call in progress: sends requests, returns responses, and can be cancelled."""

    metadata: Mapping[str, str] = Attribute(
        "Metadata of the response; empty until it arrives."
    )

    def send(request: Message) -> Awaitable[None]:
        """
        Send one request, after a wait for room if necessary.

        :raises CallError: if the call has ended.
        """

    def finish() -> None:
        """Announce to the other side that no further request follows."""

    def response() -> Awaitable[Any]:
        """Return the response of a call that has exactly one."""

    def __aiter__() -> AsyncIterator[Any]:
        """Iterate over the responses."""

    def cancel() -> None:
        """Cancel the call; does nothing once the call has ended."""


class IServiceClient(Interface):
    """
    Client for the methods of one service.

    Responses are messages of the method's type.  Every failure is a
    `tunnel.errors.CallError`.
    """

    def call(
        method: str,
        request: Message,
        *,
        timeout: float = 0,
        metadata: Mapping[str, str] | None = None,
    ) -> Awaitable[Any]:
        """
        Send one request and return its single response.

        :param timeout: seconds until DEADLINE_EXCEEDED; 0 for no timeout.
        """

    def stream(
        method: str,
        request: Message,
        *,
        timeout: float = 0,
        metadata: Mapping[str, str] | None = None,
    ) -> AsyncGenerator[Any, None]:
        """
        Send one request and yield its responses; leaving the loop cancels the call.
        """

    def open(
        method: str,
        *,
        timeout: float = 0,
        metadata: Mapping[str, str] | None = None,
    ) -> IClientCall:
        """Begin a call whose requests and responses are streams."""


class ICalls(Interface):
    """Calls and streams that a module answers."""

    def handle(service: ServiceDescriptor, implementation: object) -> None:
        """
        Handle the calls that the other side makes to a service.

        :param implementation: has one method per method of the service, in snake_case.
            Unary: ``async def f(request, call) -> response``.  Streams are async
            iterators: ``requests`` instead of ``request``, ``yield`` for each response.
        :raises ValueError: the implementation lacks a method, or another module handles
            the service.
        """

    def handle_stream(
        method: str, accept: Callable[[IStream, IOpening], IStreamReceiver]
    ) -> None:
        """
        Handle raw streams from the other side that name *method*.

        :param accept: takes the stream and its opening, and returns the receiver.
        :raises ValueError: another module handles this method.
        """


class IServerCalls(ICalls):
    """Calls between kas and agents: `IServerModuleApi.calls`."""

    def handle_external(service: ServiceDescriptor, implementation: object) -> None:
        """
        Handle calls of clients of the external API, such as GitLab, which send a token.

        Works like `handle`, and the same object may be passed to both methods; in calls
        through the external API, ``call.agent`` is None.  If the external API is not
        configured, no client can call the service.
        """

    def client(
        service: ServiceDescriptor, agent_id: str, access: Access | None = None
    ) -> IServiceClient:
        """
        Return a client of *service* at an agent.

        :param access: the caller: the result of `IUsers.authorize` for this agent.  The
            agent half receives *access* as ``call.access``, and passes it to
            `IKubernetes.acting_for`.
        :raises ValueError: *access* is for another agent.
        """

    def open_stream(
        agent_id: str,
        method: str,
        receiver: IStreamReceiver,
        metadata: bytes = b"",
        options: StreamOptions = DEFAULT_OPTIONS,
    ) -> IStream:
        """
        Open a raw stream to an agent at any kas.

        Returns at once.  While no instance of the agent is connected, the stream waits,
        up to the routing timeout; then kas calls the receiver's `stream_closed` with a
        `tunnel.errors.AgentUnavailable`.

        :param receiver: an `IPathReceiver` is also notified of problems of the path.
        :param metadata: the first header block, at most 64 KiB.
        """


class IAgentCalls(ICalls):
    """Calls between agentk and kas: `IAgentModuleApi.calls`."""

    def handle_as_leader(service: ServiceDescriptor, implementation: object) -> None:
        """
        Handle calls like `handle`, but only while this agentk is the leader.

        Other replicas refuse the call, and kas tries the next one; while no replica is
        the leader, the call waits, up to the routing timeout.
        """

    def client(service: ServiceDescriptor) -> IServiceClient:
        """Return a client of *service* at kas."""
