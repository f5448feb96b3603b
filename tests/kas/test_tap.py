"""``twistd kas`` as an operator meets it."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from twisted.internet import reactor
from twisted.python import usage

from kas.config.workers import available_cores
from kas.service import KasService
from kas.tap import Options, makeService
from tests.optionscase import OptionsCase
from tests.tunnel.transport import certificates
from tunnel import __version__
from tunnel.compiled import build_name
from tunnel.program import logs


class _Case(OptionsCase):
    options = Options

    def yaml(self, text: str) -> str:
        return self.file("kas.yaml", text)


class OptionsTests(_Case):
    """What can be said, and what is said back."""

    def test_defaults(self) -> None:
        """Nothing has to be said."""
        options = self.parse()
        self.assertEqual(
            [one.name for one in options.modules],
            # The page, for this machine, and what it reads from.
            ["action_cable", "cluster_data", "kubernetes_api", "web_page"],
        )
        self.assertEqual(options["log-format"], "auto")

    def test_help(self) -> None:
        """Every option is there, with what it is for; the first steps, too."""
        text = " ".join(str(Options()).split())
        for option in (
            (
                "--configuration-file= YAML file; without it, all settings have their "
                "defaults."
            ),
            "--state-directory= Directory for certificates and identities",
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
                SystemExit, self.parse, "--check", "--configuration-file", self.yaml("")
            )
        self.assertEqual(ended.code, 0)
        self.assertEqual(
            out.getvalue(),
            "the configuration is valid; workers: 1; modules: kubernetes_api\n",
        )
        self.assertEqual(list(self.folder.iterdir()), [self.folder / "kas.yaml"])

    def test_version(self) -> None:
        """Ours, not Twisted's."""
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            self.assertRaises(SystemExit, self.parse, "--version")
        self.assertEqual(out.getvalue(), f"txkas {__version__} ({build_name()})\n")

    def test_check_says_how_many_workers(self) -> None:
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            self.assertRaises(SystemExit, self.parse, "--check", "--workers", "auto")
        self.assertIn(f"; workers: {available_cores()}; ", out.getvalue())

    def test_check_looks_at_the_path_of_the_state_directory(self) -> None:
        """Workers need sockets there, also where it has yet to be made."""
        state = "/run/" + "d" * 80
        arguments = ("--check", "--state-directory", state, "--workers")
        (problem,) = self.refused(*arguments, "2")
        self.assertIn(f"{state}: too long for the sockets of workers (by ", problem)
        with contextlib.redirect_stdout(io.StringIO()):
            self.assertRaises(SystemExit, self.parse, *arguments, "1")

    def test_check_finds_problems(self) -> None:
        """The other way, too."""
        self.assertTrue(
            self.refused("--check", "--configuration-file", self.yaml("agents: {}"))
        )

    def test_check_finds_a_missing_folder(self) -> None:
        """kas would fail to start with the audit log there."""
        file = self.yaml("observability: {audit: {file: /none/audit.log}}")
        (line,) = self.refused("--check", "--configuration-file", file)
        self.assertIn("/none/audit.log: folder /none does not exist; create it", line)

    def test_log_formats(self) -> None:
        """Three of them; another one is named with the choice there is."""
        for kind in ("auto", "json", "text"):
            self.assertEqual(self.parse("--log-format", kind)["log-format"], kind)
        self.assertEqual(
            self.refused("--log-format", "xml"),
            ["--log-format: choose auto, json or text"],
        )

    def test_unknown_option(self) -> None:
        """Twisted says which."""
        error = self.assertRaises(usage.UsageError, self.parse, "--colour")
        self.assertIn("colour", str(error))

    def test_no_option(self) -> None:
        """A file without its option is named."""
        error = self.assertRaises(usage.UsageError, self.parse, "kas.yaml")
        self.assertEqual(str(error), "'kas.yaml' does not follow an option")

    def test_workers(self) -> None:
        """What is wrong is repeated, with what is possible, wherever it was said."""
        for said in ("0", "-1", "many", "10000"):
            wanted = f"expected auto, or a number from 1 to 64, got '{said}'"
            line = self.refused(f"--workers={said}")
            self.assertEqual(line, [f"--workers: {wanted}"])
            file = self.yaml(f"workers: {said}")
            line = self.refused("--configuration-file", file)
            self.assertEqual(line, [f"{file}:1:10: workers: {wanted}"])
        self.assertEqual(self.parse("--workers=2").configuration.workers, 2)

    def test_what_workers_cannot_share(self) -> None:
        """It is found before the start; --workers counts, whatever the file says."""
        endpoint = "ssl:8150:privateKey=a:certKey=b"
        file = self.yaml(f"agent: {{listen: {{endpoint: '{endpoint}'}}}}\nworkers: 2")
        (line,) = self.refused("--check", "--configuration-file", file)
        self.assertIn(":1:18: agent.listen.endpoint: with several workers", line)
        self.parse("--workers=1", "--configuration-file", file)

    def test_no_file(self) -> None:
        """One that is not there is a line with what to do."""
        (line,) = self.refused("--configuration-file", "/nowhere/kas.yaml")
        self.assertIn("/nowhere/kas.yaml cannot be read", line)

    def test_all_problems_at_once(self) -> None:
        """Each has a line with its place."""
        path = self.yaml(
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

    def test_modules_and_the_rest_at_once(self) -> None:
        """What is wrong with modules is told beside what is wrong in the file."""
        path = self.yaml(
            "agnet: {}\n"
            "agent:\n"
            "  listen: {address: nonsense}\n"
            "  kubernetes_api:\n"
            "    listn: {}\n"
            "modules:\n"
            "  greter:\n"
            "    greeting: hello\n"
        )
        state = self.folder / "state"
        state.mkdir()
        state.chmod(0o777)
        lines = self.refused(
            *("--configuration-file", path, "--state-directory", str(state)),
            *("--log-format", "xml"),
        )
        starts = (
            "--log-format: ",
            f"{path}:1:1: ",
            f"{path}:3:12: agent.listen.address: ",
            f"{path}:5:5: agent.kubernetes_api: ",
            f"{path}:7:3: modules.greter: module greter is not installed",
            f"{state} is writable for other users",
        )
        self.assertEqual(len(lines), len(starts), lines)
        for line, start in zip(lines, starts, strict=True):
            self.assertTrue(line.startswith(start), line)

    def test_certificates(self) -> None:
        """What is in the files is read when the configuration is."""
        self.file("x.crt", "nonsense")
        self.file("x.key", "nonsense")
        path = self.yaml(
            "agent:\n  listen: {certificate_file: x.crt, key_file: x.key}\n"
        )
        (line,) = self.refused("--configuration-file", path)
        self.assertTrue(line.startswith(f"{path}:2:12: "), line)
        self.assertIn("x.crt: it contains no certificate", line)

    def test_modules(self) -> None:
        """One that is not installed; then, what is wrong with one that is."""
        (line,) = self.refused(
            "--configuration-file", self.yaml("modules:\n  kubernets_api: {}\n")
        )
        self.assertIn(
            "kubernets_api is not installed; did you mean kubernetes_api", line
        )
        path = self.yaml("agent:\n  kubernetes_api:\n    listn: {}\n")
        (line,) = self.refused("--configuration-file", path)
        self.assertIn(f"{path}:3:5: ", line)
        self.assertIn("'listn'", line)

    def test_no_secrets(self) -> None:
        """What stands in a wrong place may be one: keys are named, values are not."""
        path = self.yaml("agent:\n  token: s3cret-t0ken\n")
        self.assertTrue(self.refused("--configuration-file", path))


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

    def test_time(self) -> None:
        """Timers do not follow the time of day."""
        clock: Any = reactor
        self.patch(clock, "seconds", clock.seconds)
        self.make()
        self.assertIs(clock.seconds, time.monotonic)

    def test_log_observer(self) -> None:
        """In the format that was asked for, with the level of the configuration."""
        told: list[tuple[str, str]] = []
        self.patch(
            logs.LoggingService,
            "log_as_told",
            lambda service, options, kind, level: told.append((kind, level)),
        )
        path = self.yaml("observability:\n  logging:\n    level: warn\n")
        self.make("--log-format", "json", "--configuration-file", path)
        self.assertEqual(told, [("json", "warn")])

    def test_state_directory(self) -> None:
        """One that others could write to is a line with what to do."""
        state = self.folder / "state"
        state.mkdir()
        state.chmod(0o777)
        (line,) = self.refused("--state-directory", str(state))
        self.assertIn(f"chmod 700 {state}", line)

    def test_state_directory_that_cannot_be_made(self) -> None:
        """Only the start finds that out, and says it in the same manner."""
        taken = self.file("taken", "")
        options = self.parse("--state-directory", f"{taken}/state")
        error = self.assertRaises(SystemExit, makeService, options)
        self.assertIn("as the state directory", str(error.code))

    def test_what_only_the_parts_find_out(self) -> None:
        """Such as a file for TLS between kas that became bad since: one line."""
        self.file("secret", "c3Nzc3Nzc3Nzc3Nzc3Nzc3Nzc3Nzc3Nzc3Nzc3Nzc3M=")
        self.file("ca.crt", certificates.authority().pem)
        path = self.yaml(
            "private_api:\n  listen:\n    address: 127.0.0.1:8155\n"
            "    authentication_secret_file: secret\n"
            "    development_certificate: true\n"
            "    ca_certificate_file: ca.crt\n"
        )
        state = str(self.folder / "state")
        options = self.parse("--state-directory", state, "--configuration-file", path)
        self.file("ca.crt", "nonsense")
        error = self.assertRaises(SystemExit, makeService, options)
        self.assertIn("ca.crt", str(error.code))
        self.assertNotIn("\n", str(error.code))


DROPIN = """\
from tunnel.plugin import ServerModule

fails = ServerModule("acme_fails", "acme_fails.Fails")
before = ServerModule("acme_before", "acme_fails.Works")
works = ServerModule("acme_works", "acme_fails.Works")
"""

MODULES = """\
from zope.interface import implementer, provider
from tunnel.api import IServerModule, IServerModuleFactory
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
        # ours is first where it was before
        path = filter(None, (os.environ.get("PYTHONPATH"), str(self.folder)))
        listen = "agent: {listen: {address: '127.0.0.1:0'}}\n"
        return subprocess.run(
            [
                *(Path(sys.executable).with_name("twistd"), "-n", "--pidfile=", "kas"),
                *("--configuration-file", self.yaml(listen + text)),
                *("--state-directory", str(self.folder / "state")),
                *arguments,
            ],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path)},
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
        self.assertIn("module acme_fails did not start: no such colour; correct", said)
        self.assertNotIn("listening for", said)

    def test_module_is_missing(self) -> None:
        """One line that says which, and what was meant perhaps."""
        done = self.run_kas("modules: {acme_wroks: {}}\n")
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        (line,) = done.stderr.splitlines()
        self.assertIn("did you mean acme_works?", line)

    def test_usage(self) -> None:
        """An option that there is not is answered with those that there are."""
        done = self.run_kas("", "--colour")
        self.assertEqual(done.returncode, 1)
        self.assertIn("--configuration-file=", done.stdout)
        self.assertIn("colour", done.stdout.splitlines()[-1])

    def test_check(self) -> None:
        """Third-party modules are checked as well."""
        done = self.run_kas("modules: {acme_works: {}}\n", "--check")
        self.assertEqual(
            (done.returncode, done.stdout),
            (
                0,
                (
                    "the configuration is valid; workers: 1; modules: acme_works, "
                    "kubernetes_api\n"
                ),
            ),
        )
