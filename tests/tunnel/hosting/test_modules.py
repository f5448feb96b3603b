"""The life of modules: configured, made, started, stopped."""

from __future__ import annotations

import errno
from typing import Any

import attrs
from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import provider

from tests.stubborn import stubborn
from tests.tunnel.hosted import HostCase, no_module
from tunnel.api import IServerModuleFactory
from tunnel.config import Section, field, read
from tunnel.errors import ConfigurationError
from tunnel.hosting.modules import START_NOTICE, STOP_TIMEOUT, prepare
from tunnel.plugin import ServerModule

HERE = "tests.tunnel.hosting.test_modules"


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
        self.assertIn("module one: its configuration class is invalid: ", problem)
        self.assertNotIn("\n", problem)


class StartTests(HostCase):
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
                (
                    "module b did not start: no such colour; correct that, or disable "
                    "the module"
                ),
            ),
        )
        self.assertEqual(
            self.script.take(),
            ["make a", "make b", "release b", "release a"],
        )
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 1)

    def test_a_file_that_cannot_be_written(self) -> None:
        """The module is not the cause, and leaving it out does not help."""
        error = PermissionError(errno.EACCES, "Permission denied", "/none/x")
        self.raises("make b", error)
        (problem,) = self.fails(self.host("a", "b", "c"))
        self.assertTrue(
            problem.startswith("module b cannot start: /none/x: Permission denied; ")
        )
        self.assertNotIn("disable the module", problem)
        self.assertEqual(len(self.flushLoggedErrors(PermissionError)), 1)

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


class StopTests(HostCase):
    """The end of all of them."""

    def test_one_fails_to_stop(self) -> None:
        """The others are stopped all the same."""
        host = self.started("a", "b")
        self.raises("stop b", ValueError("stuck"))
        self.successResultOf(Deferred.fromCoroutine(host.stop()))
        self.assertIn("stop a", self.script.take())
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 1)

    def test_a_start_that_hangs(self) -> None:
        """The log names the module, again and again."""
        self.does("start b", lambda: Deferred())
        with capturedLogs() as events:
            starting = Deferred.fromCoroutine(self.host("a", "b").start())
            self.clock.pump([START_NOTICE] * 2)
        lines = [formatEvent(one) for one in events]
        notices = [one for one in lines if "still starting" in one]
        self.assertEqual(len(notices), 2)
        self.assertIn("module b is still starting after 20 s", notices[1])
        starting.cancel()
        self.failureResultOf(starting, ConfigurationError)
        self.assertEqual(len(self.flushLoggedErrors(CancelledError)), 1)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_time_limit(self) -> None:
        """A module that hangs costs `STOP_TIMEOUT`, also if it is not cancelled."""

        host = self.started("a", "b")
        self.does("stop b", lambda: Deferred.fromCoroutine(stubborn()))
        stopping = Deferred.fromCoroutine(host.stop())
        self.clock.advance(STOP_TIMEOUT - 0.1)
        self.assertNoResult(stopping)
        self.clock.advance(0.1)
        self.successResultOf(stopping)
        self.assertIn("stop a", self.script.take())
        self.assertEqual(len(self.flushLoggedErrors()), 1)
