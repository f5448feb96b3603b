"""Calls and streams of one module."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from google.protobuf.descriptor import ServiceDescriptor
from twisted.internet.interfaces import IReactorTime
from zope.interface import implementer

from tunnel.api import (
    Access,
    IAgentCalls,
    IOpening,
    IServerCalls,
    IStream,
    IStreamReceiver,
    StreamOptions,
)
from tunnel.errors import NOT_LEADING, CallError, Status
from tunnel.hosting.gitlab_access import SERVICE as GITLAB_ACCESS
from tunnel.hosting.scope import ModuleScope
from tunnel.rpc.client import ServiceClient, StreamOpener
from tunnel.rpc.dispatch import Dispatcher

__all__ = ["AgentCalls", "ServerCalls"]

#: Function that opens a raw stream to an agent: see `IServerCalls.open_stream`.
AgentOpener = Callable[..., IStream]


class _Services(Protocol):
    """A table of services, such as those of the external API."""

    def handle(
        self, owner: str, service: ServiceDescriptor, implementation: object
    ) -> None:
        """Register *implementation* for the methods of *service*."""

    def withdraw(self, owner: str) -> None:
        """Remove everything that *owner* registered."""


class _Calls:
    """Registrations of one module for calls that come through the tunnel."""

    def __init__(
        self, scope: ModuleScope, dispatcher: Dispatcher, clock: IReactorTime
    ) -> None:
        self._name = scope.name
        self._dispatcher = dispatcher
        self._clock = clock
        scope.on_release(lambda: dispatcher.withdraw(scope.name))

    def handle(self, service: ServiceDescriptor, implementation: object) -> None:
        """Register a service for calls from the other side."""
        self._dispatcher.handle(self._name, service, implementation)

    def handle_stream(
        self, method: str, accept: Callable[[IStream, IOpening], IStreamReceiver]
    ) -> None:
        """Register a handler for raw streams from the other side."""
        self._dispatcher.handle_stream(self._name, method, accept)


@implementer(IServerCalls)
class ServerCalls(_Calls):
    """
    The calls of a server half.

    :param external: the services of the external API.
    :param open_stream: opens raw streams to agents.
    """

    def __init__(
        self,
        scope: ModuleScope,
        dispatcher: Dispatcher,
        clock: IReactorTime,
        external: _Services,
        open_stream: AgentOpener,
    ) -> None:
        super().__init__(scope, dispatcher, clock)
        self._external = external
        #: Opens a raw stream to an agent.
        self.open_stream = open_stream
        scope.on_release(lambda: external.withdraw(scope.name))

    def handle_external(
        self, service: ServiceDescriptor, implementation: object
    ) -> None:
        """Register a service for calls of the external API."""
        self._external.handle(self._name, service, implementation)

    def client(
        self, service: ServiceDescriptor, agent_id: str, access: Access | None = None
    ) -> ServiceClient:
        """Return a client of *service* at an agent."""
        if access is not None and agent_id not in (access.agent_id, access.agent_name):
            raise ValueError(
                f"the access is for agent {access.agent_id}, not {agent_id}"
            )

        def opener(
            method: str,
            receiver: IStreamReceiver,
            *,
            metadata: bytes = b"",
            timeout: float = 0,
        ) -> IStream:
            options = StreamOptions(timeout=timeout)
            return self.open_stream(agent_id, method, receiver, metadata, options)

        return ServiceClient(service, opener, self._clock, access)


@implementer(IAgentCalls)
class AgentCalls(_Calls):
    """
    The calls of an agent half.

    :param open_stream: opens streams to kas.
    :param leads: returns whether this agentk leads now.
    """

    def __init__(
        self,
        scope: ModuleScope,
        dispatcher: Dispatcher,
        clock: IReactorTime,
        open_stream: StreamOpener,
        leads: Callable[[], bool],
    ) -> None:
        super().__init__(scope, dispatcher, clock)
        self._open_stream = open_stream
        self._leads = leads

    def handle_as_leader(
        self, service: ServiceDescriptor, implementation: object
    ) -> None:
        """Register a service whose calls only the leader can handle."""
        self._dispatcher.handle(self._name, service, implementation, self._must_lead)

    def _must_lead(self) -> None:
        if not self._leads():
            raise CallError(Status.UNAVAILABLE, NOT_LEADING)

    def client(self, service: Any) -> ServiceClient:
        """Return a client of *service* at kas."""
        if service.full_name == GITLAB_ACCESS.full_name:
            raise ValueError(
                "a module must call GitLab through api.gitlab, and only for itself"
            )
        return ServiceClient(service, self._open_stream, self._clock)
