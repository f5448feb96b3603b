"""Several kas and agents without sockets: the real code of both, and pipes between."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.error import ConnectionRefusedError
from twisted.internet.interfaces import IStreamClientEndpoint
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from agentk.dialer import Dialer
from agentk.extra_tunnels import ExtraTunnels
from kas.agents.acceptor import AgentAcceptor, AgentFactory, ConnectionRate
from kas.agents.registry import Registry
from kas.directory.directory import Directory
from kas.directory.records import AgentRecord, KasRecord
from kas.fleet.balance import Balance
from kas.fleet.gateway import Gateway, GatewayFactory
from kas.fleet.peers import Peers
from kas.fleet.tokens import PeerToken
from kas.routing.router import Router
from kas.routing.stream import RoutedStream
from tests.kas.directory.memory import Hub, MemoryStore
from tests.kas.world import World
from tests.tunnel.rpc.echo import ECHO, Echo
from tunnel.api import (
    AgentConnected,
    AgentDisconnected,
    ConnectedAgent,
    IStream,
    IStreamReceiver,
    StreamOptions,
)
from tunnel.errors import CallError, Status
from tunnel.pb import tunnel_pb2 as pb
from tunnel.program.runtime import Runtime
from tunnel.rpc.dispatch import Dispatcher
from tunnel.session.keepalive import Timing
from tunnel.session.protocol import TunnelProtocol
from tunnel.testing import Pipe, RecordingReceiver

GRACE = 60.0


@implementer(IStreamClientEndpoint)
@attrs.define(eq=False)
class _Door:
    """An address that somebody may listen at."""

    net: Network
    url: str

    def connect(self, factory: Any) -> Deferred[Any]:
        listener = self.net.listeners.get(self.url)
        if listener is None:
            return fail(ConnectionRefusedError())
        ours = factory.buildProtocol(None)
        theirs = listener.buildProtocol(None)
        pipe = Pipe(self.net.clock, ours, theirs)
        self.net.pipes.append((self.url, pipe))
        return succeed(ours)


@attrs.define(eq=False)
class Network:
    """Who listens where, and every connection that was made."""

    clock: Clock
    listeners: dict[str, Any] = attrs.Factory(dict)
    pipes: list[tuple[str, Pipe]] = attrs.Factory(list)

    def door(self, url: str) -> IStreamClientEndpoint:
        return _Door(self, url)

    def settle(self) -> None:
        """Deliver everything that is on its way."""
        for _ in range(8):
            for _, pipe in tuple(self.pipes):
                pipe.flush()
        self.pipes = [
            one
            for one in self.pipes
            if not all(transport.disconnected for transport in one[1].transports)
        ]

    def cut(self, url: str) -> None:
        """Lose every connection to an address, as a reset does."""
        for where, pipe in self.pipes:
            if where == url:
                for transport in pipe.transports:
                    transport.loseConnection()
        self.settle()


class Kas:
    """
    One kas.

    :param run: how often there was one of this number before.
    """

    def __init__(self, many: Any, number: int, run: int = 0) -> None:
        self.many = many
        self.number = number
        self.registry = Registry()
        clock = self.many.clock
        kas_id = bytes([number]) * 15 + bytes([run or number])
        runtime = Runtime(
            reactor=clock,
            now=clock.seconds,
            random=lambda: 0.5,
            instance_id=kas_id,
        )
        self.bus = runtime.bus
        self.me = KasRecord(kas_id, f"tcp://kas-{self.number}:8155")
        self.agents_url = f"tcp://kas-{self.number}:8150"
        self.store = self.many.store(self.me)
        self.directory = Directory(
            self.me,
            self.store,
            runtime,
            sessions=self,
            on_superseded=self._superseded,
            on_connected=lambda record: self.registry.replaced(record.agent),
        )
        self.peers = Peers(
            endpoint=self.many.network.door,
            sign=lambda url: PeerToken(b"secret", b"proof"),
            runtime=runtime,
        )
        self.gateway = Gateway(self._verify, self.registry, Dispatcher(clock), runtime)
        self.router = Router(
            self.registry,
            self.directory,
            runtime,
            peers=self.peers,
            resume_grace=GRACE,
        )
        self.balance = Balance(self.registry, self.directory, runtime)
        self.acceptor = AgentAcceptor(
            authenticate=World.authenticate,
            registry=self.registry,
            dispatcher=Dispatcher(clock),
            runtime=runtime,
            rate=ConnectionRate(5000, clock),
            timing=Timing(resume_grace=GRACE),
        )
        self.bus.subscribe("kas", AgentConnected, self._connected)
        self.bus.subscribe("kas", AgentDisconnected, self._disconnected)
        network = self.many.network
        network.listeners[self.me.url] = GatewayFactory(self.gateway)
        network.listeners[self.agents_url] = AgentFactory(self.acceptor)
        Deferred.fromCoroutine(self.directory.start())

    def _record(self, agent: ConnectedAgent) -> AgentRecord:
        return AgentRecord(agent, self.me.kas_id, self.me.url)

    def _superseded(self, record: AgentRecord) -> None:
        self.registry.superseded(record.agent)
        self.directory.disconnected(record)

    def _connected(self, event: AgentConnected) -> None:
        self.directory.connected(self._record(event.agent))

    def _disconnected(self, event: AgentDisconnected) -> None:
        self.directory.disconnected(self._record(event.agent))

    @staticmethod
    def _verify(credential: bytes) -> PeerToken:
        if credential != b"secret":
            raise CallError(Status.UNAUTHENTICATED, "not one of us")
        return PeerToken(credential, b"proof")

    # kas.directory.known_kas.Sessions

    def answers(self, kas: KasRecord) -> bool:
        return self.peers.at(kas.url).alive

    def dial(self, kas: KasRecord, callback: Callable[[], None]) -> None:
        self.peers.at(kas.url).connect(callback)

    async def ask(self, agent_id: str, peers: Sequence[KasRecord]) -> list[AgentRecord]:
        # Over the private API in earnest; what matters here is what comes of it.
        asked = {peer.kas_id for peer in peers}
        return [
            kas._record(connection.agent)
            for kas in self.many.kas
            if kas.me.kas_id in asked and kas.me.url in self.many.network.listeners
            for connection in kas.registry
            if connection.agent.agent_id == agent_id
        ]

    def open(
        self,
        receiver: IStreamReceiver,
        agent_id: str = "7",
        fin: bool = False,
        **options: Any,
    ) -> IStream:
        """A stream of a client of this kas."""
        how = StreamOptions(fin=fin, **options)
        return RoutedStream.open(self.router, agent_id, "/test", receiver, options=how)

    def kill(self) -> None:
        """As SIGKILL: the sockets close, nobody says goodbye."""
        network = self.many.network
        del network.listeners[self.me.url], network.listeners[self.agents_url]
        self.many.hub.stores.remove(self.store)
        network.cut(self.me.url)
        network.cut(self.agents_url)
        for peer in self.peers._peers.values():
            if peer.tunnel is not None:
                peer.tunnel._connection.loseConnection()
        network.settle()


class Agentk:
    """One agentk: the real dialer, and what it was asked."""

    def __init__(
        self, many: Any, at: Kas, id_: str, instance: bytes, pod: str = ""
    ) -> None:
        self.many = many
        self.at = at
        self.streams: list[tuple[IStream, RecordingReceiver]] = []
        dispatcher = Dispatcher(many.clock)
        dispatcher.handle_stream("test", "/test", self._accept)
        dispatcher.handle("test", ECHO, Echo())
        self.dialer = Dialer(
            endpoint=lambda: many.network.door(self.at.agents_url),
            hello=lambda: pb.Hello(
                credential=id_.encode(),
                instance_id=instance,
                agent=pb.AgentMeta(pod_name=pod),
            ),
            dispatcher=dispatcher,
            runtime=Runtime(reactor=many.clock, random=lambda: 0.5),
        )
        #: These dial there, too.
        self.extra = ExtraTunnels(
            self.dialer, Runtime(reactor=many.clock, random=lambda: 1.0)
        )
        self.dialer.start()
        many.network.settle()

    def _accept(self, stream: IStream, open_: pb.Open) -> IStreamReceiver:
        receiver = RecordingReceiver()
        self.streams.append((stream, receiver))
        return receiver

    @property
    def tunnel(self) -> TunnelProtocol:
        assert self.dialer.tunnel is not None
        return self.dialer.tunnel


class Many:
    """Several kas around one hub."""

    def __init__(self, count: int = 3) -> None:
        self.clock = Clock()
        self.network = Network(self.clock)
        self.hub = Hub()
        self.kas: list[Kas] = []
        for number in range(1, count + 1):
            self.kas.append(Kas(self, number))

    def store(self, me: KasRecord) -> MemoryStore:
        """What a directory of one of them writes to."""
        return MemoryStore(self.hub, me)

    def agent(
        self, at: Kas, id_: str = "7", instance: bytes = b"i" * 16, pod: str = ""
    ) -> Agentk:
        """An agentk that connects to one of them."""
        return Agentk(self, at, id_, instance, pod)

    def settle(self) -> None:
        """Let everything that is on its way arrive."""
        for _ in range(4):
            self.clock.advance(0)
            self.network.settle()

    def later(self, seconds: float, step: float = 0.25) -> None:
        """Let time pass."""
        while seconds > 0:
            self.clock.advance(min(step, seconds))
            self.network.settle()
            seconds -= step


class ManyCase(SynchronousTestCase):
    """Three kas, and a client."""

    def setUp(self) -> None:
        self.many = Many()
        self.one, self.two, self.three = self.many.kas
        self.client = RecordingReceiver()

    def answer(self, agent: Agentk, data: bytes = b"answer") -> None:
        """Answer the last request of an agent, and end it."""
        stream, _ = agent.streams[-1]
        stream.send_headers(b"head")
        stream.write(data)
        stream.finish()
        self.many.settle()

    def assert_answered(self, data: bytes = b"answer") -> None:
        self.assertEqual((self.client.headers, self.client.data), ([b"head"], data))
        self.assertTrue(self.client.finished)
