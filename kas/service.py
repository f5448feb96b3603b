"""The service tree of kas; the only place that wires its parts together."""

from __future__ import annotations

import secrets
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry
from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IListeningPort
from twisted.internet.task import LoopingCall
from twisted.logger import Logger

from kas import pki, running
from kas.agents import AgentAcceptor, AgentFactory, ConnectionRate
from kas.config import KasConfiguration
from kas.identity import FileIdentity
from kas.modules import Lent, ServerModuleApi
from kas.observability import Health, make_site
from kas.registry import Registry
from kas.routing import Router
from kas.state import StateDirectory
from tunnel import sdnotify
from tunnel.errors import ConfigurationError, ErrorCode
from tunnel.events import EventBus
from tunnel.hosting import ModuleHost, Prepared
from tunnel.interfaces import IServerModule
from tunnel.listening import Listening
from tunnel.logs import LogsItsOwnWay
from tunnel.net.flusher import Flusher
from tunnel.net.keepalive import Keepalive
from tunnel.net.tls import ALPN_TUNNEL
from tunnel.net.websocket import TunnelOrWebSocketFactory, wrap_websocket_server
from tunnel.pb import tunnel_pb2 as pb
from tunnel.rpc.dispatch import Dispatcher
from tunnel.startup import start_or_exit
from tunnel.tuning import settle

#: Seconds between two looks at whether what runs is done, while draining.
DRAIN_STEP = 0.1

#: Seconds between two looks at whether the development certificate is due: it is two
#: thirds through its life then, so hours do not matter.
RENEWAL_INTERVAL = 3600.0

#: Seconds over which agents that are sent away spread their return.
RECONNECT_SPREAD = 5.0


class KasService(LogsItsOwnWay, Service):
    """Everything that one kas is."""

    _log = Logger()

    def __init__(
        self,
        configuration: KasConfiguration,
        modules: list[Prepared],
        state: StateDirectory,
        reactor: Any,
        *,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.name = "kas"
        self.configuration = configuration
        self._state = state
        self._reactor = reactor
        self._now = now
        self.metrics = CollectorRegistry()
        self.registry = Registry()
        self.bus = EventBus()
        self.dispatcher = Dispatcher(reactor)
        self.router = Router(self.registry, reactor)
        self.listening = Listening(reactor, self._development_certificate)
        self.identity = FileIdentity(state.file("identity.json"), reactor, now)
        self._lent = lent = Lent(
            reactor=reactor,
            dispatcher=self.dispatcher,
            bus=self.bus,
            metrics=self.metrics,
            registry=self.registry,
            router=self.router,
            identity=self.identity,
            listening=self.listening,
        )
        self.modules = ModuleHost(
            modules,
            interface=IServerModule,
            make_api=lambda one: ServerModuleApi(lent, one, self.modules.fail),
            release=lent.release,
            clock=reactor,
            jitter=secrets.SystemRandom().random,
        )
        self.health = Health(self.registry, self.router, lambda: self.modules.states)
        self._keepalive = Keepalive(reactor)
        self._flusher = Flusher(reactor)
        self._agent_port: IListeningPort | None = None
        self._watchdog_call: Any = None
        self._renewal = LoopingCall(self._renew)
        self._renewal.clock = reactor

    def startService(self) -> None:
        """Begin; a failure to do so ends the process with its reason."""
        super().startService()  # type: ignore[no-untyped-call]
        start_or_exit(self._start(), self._reactor)

    async def _start(self) -> None:
        self.identity.start()
        self.identity.on_revoked(self._revoked)
        await self.modules.start()
        observability = self.configuration.observability
        await self.listening.listen(
            observability.listen,
            make_site(observability, self.health, self.metrics),
            what=running.OBSERVABILITY,
        )
        await self._listen_for_agents()
        running.tell(self._state, self.listening.opened)
        self.health.ready = True
        sdnotify.notify("READY=1")
        self._watchdog()
        settle()
        self._log.info("kas is ready")

    async def _listen_for_agents(self) -> None:
        settings = self.configuration.agent.listen
        acceptor = AgentAcceptor(
            authenticate=self.identity.authenticate_agent,
            registry=self.registry,
            dispatcher=self.dispatcher,
            bus=self.bus,
            clock=self._reactor,
            rate=ConnectionRate(
                settings.connections_per_token_per_minute, self._reactor
            ),
            kas_id=secrets.token_bytes(16),
        )
        tunnels = AgentFactory(
            acceptor,
            clock=self._reactor,
            flusher=self._flusher,
            keepalive=self._keepalive,
        )
        # The first bytes tell a WebSocket from the tunnel itself, so one port does
        # for both whatever stands between.
        factory = TunnelOrWebSocketFactory(
            tunnels, wrap_websocket_server(tunnels, self._reactor), self._reactor
        )
        self._agent_port = await self.listening.listen(
            settings, factory, what=running.AGENTS, alpn=(ALPN_TUNNEL, "http/1.1")
        )
        if not settings.tls and settings.network != "unix":
            self._log.warn(
                "agents connect without TLS: tokens and traffic can be read on the "
                "way; set certificate_file and key_file in agent.listen"
            )

    def _revoked(self, credential_id: str) -> None:
        self.registry.revoke(credential_id)
        self.bus.publish("credential.revoked", credential_id)

    def _development_certificate(self) -> tuple[Path, Path]:
        files = pki.ensure(self._state, self._now, socket.gethostname())
        if not self._renewal.running:
            self._log.info(
                "development certificate {file}, pin {pin}",
                file=str(files.certificate_file),
                pin=files.pin,
            )
            renewing = self._renewal.start(RENEWAL_INTERVAL, now=False)
            renewing.addErrback(lambda failure: None)
        return files.certificate_file, files.key_file

    def _renew(self) -> None:
        # The listeners read the new file by themselves.
        try:
            pki.ensure(self._state, self._now, socket.gethostname())
        except (ConfigurationError, OSError):
            self._log.failure("the development certificate was not renewed")

    def _watchdog(self) -> None:
        interval = sdnotify.watchdog_interval()
        if interval is not None and self.running:
            sdnotify.notify("WATCHDOG=1")
            self._watchdog_call = self._reactor.callLater(interval, self._watchdog)

    # The end.

    def stopService(self) -> Deferred[None]:
        """Drain: accept nothing, send agents away, finish what runs, then close."""
        super().stopService()  # type: ignore[no-untyped-call]
        return Deferred.fromCoroutine(self._stop())

    async def _stop(self) -> None:
        self.health.ready = False
        running.forget(self._state)
        sdnotify.notify("STOPPING=1")
        if self._watchdog_call is not None and self._watchdog_call.active():
            self._watchdog_call.cancel()
        if self._renewal.running:
            self._renewal.stop()
        grace = self.configuration.agent.listen.shutdown_grace_period
        # Nobody new comes in; health stays, because somebody watches the end.
        if self._agent_port is not None:
            await self.listening.close(self._agent_port)
        for ports in self._lent.ports.values():
            for port in ports:
                await self.listening.close(port)
        self.bus.publish("kas.draining", None)
        for connection in self.registry:
            connection.tunnel.go_away(
                pb.GoAway(
                    code=ErrorCode.SHUTDOWN,
                    message="kas stops",
                    deadline_ms=max(1, round(grace * 1000)),
                    elsewhere=True,
                    reconnect_within_ms=round(RECONNECT_SPREAD * 1000),
                )
            )
        await self._drained(grace)
        await self.modules.stop()
        for connection in self.registry:
            connection.tunnel.end(ErrorCode.SHUTDOWN, "kas stops")
        await self.listening.close_all()
        self.identity.stop()

    async def _drained(self, grace: float) -> None:
        while grace > 0 and any(one.tunnel.load for one in self.registry):
            pause: Deferred[None] = Deferred()
            self._reactor.callLater(DRAIN_STEP, pause.callback, None)
            await pause
            grace -= DRAIN_STEP
