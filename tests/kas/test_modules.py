"""What kas lends to modules, and takes back."""

from __future__ import annotations

import errno
import tempfile
from collections.abc import Awaitable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import attrs
from prometheus_client import CollectorRegistry
from twisted.internet.defer import Deferred
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IListeningPort
from twisted.internet.protocol import Factory
from twisted.internet.testing import MemoryReactorClock
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.resource import Resource
from zope.interface import implementer
from zope.interface.verify import verifyObject

from kas.api.services import ExternalServices
from kas.audit.log import AuditLog
from kas.config.schema import read_configuration
from kas.fleet.fleet import Fleet
from kas.git.repositories import Repositories
from kas.identity.authenticators import Authenticators
from kas.identity.file_authenticator import FileAuthenticator
from kas.identity.store import IdentityStore
from kas.modules import ServerContext
from kas.modules.agents import MAX_PROBLEM, MAX_PROBLEMS
from kas.state.directory import StateDirectory
from kas.state.pki import ServerFiles
from tests.kas.identities import temporary
from tests.kas.world import World
from tests.proto.echo_pb2 import DESCRIPTOR, Text
from tunnel.api import Access, IServerModule, IServerModuleApi, StreamOptions
from tunnel.config import Listen
from tunnel.errors import CallError, ConfigurationError, ErrorCode, Status, StreamReset
from tunnel.hosting.api import ServerModuleApi
from tunnel.hosting.modules import RESTART_FIRST, ModuleHost, Prepared
from tunnel.hosting.pages import Pages
from tunnel.hosting.scope import ModuleScope
from tunnel.hosting.stores import Stores
from tunnel.pb import tunnel_pb2 as pb
from tunnel.program.listening import Listening
from tunnel.program.runtime import Runtime
from tunnel.testing import FakeStore, RecordingReceiver

ECHO = DESCRIPTOR.services_by_name["Echo"]


def _running(awaitable: Awaitable[Any]) -> Deferred[Any]:
    async def run() -> Any:
        return await awaitable

    return Deferred.fromCoroutine(run())


class Reactor(MemoryReactorClock):
    """One whose ports can be closed, and are remembered."""

    def __init__(self) -> None:
        super().__init__()
        self.closed: list[int] = []

    def listenTCP(self, port: int, *rest: Any, **more: Any) -> Any:
        listening = super().listenTCP(port, *rest, **more)
        listening.stopListening = lambda: self.closed.append(port)
        return listening


class _Case(SynchronousTestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        state = StateDirectory.open(Path(folder.name))
        self.store = IdentityStore(state, lambda: datetime.now(UTC))
        self.reactor = Reactor()
        self.world = World()
        runtime = Runtime(reactor=self.reactor)
        self.identity = FileAuthenticator(state.file("identity.json"), runtime)
        self.authenticators = Authenticators(self.reactor)
        self.authenticators.add(self.identity)
        self.context = ServerContext(
            reactor=self.reactor,
            dispatcher=self.world.dispatcher,
            bus=self.world.bus,
            metrics=CollectorRegistry(),
            registry=self.world.registry,
            router=self.world.router,
            authenticators=self.authenticators,
            listening=Listening(self.reactor, program="kas"),
            fleet=self.fleet(runtime),
            external=ExternalServices(self.reactor),
            audit=AuditLog(None, runtime, state),
            stores=Stores(lambda: FakeStore(self.reactor), self.reactor),
            folders=temporary(self),
            pages=Pages(),
            repositories=Repositories(state, runtime),
        )
        self.failed: list[tuple[str, Exception]] = []
        self.scopes: list[ModuleScope] = []

    def fleet(self, runtime: Runtime) -> Fleet:
        configuration = read_configuration("{}", "kas.yaml")
        files = ServerFiles(Path(), Path(), None, "", datetime.now(UTC), None)
        return Fleet(configuration, self.world.registry, runtime, list, lambda: files)

    def api(self, name: str = "echo", configuration: Any = None) -> ServerModuleApi:
        def fail(reason: Exception) -> None:
            self.failed.append((name, reason))

        scope = ModuleScope(name, configuration, fail)
        self.scopes.append(scope)
        return self.context.make_api(scope)

    def release(self, name: str) -> None:
        """End the life of all APIs of a name."""
        for scope in self.scopes:
            if scope.name == name:
                scope.release()


class ApiTests(_Case):
    """Each thing that the interface lists."""

    def test_problems(self) -> None:
        """What a module says is wrong with agents, until it says so no more."""
        api = self.api()
        api.agents.show_problem("1", "prod", "x" * (2 * MAX_PROBLEM))
        api.agents.show_problem("2", "dev", "bad")
        self.assertEqual(
            self.context.problems.by_module,
            {"echo": {"1": ("prod", "x" * MAX_PROBLEM), "2": ("dev", "bad")}},
        )
        api.agents.show_problem("2", "dev", "")
        self.assertEqual(list(self.context.problems.by_module["echo"]), ["1"])
        for number in range(MAX_PROBLEMS + 10):
            api.agents.show_problem(str(number), "many", "bad")
        self.assertEqual(len(self.context.problems.by_module["echo"]), MAX_PROBLEMS)
        self.release("echo")
        self.assertEqual(self.context.problems.by_module, {})

    def test_without_gitlab(self) -> None:
        """There is no project to know of, and nobody to tell."""
        api = self.api()
        self.assertIsNone(api.gitlab.project("1"))
        api.gitlab.register_configuration("1", {})

    def test_interface(self) -> None:
        """All of it is there."""
        settings = object()
        api = self.api(configuration=settings)
        verifyObject(IServerModuleApi, api)
        self.assertIs(api.configuration, settings)
        self.assertIs(api.clock, self.reactor)

    def test_held_credentials(self) -> None:
        """Those of all modules that hold something open, until each stops."""
        self.api("one").users.recheck(lambda: ["user:a", "ci_job:1"])
        self.api("two").users.recheck({"user:a": 1, "user:b": 2}.keys)
        held = {"user:a", "user:b", "ci_job:1"}
        self.assertEqual(self.context.held.ids(), held)
        self.release("one")
        self.assertEqual(self.context.held.ids(), {"user:a", "user:b"})
        self.release("two")
        self.assertEqual(self.context.held.ids(), set())

    def test_page_origins(self) -> None:
        self.context.page_origins = ("https://gitlab.example.com",)
        self.assertEqual(self.api().web.page_origins, ("https://gitlab.example.com",))

    def test_calls(self) -> None:
        """A call finds its agent, and its answer the way back."""
        agent = self.world.agent()

        class Upper:
            async def say(self, request: Text, call: Any) -> Text:
                return Text(text=request.text.upper())

            spell = join = chat = say

        agent.dispatcher.handle("tests", ECHO, Upper())
        agent.stream_opened = agent.dispatcher.accept  # type: ignore[method-assign,assignment]
        client = self.api().calls.client(ECHO, "7")
        calling = _running(client.call("Say", Text(text="hi"), timeout=5))
        agent.pipe.flush()
        self.assertEqual(self.successResultOf(calling).text, "HI")

    def test_call_of_an_absent_agent(self) -> None:
        """It waits; the caller's own limit applies, if it is the shorter one."""
        client = self.api().calls.client(ECHO, "7")
        calling = _running(client.call("Say", Text(), timeout=5))
        self.reactor.advance(4.9)
        self.assertNoResult(calling)
        self.reactor.advance(0.2)
        failure = self.failureResultOf(calling, CallError)
        self.assertEqual(self.world.router.waiting, 0)
        self.assertEqual(failure.value.status, Status.UNAVAILABLE)
        self.assertIn("agent 7 is not connected", str(failure.value))

    def test_call_without_limit(self) -> None:
        """Without one, the routing time limit is the end of it."""
        client = self.api().calls.client(ECHO, "7")
        calling = _running(client.call("Say", Text()))
        self.world.clock.advance(20)
        failure = self.failureResultOf(calling, CallError)
        self.assertEqual(failure.value.status, Status.UNAVAILABLE)

    def test_streams(self) -> None:
        """Method, metadata and the time that is left travel along."""
        agent = self.world.agent()
        stream = self.api().calls.open_stream(
            "7", "/raw", RecordingReceiver(), b"fields", StreamOptions(timeout=0.0001)
        )
        stream.write(b"x")
        agent.pipe.flush()
        ((_, open_, receiver),) = agent.streams
        self.assertEqual(
            (open_.method, open_.metadata, open_.timeout_ms), ("/raw", b"fields", 1)
        )
        self.assertEqual(receiver.data, b"x")

    def test_connected_agents(self) -> None:
        """Every connection."""
        self.assertEqual(self.api().agents.connected(), [])
        self.world.agent("7")
        self.world.agent("8")
        names = [one.agent_name for one in self.api().agents.connected()]
        self.assertEqual(names, ["agent-7", "agent-8"])

    def test_authorize(self) -> None:
        """A user's token opens its agents, by name and by id."""
        self.store.add_agent("home")
        _, token = self.store.add_user("alice", ["home"], None)
        self.identity.start()
        self.addCleanup(self.identity.stop)
        for agent in ("home", "1"):
            for kind in ("user", ""):
                access = self.api().users.authorize(kind, agent, token)
                self.assertEqual(access, Access("user:alice", "1", "home"))

    def test_authorize_refuses(self) -> None:
        """At once, saying which kinds there are, and never with the token in it."""
        for kind, token in (("user", "s3cret"), ("ci", "s3cret"), ("x" * 999, "")):
            with self.assertRaises(CallError) as refused:
                self.api().users.authorize(kind, "home", token)
            refusal = refused.exception
            self.assertEqual(refusal.status, Status.UNAUTHENTICATED)
            self.assertNotIn("s3cret", str(refusal))
            self.assertLess(len(str(refusal)), 300)
            if kind != "user":
                self.assertIn("use 'user'", str(refusal))

    def test_events(self) -> None:
        """From one module to another."""
        heard: list[Moon] = []
        end = self.api("a").events.subscribe(Moon, heard.append)
        self.api("b").events.publish(Moon(1))
        end()
        self.api("b").events.publish(Moon(2))
        self.assertEqual(heard, [Moon(1)])

    def test_fail(self) -> None:
        """The host is told which module it is."""
        reason = ValueError()
        self.api("echo").fail(reason)
        self.assertEqual(self.failed, [("echo", reason)])

    def test_listen(self) -> None:
        """A port, as the section or the endpoint string says."""
        listening = self.api().network.listen("tcp:8160:interface=127.0.0.1", Factory())
        port = self.successResultOf(listening)
        verifyObject(IListeningPort, port)
        ((number, *_),) = self.reactor.tcpServers
        self.assertEqual(number, 8160)

    def test_address_is_taken(self) -> None:
        """The line says what for, where, and what to do."""

        def refuse(*args: Any, **more: Any) -> Any:
            in_use = OSError(errno.EADDRINUSE, "Address already in use")
            raise CannotListenError("", 8160, in_use)

        self.reactor.listenTCP = refuse  # type: ignore[method-assign]
        failure = self.failureResultOf(
            self.api().network.listen("tcp:8160", Factory()), ConfigurationError
        )
        (problem,) = failure.value.problems
        self.assertEqual(
            problem,
            (
                "cannot listen for echo: tcp:8160 is in use (by another kas?); choose "
                "another address"
            ),
        )

    def test_a_port_of_its_section_that_is_taken(self) -> None:
        """The key is named where the port can be changed; the sentence has one end."""

        def refuse(*args: Any, **more: Any) -> Any:
            raise OSError("Couldn't listen on it: in use.")

        self.reactor.listenTCP = refuse  # type: ignore[method-assign]

        @attrs.frozen
        class Settings:
            listen: Listen

        settings = Settings(Listen(address="127.0.0.1:8160"))
        scope = ModuleScope("echo", settings, lambda error: None, "agent.echo")
        api = self.context.make_api(scope)
        failure = self.failureResultOf(
            api.network.listen(settings.listen, Factory()), ConfigurationError
        )
        (problem,) = failure.value.problems
        self.assertTrue(
            problem.endswith("in use; choose another with agent.echo.listen.address"),
            problem,
        )


@attrs.frozen
class Moon:
    """An event of these modules."""

    phase: int


@implementer(IServerModule)
class Busy:
    """Uses everything that has to be taken back."""

    made: list[Busy] = []

    def __init__(self, api: ServerModuleApi) -> None:
        self.api = api
        self.name = api.name
        self.heard: list[Moon] = []
        self.made.append(self)
        api.calls.handle_stream(
            f"/{api.name}", lambda stream, open_: RecordingReceiver()
        )
        api.events.subscribe(Moon, self.heard.append)
        api.web.mount(f"/{api.name}", Resource())
        self.store = api.stores.open("things")

    async def start(self) -> None:
        port = {"one": 8161, "two": 8162}[self.name]
        await self.api.network.listen(f"tcp:{port}", Factory())

    async def stop(self) -> None:
        pass


class FailureTests(_Case):
    """A module fails later: what it held is free, and nobody else notices."""

    def setUp(self) -> None:
        super().setUp()
        # Each failure is in the log, with its traceback.
        self.addCleanup(self.flushLoggedErrors, ValueError)
        Busy.made = []
        self.host = ModuleHost(
            [Prepared(name, Busy, None) for name in ("one", "two")],
            interface=IServerModule,
            make_api=self.context.make_api,
            clock=self.reactor,
            jitter=lambda: 1.0,
        )
        self.successResultOf(Deferred.fromCoroutine(self.host.start()))
        self.one, self.two = Busy.made
        self.agent = self.world.agent()

    def ask(self, method: str) -> list[Any]:
        """How a stream of the agent to a module ends, if it does."""
        receiver = RecordingReceiver()
        self.agent.open_stream(method, receiver)
        self.agent.pipe.flush()
        return receiver.closed

    def keep(self, module: Busy, value: bytes) -> None:
        storing = _running(module.store.set("k", value))
        self.successResultOf(storing)

    def stored(self, module: Busy) -> bytes | None:
        found = self.successResultOf(_running(module.store.get("k")))
        return found.value if found else None

    def assert_unknown(self, method: str) -> None:
        (reason,) = self.ask(method)
        assert isinstance(reason, StreamReset)
        self.assertEqual(reason.code, ErrorCode.UNKNOWN_METHOD)

    def test_alone(self) -> None:
        """Its handlers, subscriptions and ports are withdrawn; then it is back."""
        self.assertEqual(self.ask("/one"), [])
        self.keep(self.one, b"kept")
        self.one.api.fail(ValueError("gone"))
        self.assert_unknown("/one")
        self.assertIsNone(self.context.pages.find([b"one"]))
        self.assertIsNotNone(self.context.pages.find([b"two"]))
        self.assertEqual(self.ask("/two"), [])
        self.world.bus.publish(Moon(1))
        self.assertEqual((self.one.heard, self.two.heard), ([], [Moon(1)]))
        self.assertEqual(self.reactor.closed, [8161])
        self.assertEqual(self.agent.closed, [])
        self.assertEqual(self.host.states, {"one": "restarting", "two": "running"})

        self.reactor.advance(RESTART_FIRST)
        self.assertEqual(len(Busy.made), 3)
        self.assertEqual(self.ask("/one"), [])
        self.assertIsNotNone(self.context.pages.find([b"one"]))
        self.assertEqual(self.stored(Busy.made[2]), b"kept")
        self.assertIsNone(self.stored(self.two))
        self.world.bus.publish(Moon(2))
        self.assertEqual(
            (Busy.made[2].heard, self.two.heard), ([Moon(2)], [Moon(1), Moon(2)])
        )
        self.assertEqual([one[0] for one in self.reactor.tcpServers].count(8161), 2)

    def test_thousand_times(self) -> None:
        """Nothing piles up."""
        for _ in range(1000):
            Busy.made[-1 if len(Busy.made) > 2 else 0].api.fail(ValueError("gone"))
            self.reactor.advance(120)
        self.assertEqual(len(Busy.made), 1002)
        self.assertEqual(len(self.context.dispatcher._accepts), 2)
        self.assertEqual(sum(map(len, self.context.ports._ports.values())), 2)
        self.assertEqual(len(self.context.listening._ports), 2)
        self.assertEqual(len(self.world.bus._subscribers[Moon]), 2)
        self.assertEqual(len(self.context.pages._mounts), 2)
        self.assertEqual(len(self.context.stores._open), 2)
        self.assertEqual(self.reactor.getDelayedCalls(), [])

    def test_stop(self) -> None:
        """At the end everything is free."""
        self.successResultOf(Deferred.fromCoroutine(self.host.stop()))
        self.assert_unknown("/one")
        self.assert_unknown("/two")
        self.assertEqual(self.reactor.closed, [8162, 8161])


class OpenTests(_Case):
    """The message that opens a stream."""

    def test_no_limit(self) -> None:
        """Without a timeout there is none in it."""
        agent = self.world.agent()
        self.api().calls.open_stream(
            "7", "/raw", RecordingReceiver(), options=StreamOptions(fin=True)
        )
        agent.pipe.flush()
        ((_, open_, receiver),) = agent.streams
        self.assertEqual(open_, pb.Open(method="/raw"))
        self.assertTrue(receiver.finished)
