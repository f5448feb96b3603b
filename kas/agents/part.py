"""
Connections of agents as a part of kas: the listener for agents, and their tunnels.
"""

from __future__ import annotations

from collections import Counter

import attrs
from twisted.internet.interfaces import IListeningPort
from twisted.logger import Logger

from kas.agents.acceptor import (
    AGENT_TIMING,
    REFUSALS,
    AgentAcceptor,
    AgentFactory,
    Authenticate,
    ConnectionRate,
)
from kas.agents.registry import Registry
from kas.agents.reports import AgentReports
from kas.config.schema import AgentListen
from kas.state.running import AGENTS
from tunnel.errors import ErrorCode
from tunnel.program.inherited_port import InheritedPort
from tunnel.program.listening import Listening
from tunnel.program.parts import Part, Phase
from tunnel.program.runtime import Runtime
from tunnel.rpc.dispatch import Dispatcher
from tunnel.transport.first_bytes import TunnelOrWebSocketFactory
from tunnel.transport.tls import ALPN_TUNNEL
from tunnel.transport.websocket import wrap_websocket_server

__all__ = ["AgentsPart"]


class AgentsPart(Part):
    """Listener for connections of agentk, with the tunnels behind it."""

    _log = Logger()
    name = "agents"

    def __init__(
        self,
        settings: AgentListen,
        authenticate: Authenticate,
        registry: Registry,
        dispatcher: Dispatcher,
        listening: Listening,
        runtime: Runtime,
    ) -> None:
        self._settings = settings
        self._listening = listening
        per_minute = settings.connections_per_token_per_minute
        self.acceptor = AgentAcceptor(
            authenticate,
            registry,
            dispatcher,
            runtime,
            ConnectionRate(per_minute, runtime.reactor),
            attrs.evolve(AGENT_TIMING, resume_grace=settings.resume_grace_period),
            # Include each reason in the metrics from the start.
            refusals=Counter(dict.fromkeys(REFUSALS, 0)),
        )
        AgentReports(registry, runtime).serve(dispatcher)
        self._port: IListeningPort | None = None

    async def start(self) -> None:
        """Listen for agents."""
        settings, clock = self._settings, self.acceptor.runtime.reactor
        tunnels = AgentFactory(self.acceptor)
        # The first bytes distinguish a WebSocket from the tunnel itself, so one port is
        # enough with and without proxies between kas and agentk.
        factory = TunnelOrWebSocketFactory(
            tunnels, wrap_websocket_server(tunnels, clock), clock
        )
        self._port = await self._listening.listen(
            settings,
            factory,
            what=AGENTS,
            setting="agent.listen.address",
            alpn=(ALPN_TUNNEL, "http/1.1"),
        )
        if isinstance(self._port, InheritedPort):
            self.acceptor.on_already_here = self._port.give_way
        if not settings.tls and settings.network != "unix":
            self._log.warn(
                "agents connect without TLS: tokens and traffic can be read in "
                "transit; set certificate_file and key_file in agent.listen"
            )

    async def drain(self, phase: Phase) -> None:
        """
        Close the port in the phase `LISTENERS`, and end the tunnels in the phase
        `SESSIONS`.
        """
        if phase is Phase.LISTENERS and self._port is not None:
            await self._listening.close(self._port)
        if phase is Phase.SESSIONS:
            for connection in self.acceptor.registry.tunnels():
                connection.tunnel.end(ErrorCode.SHUTDOWN, "kas is shutting down")
