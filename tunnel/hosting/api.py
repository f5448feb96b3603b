"""The APIs of both halves, composed of one object for each subject."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import attrs
from prometheus_client import CollectorRegistry
from zope.interface import implementer

from tunnel.api import (
    IAgentCalls,
    IAgentModuleApi,
    IAgents,
    IAudit,
    ICapabilities,
    IEvents,
    IGitLab,
    IKubernetes,
    ILeadership,
    IListeners,
    INetwork,
    IPeers,
    IProjects,
    IRepositories,
    ISections,
    IServerCalls,
    IServerModuleApi,
    IStores,
    ITracer,
    IUsers,
    IWeb,
    IWorkers,
)
from tunnel.hosting.scope import ModuleScope
from tunnel.transport import eager

__all__ = ["AgentModuleApi", "ServerModuleApi"]


@attrs.frozen(kw_only=True, eq=False)
class _ModuleApi:
    scope: ModuleScope
    reactor: Any
    #: The clock for all durations.
    clock: Any = attrs.Factory(lambda self: self.reactor, takes_self=True)
    #: Returns a number between 0 and 1, for jitter.
    random: Callable[[], float]
    metrics: CollectorRegistry
    tracer: ITracer | None = None
    events: IEvents
    capabilities: ICapabilities

    #: Writes data to a stream, at once if possible.
    write = staticmethod(eager.write)

    @property
    def name(self) -> str:
        """The module's name."""
        return self.scope.name

    @property
    def configuration(self) -> Any:
        """The section of the module."""
        return self.scope.configuration

    def fail(self, reason: Exception) -> None:
        """Report that the module cannot continue."""
        self.scope.fail(reason)


@implementer(IServerModuleApi)
@attrs.frozen(kw_only=True, eq=False)
class ServerModuleApi(_ModuleApi):
    """See `tunnel.api.IServerModuleApi`."""

    calls: IServerCalls
    agents: IAgents
    users: IUsers
    audit: IAudit
    git: IRepositories
    gitlab: IProjects
    stores: IStores
    web: IWeb
    network: INetwork
    workers: IWorkers
    peers: IPeers


class HasAgentIdentity(Protocol):
    """An object that knows the agent of this agentk."""

    @property
    def agent_id(self) -> str:
        """The agent's id, as received from kas; empty before that."""

    @property
    def agent_name(self) -> str:
        """The agent's name, as received from kas; empty before that."""


@implementer(IAgentModuleApi)
@attrs.frozen(kw_only=True, eq=False)
class AgentModuleApi(_ModuleApi):
    """See `tunnel.api.IAgentModuleApi`."""

    identity: HasAgentIdentity
    calls: IAgentCalls
    kubernetes: IKubernetes
    gitlab: IGitLab
    sections: ISections
    leadership: ILeadership
    network: IListeners

    @property
    def agent_id(self) -> str:
        """The agent's id, as received from kas."""
        return self.identity.agent_id

    @property
    def agent_name(self) -> str:
        """The agent's name, as received from kas."""
        return self.identity.agent_name
