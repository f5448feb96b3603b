"""``twistd kas`` as an operator meets it."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from twisted.python import usage
from twisted.trial.unittest import SynchronousTestCase

from kas.service import KasService
from kas.tap import Options, makeService
from tunnel import logs


class _Case(SynchronousTestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def file(self, text: str) -> str:
        path = self.folder / "kas.yaml"
        path.write_text(text)
        return str(path)

    def parse(self, *arguments: str) -> Options:
        options = Options()
        options.parseOptions(list(arguments))
        return options

    def refused(self, *arguments: str) -> list[str]:
        error = self.assertRaises(usage.UsageError, self.parse, *arguments)
        return str(error).splitlines()


class OptionsTests(_Case):
    """What can be said, and what is said back."""

    def test_defaults(self) -> None:
        """Nothing has to be said."""
        options = self.parse()
        self.assertEqual([one.name for one in options.modules], ["kubernetes_api"])
        self.assertEqual(options["log-format"], "auto")

    def test_help(self) -> None:
        """Every option is there, with what it is for; the first steps, too."""
        text = " ".join(str(Options()).split())
        for option in (
            "--configuration-file= YAML file; without one, everything has its default.",
            "--state-directory= Where certificates and identities are kept",
            "--log-format= text, json, or auto",
            "--check Check the configuration",
            "Add both with kasctl.",
        ):
            self.assertIn(option, text)

    def test_check(self) -> None:
        """A usable file is said to be so, with its modules; nothing is started."""
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            ended = self.assertRaises(
                SystemExit, self.parse, "--check", "--configuration-file", self.file("")
            )
        self.assertEqual(ended.code, 0)
        self.assertEqual(
            out.getvalue(), "the configuration is usable; modules: kubernetes_api\n"
        )
        self.assertEqual(list(self.folder.iterdir()), [self.folder / "kas.yaml"])

    def test_check_finds_problems(self) -> None:
        """The other way, too."""
        self.assertTrue(
            self.refused("--check", "--configuration-file", self.file("agents: {}"))
        )

    def test_log_formats(self) -> None:
        """Three of them; another one is named with the choice there is."""
        for kind in ("auto", "json", "text"):
            self.assertEqual(self.parse("--log-format", kind)["log-format"], kind)
        self.assertEqual(
            self.refused("--log-format", "xml"),
            ["--log-format xml: choose auto, json or text"],
        )

    def test_unknown_option(self) -> None:
        """Twisted says which."""
        (line,) = self.refused("--configuration", "x", "--colour")
        self.assertIn("colour", line)

    def test_no_file(self) -> None:
        """One that is not there is a line with what to do."""
        (line,) = self.refused("--configuration-file", "/nowhere/kas.yaml")
        self.assertIn("/nowhere/kas.yaml: cannot be read", line)

    def test_all_problems_at_once(self) -> None:
        """Each has a line with its place."""
        path = self.file(
            "agent:\n"
            "  listen:\n"
            "    addres: 127.0.0.1:1\n"
            "observability:\n"
            "  logging:\n"
            "    level: loud\n"
        )
        lines = self.refused("--configuration-file", path)
        self.assertEqual(len(lines), 2)
        self.assertTrue(lines[0].startswith(f"{path}:3:5: agent.listen: "), lines)
        self.assertTrue(
            lines[1].startswith(f"{path}:6:12: observability.logging.level: "), lines
        )

    def test_modules(self) -> None:
        """One that is not installed; then, what is wrong with one that is."""
        (line,) = self.refused(
            "--configuration-file", self.file("modules:\n  kubernets_api: {}\n")
        )
        self.assertIn(
            "kubernets_api is not installed; did you mean kubernetes_api", line
        )
        path = self.file("agent:\n  kubernetes_api:\n    listn: {}\n")
        (line,) = self.refused("--configuration-file", path)
        self.assertIn(f"{path}:3:5: ", line)
        self.assertIn("'listn'", line)

    def test_no_secrets(self) -> None:
        """What stands in a wrong place may be one: keys are named, values are not."""
        path = self.file("agent:\n  token: s3cret-t0ken\n")
        self.assertNotIn(
            "s3cret", "\n".join(self.refused("--configuration-file", path))
        )


class MakeServiceTests(_Case):
    """From options to a service."""

    def make(self, *arguments: str) -> KasService:
        state = str(self.folder / "state")
        service = makeService(self.parse("--state-directory", state, *arguments))
        assert isinstance(service, KasService)
        return service

    def test_service(self) -> None:
        """It has a state directory of its own, and nothing runs yet."""
        service = self.make()
        self.assertEqual((self.folder / "state").stat().st_mode & 0o777, 0o700)
        self.assertFalse(service.running)

    def test_log_observer(self) -> None:
        """In the format that was asked for, with the level of the configuration."""
        told: list[tuple[str, str]] = []
        self.patch(
            logs.LogsItsOwnWay,
            "log_as_told",
            lambda service, options, kind, level: told.append((kind, level)),
        )
        path = self.file("observability:\n  logging:\n    level: warn\n")
        self.make("--log-format", "json", "--configuration-file", path)
        self.assertEqual(told, [("json", "warn")])

    def test_state_directory(self) -> None:
        """One that others could write to is a line with what to do."""
        state = self.folder / "state"
        state.mkdir()
        state.chmod(0o777)
        error = self.assertRaises(usage.UsageError, self.make)
        self.assertIn(str(state), str(error))


DROPIN = """\
from tunnel.plugin import ServerModule

fails = ServerModule("acme_fails", "acme_fails.Fails")
before = ServerModule("acme_before", "acme_fails.Works")
works = ServerModule("acme_works", "acme_fails.Works")
"""

MODULES = """\
from zope.interface import implementer, provider
from tunnel.interfaces import IServerModule, IServerModuleFactory
import attrs

@attrs.frozen
class Settings:
    pass

@provider(IServerModuleFactory)
@implementer(IServerModule)
class Works:
    configuration = Settings

    def __init__(self, api):
        self.name = api.name

    async def start(self):
        print("started", self.name, flush=True)

    async def stop(self):
        print("stopped", self.name, flush=True)

@provider(IServerModuleFactory)
class Fails(Works):
    async def start(self):
        raise ValueError("no such colour")
"""


@pytest.mark.integration
class ProcessTests(_Case):
    """The process itself: its last words and its status."""

    def setUp(self) -> None:
        super().setUp()
        plugins = self.folder / "twisted" / "plugins"
        plugins.mkdir(parents=True)
        (plugins / "acme_test_modules.py").write_text(DROPIN)
        (self.folder / "acme_fails.py").write_text(MODULES)

    def run_kas(self, text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        listen = "agent: {listen: {address: '127.0.0.1:0'}}\n"
        return subprocess.run(
            [
                *(Path(sys.executable).with_name("twistd"), "-n", "--pidfile=", "kas"),
                *("--configuration-file", self.file(listen + text)),
                *("--state-directory", str(self.folder / "state")),
                *arguments,
            ],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": str(self.folder)},
            capture_output=True,
            text=True,
            timeout=30,
        )

    def test_module_fails(self) -> None:
        """Those that were started are stopped again; the status tells."""
        done = self.run_kas("modules: {acme_before: {}, acme_fails: {}}\n")
        self.assertEqual(done.returncode, 1)
        # twistd makes what is printed a part of the log
        said = done.stdout + done.stderr
        for text in ("started acme_before", "stopped acme_before"):
            self.assertEqual(said.count(text), 1)
        self.assertIn("module acme_fails did not start: no such colour; mend", said)
        self.assertNotIn("listening for", said)

    def test_module_is_missing(self) -> None:
        """One line that says which, and what was meant perhaps."""
        done = self.run_kas("modules: {acme_wroks: {}}\n")
        self.assertEqual(done.returncode, 1)
        self.assertIn("did you mean acme_works?", done.stdout + done.stderr)

    def test_check(self) -> None:
        """Third-party modules are checked as well."""
        done = self.run_kas("modules: {acme_works: {}}\n", "--check")
        self.assertEqual(
            (done.returncode, done.stdout),
            (0, "the configuration is usable; modules: acme_works, kubernetes_api\n"),
        )
