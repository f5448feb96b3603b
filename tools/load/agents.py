"""
Many agents with real tunnels in one process, which respond to every request at once.

``python -m tools.load.agents SETTINGS``; see `tools.load.clients.Agents`.
"""

from __future__ import annotations

import json
import os
import random
import resource
import sys
from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from typing import Any

from twisted.internet import ssl, stdio
from twisted.internet.endpoints import SSL4ClientEndpoint, TCP4ClientEndpoint
from twisted.internet.protocol import Factory, Protocol
from twisted.protocols.basic import LineReceiver

from agentk.dialer import Dialer
from agentk.extra_tunnels import ExtraTunnels
from modules.kubernetes_api.fields import METHOD
from tunnel.api import IStream, TunnelConnected
from tunnel.pb import tunnel_pb2 as pb
from tunnel.program.runtime import Runtime
from tunnel.program.tuning import tune_allocator
from tunnel.rpc.dispatch import Dispatcher
from tunnel.session.keepalive import Keepalive, Timing
from tunnel.session.protocol import TunnelOwner, TunnelProtocol
from tunnel.transport.tls import client_context
from tunnel.transport.tlsio import TLSClientEndpoint
from tunnel.util.flusher import Flusher
from tunnel.wire.session import Session

_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nCache-Control: no-cache\r\n"
    b"Audit-Id: 7e0a4f3c-7f0c-4c3e-9a38-53f4d1f7a001\r\nContent-Length: 200\r\n"
)


class _Answer:
    """Receiver of a request, which responds at once."""

    def headers_received(self, block: bytes) -> None:
        pass

    def data_received(self, data: bytes) -> None:
        pass

    def fin_received(self) -> None:
        pass

    def stream_closed(self, reason: Exception | None) -> None:
        pass


_ANSWER = _Answer()


def _accept(stream: IStream, open_: pb.Open) -> Any:
    """Accept a request for the Kubernetes API."""
    stream.send_headers(_HEAD)
    stream.write(b"x" * 200)
    stream.finish()
    return _ANSWER


class Crowd:
    """Shared state of the agents: the queue of dials, and the connected agents."""

    def __init__(self, settings: dict[str, Any], reactor: Any) -> None:
        self.reactor = reactor
        self.ports: list[int] = settings["ports"]
        self.hosts: list[str] = settings["hosts"]
        self.at_once: int = settings["at_once"] or sys.maxsize
        self.kind = KINDS[settings["kind"]]
        if settings["ca"]:
            self.context = client_context(settings["ca"], system_pool=False)
        self.flusher = Flusher(reactor)
        self.keepalive = Keepalive(reactor)
        #: Dispatcher of the requests of all tunnels.
        self.dispatcher = Dispatcher(reactor)
        self.dispatcher.handle_stream("load", METHOD, _accept)
        #: Number of connections made so far.
        self.made = 0
        #: Light agents without a connection.
        self.away: set[Any] = set()
        self._agents: dict[str, list[Any]] = defaultdict(list)
        self._waiting: deque[LightAgent] = deque()
        self._greeting: set[LightAgent] = set()
        self._look: Callable[[Any], None] = lambda agent: None

    def connect(
        self, tokens: Iterable[str], port: int, then: Callable[[], None]
    ) -> None:
        """
        Add an agent for each token; call *then* when all of these agents are connected.
        """
        agents = []
        for token in tokens:
            agents.append(self.kind(self, token, port))
            self._agents[token].append(agents[-1])
        self._once_connected(agents, then)
        for agent in agents:
            agent.connect()

    def move(self, tokens: Iterable[str], port: int, then: Callable[[], None]) -> None:
        """
        Move the agents with these tokens to another kas; call *then* when they are
        connected.
        """
        agents = [agent for token in tokens for agent in self._agents[token]]
        self._once_connected(agents, then)
        for agent in agents:
            agent.move(port)

    def _once_connected(self, agents: Iterable[Any], then: Callable[[], None]) -> None:
        missing = set(agents)

        def look(agent: Any) -> None:
            missing.discard(agent)
            if not missing:
                self._look = lambda agent: None
                then()

        self._look = look

    def endpoint(self, port: int) -> TLSClientEndpoint:
        """Return an endpoint that connects an agent to a kas."""
        tcp = TCP4ClientEndpoint(self.reactor, random.choice(self.hosts), port)
        return TLSClientEndpoint(tcp, lambda: self.context, "localhost", self.reactor)

    def wants(self, agent: LightAgent) -> None:
        """Queue an agent that has to dial."""
        self._waiting.append(agent)
        self._next_ones()

    def dialled(self, agent: LightAgent) -> bool:
        """
        Note the end of an agent's greeting; return whether the agent was greeting.
        """
        greeted = agent in self._greeting
        self._greeting.discard(agent)
        self._next_ones()
        return greeted

    def _next_ones(self) -> None:
        while self._waiting and len(self._greeting) < self.at_once:
            agent = self._waiting.popleft()
            self._greeting.add(agent)
            agent.dial()

    def is_connected(self, agent: Any) -> None:
        """Count another connection."""
        self.made += 1
        self.away.discard(agent)
        self._look(agent)

    def once_made(self, count: int, then: Callable[[], None]) -> None:
        """
        Call *then* when *count* connections were made, and every agent is connected.
        """

        def look(agent: Any) -> None:
            if self.made >= count and not self.away:
                self._look = lambda agent: None
                then()

        self._look = look
        look(None)


class LightAgent(TunnelOwner):
    """
    An agent that needs little memory; it keeps its instance id, and increases its
    generation at each dial.
    """

    def __init__(self, crowd: Crowd, token: str, port: int) -> None:
        self.crowd = crowd
        self.token, self.port = token, port
        self.instance, self.generation = os.urandom(16), 0
        self.tunnel: Any = None
        self.failures = 0

    def connect(self) -> None:
        """Queue this agent, which connects when its turn comes."""
        self.crowd.away.add(self)
        self.crowd.wants(self)

    def move(self, port: int) -> None:
        """Cut the connection, and connect to another kas."""
        tunnel, self.tunnel, self.port = self.tunnel, None, port
        # An agent without a tunnel is already reconnecting.
        if tunnel is not None:
            tunnel.abort(0, "it moves")
            self.connect()

    def dial(self) -> None:
        """Dial now."""
        factory: Any = Factory.forProtocol(self._make)
        factory.noisy = False
        self.crowd.endpoint(self.port).connect(factory).addCallbacks(
            self._greet, self._failed
        )

    def _make(self) -> Any:
        return TunnelProtocol(
            Session(dialler=True),
            self,
            clock=self.crowd.reactor,
            flusher=self.crowd.flusher,
            keepalive=self.crowd.keepalive,
            timing=Timing(),
        )

    def _greet(self, tunnel: Any) -> None:
        self.generation += 1
        self.tunnel = tunnel
        tunnel.hello(
            pb.Hello(
                role="agent",
                credential=self.token.encode(),
                instance_id=self.instance,
                generation=self.generation,
            )
        )

    def _failed(self, _: object) -> None:
        """Handle a failed dial, or a connection that ended before WELCOME."""
        self.crowd.dialled(self)
        self.failures += 1
        self._again()

    def _again(self) -> None:
        """Reconnect after a short pause, to any kas."""
        self.crowd.away.add(self)
        self.port = random.choice(self.crowd.ports)
        pause = random.random() * min(10.0, 0.5 * 2 ** min(self.failures, 10))
        self.crowd.reactor.callLater(pause, self.connect)

    # Methods of tunnel.session.protocol.TunnelOwner.

    def welcome_received(self, tunnel: Any, welcome: Any) -> None:
        self.failures = 0
        self.crowd.dialled(self)
        self.crowd.is_connected(self)

    def stream_opened(self, stream: Any, open_: Any) -> Any:
        return self.crowd.dispatcher.accept(stream, open_)

    def tunnel_closed(self, tunnel: Any, reason: Any) -> None:
        if tunnel is not self.tunnel:
            return
        self.tunnel = None
        if self.crowd.dialled(self):
            self.failures += 1
        self._again()


class FollowingAgent:
    """
    An agent with agentk's own dialer and extra tunnels, which follow the instructions
    of kas.
    """

    def __init__(self, crowd: Crowd, token: str, port: int) -> None:
        instance = os.urandom(16)
        runtime = Runtime(
            reactor=crowd.reactor,
            random=random.random,
            flusher=crowd.flusher,
            keepalive=crowd.keepalive,
        )
        runtime.bus.subscribe(
            "load", TunnelConnected, lambda _: crowd.is_connected(self)
        )
        self._dialer = Dialer(
            endpoint=lambda: crowd.endpoint(port),
            hello=lambda: pb.Hello(credential=token.encode(), instance_id=instance),
            dispatcher=crowd.dispatcher,
            runtime=runtime,
        )
        self._extra = ExtraTunnels(self._dialer, runtime)

    def connect(self) -> None:
        """Connect now, and reconnect whenever necessary."""
        self._dialer.start()
        self._extra.start()


class BareAgent:
    """
    An agent that is only a TLS connection.

    It counts as connected when TLS is established and a first byte can be sent.
    """

    def __init__(self, crowd: Crowd, token: str, port: int) -> None:
        self._crowd = crowd
        self._port = port

    def connect(self) -> None:
        """Connect now."""
        agent, crowd = self, self._crowd

        class Bare(Protocol):
            def connectionMade(self) -> None:
                self.transport.write(b"x")  # type: ignore[union-attr]
                crowd.is_connected(agent)

        factory: Any = Factory.forProtocol(Bare)
        factory.noisy = False
        options = ssl.CertificateOptions(verify=False)
        endpoint: Any = SSL4ClientEndpoint(
            crowd.reactor, "127.0.0.1", self._port, options
        )
        endpoint.connect(factory)


KINDS: dict[str, Callable[[Crowd, str, int], Any]] = {
    "light": LightAgent,
    "following": FollowingAgent,
    "bare": BareAgent,
}


class Commands(LineReceiver):
    """
    Reader of commands from the parent process; each command and each response is one
    line of JSON.
    """

    delimiter = b"\n"
    MAX_LENGTH = 1 << 22

    def __init__(self, crowd: Crowd) -> None:
        self._crowd = crowd

    def lineReceived(self, line: bytes) -> None:
        crowd = self._crowd
        command, *arguments = json.loads(line)
        if command == "made":
            self._answer(crowd.made)
        elif command == "come back at":
            crowd.ports = arguments[0]
            self._answer(None)
        elif command == "wait until made":
            crowd.once_made(arguments[0], lambda: self._answer(crowd.made))
        else:
            tokens, port = arguments
            act = crowd.connect if command == "connect" else crowd.move
            act(tokens, port, lambda: self._answer(len(tokens)))

    def _answer(self, content: Any) -> None:
        print(json.dumps(content), flush=True)

    def connectionLost(self, reason: Any = None) -> None:
        if self._crowd.reactor.running:
            self._crowd.reactor.stop()


def main(settings: dict[str, Any]) -> None:
    """Run until standard input ends."""
    from twisted.internet import reactor as _reactor

    reactor: Any = _reactor
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    tune_allocator()
    commands: Any = Commands(Crowd(settings, reactor))
    stdio.StandardIO(commands)
    reactor.run()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
