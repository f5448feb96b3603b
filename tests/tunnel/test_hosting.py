"""The life of modules: made, started, restarted alone, stopped."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer, provider

from tunnel.config import Section, field, read
from tunnel.errors import ConfigurationError
from tunnel.hosting import (
    RESTART_FIRST,
    RESTART_MOST,
    STOP_TIMEOUT,
    ModuleHost,
    Prepared,
    prepare,
)
from tunnel.interfaces import IServerModule, IServerModuleFactory
from tunnel.plugin import ServerModule

HERE = "tests.tunnel.test_hosting"


@attrs.frozen(kw_only=True)
class Settings:
    """What the modules of these tests can be told."""

    greeting: str = field(default="hello", doc="a text")
    times: int = field(default=1, doc="a number")


@provider(IServerModuleFactory)
class Configured:
    """A factory for `prepare`, which only reads its schema."""

    name = "configured"
    configuration: type[Any] = Settings

    def __init__(self, api: Any) -> None:
        pass


@attrs.frozen(kw_only=True)
class Strict:
    """Something has to be said."""

    secret_file: str = field(doc="a file")


@provider(IServerModuleFactory)
class Demanding(Configured):
    """Cannot do without a section."""

    configuration = Strict


@provider(IServerModuleFactory)
class Confused(Configured):
    """Has a schema that is none."""

    configuration = dict


@attrs.frozen
class File:
    modules: dict[str, Section] = field(factory=dict, doc="sections")


class PrepareTests(SynchronousTestCase):
    """Configurations are read before anything is made."""

    def sections(self, text: str) -> dict[str, Section]:
        return read(text, "kas.yaml", File).modules

    def test_reads(self) -> None:
        """A section is read with the module's schema; none means its defaults."""
        one, two = prepare(
            [ServerModule(name, f"{HERE}.Configured") for name in ("one", "two")],
            self.sections("modules:\n  one:\n    greeting: hi\n"),
        )
        self.assertEqual(
            (one.name, one.factory, one.configuration),
            ("one", Configured, Settings(greeting="hi")),
        )
        self.assertEqual(two.configuration, Settings())

    def test_all_problems_at_once(self) -> None:
        """Of every module, each with its place in the file."""
        text = (
            "modules:\n"
            "  one:\n"
            "    greting: hi\n"
            "  three:\n"
            "    greeting: hi\n"
            "    times: many\n"
        )
        plugins = [
            ServerModule("one", f"{HERE}.Configured"),
            ServerModule("three", f"{HERE}.Configured"),
            ServerModule("two", f"{HERE}.Missing"),
        ]
        error = self.assertRaises(
            ConfigurationError, prepare, plugins, self.sections(text)
        )
        first, second, third = error.problems
        self.assertIn("kas.yaml:3:5: modules.one: unknown key 'greting'", first)
        self.assertIn("did you mean 'greeting'?", first)
        self.assertIn("kas.yaml:6:12: modules.three.times: ", second)
        self.assertIn("module two: importing", third)

    def test_needs_a_section(self) -> None:
        """A module that needs one and has none."""
        plugins = [ServerModule("one", f"{HERE}.Demanding")]
        error = self.assertRaises(ConfigurationError, prepare, plugins, {})
        (problem,) = error.problems
        self.assertIn("modules.one", problem)
        self.assertIn("secret_file", problem)

    def test_no_schema(self) -> None:
        """A bug of the module is a line, not a traceback."""
        plugins = [ServerModule("one", f"{HERE}.Confused")]
        error = self.assertRaises(
            ConfigurationError, prepare, plugins, self.sections("modules: {one: {}}")
        )
        (problem,) = error.problems
        self.assertIn("module one: its configuration class cannot be used: ", problem)
        self.assertNotIn("\n", problem)


class Script:
    """What each module is to do, and a record of what happened."""

    def __init__(self) -> None:
        self.happened: list[str] = []
        self.apis: dict[str, list[Any]] = {}
        #: ``make one`` -> called there; may raise, or return an awaitable.
        self.does: dict[str, Callable[[], Any]] = {}

    def do(self, what: str) -> Any:
        self.happened.append(what)
        return self.does.get(what, lambda: None)()

    def take(self) -> list[str]:
        happened, self.happened = self.happened, []
        return happened


@attrs.define(eq=False)
class Api:
    name: str
    script: Script
    fail: Callable[[Exception], None]


@implementer(IServerModule)
class Scripted:
    """Does what the script says."""

    def __init__(self, api: Api) -> None:
        self.name = api.name
        self._script = api.script
        api.script.apis.setdefault(api.name, []).append(api)
        api.script.do(f"make {api.name}")

    async def start(self) -> None:
        await self._do("start")

    async def stop(self) -> None:
        await self._do("stop")

    async def _do(self, what: str) -> None:
        result = self._script.do(f"{what} {self.name}")
        if result is not None:
            await result


def no_module(api: Api) -> object:
    """Made by a factory that forgot what it is for."""
    return object()


class _Case(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.script = Script()
        self.jitter = 1.0

    def host(self, *names: str, **factories: Any) -> ModuleHost:
        prepared = [
            Prepared(name, factories.get(name, Scripted), None) for name in names
        ]

        def make_api(one: Prepared) -> Api:
            return Api(
                one.name, self.script, lambda reason: host.fail(one.name, reason)
            )

        host = ModuleHost(
            prepared,
            interface=IServerModule,
            make_api=make_api,
            release=lambda name: self.script.happened.append(f"release {name}"),
            clock=self.clock,
            jitter=lambda: self.jitter,
        )
        return host

    def started(self, *names: str) -> ModuleHost:
        host = self.host(*names)
        self.successResultOf(Deferred.fromCoroutine(host.start()))
        self.script.take()
        return host

    def fails(self, host: ModuleHost) -> tuple[str, ...]:
        starting = Deferred.fromCoroutine(host.start())
        error = self.failureResultOf(starting, ConfigurationError).value
        assert isinstance(error, ConfigurationError)
        return error.problems

    def does(self, what: str, does: Callable[[], Any]) -> None:
        self.script.does[what] = does

    def raises(self, what: str, error: Exception) -> None:
        def fail() -> None:
            raise error

        self.does(what, fail)

    def api(self, name: str) -> Api:
        """The latest API object of a module."""
        api: Api = self.script.apis[name][-1]
        return api


class StartTests(_Case):
    """All of them, or none."""

    def test_order(self) -> None:
        """Every module is made, then all are started; they stop in reverse."""
        host = self.host("a", "b", "c")
        self.successResultOf(Deferred.fromCoroutine(host.start()))
        self.assertEqual(
            self.script.take(),
            ["make a", "make b", "make c", "start a", "start b", "start c"],
        )
        self.assertEqual(set(host.states.values()), {"running"})
        self.successResultOf(Deferred.fromCoroutine(host.stop()))
        self.assertEqual(
            self.script.take(),
            ["release c", "stop c", "release b", "stop b", "release a", "stop a"],
        )

    def test_making_fails(self) -> None:
        """Nothing is started; what the made ones registered is taken back."""
        self.raises("make b", ValueError("no such\ncolour"))
        self.assertEqual(
            self.fails(self.host("a", "b", "c")),
            (
                "module b did not start: no such colour; "
                "mend that, or leave the module out",
            ),
        )
        self.assertEqual(
            self.script.take(),
            ["make a", "make b", "release c", "release b", "release a"],
        )
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 1)

    def test_starting_fails(self) -> None:
        """Those that were started are stopped again, the last first."""
        self.raises("start b", OSError())
        (problem,) = self.fails(self.host("a", "b", "c"))
        self.assertIn("module b did not start: OSError; ", problem)
        happened = self.script.take()
        self.assertNotIn("start c", happened)
        self.assertNotIn("stop c", happened)
        self.assertEqual(
            happened[-5:],
            ["release c", "release b", "stop b", "release a", "stop a"],
        )
        self.assertEqual(len(self.flushLoggedErrors(OSError)), 1)

    def test_explained_failures_stay_as_they_are(self) -> None:
        """A module that knows what the operator did wrong says it itself."""
        self.raises("start a", ConfigurationError(["kas.yaml:3:1: choose another"]))
        self.assertEqual(self.fails(self.host("a")), ("kas.yaml:3:1: choose another",))

    def test_no_module(self) -> None:
        """What the factory makes has to be a module."""
        (problem,) = self.fails(self.host("a", a=no_module))
        self.assertIn("module a does not provide IServerModule", problem)

    def test_gives_up_while_it_starts(self) -> None:
        """`fail` before the module is up is a failure to start."""
        self.does("start a", lambda: Deferred())
        host = self.host("a", "b")
        starting = Deferred.fromCoroutine(host.start())
        self.assertNoResult(starting)
        self.api("a").fail(ValueError("the licence is over"))
        self.failureResultOf(starting, ConfigurationError)
        self.assertEqual(
            self.script.happened[-3:], ["release b", "release a", "stop a"]
        )
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 1)

    def test_gives_up_while_it_is_made(self) -> None:
        """The same in its constructor: it is not even started."""
        self.does("make a", lambda: self.api("a").fail(ValueError("not like this")))
        (problem,) = self.fails(self.host("a"))
        self.assertIn("module a did not start: not like this; ", problem)
        self.assertNotIn("start a", self.script.take())
        self.flushLoggedErrors(ValueError)

    def test_start_waits(self) -> None:
        """A module that takes its time holds up those after it."""
        ready: Deferred[None] = Deferred()
        self.does("start a", lambda: ready)
        starting = Deferred.fromCoroutine(self.host("a", "b").start())
        self.assertNotIn("start b", self.script.happened)
        ready.callback(None)
        self.successResultOf(starting)
        self.assertIn("start b", self.script.happened)

    def test_stop_while_starting(self) -> None:
        """Who is told to stop meanwhile is not kept by a module that hangs."""
        self.does("start a", lambda: Deferred())
        host = self.host("a")
        starting = Deferred.fromCoroutine(host.start())
        self.successResultOf(Deferred.fromCoroutine(host.stop()))
        self.failureResultOf(starting)
        self.assertEqual(self.script.happened.count("stop a"), 1)
        self.flushLoggedErrors(CancelledError)


class RestartTests(_Case):
    """One fails, the others do not notice."""

    def wait(self) -> float:
        """Seconds until the module is made again."""
        (call,) = self.clock.getDelayedCalls()
        return call.getTime() - self.clock.seconds()

    def test_alone(self) -> None:
        """It is stopped, what it registered is taken back, and it is made again."""
        host = self.started("a", "b", "c")
        self.api("b").fail(ValueError("lost its database"))
        self.assertEqual(self.script.take(), ["release b", "stop b"])
        self.assertEqual(
            host.states, {"a": "running", "b": "restarting", "c": "running"}
        )
        self.clock.advance(RESTART_FIRST)
        self.assertEqual(self.script.take(), ["make b", "start b"])
        self.assertEqual(set(host.states.values()), {"running"})
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_backoff(self) -> None:
        """It doubles up to its bound, and half of it is jitter."""
        self.started("a")
        waits = []
        for _ in range(9):
            self.api("a").fail(ValueError("again"))
            waits.append(self.wait())
            self.clock.advance(waits[-1])
        self.assertEqual(waits, [1, 2, 4, 8, 16, 32, 60, 60, 60])
        self.jitter = 0.0
        self.api("a").fail(ValueError("again"))
        self.assertEqual(self.wait(), RESTART_MOST / 2)

    def test_backoff_begins_anew(self) -> None:
        """Once it ran for as long as the longest wait."""
        self.started("a")
        for _ in range(4):
            self.api("a").fail(ValueError("again"))
            self.clock.advance(self.wait())
        self.clock.advance(RESTART_MOST + 1)
        self.api("a").fail(ValueError("again"))
        self.assertEqual(self.wait(), RESTART_FIRST)

    def test_restart_fails(self) -> None:
        """It is tried for ever, each time later, though it ran for long before."""
        host = self.started("a", "b")
        self.clock.advance(10 * RESTART_MOST)
        self.raises("make a", OSError("not yet"))
        self.api("a").fail(ValueError("gone"))
        waits = []
        for _ in range(5):
            waits.append(self.wait())
            self.clock.advance(waits[-1])
        self.assertEqual(waits, [1, 2, 4, 8, 16])
        self.assertEqual(host.states["a"], "restarting")
        self.script.take()
        del self.script.does["make a"]
        self.clock.advance(self.wait())
        self.assertEqual(self.script.take(), ["make a", "start a"])
        self.assertEqual(host.states["a"], "running")

    def test_half_made(self) -> None:
        """What a failed attempt registered does not stay."""
        self.started("a")
        self.raises("start a", OSError("not yet"))
        self.api("a").fail(ValueError("gone"))
        self.script.take()
        self.clock.advance(self.wait())
        self.assertEqual(
            self.script.take(), ["make a", "start a", "release a", "stop a"]
        )
        self.raises("make a", OSError("not even that"))
        self.clock.advance(self.wait())
        self.assertEqual(self.script.take(), ["make a", "release a"])

    def test_says_it_twice(self) -> None:
        """Failing more than once is one failure."""
        self.started("a")
        api = self.api("a")
        for _ in range(3):
            api.fail(ValueError("gone"))
        self.assertEqual(self.script.take(), ["release a", "stop a"])
        self.wait()

    def test_never_two_at_a_time(self) -> None:
        """The next one is not made before the last one has stopped."""
        stopped: Deferred[None] = Deferred()
        self.started("a")
        self.does("stop a", lambda: stopped)
        self.api("a").fail(ValueError("gone"))
        self.clock.advance(RESTART_FIRST * 3)
        self.assertNotIn("make a", self.script.take())
        stopped.callback(None)
        self.clock.advance(RESTART_FIRST)
        self.assertEqual(self.script.take(), ["make a", "start a"])

    def test_does_not_stop(self) -> None:
        """One that hangs while stopping is left behind."""
        self.started("a")
        self.does("stop a", lambda: Deferred())
        self.api("a").fail(ValueError("gone"))
        self.clock.advance(STOP_TIMEOUT)
        self.clock.advance(RESTART_FIRST)
        self.assertEqual(self.script.happened[-1], "start a")
        self.assertEqual(len(self.flushLoggedErrors()), 1)

    def test_stop_meanwhile(self) -> None:
        """A module that waits for its restart stays as it is."""
        host = self.started("a", "b")
        self.api("a").fail(ValueError("gone"))
        self.script.take()
        self.successResultOf(Deferred.fromCoroutine(host.stop()))
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.assertNotIn("stop a", self.script.take())
        self.api("b").fail(ValueError("too late"))
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_stop_waits_for_the_failed_one(self) -> None:
        """The program goes on once nothing of any module is left."""
        host = self.started("a")
        stopped: Deferred[None] = Deferred()
        self.does("stop a", lambda: stopped)
        self.api("a").fail(ValueError("gone"))
        stopping = Deferred.fromCoroutine(host.stop())
        self.assertNoResult(stopping)
        stopped.callback(None)
        self.successResultOf(stopping)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_stop_while_it_starts_again(self) -> None:
        """No attempt follows the end."""
        host = self.started("a")
        self.does("start a", lambda: Deferred())
        self.api("a").fail(ValueError("gone"))
        self.clock.advance(RESTART_FIRST)
        self.successResultOf(Deferred.fromCoroutine(host.stop()))
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.assertEqual(self.script.happened[-1], "stop a")

    def test_fails_while_it_starts_again(self) -> None:
        """`fail` during a restart counts as one."""
        self.started("a")
        self.does("start a", lambda: Deferred())
        self.api("a").fail(ValueError("gone"))
        self.clock.advance(RESTART_FIRST)
        self.api("a").fail(ValueError("still gone"))
        self.assertEqual(self.wait(), 2 * RESTART_FIRST)


class StopTests(_Case):
    """The end of all of them."""

    def test_one_fails_to_stop(self) -> None:
        """The others are stopped all the same."""
        host = self.started("a", "b")
        self.raises("stop b", ValueError("stuck"))
        self.successResultOf(Deferred.fromCoroutine(host.stop()))
        self.assertIn("stop a", self.script.take())
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 1)

    def test_time_limit(self) -> None:
        """A module that hangs costs `STOP_TIMEOUT`."""
        host = self.started("a", "b")
        self.does("stop b", lambda: Deferred())
        stopping = Deferred.fromCoroutine(host.stop())
        self.clock.advance(STOP_TIMEOUT - 0.1)
        self.assertNoResult(stopping)
        self.clock.advance(0.1)
        self.successResultOf(stopping)
        self.assertIn("stop a", self.script.take())
        self.assertEqual(len(self.flushLoggedErrors()), 1)
