"""Both halves of modules connected to each other, and a client of the external API."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from twisted.web.iweb import IAgent

from tunnel.api import IAgentPaths
from tunnel.hosting.api import AgentModuleApi, ServerModuleApi
from tunnel.hosting.calls import AgentCalls, ServerCalls
from tunnel.hosting.capabilities import ModuleCapabilities
from tunnel.hosting.events import ModuleEvents
from tunnel.hosting.gitlab_access import SERVICE as GITLAB_ACCESS
from tunnel.hosting.gitlab_access import GitLabAccess
from tunnel.hosting.pages import ModuleWeb, Pages
from tunnel.hosting.scope import ModuleScope
from tunnel.hosting.sections import ModuleSections, Sections
from tunnel.hosting.stores import ModuleStores, Stores
from tunnel.http1 import UpstreamPool
from tunnel.kubernetes import KubernetesClients, OwnNamespace, RequestGuard
from tunnel.rpc.client import ServiceClient
from tunnel.testing.agent_paths import FakeAgentPaths
from tunnel.testing.agents import FakeAgents
from tunnel.testing.audit import FakeAudit
from tunnel.testing.calls import StreamsToAgents
from tunnel.testing.ends import AGENT, End, connected
from tunnel.testing.gitlab import FakeProjects
from tunnel.testing.leadership import FakeLeadership
from tunnel.testing.network import FakeNetwork, FakeWorkers
from tunnel.testing.peers import FakePeers
from tunnel.testing.repositories import FakeRepositories
from tunnel.testing.store import FakeStore
from tunnel.testing.users import FakeUsers
from tunnel.testing.web import Answer, FakeWebSocket, find_web_socket, visit

__all__ = ["ModulePair"]

_T = TypeVar("_T")

#: Maximum number of seconds that a coroutine may take: longer than kas waits for an
#: agent.
PATIENCE = 60.0


class ModulePair:
    """
    Both halves of modules, connected by a tunnel in memory.

    :param cluster: the Kubernetes API of agent halves, an `ICluster` such as
        `FakeCluster`.
    :param http: responds to server halves' requests to other servers, such as
        ``treq.testing.RequestTraversalAgent``.
    :param folders: the parent of the modules' folders; None if no module has one.
    :param guard: the policy of the cluster's owner; None without a policy.
    :param random: returns a number between 0 and 1, for jitter; by default, the same
        numbers in each run.
    :ivar store: the store of server halves; a test can make it fail.
    :ivar peers: the other kas; ``peers.join`` adds one.
    :ivar repositories: the Git repositories that server halves read.
    :ivar paths: requests for the paths of server halves at the listener for kubectl.
    :ivar sections: the agent's configuration; ``sections.apply`` changes it.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        cluster: Any = None,
        http: IAgent | None = None,
        folders: Path | None = None,
        guard: RequestGuard | None = None,
        random: Callable[[], float] | None = None,
    ) -> None:
        self.clock = clock
        self._random = random or Random(0).random  # noqa: S311
        self.cluster = cluster
        self._http = http
        self._folders = folders
        self.store = FakeStore(clock)
        self._stores = Stores(lambda: self.store, clock)
        self._pages = Pages()
        self.peers = FakePeers(clock)
        self.repositories = FakeRepositories()
        self.sections = Sections()
        self.agent, self.server, self.pipe = connected(clock)
        self.paths = FakeAgentPaths()
        self.server.capabilities.provide("kubernetes_api", IAgentPaths, self.paths)
        self._modules: list[tuple[ModuleScope, Any]] = []
        #: The failures that modules have reported.
        self.failures: list[Exception] = []
        #: What all agent halves share, as in one agentk.
        self._kubernetes = KubernetesClients(
            cluster,
            UpstreamPool(lambda: self.cluster.endpoint(), clock),
            clock,
            self._random,
            own_namespace=OwnNamespace("default"),
            reach=lambda host, port: self.cluster.reach(host, port),
            guard=guard,
        )
        # Client and server of the external API, and the pipe between them.
        self._outside, self.door, self._street = connected(clock)
        self.door.tunnel.agent = None

    def server_half(self, factory: Any, **configuration: Any) -> Any:
        """Create a server half; if it keeps its API, tests can reach it as ``.api``."""
        return self._make(self.server, self._server_api, factory, configuration)

    def agent_half(self, factory: Any, **configuration: Any) -> Any:
        """Create an agent half."""
        return self._make(self.agent, self._agent_api, factory, configuration)

    def _make(
        self,
        end: End,
        make_api: Callable[[ModuleScope, dict[str, Any]], Any],
        factory: Any,
        configuration: dict[str, Any],
    ) -> Any:
        name = getattr(factory, "name", None) or factory.__name__
        settings = factory.configuration(**configuration)
        scope = ModuleScope(name, settings, self.failures.append)
        common = {
            "scope": scope,
            "reactor": self.clock,
            "random": self._random,
            "metrics": CollectorRegistry(),
            # A `FakeTracer` if the test needs spans; set before the module is created.
            "tracer": end.dispatcher.tracer,
            "events": ModuleEvents(scope, end.bus),
            "capabilities": ModuleCapabilities(scope, end.capabilities),
        }
        module = factory(make_api(scope, common))
        self._modules.append((scope, module))
        return module

    def _server_api(self, scope: ModuleScope, common: dict[str, Any]) -> Any:
        end = self.server
        return ServerModuleApi(
            **common,
            calls=ServerCalls(
                scope,
                end.dispatcher,
                self.clock,
                self.door.dispatcher,
                StreamsToAgents(end).open,
            ),
            agents=FakeAgents(),
            users=FakeUsers(),
            audit=FakeAudit(),
            git=self.repositories,
            gitlab=FakeProjects(),
            stores=ModuleStores(scope, self._stores, self._folders),
            web=ModuleWeb(scope, self._pages),
            network=FakeNetwork(self._http),
            workers=FakeWorkers(),
            peers=self.peers,
        )

    def _agent_api(self, scope: ModuleScope, common: dict[str, Any]) -> Any:
        end, leadership = self.agent, FakeLeadership()
        return AgentModuleApi(
            **common,
            identity=AGENT,
            calls=AgentCalls(
                scope,
                end.dispatcher,
                self.clock,
                end.open_stream,
                lambda: leadership.leads,
            ),
            kubernetes=self._kubernetes.of_module(scope.name),
            gitlab=GitLabAccess(end.client(GITLAB_ACCESS), scope.name),
            sections=ModuleSections(scope, self.sections),
            leadership=leadership,
            network=FakeNetwork(None),
        )

    def external(self, service: Any) -> ServiceClient:
        """
        Return a client for the services of `handle_external`, as GitLab would use it.
        """
        return self._outside.client(service)

    def visit(
        self,
        path: str,
        method: str = "GET",
        body: bytes = b"",
        wait: float = 0,
        headers: Mapping[str, str] | None = None,
        **fields: str,
    ) -> Answer:
        """
        Request a page of a server half, and return the response.

        :param path: the path with its query.
        :param wait: seconds to advance the clock before the response is read.
        :param headers: header fields by name.
        :param fields: more header fields, with ``_`` for ``-``.
        """
        head = dict(headers or {})
        head.update((name.replace("_", "-"), text) for name, text in fields.items())
        for name, text in head.items():
            if not isinstance(text, str):
                raise TypeError(f"the header field {name!r} must be a str")
        return visit(self._pages, path, method, body, head, partial(self._pass, wait))

    def web_socket(
        self,
        path: str,
        headers: Mapping[str, str] | None = None,
        subprotocols: tuple[str, ...] = (),
    ) -> FakeWebSocket:
        """
        Open a WebSocket of a server half, as a client.

        :param path: the path with its query.
        :param headers: header fields by name.
        :raises tunnel.errors.CallError: the module refused the request.
        """
        accept, request = find_web_socket(
            self._pages, path, headers or {}, subprotocols
        )

        async def ask() -> Any:
            return await maybeDeferred(accept, request)

        return FakeWebSocket(self.run(ask()))

    def _pass(self, seconds: float) -> None:
        self.settle()
        self.clock.advance(seconds)
        self.settle()

    def start(self) -> None:
        for _, module in self._modules:
            self.run(module.start())

    def stop(self) -> None:
        """
        Remove the modules' registrations and stop the modules, beginning with the last
        one.
        """
        for scope, module in reversed(self._modules):
            scope.release()
            self.run(module.stop())

    def settle(self) -> None:
        """Deliver everything in transit; the clock does not move."""
        self.pipe.flush()
        while self._street.step() or self.peers.flush():
            self.pipe.flush()

    def run(self, coroutine: Coroutine[Any, Any, _T], patience: float = PATIENCE) -> _T:
        """
        Return the result of a coroutine; deliver data and advance the clock while it
        waits.

        :param patience: maximum number of seconds to advance the clock.
        """
        results: list[Any] = []
        deferred = Deferred.fromCoroutine(coroutine)
        deferred.addBoth(results.append)
        self.settle()
        end = self.clock.seconds() + patience
        while not results:
            times = [call.getTime() for call in self.clock.getDelayedCalls()]
            if not times or min(times) > end:
                raise AssertionError(f"still waiting after {patience:g} s")
            self.clock.advance(max(0.0, min(times) - self.clock.seconds()))
            self.settle()
        if isinstance(results[0], Failure):
            results[0].raiseException()
        result: _T = results[0]
        return result
