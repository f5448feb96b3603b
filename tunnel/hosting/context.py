"""Common part of the two module APIs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
from prometheus_client import CollectorRegistry

from tunnel.api import (
    Access,
    IServerModuleApi,
    IStream,
    IStreamReceiver,
    ITracer,
    StreamOptions,
)
from tunnel.hosting.events import EventBus
from tunnel.hosting.modules import Prepared
from tunnel.rpc.client import ServiceClient
from tunnel.rpc.dispatch import Dispatcher
from tunnel.transport import eager


@attrs.define(eq=False)
class ModuleContext:
    """State that all modules of a process share."""

    reactor: Any
    dispatcher: Dispatcher
    bus: EventBus
    metrics: CollectorRegistry
    tracer: ITracer | None = attrs.field(default=None, kw_only=True)

    def release(self, name: str) -> None:
        """Take back what a module registered."""
        self.dispatcher.withdraw(name)
        self.bus.withdraw(name)


class ModuleApi:
    """See `tunnel.api`; kas and agentk each add what only they have."""

    def __init__(
        self,
        context: ModuleContext,
        module: Prepared,
        fail: Callable[[str, Exception], None],
    ) -> None:
        self.name = module.name
        self.configuration = module.configuration
        self.clock = context.reactor
        self.reactor = context.reactor
        self.metrics = context.metrics
        self.tracer = context.tracer
        self.write = eager.write
        self._dispatcher = context.dispatcher
        self._bus = context.bus
        self._fail = fail

    def handle(self, service: Any, implementation: object) -> None:
        """Answer calls of the other side."""
        self._dispatcher.handle(self.name, service, implementation)

    def handle_stream(
        self, method: str, accept: Callable[[IStream, Any], IStreamReceiver]
    ) -> None:
        """Answer raw streams of the other side."""
        self._dispatcher.handle_stream(self.name, method, accept)

    def fail(self, reason: Exception) -> None:
        """Report that the module cannot go on."""
        self._fail(self.name, reason)

    def publish(self, topic: str, event: Any) -> None:
        """Tell every subscriber in this process."""
        self._bus.publish(topic, event)

    def subscribe(
        self, topic: str, callback: Callable[[Any], None]
    ) -> Callable[[], None]:
        """Call *callback* with what is published."""
        return self._bus.subscribe(self.name, topic, callback)


def client_of_agent(
    api: IServerModuleApi, service: Any, agent_id: str, access: Access | None
) -> ServiceClient:
    """
    Return the client of `IServerModuleApi.client`.

    :raises ValueError: *access* is for another agent than *agent_id*.
    """
    if access is not None and agent_id not in (access.agent_id, access.agent_name):
        raise ValueError(f"the access is for agent {access.agent_id}, not {agent_id}")

    def opener(
        method: str,
        receiver: IStreamReceiver,
        *,
        metadata: bytes = b"",
        timeout: float = 0,
    ) -> IStream:
        options = StreamOptions(timeout=timeout)
        return api.open_stream(agent_id, method, receiver, metadata, options)

    return ServiceClient(service, opener, api.clock, access)
