"""
Agents with real tunnels in one process, which answer every request at once.

``python -m tests.faults.light_agents SETTINGS``; see `tests.faults.redis_clients`.
"""

from __future__ import annotations

import json
import os
import random
import sys
from typing import Any

from twisted.internet import stdio
from twisted.internet.endpoints import TCP4ClientEndpoint
from twisted.internet.protocol import Factory
from twisted.protocols.basic import LineReceiver

from modules.kubernetes_api.fields import METHOD
from tunnel.pb import tunnel_pb2 as pb
from tunnel.rpc.dispatch import Dispatcher
from tunnel.session.keepalive import Keepalive, Timing
from tunnel.session.protocol import TunnelOwner, TunnelProtocol
from tunnel.testing import RecordingReceiver
from tunnel.transport.tls import client_context
from tunnel.transport.tlsio import TLSClientEndpoint
from tunnel.util.flusher import Flusher
from tunnel.wire.session import Session

#: Agents that greet at the same time.
GREETING = 64


class Crowd:
    """What the agents share, and whose turn it is to connect."""

    def __init__(self, settings: dict[str, Any], reactor: Any) -> None:
        self.reactor = reactor
        self.ports: list[int] = settings["ports"]
        self.context = client_context(settings["ca"], system_pool=False)
        self.flusher = Flusher(reactor)
        self.keepalive = Keepalive(reactor)
        self.dispatcher = Dispatcher(reactor)
        self.dispatcher.handle_stream("light", METHOD, _answer)
        #: Connections that were made so far.
        self.made = 0
        self.waiting: list[LightAgent] = []
        self.greeting: set[LightAgent] = set()

    def next_ones(self) -> None:
        """Let as many dial as may."""
        while self.waiting and len(self.greeting) < GREETING:
            agent = self.waiting.pop(0)
            self.greeting.add(agent)
            agent.dial()


def _answer(stream: Any, open_: Any) -> Any:
    stream.send_headers(
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 200\r\n"
    )
    stream.write(b"x" * 200)
    stream.finish()
    return RecordingReceiver()


class LightAgent(TunnelOwner):
    """One of them: the same instance, with a newer generation each time."""

    def __init__(self, crowd: Crowd, token: str, port: int) -> None:
        self.crowd = crowd
        self.token, self.port = token, port
        self.instance, self.generation = os.urandom(16), 0
        self.tunnel: Any = None
        self.told: Any = None
        self.failures = 0

    def connect(self, told: Any = None) -> None:
        """When it is its turn; then *told* is called."""
        self.told = told
        self.crowd.waiting.append(self)
        self.crowd.next_ones()

    def dial(self) -> None:
        """Now."""
        crowd = self.crowd
        tcp = TCP4ClientEndpoint(crowd.reactor, "127.0.0.1", self.port, timeout=5)
        endpoint = TLSClientEndpoint(
            tcp, lambda: crowd.context, "localhost", crowd.reactor
        )
        factory = Factory.forProtocol(self.make)
        factory.noisy = False
        endpoint.connect(factory).addCallbacks(self.greet, self.failed)

    def make(self) -> Any:
        """A tunnel, for a connection that stands."""
        return TunnelProtocol(
            Session(dialler=True),
            self,
            clock=self.crowd.reactor,
            flusher=self.crowd.flusher,
            keepalive=self.crowd.keepalive,
            timing=Timing(),
        )

    def greet(self, tunnel: Any) -> None:
        """Say who it is."""
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

    def failed(self, _: object) -> None:
        """There is no connection, or it ended before the welcome."""
        self.crowd.greeting.discard(self)
        self.failures += 1
        self.again()
        self.crowd.next_ones()

    def again(self) -> None:
        """In a moment, anywhere."""
        self.port = random.choice(self.crowd.ports)
        pause = random.random() * min(10.0, 0.5 * 2 ** min(self.failures, 10))
        self.crowd.reactor.callLater(pause, self.connect, self.told)

    # tunnel.session.protocol.TunnelOwner

    def welcome_received(self, tunnel: Any, welcome: Any) -> None:
        self.crowd.made += 1
        self.failures = 0
        self.crowd.greeting.discard(self)
        told, self.told = self.told, None
        if told is not None:
            told(self)
        self.crowd.next_ones()

    def stream_opened(self, stream: Any, open_: Any) -> Any:
        return self.crowd.dispatcher.accept(stream, open_)

    def tunnel_closed(self, tunnel: Any, reason: Any) -> None:
        if tunnel is not self.tunnel:
            return
        self.tunnel = None
        if self in self.crowd.greeting:
            self.failed(reason)
        else:
            self.again()


class Commands(LineReceiver):
    """What the parent wants: a line of JSON each, and one for the answer."""

    delimiter = b"\n"
    MAX_LENGTH = 1 << 22

    def __init__(self, crowd: Crowd) -> None:
        self.crowd = crowd
        self.agents: dict[str, LightAgent] = {}

    def lineReceived(self, line: bytes) -> None:
        command, *arguments = json.loads(line)
        if command == "made":
            self.answer(self.crowd.made)
            return
        tokens, port = arguments
        missing = set(tokens)

        def told(agent: LightAgent) -> None:
            missing.discard(agent.token)
            if not missing:
                self.answer(len(tokens))

        for token in tokens:
            if command == "connect":
                self.agents[token] = LightAgent(self.crowd, token, port)
                self.agents[token].connect(told)
            else:
                agent = self.agents[token]
                tunnel, agent.tunnel, agent.port = agent.tunnel, None, port
                tunnel.abort(0, "it moves")
                agent.connect(told)

    def answer(self, content: Any) -> None:
        """To the command before."""
        print(json.dumps(content), flush=True)

    def connectionLost(self, reason: Any = None) -> None:
        if self.crowd.reactor.running:
            self.crowd.reactor.stop()


def main(settings: dict[str, Any]) -> None:
    """Until standard input ends."""
    from twisted.internet import reactor as _reactor

    reactor: Any = _reactor
    commands: Any = Commands(Crowd(settings, reactor))
    stdio.StandardIO(commands)
    reactor.run()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
