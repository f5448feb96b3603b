"""One kas as a whole, on a reactor in memory."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry
from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred
from twisted.internet.error import CannotListenError
from twisted.internet.testing import MemoryReactorClock
from twisted.logger import Logger, formatEvent
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer, provider

from kas.config.schema import read_configuration
from kas.routing.stream import RoutedStream
from kas.service import KasService
from kas.state import running
from kas.state.development_certificate import DevelopmentCertificate
from kas.state.directory import StateDirectory
from tests.kas.world import Agent, World
from tunnel.api import (
    CredentialRevoked,
    IServerModule,
    IServerModuleFactory,
)
from tunnel.errors import ConfigurationError, ErrorCode
from tunnel.hosting.modules import Prepared
from tunnel.pb import tunnel_pb2 as pb
from tunnel.program import sdnotify, startup
from tunnel.program.startup import start_or_exit
from tunnel.testing import Pipe, RecordingReceiver
from tunnel.toolkit.until import STEP as DRAIN_STEP
from tunnel.wire.limits import DEFAULT_LIMITS

CONFIGURATION = """\
agent:
  listen:
    address: 127.0.0.1:8150
    development_certificate: false
    shutdown_grace_period: 3s
"""


class Reactor(MemoryReactorClock):
    """Its ports can be closed; `stop` is noted and not done."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[int] = []
        self.taken: set[int] = set()
        self.stopped = 0

    def listenTCP(self, port: int, *rest: Any, **more: Any) -> Any:
        if port in self.taken:
            in_use = OSError(errno.EADDRINUSE, "in use")
            raise CannotListenError("127.0.0.1", port, in_use)
        listening = super().listenTCP(port, *rest, **more)
        self.open.append(port)
        listening.stopListening = lambda: self.open.remove(port)
        return listening

    def stop(self) -> None:
        self.stopped += 1


@provider(IServerModuleFactory)
@implementer(IServerModule)
class Module:
    """Notes what happens to it, and what was open at that moment."""

    configuration = object
    happened: list[Any] = []
    reactor: Reactor
    #: Raised by `start` of the module with this name.
    raises: dict[str, Exception] = {}
    #: What `start` of the module with this name waits for.
    waits: dict[str, Deferred[None]] = {}

    def __init__(self, api: Any) -> None:
        self.name = api.name
        self.api = api
        self.happened.append(f"make {self.name}")
        self.events: list[Any] = []
        api.events.subscribe(CredentialRevoked, self.events.append)

    async def start(self) -> None:
        self.happened.append((f"start {self.name}", tuple(self.reactor.open)))
        if self.name in self.raises:
            raise self.raises[self.name]
        if self.name in self.waits:
            await self.waits[self.name]

    async def stop(self) -> None:
        self.happened.append((f"stop {self.name}", tuple(self.reactor.open)))


class _Case(SynchronousTestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.reactor = Reactor()
        Module.happened, Module.reactor = [], self.reactor
        Module.raises, Module.waits = {}, {}
        self.told: list[str] = []
        self.patch(sdnotify, "notify", self.told.append)
        self.patch(sdnotify, "watchdog_interval", lambda: 10.0)
        self.state = StateDirectory.open(Path(folder.name))

    def service(self, text: str = CONFIGURATION, *names: str) -> KasService:
        modules = [Prepared(name, Module, None) for name in names]
        configuration = read_configuration(text, "kas.yaml")
        service = KasService(configuration, modules, self.state, self.reactor)
        self.patch(service.identity, "authenticate_agent", World.authenticate)
        return service

    def started(self, *names: str) -> KasService:
        service = self.service(CONFIGURATION, *names)
        service.startService()
        return service

    def agent(self, service: KasService) -> Agent:
        """An agent that dials the service's acceptor."""
        (factory,) = [
            server[1] for server in self.reactor.tcpServers if server[0] == 8150
        ]
        agent = Agent(self.reactor, DEFAULT_LIMITS)
        here: Any = factory.buildProtocol(IPv4Address("TCP", "127.0.0.1", 40000))
        agent.pipe = Pipe(self.reactor, agent.tunnel, here)
        agent.tunnel.hello(
            pb.Hello(role="agent", credential=b"7", instance_id=b"i", generation=1)
        )
        agent.pipe.flush()
        self.assertEqual(len(agent.welcomes), 1)
        return agent


class StartTests(_Case):
    """From nothing to ready."""

    def test_ready(self) -> None:
        """Modules first, agents last, and only then it is ready."""
        service = self.started("a")
        self.assertEqual(Module.happened, ["make a", ("start a", ())])
        self.assertEqual(self.reactor.open, [8151, 8150])
        self.assertTrue(service.health.ready)
        self.assertEqual(self.told, ["READY=1", "WATCHDOG=1"])
        self.reactor.advance(10)
        self.assertEqual(self.told[2:], ["WATCHDOG=1"])

    def test_tells_kasctl(self) -> None:
        """Its addresses are in the state directory while it can be reached."""
        service = self.service()
        self.assertEqual(running.look(self.state), ())
        service.startService()
        (found,) = running.look(self.state)
        self.assertEqual(
            [one.what for one in found.listeners],
            [running.OBSERVABILITY, running.AGENTS],
        )
        self.successResultOf(service.stopService())
        self.assertEqual(running.look(self.state), ())
        self.assertEqual(running.look_at_leaving(self.state), ())

    def test_waits_for_modules(self) -> None:
        """Not ready, and no agent comes in, while a module is starting."""
        Module.waits["a"] = Deferred()
        service = self.started("a")
        self.assertEqual((self.reactor.open, service.health.ready), ([], False))
        Module.waits["a"].callback(None)
        self.assertTrue(service.health.ready)

    def test_module_fails(self) -> None:
        """Nothing is open; what was started is stopped again; the reason is told."""
        Module.raises["b"] = ValueError("no such colour")
        service = self.service(CONFIGURATION, "a", "b", "c")
        ended = self.assertRaises(SystemExit, service.startService)
        self.assertEqual(
            str(ended),
            (
                "module b did not start: no such colour; correct that, or disable the "
                "module"
            ),
        )
        self.assertEqual(self.reactor.open, [])
        self.assertEqual(
            Module.happened[-3:], [("start b", ()), ("stop b", ()), ("stop a", ())]
        )
        self.assertEqual(self.told, [])
        self.assertFalse(service.health.ready)
        self.flushLoggedErrors(ValueError)

    def test_module_fails_late(self) -> None:
        """The same once the reactor runs: the process ends with status 1."""
        Module.waits["b"] = Deferred()
        self.started("a", "b")
        ended: list[int] = []
        self.patch(os, "_exit", ended.append)
        Module.waits["b"].errback(ValueError("no such colour"))
        self.assertEqual(self.reactor.stopped, 1)
        self.assertEqual(Module.happened[-1], ("stop a", ()))
        ((trigger, *arguments),) = [
            (call, *rest)
            for call, rest, _ in self.reactor.triggers["after"]["shutdown"]
        ]
        trigger(*arguments)
        self.assertEqual(ended, [1])
        self.flushLoggedErrors(ValueError)

    def test_address_is_taken(self) -> None:
        """Also a port that cannot be had is a line with what to do."""
        self.reactor.taken = {8150}
        service = self.service()
        ended = self.assertRaises(SystemExit, service.startService)
        self.assertEqual(
            str(ended),
            (
                "cannot listen for agents: 127.0.0.1:8150 is in use (by another kas?); "
                "choose another with agent.listen.address"
            ),
        )
        self.assertFalse(service.health.ready)

    def test_unusable_identities(self) -> None:
        """A file that cannot be read stops it: nobody is let in by mistake."""
        self.state.file("identity.json").write_text("{")
        service = self.service()
        ended = self.assertRaises(SystemExit, service.startService)
        self.assertIn("identity.json", str(ended))


class StartOrExitTests(SynchronousTestCase):
    """Whatever else goes wrong while starting."""

    def test_bug(self) -> None:
        """One line for the terminal, the traceback for the log."""

        async def fail() -> None:
            raise ZeroDivisionError("by zero")

        ended = self.assertRaises(SystemExit, start_or_exit, fail(), None)
        self.assertEqual(str(ended), "the service did not start: by zero")
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    def test_all_lines(self) -> None:
        """Every problem has one."""

        async def fail() -> None:
            raise ConfigurationError(["one", "two"])

        ended = self.assertRaises(SystemExit, startup.start_or_exit, fail(), None)
        self.assertEqual(str(ended), "one\ntwo")


class RevokeTests(_Case):
    """A credential is revoked in the identity file."""

    def test_revoked(self) -> None:
        """Its tunnels end, and modules are told."""
        service = self.started("a")
        agent = self.agent(service)
        module = service.modules._hosted["a"].module
        service._credentials.revoked("agent:7:t")
        agent.pipe.flush()
        self.assertEqual([c.code for c in agent.closed], [ErrorCode.UNAUTHENTICATED])
        self.assertEqual(module.events, [CredentialRevoked("agent:7:t")])


class AloneTests(_Case):
    """Two kas with one state directory."""

    def test_without_redis(self) -> None:
        """The second one does not start before the first one is told to stop."""
        # Here both are one process, which is one of their differences.
        self.patch(running, "refuse_twins", lambda state: None)
        first = self.started()
        with self.assertRaises(SystemExit) as caught:
            self.service().startService()
        self.assertIn("uses this state directory", str(caught.exception))
        stopping = first.stopService()
        second = self.service()
        second.startService()
        self.successResultOf(stopping)
        self.successResultOf(second.stopService())


class CertificateTests(_Case):
    """The certificate that kas makes for itself."""

    def test_not_renewed(self) -> None:
        """Without the key of its CA kas says so at the start, and once a day."""
        own = CONFIGURATION.replace("development_certificate: false", "websocket: true")
        first = self.service(own)
        first.startService()
        self.successResultOf(first.stopService())
        os.unlink(self.state.file("ca.key"))
        said: list[str] = []
        service = self.service(own)
        observer: Any = lambda event: said.append(formatEvent(event))  # noqa: E731
        self.patch(DevelopmentCertificate, "_log", Logger(observer=observer))
        service.startService()

        def warned() -> int:
            return sum("ca.key is missing" in text for text in said)

        self.assertEqual(warned(), 1)
        self.reactor.pump([3600.0] * 23)
        self.assertEqual(warned(), 1)
        self.reactor.pump([3600.0] * 25)
        self.assertEqual(warned(), 3)
        self.successResultOf(service.stopService())


class StopTests(_Case):
    """The end: nobody new, what runs may finish, then everything closes."""

    def test_idle(self) -> None:
        """With nothing under way it is over at once, and nothing is left."""
        service = self.started("a")
        self.successResultOf(service.stopService())
        self.assertEqual(Module.happened[-1], ("stop a", (8151,)))
        self.assertEqual(self.reactor.open, [])
        self.assertEqual(self.told[-1], "STOPPING=1")
        self.assertFalse(service.health.ready)
        self.assertEqual(self.reactor.getDelayedCalls(), [])

    def test_drains(self) -> None:
        """Agents are sent away at once; their streams may finish."""
        service = self.started("a")
        agent = self.agent(service)
        client = RecordingReceiver()
        stream = RoutedStream.open(service.router, "7", "/x", client)
        agent.pipe.flush()
        stopping = service.stopService()
        agent.pipe.flush()
        (going,) = agent.going_away
        self.assertEqual(
            (going.code, going.deadline_ms, going.elsewhere, agent.closed),
            (ErrorCode.SHUTDOWN, 18_005, True, []),
        )
        self.assertGreater(going.reconnect_within_ms, 0)
        self.assertEqual(self.reactor.open, [8151])
        self.reactor.advance(1)
        self.assertNoResult(stopping)
        stream.finish()
        agent.streams[0][0].finish()
        agent.pipe.flush()
        self.assertEqual(client.closed, [None])
        self.reactor.advance(DRAIN_STEP)
        self.successResultOf(stopping)
        agent.pipe.flush()
        self.assertEqual([c.code for c in agent.closed], [ErrorCode.SHUTDOWN])
        self.assertEqual(self.reactor.open, [])

    def test_grace_is_over(self) -> None:
        """A stream that does not end is ended."""
        service = self.started()
        agent = self.agent(service)
        client = RecordingReceiver()
        RoutedStream.open(service.router, "7", "/x", client)
        agent.pipe.flush()
        stopping = service.stopService()
        self.reactor.pump([DRAIN_STEP] * 28)
        self.assertNoResult(stopping)
        self.reactor.pump([DRAIN_STEP] * 4)
        self.successResultOf(stopping)
        self.assertEqual(len(client.closed), 1)

    def test_requests_are_taken_beside_others(self) -> None:
        """... for as long as ``agent.listen.listen_grace_period`` says."""
        text = CONFIGURATION + "    listen_grace_period: 7s\n"
        service = self.service(text, "a")
        service.startService()
        self.patch(type(service.fleet), "others", lambda fleet: ["another kas"])
        stopping = service.stopService()
        self.reactor.pump([DRAIN_STEP] * 69)
        self.assertEqual(Module.happened[-1], ("start a", ()))
        self.reactor.pump([DRAIN_STEP] * 3)
        self.successResultOf(stopping)

    def test_probes_are_answered(self) -> None:
        """... for as long as ``observability.listen.listen_grace_period`` says."""
        text = CONFIGURATION + "observability: {listen: {listen_grace_period: 4s}}\n"
        service = self.service(text, "a")
        service.startService()
        stopping = service.stopService()
        self.assertEqual(Module.happened[-1], ("stop a", (8151,)))
        self.reactor.pump([DRAIN_STEP] * 39)
        self.assertEqual(self.reactor.open, [8151])
        self.reactor.pump([DRAIN_STEP] * 2)
        self.assertEqual(self.reactor.open, [])
        self.successResultOf(stopping)

    def test_pages_are_finished(self) -> None:
        """... within ``observability.listen.shutdown_grace_period``."""
        more = "observability: {listen: {shutdown_grace_period: 2s}}\n"
        service = self.service(CONFIGURATION + more)
        for steps in (10, 21):
            service = self.service(CONFIGURATION + more)
            service.startService()
            assert service._observability.site is not None
            service._observability.site.making = 1
            stopping = service.stopService()
            self.assertEqual(self.reactor.open, [])
            self.reactor.pump([DRAIN_STEP] * 9)
            self.assertNoResult(stopping)
            service._observability.site.making = int(steps > 10)
            self.reactor.pump([DRAIN_STEP] * (steps - 9))
            self.successResultOf(stopping)


class MetricsTests(_Case):
    """What is counted."""

    def test_registry(self) -> None:
        """Modules and kas share one registry, and it is not the global one."""
        service = self.started("a")
        module = service.modules._hosted["a"].module
        self.assertIs(module.api.metrics, service.metrics)
        self.assertIsInstance(service.metrics, CollectorRegistry)
