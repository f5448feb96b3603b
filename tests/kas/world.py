"""One kas and its agents, without sockets."""

from __future__ import annotations

from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from kas.agents.acceptor import AgentAcceptor, AgentFactory, ConnectionRate
from kas.agents.registry import Registry
from kas.directory.directory import Directory
from kas.directory.records import KasRecord
from kas.routing.router import Router
from tunnel.api import AgentIdentity, HasPeer
from tunnel.errors import CallError, SessionClosed, Status
from tunnel.pb import tunnel_pb2 as pb
from tunnel.program.runtime import Runtime
from tunnel.rpc.dispatch import Dispatcher
from tunnel.session.protocol import TunnelProtocol
from tunnel.testing import Pipe, RecordingReceiver
from tunnel.testing.ends import End
from tunnel.wire.limits import DEFAULT_LIMITS, Limits


class Agent(End):
    """The agent's end of a tunnel; answers every stream, and records it."""

    pipe: Pipe
    #: The tunnel at kas.
    there: TunnelProtocol
    #: It reads nothing of its streams until it is told to.
    slow = False

    def __init__(self, clock: Clock, limits: Limits) -> None:
        super().__init__(clock, dialler=True, limits=limits)
        self.streams: list[tuple[Any, pb.Open, RecordingReceiver]] = []
        self.welcomes: list[pb.Welcome] = []

    def welcome_received(self, tunnel: TunnelProtocol, welcome: pb.Welcome) -> None:
        self.welcomes.append(welcome)

    def stream_opened(self, stream: Any, open_: pb.Open) -> RecordingReceiver:
        receiver = RecordingReceiver()
        self.streams.append((stream, open_, receiver))
        if self.slow:
            stream.pauseProducing()
        return receiver


def alone(clock: Clock) -> Directory:
    """The directory of a kas without others."""
    return Directory(KasRecord(b"k" * 16, ""), None, Runtime(reactor=clock))


class World:
    """What one kas has to do with agents, without sockets."""

    def __init__(
        self,
        per_minute: int = 5000,
        limits: Limits = DEFAULT_LIMITS,
        clock: Clock | None = None,
    ) -> None:
        self.limits = limits
        self.slow = False
        self.clock = clock or Clock()
        self.runtime = Runtime(
            reactor=self.clock, now=self.clock.seconds, instance_id=b"kas"
        )
        self.registry = Registry()
        self.dispatcher = Dispatcher(self.clock)
        self.bus = self.runtime.bus
        self.directory = alone(self.clock)
        self.router = Router(self.registry, self.directory, self.runtime)
        self.acceptor = AgentAcceptor(
            authenticate=self.authenticate,
            registry=self.registry,
            dispatcher=self.dispatcher,
            runtime=self.runtime,
            rate=ConnectionRate(per_minute, self.clock),
        )
        self.factory = AgentFactory(self.acceptor)

    @staticmethod
    def authenticate(token: bytes, peer: HasPeer | None = None) -> AgentIdentity:
        """``7`` is the token of agent 7."""
        if not token.isdigit():
            raise CallError(Status.UNAUTHENTICATED, "the agent token is not valid")
        agent_id = token.decode()
        return AgentIdentity(agent_id, f"agent-{agent_id}", f"agent:{agent_id}:t")

    def dial(self, hello: pb.Hello) -> Agent:
        """Connect, and say *hello*."""
        agent = Agent(self.clock, self.limits)
        agent.slow = self.slow
        agent.there = self.factory.buildProtocol(None)
        agent.pipe = Pipe(self.clock, agent.tunnel, agent.there)
        agent.tunnel.hello(hello)
        agent.pipe.flush()
        return agent

    def agent(
        self,
        id_: str = "7",
        instance: bytes = b"i",
        generation: int = 1,
        *,
        role: str = "agent",
        pod: str = "",
    ) -> Agent:
        """An agent that is connected."""
        return self.dial(
            pb.Hello(
                role=role,
                agent=pb.AgentMeta(pod_name=pod),
                credential=id_.encode(),
                instance_id=instance,
                generation=generation,
            )
        )


def reason(agent: Agent) -> SessionClosed:
    """Why its only connection ended."""
    (closed,) = agent.closed
    return closed


class RegistryCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.world = World()
        self.registry = self.world.registry

    def held(self, agent_id: str) -> TunnelProtocol:
        """The tunnel that a stream to the agent would take."""
        connection = self.world.router.only_path(agent_id)
        assert connection is not None
        return connection.tunnel
