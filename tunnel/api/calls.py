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


#: In ``call.metadata`` of calls of the external API: the client's address, as kas sees
#: it; empty: the call came by a unix socket.
CLIENT_ADDRESS = "client-address"


#: Key of a call's metadata: the operating system's user of `kasctl`, according to
#: `kasctl`.
OPERATOR = "kasctl-operator"


class IClientCall(Interface):
    """One call under way: send requests, read responses, or give up."""

    metadata: Mapping[str, str] = Attribute("Of the answer, once it came.")

    def send(request: Message) -> Awaitable[None]:
        """Send one request, once there is room; :raises CallError: it is over."""

    def finish() -> None:
        """No more requests."""

    def response() -> Awaitable[Any]:
        """Return the response of a call that has exactly one."""

    def __aiter__() -> AsyncIterator[Any]:
        """Iterate over the responses."""

    def cancel() -> None:
        """Give up; does nothing once the call is over."""


class IServiceClient(Interface):
    """
    Calls the methods of one service.

    Responses are messages of the method's type.  Every way to fail is a
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
        One request, one response.

        :param timeout: seconds until DEADLINE_EXCEEDED; 0: as long as it takes.
        """

    def stream(
        method: str,
        request: Message,
        *,
        timeout: float = 0,
        metadata: Mapping[str, str] | None = None,
    ) -> AsyncGenerator[Any, None]:
        """One request, the responses one by one; leaving the loop cancels the call."""

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
        Answer calls of the other side.

        :param implementation: has one method per method of the service, in snake_case.
            Unary: ``async def f(request, call) -> response``.  Streams are async
            iterators: ``requests`` in place of ``request``, ``yield`` to answer.
        :raises ValueError: a method is missing, or another module answers it.
        """

    def handle_stream(
        method: str, accept: Callable[[IStream, IOpening], IStreamReceiver]
    ) -> None:
        """
        Answer raw streams of the other side that name *method*.

        :param accept: gets the stream and how it was opened, returns the receiver.
        :raises ValueError: another module answers it.
        """


class IServerCalls(ICalls):
    """Calls between kas and agents: `IServerModuleApi.calls`."""

    def handle_external(service: ServiceDescriptor, implementation: object) -> None:
        """
        Answer calls of GitLab and others, who come to the external API with a token.

        As `handle`, and the same object may be given to both; here ``call.agent`` is
        None.  Where the external API is not configured, no client can call.
        """

    def client(
        service: ServiceDescriptor, agent_id: str, access: Access | None = None
    ) -> IServiceClient:
        """
        Return a client of *service* at an agent.

        :param access: the caller: the result of `IUsers.authorize` for this agent.  The
            agent half gets it as ``call.access``, and passes it to
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

        It returns at once.  While no instance of the agent is connected, the stream
        waits, up to the routing timeout; then the receiver's `stream_closed` gets a
        `tunnel.errors.AgentUnavailable`.

        :param receiver: an `IPathReceiver` is notified of the path, too.
        :param metadata: the first header block, at most 64 KiB.
        """


class IAgentCalls(ICalls):
    """Calls between agentk and kas: `IAgentModuleApi.calls`."""

    def handle_as_leader(service: ServiceDescriptor, implementation: object) -> None:
        """
        As `handle`, where only the agentk that leads can answer.

        Another refuses the call, and kas tries the next one; for as long as none leads
        the call waits, up to the routing time limit.
        """

    def client(service: ServiceDescriptor) -> IServiceClient:
        """Return a client of *service* at kas."""
