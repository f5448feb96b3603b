"""API of a module's server half."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IListeningPort
from twisted.logger import Logger
from twisted.web.iweb import IAgent
from twisted.web.resource import IResource
from zope.interface import implementer
from zope.interface.verify import verifyObject

from kas.agents.registry import Registry
from kas.api.services import ExternalServices
from kas.git.repositories import Repositories
from kas.gitlab.projects import AgentProjects
from kas.http_client import make_agent
from kas.identity.authenticators import Authenticators
from kas.observability.audit import AuditLog
from kas.routing.router import Router
from kas.routing.stream import RoutedStream
from tunnel.api import (
    Access,
    AgentProject,
    AuditEvent,
    AuditLevel,
    ConfigurationTold,
    ConnectedAgent,
    GitAddress,
    GitalyAddress,
    IAuthenticator,
    IServerModuleApi,
    ISharedCount,
    Usage,
)
from tunnel.hosting.context import ModuleApi, ModuleContext, client_of_agent
from tunnel.hosting.modules import Prepared
from tunnel.hosting.pages import Pages
from tunnel.hosting.stores import NamespaceStore, Stores
from tunnel.program.listening import Listening
from tunnel.rpc.client import ServiceClient

#: Problems of agents that one module shows: as many as a kas has agents at most.
MAX_PROBLEMS = 10_000

#: Characters of one.
MAX_PROBLEM = 1000


@attrs.define(eq=False)
class ServerContext(ModuleContext):
    """State that all modules of the process share."""

    registry: Registry
    router: Router
    authenticators: Authenticators
    listening: Listening
    external: ExternalServices
    audit: AuditLog
    stores: Stores
    pages: Pages
    repositories: Repositories
    projects: AgentProjects = attrs.Factory(
        lambda self: AgentProjects(self.reactor), takes_self=True
    )
    #: Of the process: it may name a proxy.
    environ: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    #: Whether there is a listener for pages.
    has_web: bool = False
    #: Of pages that may ask in a user's browser.
    page_origins: tuple[str, ...] = ()
    #: Counts a use, for reports to GitLab.
    count_usage: Callable[[Usage], None] | None = None
    #: Counts something with the other workers: a limit by its name, and how much of it
    #: there may be; None: there are none.
    count_together: Callable[[str, int], ISharedCount] | None = None
    #: Functions that remove the authenticators of a module, by module.
    removals: dict[str, list[Callable[[], None]]] = attrs.Factory(dict)
    #: Says which credentials a module holds something open for, by module.
    holders: dict[str, list[Callable[[], Collection[str]]]] = attrs.Factory(dict)
    #: Tells agents their configuration, by module.
    configurations: dict[str, ConfigurationTold] = attrs.Factory(dict)
    #: Problems of agents that modules reported: name and reason, by module and id.
    problems: dict[str, dict[str, tuple[str, str]]] = attrs.Factory(dict)
    #: Ports that modules opened, by module.
    ports: dict[str, list[IListeningPort]] = attrs.Factory(dict)

    def release(self, name: str) -> None:
        """Take back what a module registered."""
        # Not super(): attrs makes the class again for its slots.
        ModuleContext.release(self, name)
        self.external.withdraw(name)
        self.pages.withdraw(name)
        self.stores.release(name)
        self.problems.pop(name, None)
        self.holders.pop(name, None)
        self.configurations.pop(name, None)
        for remove in self.removals.pop(name, []):
            remove()
        for port in self.ports.pop(name, []):
            Deferred.fromCoroutine(self.listening.close(port))

    def held_credentials(self) -> set[str]:
        """Ids of the users' credentials that hold something open now."""
        looks = [look for module in self.holders.values() for look in module]
        return set().union(*(look() for look in looks))


@implementer(IServerModuleApi)
class ServerModuleApi(ModuleApi):
    """See `tunnel.api.IServerModuleApi`."""

    _log = Logger()

    def __init__(
        self,
        context: ServerContext,
        module: Prepared,
        fail: Callable[[str, Exception], None],
    ) -> None:
        super().__init__(context, module, fail)
        self._context = context
        self._prepared = module
        #: Each request is authorized: see `Authenticators.authorize_user`.
        self.authorize = context.authenticators.authorize_user
        #: Git repositories.
        self.repositories = context.repositories
        #: Of pages that may ask in a user's browser.
        self.page_origins = context.page_origins
        #: Counts a use, for reports to GitLab; None: there are none.
        self.count_usage = context.count_usage
        #: Opens a raw stream to an agent.
        self.open_stream = partial(RoutedStream.open, context.router)

    @property
    def audit_level(self) -> AuditLevel:
        """Which events `audit` is called with."""
        return self._context.audit.level

    def audit(self, event: AuditEvent) -> None:
        """Write one event to the audit log."""
        self._context.audit.record(self.name, event)

    def agent_project(self, agent_id: str) -> AgentProject | None:
        """Return GitLab's last information on an agent's project."""
        return self._context.projects.get(agent_id)

    def register_configuration(
        self, agent_id: str, configuration: Mapping[str, Any]
    ) -> None:
        """Tell GitLab how an agent is configured."""
        self._context.projects.register(agent_id, configuration)

    def tells_configurations(self, told: ConfigurationTold) -> None:
        """Say that this module tells agents their configuration."""
        self._context.configurations[self.name] = told

    async def configuration_told(
        self, agent: ConnectedAgent, address: GitAddress | GitalyAddress, commit: str
    ) -> bool:
        """Wait until an agentk has its configuration at a commit."""
        for told in tuple(self._context.configurations.values()):
            if not await told(agent, address, commit):
                return False
        return True

    def show_problem(self, agent_id: str, agent_name: str, problem: str) -> None:
        """Have ``kasctl status`` show what is wrong with an agent."""
        problems = self._context.problems.setdefault(self.name, {})
        problems.pop(agent_id, None)
        if problem and len(problems) < MAX_PROBLEMS:
            problems[agent_id] = (agent_name, problem[:MAX_PROBLEM])

    def handle_external(self, service: Any, implementation: object) -> None:
        """Answer calls of the external API."""
        self._context.external.handle(self.name, service, implementation)

    def client(
        self, service: Any, agent_id: str, access: Access | None = None
    ) -> ServiceClient:
        """Return a client for *service* at an agent."""
        return client_of_agent(self, service, agent_id, access)

    def connected_agents(self) -> list[ConnectedAgent]:
        """Every connection that this kas holds now."""
        return [connection.agent for connection in self._context.registry]

    async def agents(
        self, agent_id: str = "", project_id: int = 0
    ) -> list[ConnectedAgent]:
        """Return the connections of an agent, of a project's agents, or all."""
        found = await self._context.router.directory.agents(
            agent_id=agent_id, project_id=project_id
        )
        return [record.agent for record in found]

    def add_authenticator(self, authenticator: IAuthenticator) -> None:
        """Check credentials of further kinds with it."""
        verifyObject(IAuthenticator, authenticator)
        remove = self._context.authenticators.add(authenticator)
        self._context.removals.setdefault(self.name, []).append(remove)

    def holds_credentials(self, look: Callable[[], Collection[str]]) -> None:
        """Say which credentials hold something open."""
        self._context.holders.setdefault(self.name, []).append(look)

    def listen(
        self, endpoint: Any, factory: Any, path: str = ""
    ) -> Deferred[IListeningPort]:
        """Listen until the module stops."""
        module = self._prepared
        said = endpoint is getattr(module.configuration, "listen", None)
        setting = f"{module.path}.listen.address" if said and module.path else ""

        async def opened() -> IListeningPort:
            port = await self._context.listening.listen(
                endpoint,
                factory,
                what=self.name,
                setting=setting,
                alpn=("http/1.1",),
                # kubectl and other HTTP clients may not speak 1.3 yet
                minimum=ssl.TLSVersion.TLSv1_2,
                path=path,
            )
            self._context.ports.setdefault(self.name, []).append(port)
            return port

        return Deferred.fromCoroutine(opened())

    def count_together(self, limit: str, most: int) -> ISharedCount | None:
        """Count with the other workers of this kas."""
        count = self._context.count_together
        return None if count is None else count(f"{self.name}/{limit}", most)

    def store(self, namespace: str) -> NamespaceStore:
        """Small durable values of this module."""
        return self._context.stores.open(self.name, namespace)

    def http_agent(
        self,
        setting: str,
        ca_certificate_file: Path | None = None,
        *,
        connections: int = 2,
    ) -> IAgent:
        """Return an HTTP client for another server."""
        context = self._context
        return make_agent(
            ca_certificate_file,
            setting,
            context.reactor,
            context.environ,
            connections=connections,
        )

    def web(self, prefix: str, resource: IResource) -> None:
        """Serve *resource* below *prefix*."""
        self._context.pages.mount(self.name, prefix, resource)
        if not self._context.has_web:
            self._log.info(
                "module {name} has pages at {prefix}, which are not served: there is "
                "no 'web' in the configuration",
                name=self.name,
                prefix=prefix,
            )
