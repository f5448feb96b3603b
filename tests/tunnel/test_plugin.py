"""Modules by name: which are found, and what is said when one cannot be had."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from twisted import plugins
from twisted.plugin import IPlugin, getCache, getPlugins
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer, provider
from zope.interface.verify import verifyObject

from tunnel.api import (
    IAgentModule,
    IAgentModuleFactory,
    IServerModule,
    IServerModuleFactory,
)
from tunnel.errors import ConfigurationError
from tunnel.plugin import (
    AgentModule,
    IAgentModulePlugin,
    IServerModulePlugin,
    ServerModule,
    find_modules,
)

HERE = "tests.tunnel.test_plugin"


class Nothing:
    """A configuration without keys."""


@implementer(IServerModule)
@provider(IServerModuleFactory)
class Server:
    """As small as a server half can be."""

    name = "small"
    configuration = Nothing

    def __init__(self, api: Any) -> None:
        pass

    async def start(self) -> None:
        pass

    async def stop(self) -> None:
        pass


@implementer(IAgentModule)
@provider(IAgentModuleFactory)
class Agent(Server):
    """As small as an agent half can be."""


@provider(IServerModuleFactory)
class Schemaless:
    """Forgot to say what it can be told."""

    def __init__(self, api: Any) -> None:
        pass


class Undeclared(Schemaless):
    """Does not even say that it is a factory."""


class _Case(SynchronousTestCase):
    def folder(self) -> Path:
        """A folder that Python imports from."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.patch(sys, "path", [folder.name, *sys.path])
        modules = set(sys.modules)
        self.addCleanup(
            lambda: [sys.modules.pop(name) for name in set(sys.modules) - modules]
        )
        return Path(folder.name)

    def problems(self, function: Any, *arguments: Any, **more: Any) -> tuple[str, ...]:
        error = self.assertRaises(ConfigurationError, function, *arguments, **more)
        for problem in error.problems:
            self.assertNotIn("\n", problem)
        problems: tuple[str, ...] = error.problems
        return problems


class FindTests(_Case):
    """Which modules are to run."""

    installed = [
        ServerModule("kubernetes_api", f"{HERE}.Server", default=True),
        ServerModule("greeter", f"{HERE}.Server"),
        ServerModule("audit", f"{HERE}.Server", default=True),
    ]

    def names(self, wanted: Iterable[str]) -> list[str]:
        found = find_modules(ServerModule, wanted, found=self.installed)
        return [plugin.name for plugin in found]

    def test_defaults_and_wanted(self) -> None:
        """The default ones run, others when they are wanted; in order of names."""
        self.assertEqual(self.names([]), ["audit", "kubernetes_api"])
        self.assertEqual(
            self.names(["greeter", "audit"]), ["audit", "greeter", "kubernetes_api"]
        )

    def test_default_with_a_section_of_the_program(self) -> None:
        """It runs where the program's file has that section."""
        found = [ServerModule("tracker", f"{HERE}.Server", default="api")]
        self.assertEqual(find_modules(ServerModule, found=found), [])
        self.assertEqual(
            find_modules(ServerModule, present={"api"}, found=found), found
        )

    def test_default_with_one_of_several_sections(self) -> None:
        """Any of them is enough."""
        found = [ServerModule("n", f"{HERE}.Server", default=("api", "gitlab"))]
        self.assertEqual(find_modules(ServerModule, present={"web"}, found=found), [])
        for section in ("api", "gitlab"):
            self.assertEqual(
                find_modules(ServerModule, present={section}, found=found), found
            )

    def test_not_installed(self) -> None:
        """Each missing one has a line, with the name that was meant perhaps."""
        problems = self.problems(
            find_modules, ServerModule, ["greter", "xyz"], found=self.installed
        )
        self.assertEqual(len(problems), 2)
        self.assertIn(
            "module greter is not installed; did you mean greeter?", problems[0]
        )
        self.assertIn("installed: audit, greeter, kubernetes_api", problems[0])
        self.assertTrue(
            problems[1].startswith("module xyz is not installed (installed")
        )

    def test_nothing_installed(self) -> None:
        """An empty installation says so."""
        (problem,) = self.problems(find_modules, AgentModule, ["greeter"], found=[])
        self.assertIn("installed: none", problem)

    def test_two_of_one_name(self) -> None:
        """Nobody decides by chance which of them runs."""
        twins = [ServerModule("twin", "acme.One"), ServerModule("twin", "other.Two")]
        (problem,) = self.problems(find_modules, ServerModule, found=twins)
        self.assertEqual(
            problem,
            "module twin: both acme.One and other.Two have this name; "
            "uninstall one of them",
        )

    def test_found_twice(self) -> None:
        """The same dropin in two folders is one module."""
        twice = [ServerModule("one", "acme.One"), ServerModule("one", "acme.One")]
        self.assertEqual(len(find_modules(ServerModule, ["one"], found=twice)), 1)

    def test_kinds_are_apart(self) -> None:
        """A server half is no agent half, though they have one name."""
        server, agent = ServerModule("a", "x.Y"), AgentModule("a", "x.Z")
        for interface, plugin in (
            (IServerModulePlugin, server),
            (IAgentModulePlugin, agent),
        ):
            self.assertTrue(verifyObject(interface, plugin))
            self.assertTrue(verifyObject(IPlugin, plugin))
        self.assertFalse(IAgentModulePlugin.providedBy(server))
        self.assertFalse(IServerModulePlugin.providedBy(agent))

    def test_built_in(self) -> None:
        """What comes with us is found by Twisted, and can be loaded."""
        server, agent = find_modules(ServerModule), find_modules(AgentModule)
        self.assertEqual([one.name for one in server], ["kubernetes_api"])
        self.assertEqual(
            [one.name for one in agent], ["agent_configuration", "kubernetes_api"]
        )
        for plugin in server:
            self.assertTrue(callable(plugin.load()))
        for half in agent:
            self.assertTrue(callable(half.load()))


class DropinTests(_Case):
    """A dropin of somebody else, in a folder of its own."""

    def install(self, dropin: str) -> Path:
        folder = self.folder()
        inner = folder / "twisted" / "plugins"
        inner.mkdir(parents=True)
        (inner / "acme_test_modules.py").write_text(dropin)
        self.patch(plugins, "__path__", [str(inner), *plugins.__path__])
        return folder

    def test_found_but_not_imported(self) -> None:
        """Its code is imported when it is enabled, not when it is listed."""
        folder = self.install(
            "from tunnel.plugin import ServerModule\n"
            "lazy = ServerModule('lazy', 'acme_lazy.Factory')\n"
        )
        (folder / "acme_lazy.py").write_text(f"from {HERE} import Server as Factory\n")
        self.assertNotIn("lazy", [p.name for p in find_modules(ServerModule)])
        (plugin,) = [
            p for p in find_modules(ServerModule, ["lazy"]) if p.name == "lazy"
        ]
        self.assertNotIn("acme_lazy", sys.modules)
        self.assertIs(plugin.load(), Server)
        self.assertIn("acme_lazy", sys.modules)

    def test_broken_dropin(self) -> None:
        """Twisted skips one that fails to import; we name it as missing, and say so."""
        self.install("raise RuntimeError('broken dropin')\n")
        getCache(plugins)
        list(getPlugins(IServerModulePlugin))
        (problem,) = self.problems(find_modules, ServerModule, ["lazy"])
        self.assertIn("module lazy is not installed", problem)
        self.assertIn("skipped by Twisted, which logs why", problem)
        self.assertTrue(self.flushLoggedErrors(RuntimeError))


class LoadTests(_Case):
    """From the name of a factory to the factory."""

    def load(self, target: str) -> str:
        (problem,) = self.problems(ServerModule("acme", target).load)
        return problem

    def test_loads(self) -> None:
        """What provides the interface is returned as it is."""
        self.assertIs(ServerModule("small", f"{HERE}.Server").load(), Server)
        self.assertIs(AgentModule("small", f"{HERE}.Agent").load(), Agent)

    def test_import_fails(self) -> None:
        """The line says which module, which error, and where."""
        (self.folder() / "acme_broken.py").write_text(
            "\nimport there_is_no_such_thing\n"
        )
        problem = self.load("acme_broken.Factory")
        self.assertIn("module acme: importing acme_broken.Factory failed", problem)
        self.assertIn("ModuleNotFoundError", problem)
        self.assertIn("there_is_no_such_thing", problem)
        self.assertIn("acme_broken.py:2", problem)
        self.assertIn("correct it or disable it", problem)
        plugin = ServerModule(
            "acme", "acme_broken.Factory", requires="acme-kas[server]"
        )
        (problem,) = self.problems(plugin.load)
        self.assertTrue(problem.endswith("; pip install 'acme-kas[server]'"))

    def test_syntax_error(self) -> None:
        """Also one that Python cannot read."""
        (self.folder() / "acme_syntax.py").write_text("def f(:\n")
        problem = self.load("acme_syntax.Factory")
        self.assertIn("SyntaxError", problem)
        self.assertIn("acme_syntax.py", problem)

    def test_no_such_package(self) -> None:
        """The package is gone, or was never there."""
        self.assertIn(
            "importing acme_gone.Factory failed", self.load("acme_gone.Factory")
        )

    def test_no_such_attribute(self) -> None:
        """The package is there, the factory is not."""
        self.assertIn("importing", self.load(f"{HERE}.Missing"))

    def test_no_factory(self) -> None:
        """What is there does not say that it makes server halves."""
        problem = self.load(f"{HERE}.Undeclared")
        self.assertIn(f"module acme: {HERE}.Undeclared does not provide", problem)
        self.assertIn("IServerModuleFactory", problem)

    def test_incomplete_factory(self) -> None:
        """It says so, and lacks something."""
        problem = self.load(f"{HERE}.Schemaless")
        self.assertIn("IServerModuleFactory", problem)
        self.assertIn("configuration", problem)

    def test_half_of_the_other_side(self) -> None:
        """An agent half that is named as a server half."""
        (problem,) = self.problems(AgentModule("acme", f"{HERE}.Server").load)
        self.assertIn("IAgentModuleFactory", problem)
