"""The state that all modules of an agentk share, and the API of one module."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import attrs
from prometheus_client import CollectorRegistry
from zope.interface import implementer

from agentk.dialer import Dialer
from agentk.leader_election import LeaderElection
from tunnel.api import ILeadership, ITracer
from tunnel.hosting.api import AgentModuleApi
from tunnel.hosting.calls import AgentCalls
from tunnel.hosting.capabilities import CapabilityTable, ModuleCapabilities
from tunnel.hosting.events import EventBus, ModuleEvents
from tunnel.hosting.gitlab_access import SERVICE as GITLAB_ACCESS
from tunnel.hosting.gitlab_access import GitLabAccess
from tunnel.hosting.scope import ModuleScope
from tunnel.hosting.sections import ModuleSections, Sections
from tunnel.kubernetes import KubernetesClients
from tunnel.program.module_ports import ModuleListeners, ModulePorts
from tunnel.rpc.client import ServiceClient
from tunnel.rpc.dispatch import Dispatcher

__all__ = ["AgentContext"]


@implementer(ILeadership)
class ModuleLeadership:
    """See `ILeadership`."""

    def __init__(self, scope: ModuleScope, election: LeaderElection) -> None:
        self._name = scope.name
        self._election = election
        scope.on_release(lambda: election.withdraw(scope.name))

    @property
    def leads(self) -> bool:
        """Whether this agentk leads now."""
        return self._election.leading

    @property
    def lease(self) -> str:
        """The Lease that all agentk of this agent in this namespace share."""
        return self._election.lease

    def lead(self, run: Callable[[], Awaitable[None]]) -> None:
        """Run *run* whenever this agentk leads."""
        self._election.add(self._name, run)


@attrs.define(eq=False, kw_only=True)
class AgentContext:
    """The state that all modules of the process share."""

    reactor: Any
    random: Callable[[], float]
    dispatcher: Dispatcher
    bus: EventBus
    metrics: CollectorRegistry
    tracer: ITracer | None = None
    kubernetes: KubernetesClients
    dialer: Dialer
    sections: Sections
    election: LeaderElection
    ports: ModulePorts
    capabilities: CapabilityTable = attrs.Factory(CapabilityTable)

    def make_api(self, scope: ModuleScope) -> AgentModuleApi:
        """Return the API of one module."""
        leadership = ModuleLeadership(scope, self.election)
        open_stream = self.dialer.open_stream
        gitlab = ServiceClient(GITLAB_ACCESS, open_stream, self.reactor)
        return AgentModuleApi(
            scope=scope,
            reactor=self.reactor,
            random=self.random,
            metrics=self.metrics,
            tracer=self.tracer,
            events=ModuleEvents(scope, self.bus),
            capabilities=ModuleCapabilities(scope, self.capabilities),
            identity=self.dialer,
            calls=AgentCalls(
                scope,
                self.dispatcher,
                self.reactor,
                open_stream,
                lambda: leadership.leads,
            ),
            kubernetes=self.kubernetes.of_module(scope.name),
            gitlab=GitLabAccess(gitlab, scope.name),
            sections=ModuleSections(scope, self.sections),
            leadership=leadership,
            network=ModuleListeners(scope, self.ports),
        )
