"""Both halves of the module, joined by streams in memory that honour pauses."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from typing import Any

import attrs
from prometheus_client import CollectorRegistry
from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock
from zope.interface import implementer

from kas.workers.limits import SharedCount
from modules.kubernetes_api.agent import KubernetesApiAgent
from modules.kubernetes_api.config import (
    KubernetesApiAgentConfiguration,
    KubernetesApiConfiguration,
)
from modules.kubernetes_api.server import KubernetesApiServer
from tests.tunnel.http1.pools import Endpoint
from tests.tunnel.http1.wire import Wire
from tunnel.api import (
    DEFAULT_OPTIONS,
    Access,
    AuditLevel,
    EnforcedEvents,
    HasPeer,
    Impersonation,
    IStream,
    IStreamReceiver,
    StreamOptions,
    Usage,
)
from tunnel.errors import AgentUnavailable, CallError, ErrorCode, Status, StreamReset
from tunnel.hosting.capabilities import CapabilityTable, ModuleCapabilities
from tunnel.hosting.scope import ModuleScope
from tunnel.hosting.stores import ModuleStores, Stores
from tunnel.http1 import UpstreamPool
from tunnel.kubernetes import OwnNamespace
from tunnel.testing import FakeStore, FakeTracer
from tunnel.testing.audit import FakeAudit

WINDOW = 256 * 1024


@implementer(IStream)
class FakeStream:
    """One end; what it sends crosses when the `Link` is pumped."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.agent = None
        self.peer: FakeStream
        self.receiver: Any = None
        self.closed = False
        self.sent_fin = False
        self.got_fin = False
        self.paused = False
        self.delivering = False
        self.inbox: deque[tuple[str, bytes]] = deque()
        self.in_flight = 0
        self.full = False
        self.producer: Any = None

    def _send(self, kind: str, data: bytes = b"") -> None:
        if not self.closed and not self.sent_fin:
            self.link.frames.append((self.peer, kind, data))

    def send_headers(self, block: bytes, fin: bool = False) -> None:
        assert len(block) <= 65536
        self._send("headers", block)
        if fin:
            self.finish()

    def write(self, data: bytes) -> None:
        if self.closed or self.sent_fin:
            return
        self._send("data", data)
        self.in_flight += len(data)
        self.link.most = max(self.link.most, self.in_flight)
        if self.in_flight > WINDOW and not self.full:
            self.full = True
            if self.producer is not None:
                self.producer.pauseProducing()

    def finish(self) -> None:
        if self.closed or self.sent_fin:
            return
        self._send("fin")
        self.sent_fin = True
        if self.got_fin:
            self.close(None)

    def reset(self, code: int = 5, message: str = "") -> None:
        if self.closed:
            return
        self.link.frames.append((self.peer, "reset", f"{int(code)}:{message}".encode()))
        self.close(StreamReset(ErrorCode(code), message, by_peer=False))

    def pauseProducing(self) -> None:
        self.paused = True

    def resumeProducing(self) -> None:
        self.paused = False
        self.deliver()

    def stopProducing(self) -> None:
        self.reset()

    def registerProducer(self, producer: Any, streaming: bool) -> None:
        assert self.producer is None
        if self.closed:
            producer.stopProducing()
            return
        self.producer = producer
        if self.full:
            producer.pauseProducing()

    def unregisterProducer(self) -> None:
        self.producer = None

    def arrived(self, kind: str, data: bytes) -> None:
        if self.closed:
            return
        if kind == "reset":
            code, _, message = data.decode().partition(":")
            self.close(StreamReset(ErrorCode(int(code)), message))
            return
        self.inbox.append((kind, data))
        self.deliver()

    def deliver(self) -> None:
        if self.delivering:
            return
        self.delivering = True
        while self.inbox and not self.paused and not self.closed:
            kind, data = self.inbox.popleft()
            try:
                if kind == "headers":
                    self.receiver.headers_received(data)
                elif kind == "data":
                    self.receiver.data_received(data)
                    self.peer.consumed(len(data))
                else:
                    self.got_fin = True
                    self.receiver.fin_received()
                    if self.sent_fin:
                        self.close(None)
            except Exception as error:
                self.link.errors.append(error)
                self.reset(ErrorCode.INTERNAL, "the receiver failed")
        self.delivering = False

    def consumed(self, count: int) -> None:
        self.in_flight -= count
        if self.full and self.in_flight <= WINDOW // 2 and not self.closed:
            self.full = False
            if self.producer is not None:
                self.producer.resumeProducing()

    def close(self, reason: Exception | None) -> None:
        if self.closed:
            return
        self.closed = True
        self.inbox.clear()
        self.link.open.discard(self)
        producer, self.producer = self.producer, None
        if producer is not None:
            producer.stopProducing()
        if self.receiver is not None:
            self.receiver.stream_closed(reason)


@attrs.define(eq=False)
class Opened:
    """What the agent half sees of an OPEN message."""

    metadata: bytes


class Link:
    """The tunnel between the halves."""

    def __init__(self) -> None:
        self.frames: deque[tuple[FakeStream, str, bytes]] = deque()
        self.open: set[FakeStream] = set()
        self.handlers: dict[str, Any] = {}
        self.errors: list[Exception] = []
        self.opened: list[bytes] = []
        self.most = 0
        self.connected = True

    def open_stream(
        self, agent_id: str, method: str, receiver: Any, metadata: bytes, fin: bool
    ) -> FakeStream:
        near, far = FakeStream(self), FakeStream(self)
        near.peer, far.peer = far, near
        near.receiver = receiver
        self.open.add(near)
        if not self.connected:
            near.close(AgentUnavailable(agent_id, f"agent {agent_id} is not connected"))
            return near
        self.open.add(far)
        self.opened.append(metadata)
        self.frames.append((far, "open:" + method, metadata))
        if fin:
            near.finish()
        return near

    def pump(self) -> bool:
        """Move what is under way; tell whether there was anything."""
        moved = bool(self.frames)
        while self.frames:
            stream, kind, data = self.frames.popleft()
            if kind.startswith("open:"):
                accept = self.handlers.get(kind[5:])
                if stream.closed:
                    continue
                if accept is None:
                    stream.reset(ErrorCode.UNKNOWN_METHOD, "nobody serves this")
                else:
                    stream.receiver = accept(stream, Opened(data))
                    stream.deliver()
            else:
                stream.arrived(kind, data)
        return moved


class Api:
    """What both programs lend."""

    def __init__(self, link: Link, clock: Clock, configuration: Any) -> None:
        self.link = link
        self.clock = clock
        self.configuration = configuration
        self.write = lambda transport, data: transport.write(data)
        self.metrics = CollectorRegistry()
        self.tracer: FakeTracer | None = None
        self.name = "kubernetes_api"
        self.subscribers: dict[type[Any], list[Callable[[Any], object]]] = {}
        # One object plays several subjects of the API.
        self.calls = self.events = self

    def subscribe(
        self, kind: type[Any], callback: Callable[[Any], object]
    ) -> Callable[[], None]:
        self.subscribers.setdefault(kind, []).append(callback)
        return lambda: self.subscribers[kind].remove(callback)

    def publish(self, event: object) -> None:
        for callback in self.subscribers.get(type(event), ()):
            callback(event)

    def handle_stream(
        self, method: str, accept: Callable[[IStream, Any], IStreamReceiver]
    ) -> None:
        self.link.handlers[method] = accept


class ServerApi(Api):
    """kas."""

    def __init__(self, link: Link, clock: Clock, configuration: Any) -> None:
        super().__init__(link, clock, configuration)
        self.asked: list[tuple[str, str, str]] = []
        self.users = self.web = self.network = self.workers = self
        self.audit = FakeAudit()
        self.audit.level = AuditLevel.NONE
        self.page_origins: tuple[str, ...] = ()
        self.used: list[Usage] = []
        self.count_usage = self.used.append
        self.access: dict[str, Access | Exception | Deferred[Access]] = {}
        self.listening: list[tuple[Any, Any]] = []
        self.held: Callable[[], Collection[str]] = tuple
        #: What is counted with other workers, by the limit.
        self.together: dict[str, SharedCount] = {}
        self.store = FakeStore(clock)
        scope = ModuleScope(self.name, configuration, lambda reason: None)
        self.stores = ModuleStores(scope, Stores(lambda: self.store, clock))
        self.capabilities = ModuleCapabilities(scope, CapabilityTable())

    def hand_over(self, prefix: str, factory: Any) -> None:
        self.handed_over = (prefix, factory)

    def open_stream(
        self,
        agent_id: str,
        method: str,
        receiver: Any,
        metadata: bytes = b"",
        options: StreamOptions = DEFAULT_OPTIONS,
    ) -> FakeStream:
        return self.link.open_stream(agent_id, method, receiver, metadata, options.fin)

    def authorize(
        self, kind: str, agent: str, token: str, peer: HasPeer | None = None
    ) -> Access | Deferred[Access]:
        self.asked.append((kind, agent, token))
        access = self.access.get(token)
        if isinstance(access, Deferred | Access):
            return access
        raise access or CallError(Status.UNAUTHENTICATED, "the token is not known")

    def recheck(self, held: Callable[[], Collection[str]]) -> None:
        self.held = held

    def count_together(self, limit: str, most: int) -> SharedCount:
        """Of two workers; the other one is silent unless a test speaks for it."""
        return self.together.setdefault(
            limit, SharedCount.of(most, 2, lambda key, amount: None)
        )

    def listen(self, endpoint: Any, factory: Any, path: str = "") -> Deferred[None]:
        self.listening.append((endpoint, factory))
        return succeed(None)


class Cluster:
    """The API server, as agentk knows it."""

    host = "10.0.0.1"
    port = 6443
    path_prefix = ""
    host_header = b"10.0.0.1:6443"

    def __init__(self) -> None:
        self.connections = Endpoint()
        self.token: bytes | None = b"Bearer agent-token"
        self.rejections = 0

    def endpoint(self) -> Endpoint:
        return self.connections

    def authorization(self) -> bytes | None:
        return self.token

    def rejected(self) -> None:
        self.rejections += 1


class AgentApi(Api):
    """agentk."""

    agent_id = "agent-1"

    def __init__(
        self, link: Link, clock: Clock, configuration: Any, cluster: Cluster
    ) -> None:
        super().__init__(link, clock, configuration)
        self.kubernetes = self
        self.cluster_as_agentk = cluster
        self.own_namespace = OwnNamespace("txkas", is_closed=True)
        self.upstream = UpstreamPool(cluster.endpoint, clock)


ALICE = Access("user:alice", "1", "agent-1", Impersonation("alice", ("dev", "ops")))
ROOT = Access("user:root", "1", "agent-1", None)


class World:
    """A client, kas, the tunnel, agentk and an API server, all in memory."""

    def __init__(
        self,
        audit_level: AuditLevel = AuditLevel.NONE,
        enforced: Collection[EnforcedEvents] = (),
        page_origins: tuple[str, ...] = (),
        traced: bool = False,
        **settings: Any,
    ) -> None:
        self.clock = Clock()
        self.link = Link()
        self.server_api = ServerApi(
            self.link, self.clock, KubernetesApiConfiguration(**settings)
        )
        self.server_api.audit.level = audit_level
        self.server_api.audit.enforced = frozenset(enforced)
        self.server_api.page_origins = page_origins
        self.server_api.access = {"alice": ALICE, "root": ROOT}
        self.cluster = Cluster()
        self.agent_api = AgentApi(
            self.link, self.clock, KubernetesApiAgentConfiguration(), self.cluster
        )
        if traced:
            self.server_api.tracer = FakeTracer()
            # Which traces begin is decided in kas.
            self.agent_api.tracer = FakeTracer(begins=False)
        self.server: Any = KubernetesApiServer(
            self.server_api,  # type: ignore[arg-type]
            token=lambda: "feed",
        )
        self.agent: Any = KubernetesApiAgent(
            self.agent_api,  # type: ignore[arg-type]
            now=self.clock.seconds,
        )

    def client(self) -> Wire:
        """A new connection of a client."""
        return Wire(self.server.front.buildProtocol(None))

    @property
    def origin(self) -> Wire:
        """The newest connection at the API server."""
        return self.cluster.connections.wires[-1]

    def run(self) -> None:
        """Go on until nothing moves."""
        while True:
            moved = self.link.pump()
            self.clock.advance(0)
            if not moved and not self.link.frames:
                return

    def request(
        self,
        head: bytes = b"GET /api HTTP/1.1",
        *lines: bytes,
        token: bytes = b"user:1:alice",
        body: bytes = b"",
    ) -> Wire:
        """A new client that sends one request."""
        wire = self.client()
        everything = (head, b"Host: kas", b"Authorization: Bearer " + token, *lines)
        wire.receive(b"".join(line + b"\r\n" for line in everything) + b"\r\n" + body)
        self.run()
        return wire

    def counts(self) -> dict[str, int]:
        """Everything that must be zero when nothing is under way."""
        pool = self.agent.pool
        return {
            "in flight at kas": self.server.metrics.in_flight,
            "in flight at agentk": self.agent.metrics.in_flight,
            "credentials": self.server.shares.counts[0],
            "agents": self.server.shares.counts[1],
            "streams": len(self.link.open),
            "busy connections": len(pool.connections) - pool.idle_count,
            "waiting": pool.waiting_count,
            "connecting": pool.connecting_count,
        }
