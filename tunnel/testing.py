"""
Both ends of a tunnel in memory, with back-pressure, for tests of modules.

`Pipe` is a connection of two transports that hold a bounded number of bytes and pause
whoever writes more.  `connected` joins two greeted tunnels by one.  `ModulePair` runs
both halves of a module against each other:

    clock = Clock()
    pair = ModulePair(clock)
    agent = pair.agent_half(GreeterAgent)
    server = pair.server_half(GreeterServer)
    pair.start()
    answer = pair.run(server.greet("agent-1", "world"))

Nothing here opens a socket or waits for real time.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import attrs
from prometheus_client import CollectorRegistry
from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.interfaces import (
    IAddress,
    IConsumer,
    IListeningPort,
    IPushProducer,
    ITransport,
)
from twisted.internet.protocol import Protocol, connectionDone
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from zope.interface import implementer

from tunnel.config import Listen
from tunnel.errors import (
    AgentUnavailable,
    CallError,
    ErrorCode,
    SessionClosed,
    Status,
    StreamReset,
    TunnelError,
)
from tunnel.events import EventBus
from tunnel.flusher import Flusher
from tunnel.interfaces import (
    Access,
    ConnectedAgent,
    IAgentModuleApi,
    IServerModuleApi,
    IStream,
    IStreamReceiver,
)
from tunnel.net import eager
from tunnel.net.keepalive import Keepalive, Timing
from tunnel.net.owner import TunnelOwner
from tunnel.net.protocol import TunnelProtocol
from tunnel.pb import tunnel_pb2 as pb
from tunnel.rpc.client import ServiceClient
from tunnel.rpc.dispatch import Dispatcher
from tunnel.wire.limits import DEFAULT_LIMITS, Limits
from tunnel.wire.session import Session

__all__ = ["MemoryTransport", "ModulePair", "Pipe", "RecordingReceiver", "connected"]

_T = TypeVar("_T")

#: The one agent that there is here.
AGENT = ConnectedAgent("1", "agent-1", b"i", 1, 0.0)


@implementer(ITransport, IConsumer, IPushProducer)
class MemoryTransport:
    """One end of a `Pipe`; honours and causes pauses as a socket does."""

    def __init__(self, pipe: Pipe, capacity: int, port: int) -> None:
        self.pipe = pipe
        self.capacity = capacity
        self.disconnecting = False
        self.disconnected = False
        self.reading = True
        #: Written here and not yet read by the other end.
        self.buffer = bytearray()
        self._producer: IPushProducer | None = None
        self._paused = False
        self._address = IPv4Address("TCP", "127.0.0.1", port)

    def write(self, data: bytes) -> None:
        if self.disconnected or self.disconnecting:
            return
        self.buffer += data
        if self._producer is not None and len(self.buffer) > self.capacity:
            if not self._paused:
                self._paused = True
                self._producer.pauseProducing()

    def writeSequence(self, data: Any) -> None:
        self.write(b"".join(data))

    def loseConnection(self) -> None:
        self.disconnecting = True

    def abortConnection(self) -> None:
        self.buffer.clear()
        self.disconnecting = True

    def registerProducer(self, producer: Any, streaming: bool) -> None:
        self._producer = producer

    def unregisterProducer(self) -> None:
        self._producer = None

    def pauseProducing(self) -> None:
        self.reading = False

    def resumeProducing(self) -> None:
        self.reading = True

    def stopProducing(self) -> None:
        self.loseConnection()

    def getPeer(self) -> IAddress:
        return self._address

    def getHost(self) -> IAddress:
        return self._address

    def take(self, count: int) -> bytes:
        """The next bytes for the other end; the writer goes on once half is free."""
        data = bytes(self.buffer[:count])
        del self.buffer[:count]
        if self._paused and len(self.buffer) <= self.capacity // 2:
            self._paused = False
            if self._producer is not None:
                self._producer.resumeProducing()
        return data


class Pipe:
    """
    Two protocols and the bytes between them.

    :param capacity: bytes that each direction holds before its writer is paused.
    :param chunk: the largest piece that is delivered at once.
    """

    def __init__(
        self,
        clock: Clock,
        first: Protocol,
        second: Protocol,
        *,
        capacity: int = 65536,
        chunk: int = 65536,
    ) -> None:
        self.clock = clock
        self.chunk = chunk
        self.protocols = (first, second)
        self.transports = (
            MemoryTransport(self, capacity, 40001),
            MemoryTransport(self, capacity, 40002),
        )
        #: Nothing crosses while this is set: a cable that was pulled.
        self.cut = False
        for protocol, transport in zip(self.protocols, self.transports, strict=True):
            protocol.makeConnection(transport)

    def step(self) -> bool:
        """Deliver one piece each way; False when there was nothing to do."""
        moved = False
        for index in (0, 1):
            source, target = self.transports[index], self.transports[1 - index]
            if source.disconnected:
                continue
            if self.cut:
                # A connection that was aborted is over on this side alone.
                if source.disconnecting and not source.buffer:
                    self._lose(index)
                    moved = True
                continue
            if source.buffer and target.reading and not target.disconnected:
                self.protocols[1 - index].dataReceived(source.take(self.chunk))
                moved = True
            elif source.disconnecting and not source.buffer:
                self._lose(index)
                self._lose(1 - index)
                moved = True
        return moved

    def _lose(self, index: int) -> None:
        transport = self.transports[index]
        if not transport.disconnected:
            transport.disconnected = True
            self.protocols[index].connectionLost(connectionDone)

    def flush(self, rounds: int = 100_000) -> None:
        """Deliver until nothing moves; timers of this very moment run, too."""
        for _ in range(rounds):
            moved = self.step()
            due = [
                c
                for c in self.clock.getDelayedCalls()
                if c.getTime() <= self.clock.seconds()
            ]
            if due:
                self.clock.advance(0)
            if not moved and not due:
                return
        raise AssertionError("the pipe does not come to rest")


@implementer(IStreamReceiver)
@attrs.define(eq=False, slots=False)
class RecordingReceiver:
    """An `IStreamReceiver` that remembers what it was told."""

    headers: list[bytes] = attrs.Factory(list)
    data: bytearray = attrs.Factory(bytearray)
    finished: bool = False
    #: One entry when the stream is closed: the reason.
    closed: list[Exception | None] = attrs.Factory(list)

    def headers_received(self, block: bytes) -> None:
        self.headers.append(block)

    def data_received(self, data: bytes) -> None:
        self.data += data

    def fin_received(self) -> None:
        self.finished = True

    def stream_closed(self, reason: Exception | None) -> None:
        self.closed.append(reason)


class End(TunnelOwner):
    """One side of `connected`: its tunnel, and who answers on it."""

    def __init__(self, clock: Clock, *, dialler: bool, limits: Limits) -> None:
        self.clock = clock
        self.dispatcher = Dispatcher(clock)
        self.bus = EventBus()
        self.closed: list[SessionClosed] = []
        self.going_away: list[pb.GoAway] = []
        self.tunnel = TunnelProtocol(
            Session(dialler=dialler, limits=limits),
            self,
            clock=clock,
            flusher=Flusher(clock),
            keepalive=Keepalive(clock),
            timing=Timing(),
        )

    def open_stream(
        self,
        method: str,
        receiver: IStreamReceiver,
        *,
        metadata: bytes = b"",
        fin: bool = False,
        timeout: float = 0,
    ) -> IStream:
        open_ = pb.Open(
            method=method, metadata=metadata, timeout_ms=round(timeout * 1000)
        )
        stream: IStream = self.tunnel.open_stream(open_, receiver, fin=fin)
        return stream

    def client(self, service: Any) -> ServiceClient:
        """Calls a service of the other side."""
        return ServiceClient(service, self.open_stream, self.clock)

    # tunnel.net.owner.TunnelOwner

    def hello_received(self, tunnel: TunnelProtocol, hello: pb.Hello) -> None:
        tunnel.agent = AGENT
        tunnel.welcome(pb.Welcome(agent_id="1", agent_name="agent-1"))

    def stream_opened(self, stream: Any, open_: pb.Open) -> IStreamReceiver:
        return self.dispatcher.accept(stream, open_)

    def go_away_received(self, tunnel: TunnelProtocol, go_away: pb.GoAway) -> None:
        self.going_away.append(go_away)

    def tunnel_closed(self, tunnel: TunnelProtocol, reason: SessionClosed) -> None:
        self.closed.append(reason)


def connected(
    clock: Clock,
    *,
    capacity: int = 65536,
    chunk: int = 65536,
    limits: Limits = DEFAULT_LIMITS,
) -> tuple[End, End, Pipe]:
    """A dialler, a listener, and the pipe between them; the greeting is over."""
    dialler = End(clock, dialler=True, limits=limits)
    listener = End(clock, dialler=False, limits=limits)
    pipe = Pipe(clock, dialler.tunnel, listener.tunnel, capacity=capacity, chunk=chunk)
    dialler.tunnel.hello(pb.Hello(role="agent", instance_id=b"i"))
    pipe.flush()
    return dialler, listener, pipe


class _FakeApi:
    """What both module APIs have in common."""

    def __init__(self, pair: ModulePair, end: End, name: str, configuration: Any):
        self.name = name
        self.configuration = configuration
        self.clock = pair.clock
        self.reactor = pair.clock
        self.metrics = CollectorRegistry()
        self.write = eager.write
        #: What the module said when it could not go on.
        self.failures: list[Exception] = []
        self._pair = pair
        self._end = end

    def handle(self, service: Any, implementation: object) -> None:
        self._end.dispatcher.handle(self.name, service, implementation)

    def handle_stream(self, method: str, accept: Any) -> None:
        self._end.dispatcher.handle_stream(self.name, method, accept)

    def fail(self, reason: Exception) -> None:
        self.failures.append(reason)

    def publish(self, topic: str, event: Any) -> None:
        self._end.bus.publish(topic, event)

    def subscribe(self, topic: str, told: Callable[[Any], None]) -> Callable[[], None]:
        return self._end.bus.subscribe(self.name, topic, told)


@implementer(IListeningPort)
class _Port:
    """What `FakeServerModuleApi.listen` opens: nothing."""

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
    """`IServerModuleApi` for one agent, ``1`` or ``agent-1``, that is connected."""

    def __init__(self, pair: ModulePair, end: End, name: str, configuration: Any):
        super().__init__(pair, end, name, configuration)
        #: token -> `Access`; anything else is refused.
        self.tokens: dict[str, Access] = {}
        #: What the module listens with: endpoint string -> factory.
        self.listening: dict[str, Any] = {}

    def client(self, service: Any, agent_id: str) -> ServiceClient:
        def opener(method: str, receiver: IStreamReceiver, **kw: Any) -> IStream:
            return self.open_stream(agent_id, method, receiver, **kw)

        return ServiceClient(service, opener, self.clock)

    def open_stream(
        self,
        agent_id: str,
        method: str,
        receiver: IStreamReceiver,
        metadata: bytes = b"",
        fin: bool = False,
        timeout: float = 0,
        repeatable: bool = False,
        resumable: bool = False,
    ) -> IStream:
        if agent_id not in ("1", "agent-1"):
            return _NoAgent(agent_id, receiver, self.clock)
        return self._end.open_stream(
            method, receiver, metadata=metadata, fin=fin, timeout=timeout
        )

    def handle_external(self, service: Any, implementation: object) -> None:
        self._pair.door.dispatcher.handle(self.name, service, implementation)

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

    def authorize(self, kind: str, agent: str, token: str) -> Deferred[Access]:
        access = self.tokens.get(token)
        if access is None:
            return fail(CallError(Status.UNAUTHENTICATED, "unknown token"))
        return succeed(access)

    def listen(self, endpoint: Any, factory: Any) -> Deferred[Any]:
        if isinstance(endpoint, Listen):
            endpoint = endpoint.endpoint_string()
        self.listening[endpoint] = factory
        return succeed(_Port())


@implementer(IAgentModuleApi)
class FakeAgentModuleApi(_FakeApi):
    """`IAgentModuleApi`; give it a `cluster` where the module wants one."""

    cluster: Any = None
    agent_id = "1"

    def client(self, service: Any) -> ServiceClient:
        return self._end.client(service)


class ModulePair:
    """Both halves of modules, joined by a tunnel in memory."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.agent, self.server, self.pipe = connected(clock)
        self._modules: list[tuple[End, str, Any]] = []
        # Whoever calls the external API, and what answers there.
        self._outside, self.door, self._street = connected(clock)
        self.door.tunnel.agent = None

    def server_half(self, factory: Any, **configuration: Any) -> Any:
        """Make a server half; its API is at ``.api`` of the result if it kept it."""
        return self._make(FakeServerModuleApi, self.server, factory, configuration)

    def agent_half(self, factory: Any, **configuration: Any) -> Any:
        """Make an agent half."""
        return self._make(FakeAgentModuleApi, self.agent, factory, configuration)

    def _make(self, api: Any, end: End, factory: Any, configuration: Any) -> Any:
        settings = factory.configuration(**configuration)
        name = getattr(factory, "name", factory.__name__)
        module = factory(api(self, end, name, settings))
        self._modules.append((end, name, module))
        return module

    def external(self, service: Any) -> ServiceClient:
        """Calls what server halves gave to `handle_external`, as GitLab would."""
        return self._outside.client(service)

    def start(self) -> None:
        """Start all of them."""
        for _, _, module in self._modules:
            self.run(module.start())

    def stop(self) -> None:
        """Take back what they registered, and stop them; the last first."""
        for end, name, module in reversed(self._modules):
            end.dispatcher.withdraw(name)
            end.bus.withdraw(name)
            self.door.dispatcher.withdraw(name)
            self.run(module.stop())

    def run(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        """The result of a coroutine, with the pipe moving as long as it waits."""
        results: list[Any] = []
        deferred = Deferred.fromCoroutine(coroutine)
        deferred.addBoth(results.append)
        self.pipe.flush()
        while self._street.step():
            self.pipe.flush()
        if not results:
            raise AssertionError("still waiting, and nothing moves any more")
        if isinstance(results[0], Failure):
            results[0].raiseException()
        result: _T = results[0]
        return result
