"""State that all modules of a kas share, and the API of one module."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import attrs
from prometheus_client import CollectorRegistry

from kas.agents.registry import Registry
from kas.api.services import ExternalServices
from kas.audit.log import AuditLog
from kas.fleet.fleet import Fleet
from kas.git.repositories import Repositories
from kas.gitlab.projects import AgentProjects
from kas.identity.authenticators import Authenticators
from kas.modules.agents import AgentProblems, ModuleAgents
from kas.modules.audit import ModuleAudit
from kas.modules.network import ModuleNetwork
from kas.modules.peers import ModulePeers
from kas.modules.users import HeldCredentials, ModuleUsers
from kas.modules.workers import ModuleWorkers
from kas.routing.router import Router
from kas.routing.stream import RoutedStream
from tunnel.api import ISharedCount, ISignInProvider, ITracer, Usage
from tunnel.hosting.api import ServerModuleApi
from tunnel.hosting.calls import ServerCalls
from tunnel.hosting.capabilities import CapabilityTable, ModuleCapabilities
from tunnel.hosting.events import EventBus, ModuleEvents
from tunnel.hosting.pages import ModuleWeb, Pages
from tunnel.hosting.scope import ModuleScope
from tunnel.hosting.stores import ModuleStores, Stores
from tunnel.program.listening import Listening
from tunnel.program.module_ports import ModulePorts
from tunnel.rpc.dispatch import Dispatcher

__all__ = ["ServerContext"]


@attrs.define(eq=False, kw_only=True)
class ServerContext:
    """
    State that all modules of the process share.

    :ivar environ: the environment of the process, which may name a proxy.
    :ivar folders: the parent of the modules' folders.
    :ivar has_web: whether a listener serves pages.
    :ivar page_origins: the origins of pages that may send requests from a user's
        browser.
    :ivar count_usage: function that counts a use for reports to GitLab; None if kas
        sends no reports.
    :ivar sign_in_providers: providers that sign users in with a browser.
    :ivar count_together: function that returns a counter that the workers of this kas
        share, for the name of a limit and its maximum; None without other workers.
    """

    reactor: Any
    dispatcher: Dispatcher
    bus: EventBus
    metrics: CollectorRegistry
    tracer: ITracer | None = None
    registry: Registry
    router: Router
    authenticators: Authenticators
    listening: Listening
    fleet: Fleet
    external: ExternalServices
    audit: AuditLog
    stores: Stores
    folders: Path
    pages: Pages
    repositories: Repositories
    projects: AgentProjects = attrs.Factory(
        lambda self: AgentProjects(self.reactor), takes_self=True
    )
    environ: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    has_web: bool = False
    page_origins: tuple[str, ...] = ()
    count_usage: Callable[[Usage], None] | None = None
    sign_in_providers: tuple[ISignInProvider, ...] = ()
    count_together: Callable[[str, int], ISharedCount] | None = None
    capabilities: CapabilityTable = attrs.Factory(CapabilityTable)
    problems: AgentProblems = attrs.Factory(AgentProblems)
    held: HeldCredentials = attrs.Factory(HeldCredentials)
    ports: ModulePorts = attrs.Factory(
        lambda self: ModulePorts(self.listening), takes_self=True
    )

    def make_api(self, scope: ModuleScope) -> ServerModuleApi:
        """Return the API of one module."""
        return ServerModuleApi(
            scope=scope,
            reactor=self.reactor,
            random=self.fleet.runtime.random,
            metrics=self.metrics,
            tracer=self.tracer,
            events=ModuleEvents(scope, self.bus),
            capabilities=ModuleCapabilities(scope, self.capabilities),
            calls=ServerCalls(
                scope,
                self.dispatcher,
                self.reactor,
                self.external,
                partial(RoutedStream.open, self.router),
            ),
            agents=ModuleAgents(scope, self.registry, self.router, self.problems),
            users=ModuleUsers(
                scope,
                self.authenticators,
                self.held,
                self.count_usage,
                self.sign_in_providers,
            ),
            audit=ModuleAudit(scope, self.audit),
            git=self.repositories,
            gitlab=self.projects,
            stores=ModuleStores(scope, self.stores, self.folders),
            web=ModuleWeb(scope, self.pages, self.page_origins, self.has_web),
            network=ModuleNetwork(
                scope, self.ports, self.reactor, self.environ, self.fleet.runtime.random
            ),
            workers=ModuleWorkers(scope, self.count_together),
            peers=ModulePeers(scope, self.fleet),
        )
