"""Fake module APIs for each half, on one end of a tunnel in memory."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry
from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import (
    IAddress,
    IConsumer,
    IListeningPort,
    IPushProducer,
)
from twisted.internet.task import Clock
from twisted.web.iweb import IAgent
from twisted.web.resource import IResource
from zope.interface import implementer
from zope.interface.verify import verifyObject

from tunnel.api import (
    DEFAULT_OPTIONS,
    Access,
    AgentProject,
    AuditEvent,
    AuditLevel,
    ConfigurationTold,
    ConnectedAgent,
    GitAddress,
    GitalyAddress,
    HasPeer,
    IAgentModuleApi,
    IAuthenticator,
    IServerModuleApi,
    ISharedCount,
    IStream,
    IStreamReceiver,
    ITracer,
    StreamOptions,
    Usage,
)
from tunnel.config import Listen
from tunnel.errors import (
    NOT_LEADING,
    AgentUnavailable,
    CallError,
    ErrorCode,
    Status,
    StreamReset,
    TunnelError,
)
from tunnel.hosting.context import client_of_agent
from tunnel.hosting.gitlab_access import SERVICE as GITLAB_ACCESS
from tunnel.hosting.gitlab_access import GitLabAccess
from tunnel.hosting.pages import Pages
from tunnel.hosting.sections import Sections
from tunnel.hosting.stores import NamespaceStore, Stores
from tunnel.http1 import UpstreamPool
from tunnel.kubernetes import KubernetesClient, KubernetesClients, OwnNamespace
from tunnel.rpc.client import ServiceClient
from tunnel.rpc.dispatch import Dispatcher
from tunnel.testing.ends import AGENT, End
from tunnel.testing.repositories import FakeRepositories
from tunnel.transport import eager

__all__ = ["FakeAgentModuleApi", "FakeServerModuleApi"]


class _FakeApi:
    """Common parts of both module APIs."""

    def __init__(self, end: End, name: str, configuration: Any):
        self.name = name
        self.configuration = configuration
        self.clock = end.clock
        self.reactor = end.clock
        self.metrics = CollectorRegistry()
        #: A `FakeTracer`, where the test wants spans; set before the module is made.
        self.tracer: ITracer | None = end.dispatcher.tracer
        self.write = eager.write
        #: Failures that the module reported.
        self.failures: list[Exception] = []
        self._end = end

    def handle(self, service: Any, implementation: object) -> None:
        self._end.dispatcher.handle(self.name, service, implementation)

    def handle_stream(self, method: str, accept: Any) -> None:
        self._end.dispatcher.handle_stream(self.name, method, accept)

    def fail(self, reason: Exception) -> None:
        self.failures.append(reason)

    def publish(self, topic: str, event: Any) -> None:
        self._end.bus.publish(topic, event)

    def subscribe(
        self, topic: str, callback: Callable[[Any], None]
    ) -> Callable[[], None]:
        return self._end.bus.subscribe(self.name, topic, callback)


@implementer(IListeningPort)
class _Port:
    """Result of `FakeServerModuleApi.listen`, which opens nothing."""

    def startListening(self) -> None:
        pass

    def stopListening(self) -> None:
        pass

    def getHost(self) -> IAddress:
        return IPv4Address("TCP", "127.0.0.1", 40000)


@implementer(IStream, IConsumer, IPushProducer)
class _NoAgent:
    """A stream to an agent that is not there: it ends in the next turn."""

    agent: ConnectedAgent | None = None

    def __init__(self, agent_id: str, receiver: IStreamReceiver, clock: Clock) -> None:
        self._receiver: IStreamReceiver | None = receiver
        self._producer: Any = None
        absent = AgentUnavailable(agent_id, f"agent {agent_id} is not connected")
        clock.callLater(0, self._close, absent)

    def _close(self, reason: TunnelError) -> None:
        receiver, self._receiver = self._receiver, None
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.stopProducing()
        if receiver is not None:
            receiver.stream_closed(reason)

    def send_headers(self, block: bytes, fin: bool = False) -> None:
        pass

    def write(self, data: bytes) -> None:
        pass

    def finish(self) -> None:
        pass

    def reset(self, code: int = ErrorCode.CANCELLED, message: str = "") -> None:
        self._close(StreamReset(ErrorCode(code), message, by_peer=False))

    def pauseProducing(self) -> None:
        pass

    def resumeProducing(self) -> None:
        pass

    def stopProducing(self) -> None:
        self.reset()

    def registerProducer(self, producer: Any, streaming: bool) -> None:
        if self._receiver is None:
            producer.stopProducing()
        else:
            self._producer = producer

    def unregisterProducer(self) -> None:
        self._producer = None


@implementer(IServerModuleApi)
class FakeServerModuleApi(_FakeApi):
    """
    `IServerModuleApi` for one agent, ``1`` or ``agent-1``, that is connected.

    :param door: takes what the module gives to `handle_external`.
    :param stores: makes what it gets from `store`.
    :param pages: takes what the module gives to `web`.
    :param repositories: Git repositories, which the test fills.
    :param http: answers requests of the module to other servers.
    """

    def __init__(
        self,
        end: End,
        name: str,
        configuration: Any,
        *,
        door: Dispatcher,
        stores: Stores,
        pages: Pages,
        repositories: FakeRepositories,
        http: IAgent | None = None,
    ) -> None:
        super().__init__(end, name, configuration)
        self.repositories = repositories
        self._http = http
        self._door = door
        self._stores = stores
        self._pages = pages
        #: token -> `Access`; anything else is refused.
        self.tokens: dict[str, Access] = {}
        #: Of pages that may ask in a user's browser.
        self.page_origins: tuple[str, ...] = ()
        #: Say which credentials the module holds something open for.
        self.holders: list[Callable[[], Collection[str]]] = []
        #: Usage that the module counted.
        self.used: list[Usage] = []
        #: Authenticators that the module added.
        self.authenticators: list[IAuthenticator] = []
        #: Agents' projects in GitLab, by the ids of agents.
        self.projects: dict[str, AgentProject] = {}
        #: Agents' configurations that were posted to GitLab.
        self.registered: list[tuple[str, dict[str, Any]]] = []
        #: Tells agents their configuration: set by the module or by the test.
        self.tells: ConfigurationTold | None = None
        #: Problems of agents that the module reported, by their ids.
        self.problems: dict[str, str] = {}
        #: Events that the module wrote to the audit log.
        self.audited: list[AuditEvent] = []
        self.audit_level = AuditLevel.ALL
        #: Listeners of the module: endpoint string -> factory.
        self.listening: dict[str, Any] = {}

    def client(
        self, service: Any, agent_id: str, access: Access | None = None
    ) -> ServiceClient:
        return client_of_agent(self, service, agent_id, access)

    def open_stream(
        self,
        agent_id: str,
        method: str,
        receiver: IStreamReceiver,
        metadata: bytes = b"",
        options: StreamOptions = DEFAULT_OPTIONS,
    ) -> IStream:
        if agent_id not in ("1", "agent-1"):
            return _NoAgent(agent_id, receiver, self.clock)
        return self._end.open_stream(
            method,
            receiver,
            metadata=metadata,
            fin=options.fin,
            timeout=options.timeout,
        )

    def audit(self, event: AuditEvent) -> None:
        self.audited.append(event)

    def agent_project(self, agent_id: str) -> AgentProject | None:
        return self.projects.get(agent_id)

    def register_configuration(
        self, agent_id: str, configuration: Mapping[str, Any]
    ) -> None:
        self.registered.append((agent_id, dict(configuration)))

    def tells_configurations(self, told: ConfigurationTold) -> None:
        self.tells = told

    async def configuration_told(
        self, agent: ConnectedAgent, address: GitAddress | GitalyAddress, commit: str
    ) -> bool:
        return self.tells is None or await self.tells(agent, address, commit)

    def show_problem(self, agent_id: str, agent_name: str, problem: str) -> None:
        self.problems[agent_id] = problem
        if not problem:
            del self.problems[agent_id]

    def handle_external(self, service: Any, implementation: object) -> None:
        self._door.handle(self.name, service, implementation)

    def connected_agents(self) -> list[ConnectedAgent]:
        return [AGENT]

    async def agents(
        self, agent_id: str = "", project_id: int = 0
    ) -> list[ConnectedAgent]:
        return [
            agent
            for agent in self.connected_agents()
            if agent_id in ("", agent.agent_id) and project_id in (0, agent.project_id)
        ]

    def authorize(
        self, kind: str, agent: str, token: str, peer: HasPeer | None = None
    ) -> Access | Deferred[Access]:
        access = self.tokens.get(token)
        if access is None:
            raise CallError(Status.UNAUTHENTICATED, "unknown token")
        return access

    def count_usage(self, usage: Usage) -> None:
        self.used.append(usage)

    def holds_credentials(self, look: Callable[[], Collection[str]]) -> None:
        self.holders.append(look)

    def add_authenticator(self, authenticator: IAuthenticator) -> None:
        verifyObject(IAuthenticator, authenticator)
        self.authenticators.append(authenticator)

    def listen(self, endpoint: Any, factory: Any, path: str = "") -> Deferred[Any]:
        if isinstance(endpoint, Listen):
            endpoint = endpoint.endpoint_string()
        self.listening[endpoint] = factory
        return succeed(_Port())

    def count_together(self, limit: str, most: int) -> ISharedCount | None:
        return None

    def store(self, namespace: str) -> NamespaceStore:
        return self._stores.open(self.name, namespace)

    def http_agent(
        self,
        setting: str,
        ca_certificate_file: Path | None = None,
        *,
        connections: int = 2,
    ) -> IAgent:
        if self._http is None:
            raise AssertionError(f"{setting}: give ModulePair the IAgent to be asked")
        return self._http

    def web(self, prefix: str, resource: IResource) -> None:
        self._pages.mount(self.name, prefix, resource)


@implementer(IAgentModuleApi)
class FakeAgentModuleApi(_FakeApi):
    """
    `IAgentModuleApi`.

    :param sections: the agent's configuration in Git.
    :param cluster: an `ICluster`; None: the module does not use it.
    """

    agent_id = "1"
    agent_name = "agent-1"

    def __init__(
        self,
        end: End,
        name: str,
        configuration: Any,
        *,
        sections: Sections,
        cluster: Any = None,
    ) -> None:
        super().__init__(end, name, configuration)
        self.cluster_as_agentk = cluster
        self.sections = sections
        self.gitlab = GitLabAccess(end.client(GITLAB_ACCESS), name)
        #: Functions that the module runs while it leads; a test runs them.
        self.led: list[Callable[[], Awaitable[None]]] = []
        self.leads = False
        self.lease = "default/agent-1-lock"
        self.own_namespace = OwnNamespace("default")

    def follow_section(
        self, section: str, schema: type[Any], apply: Callable[[Any], None]
    ) -> None:
        self.sections.follow(self.name, section, schema, apply)

    def apply_sections(self, texts: Mapping[str, str]) -> None:
        self.sections.apply(texts)

    @cached_property
    def upstream(self) -> UpstreamPool:
        return UpstreamPool(lambda: self.cluster_as_agentk.endpoint(), self.clock)

    @cached_property
    def _kubernetes(self) -> KubernetesClients:
        return KubernetesClients(
            self.cluster_as_agentk,
            self.upstream,
            self.clock,
            own_namespace=self.own_namespace,
        )

    def kubernetes_for(self, access: Access | None) -> KubernetesClient:
        return self._kubernetes.acting_for(access)

    def kubernetes_as_service_account(
        self, namespace: str, name: str
    ) -> KubernetesClient:
        return self._kubernetes.as_service_account(namespace, name)

    def kubernetes_as_agentk(self) -> KubernetesClient:
        return self._kubernetes.as_agentk()

    def client(self, service: Any) -> ServiceClient:
        return self._end.client(service)

    def handle_as_leader(self, service: Any, implementation: object) -> None:
        def must_lead() -> None:
            if not self.leads:
                raise CallError(Status.UNAVAILABLE, NOT_LEADING)

        self._end.dispatcher.handle(self.name, service, implementation, must_lead)

    def lead(self, run: Callable[[], Awaitable[None]]) -> None:
        self.led.append(run)
