"""Modules: their halves, their factories, and the API that each half gets."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from prometheus_client import CollectorRegistry
from twisted.internet.interfaces import IReactorCore, IReactorTime, ITransport
from zope.interface import Attribute, Interface

from tunnel.api.agents import IAgents
from tunnel.api.audit import IAudit
from tunnel.api.calls import IAgentCalls, IServerCalls
from tunnel.api.capabilities import ICapabilities
from tunnel.api.configuration import ISections
from tunnel.api.events import IEvents
from tunnel.api.git import IRepositories
from tunnel.api.gitlab import IGitLab, IProjects
from tunnel.api.kubernetes import IKubernetes
from tunnel.api.leadership import ILeadership
from tunnel.api.network import IListeners, INetwork
from tunnel.api.peers import IPeers
from tunnel.api.stores import IStores
from tunnel.api.tracing import ITracer
from tunnel.api.users import IUsers
from tunnel.api.web import IWeb
from tunnel.api.workers import IWorkers

__all__ = [
    "IAgentModule",
    "IAgentModuleApi",
    "IAgentModuleFactory",
    "IServerModule",
    "IServerModuleApi",
    "IServerModuleFactory",
]


class _IModule(Interface):
    name: str = Attribute("Name under which the module is configured.")

    def start() -> Awaitable[None]:
        """
        Start the module, whose handlers are already registered; an exception means that
        the module cannot start.
        """

    def stop() -> Awaitable[None]:
        """Stop, and release everything that `start` acquired."""


class IServerModule(_IModule):
    """The half of a feature that runs in kas."""


class IAgentModule(_IModule):
    """The half of a feature that runs in agentk."""


class IServerModuleFactory(Interface):
    """Factory of the server half; usually the module's class itself."""

    configuration: type[Any] = Attribute(
        "An attrs class for the module's section (see `tunnel.config`)."
    )

    def __call__(api: IServerModuleApi) -> IServerModule:
        """Create the module, without waiting for anything.  Called once per start."""


class IAgentModuleFactory(Interface):
    """Factory of the agent half; usually the module's class itself."""

    configuration: type[Any] = Attribute("As in `IServerModuleFactory`.")

    def __call__(api: IAgentModuleApi) -> IAgentModule:
        """Create the module, without waiting for anything.  Called once per start."""


class _IModuleApi(Interface):
    name: str = Attribute("The module's name.")
    configuration: Any = Attribute(
        "The module's section, an instance of the class that the factory names."
    )
    clock: IReactorTime = Attribute("The clock for all durations.")
    random: Callable[[], float] = Attribute(
        "Returns a number between 0 and 1, for jitter; in tests, the same numbers in "
        "each run."
    )
    reactor: IReactorCore = Attribute(
        "The reactor, for endpoints to which the module itself connects."
    )
    metrics: CollectorRegistry = Attribute("Registry for the module's metrics.")
    tracer: ITracer | None = Attribute("Factory of spans; None if tracing is off.")
    write: Callable[[ITransport, bytes], None] = Attribute(
        "``write(transport, data)``: like ``transport.write``, but sends at once if "
        "possible; for a protocol that writes once per turn of the reactor."
    )
    events: IEvents = Attribute("Events of this process.")
    capabilities: ICapabilities = Attribute("Objects that other modules offer.")

    def fail(reason: Exception) -> None:
        """
        Report that the module cannot continue: kas or agentk stops only this module,
        and restarts it with backoff.
        """


class IServerModuleApi(_IModuleApi):
    """API of a server half in kas: one attribute for each subject."""

    calls: IServerCalls = Attribute("Calls and streams, in both directions.")
    agents: IAgents = Attribute("The connected agents.")
    users: IUsers = Attribute("Credentials of users.")
    audit: IAudit = Attribute("The audit log.")
    git: IRepositories = Attribute("Git repositories.")
    gitlab: IProjects = Attribute("Projects of agents at GitLab.")
    stores: IStores = Attribute("Small durable values.")
    web: IWeb = Attribute("Pages and webhooks.")
    network: INetwork = Attribute("Listeners, and requests to other servers.")
    workers: IWorkers = Attribute("Limits that the workers of one kas share.")
    peers: IPeers = Attribute("Calls between the kas of a fleet.")


class IAgentModuleApi(_IModuleApi):
    """API of an agent half in agentk: one attribute for each subject."""

    agent_id: str = Attribute(
        "The agent's id, as received from kas; empty before that."
    )
    agent_name: str = Attribute(
        "The agent's name, as received from kas; empty before that."
    )
    calls: IAgentCalls = Attribute("Calls and streams, in both directions.")
    kubernetes: IKubernetes = Attribute("The API server next to agentk.")
    gitlab: IGitLab = Attribute(
        "GitLab's endpoints for this module, through kas: see `IGitLab`."
    )
    sections: ISections = Attribute("The agent's configuration in Git.")
    network: IListeners = Attribute("Listeners.")
    leadership: ILeadership = Attribute("Work that only one replica may do.")
