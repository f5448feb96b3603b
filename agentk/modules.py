"""What agentk lends to the agent half of a module."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
from prometheus_client import CollectorRegistry
from zope.interface import implementer

from agentk.dialer import Dialer
from tunnel.events import EventBus
from tunnel.interfaces import IAgentModuleApi, ICluster, IStream, IStreamReceiver
from tunnel.net import eager
from tunnel.rpc.client import ServiceClient
from tunnel.rpc.dispatch import Dispatcher


@attrs.define(eq=False)
class Lent:
    """What all modules share; one for the process."""

    reactor: Any
    cluster: ICluster
    dialer: Dialer
    dispatcher: Dispatcher
    bus: EventBus
    metrics: CollectorRegistry

    def release(self, name: str) -> None:
        """Take back what a module registered."""
        self.dispatcher.withdraw(name)
        self.bus.withdraw(name)


@implementer(IAgentModuleApi)
class AgentModuleApi:
    """See `tunnel.interfaces.IAgentModuleApi`."""

    def __init__(
        self,
        lent: Lent,
        name: str,
        configuration: Any,
        fail_module: Callable[[str, Exception], None],
    ) -> None:
        self.name = name
        self.configuration = configuration
        self.clock = lent.reactor
        self.reactor = lent.reactor
        self.metrics = lent.metrics
        self.write = eager.write
        self.cluster = lent.cluster
        self._lent = lent
        self._fail = fail_module

    @property
    def agent_id(self) -> str:
        """Our id, as kas said it."""
        return self._lent.dialer.agent_id

    def handle(self, service: Any, implementation: object) -> None:
        """Answer calls of kas."""
        self._lent.dispatcher.handle(self.name, service, implementation)

    def handle_stream(
        self, method: str, accept: Callable[[IStream, Any], IStreamReceiver]
    ) -> None:
        """Answer raw streams of kas."""
        self._lent.dispatcher.handle_stream(self.name, method, accept)

    def fail(self, reason: Exception) -> None:
        """The module cannot go on."""
        self._fail(self.name, reason)

    def client(self, service: Any) -> ServiceClient:
        """Calls *service* at kas."""
        return ServiceClient(service, self._lent.dialer.open_stream, self.clock)

    def subscribe(self, topic: str, told: Callable[[Any], None]) -> Callable[[], None]:
        """Be told about the tunnel."""
        return self._lent.bus.subscribe(self.name, topic, told)
