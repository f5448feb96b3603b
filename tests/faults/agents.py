"""
Many agents in one process: real tunnels that follow kas, answers from memory.

``python -m tests.faults.agents PORT CA INSTANCES TOKEN-FILE…``: so many instances of
each agent.  It says ``up`` once all of them are connected, and ends with its input.
"""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path
from typing import Any

from twisted.internet import reactor as _reactor
from twisted.internet import stdio
from twisted.internet.endpoints import TCP4ClientEndpoint
from twisted.protocols.basic import LineReceiver

from agentk.dialer import Dialer
from bench.agents import accept
from modules.kubernetes_api.fields import METHOD
from tunnel.hosting.events import EventBus
from tunnel.pb import tunnel_pb2 as pb
from tunnel.rpc.dispatch import Dispatcher
from tunnel.session.keepalive import Keepalive
from tunnel.transport.tls import client_context
from tunnel.transport.tlsio import TLSClientEndpoint
from tunnel.util.flusher import Flusher

reactor: Any = _reactor


class Agents(LineReceiver):
    """All of them."""

    delimiter = b"\n"

    def __init__(self, port: int, ca: str, instances: int, tokens: list[str]) -> None:
        self._context = client_context(ca, system_pool=False)
        self._port = port
        self._flusher, self._keepalive = Flusher(reactor), Keepalive(reactor)
        self.dialers = [self._dialer(one) for one in tokens for _ in range(instances)]
        self._told = False

    def _dialer(self, token: str) -> Dialer:
        dispatcher = Dispatcher(reactor)
        dispatcher.handle_stream("faults", METHOD, accept)
        bus = EventBus()
        bus.subscribe("faults", "tunnel.connected", lambda _: self._connected())
        instance = os.urandom(16)
        return Dialer(
            endpoint=lambda: TLSClientEndpoint(
                TCP4ClientEndpoint(reactor, "127.0.0.1", self._port),
                lambda: self._context,
                "localhost",
                reactor,
            ),
            hello=lambda: pb.Hello(
                role="agent", credential=token.encode(), instance_id=instance
            ),
            dispatcher=dispatcher,
            bus=bus,
            clock=reactor,
            random=random.random,
            flusher=self._flusher,
            keepalive=self._keepalive,
        )

    def connectionMade(self) -> None:
        for dialer in self.dialers:
            dialer.start()

    def _connected(self) -> None:
        if not self._told and all(one.tunnel is not None for one in self.dialers):
            self._told = True
            print("up", flush=True)

    def connectionLost(self, reason: Any = None) -> None:
        reactor.stop()


if __name__ == "__main__":
    _port, _ca, _instances, *_tokens = sys.argv[1:]
    stdio.StandardIO(
        Agents(
            int(_port),
            _ca,
            int(_instances),
            [Path(one).read_text().strip() for one in _tokens],
        )
    )
    reactor.run()
