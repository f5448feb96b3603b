"""``twistd agentk`` as an operator meets it."""

from __future__ import annotations

import contextlib
import io
import os
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from twisted.internet import reactor
from twisted.python import usage

from agentk.service import AgentkService
from agentk.tap import Options, makeService
from tests.optionscase import OptionsCase
from tunnel import __version__
from tunnel.compiled import build_name

KUBECONFIG = """\
apiVersion: v1
kind: Config
current-context: main
contexts: [{name: main, context: {cluster: main, user: main}}]
clusters: [{name: main, cluster: {server: "https://127.0.0.1:6443"}}]
users: [{name: main, user: {token: s3cret-cluster}}]
"""


class _Case(OptionsCase):
    options = Options

    def setUp(self) -> None:
        super().setUp()
        self.environ = {"HOME": str(self.folder), "AGENTK_TOKEN": "s3cret-t0ken"}
        self.patch(os, "environ", self.environ)
        self.good = [
            "--kas-address=tls://kas.example:8150",
            f"--kubeconfig={self.file('kubeconfig', KUBECONFIG)}",
        ]


class OptionsTests(_Case):
    """What can be said, and what is said back."""

    def test_good(self) -> None:
        """Address, token and cluster are enough; the token is nobody else's."""
        options = self.parse(*self.good)
        self.assertEqual(
            [one.name for one in options.modules],
            ["agent_configuration", "kubernetes_api"],
        )
        self.assertEqual(options.token.current(), b"s3cret-t0ken")
        self.assertNotIn("AGENTK_TOKEN", self.environ)

    def test_help(self) -> None:
        """Every option is there, with what it is for; where the token comes from."""
        text = " ".join(str(Options()).split())
        for option in (
            "--kas-address= tls://HOST:8150 or wss://HOST/PATH; may be repeated.",
            "--token-file= File with the agent's token; or set $AGENTK_TOKEN.",
            "--kas-header= Add a header to the WebSocket to kas",
            "--observability-listen-address= Address for /liveness, /readiness",
            "--kas-insecure-skip-tls-verify Trust any server that responds as kas.",
            "--configuration-file=",
            "--log-format= text, json, or auto",
            "--check",
            "kasctl agent add",
        ):
            self.assertIn(option, text)

    def test_check(self) -> None:
        """Usable options are said to be so; the process ends well."""
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            ended = self.assertRaises(SystemExit, self.parse, "--check", *self.good)
        self.assertEqual(ended.code, 0)
        self.assertEqual(
            out.getvalue(),
            "the options are valid; modules: agent_configuration, kubernetes_api\n",
        )

    def test_version(self) -> None:
        """Ours, not Twisted's."""
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            self.assertRaises(SystemExit, self.parse, "--version")
        self.assertEqual(out.getvalue(), f"txkas {__version__} ({build_name()})\n")

    def test_check_finds_problems(self) -> None:
        """The other way, too."""
        self.assertTrue(self.refused("--check", "--kas-address=grpcs://kas:443"))

    def test_check_of_the_policy(self) -> None:
        """Its problems have file, line and column; a missing file is one, too."""
        folder = TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        policy, configuration = Path(folder.name, "p"), Path(folder.name, "c")
        configuration.write_text(f"policy: {{file: {policy.absolute()}}}\n")
        arguments = ("--check", f"--configuration-file={configuration}", *self.good)
        self.assertIn("cannot be read", self.refused(*arguments)[0])
        rule = "{name: a, deny: [get], resources: [pod]}"
        policy.write_text(f"kind: AgentPolicy\nrules:\n- {rule}\n")
        self.environ["AGENTK_TOKEN"] = "s3cret-t0ken"
        (problem,) = self.refused(*arguments)
        self.assertIn(f"{policy.absolute()}:3:", problem)
        self.assertIn("write 'pods'", problem)

    def test_log_choices(self) -> None:
        """Both are told, with the choice there is."""
        for kind in ("auto", "json", "text"):
            self.environ["AGENTK_TOKEN"] = "s3cret-t0ken"
            self.parse("--log-format", kind, *self.good)
        self.environ["AGENTK_TOKEN"] = "s3cret-t0ken"
        self.assertEqual(
            self.refused("--log-format=xml", "--log-level=loud", *self.good),
            [
                "--log-format: choose auto, json or text",
                "--log-level: choose debug, info, warn or error",
            ],
        )

    def test_nothing(self) -> None:
        """The first thing that is needed is named with an example."""
        lines = self.refused()
        self.assertIn(
            "--kas-address: is missing; pass the address of kas, such as tls://",
            lines[0],
        )

    def test_flags_at_once(self) -> None:
        """Every flag that is wrong has a line; a header's value is not repeated."""
        lines = self.refused(
            *self.good,
            "--kas-address=grpcs://kas:443",
            "--ca-cert-file=/nowhere/ca.crt",
            "--kas-header=X-Token: s3cret\0",
            "--log-level=loud",
        )
        flags = [line.partition(":")[0] for line in lines]
        self.assertEqual(
            flags, ["--log-level", "--kas-address", "--ca-cert-file", "--kas-header"]
        )

    def test_header_without_a_colon(self) -> None:
        """Its value is not repeated either."""
        self.refused(*self.good, "--kas-header=X-Token s3cret")

    def test_everything_at_once(self) -> None:
        """What is wrong with flags, modules, the token and the cluster."""
        del self.environ["AGENTK_TOKEN"]
        modules = self.file(
            "agentk.yaml", "module: {}\nmodules:\n  kubernetes_api: {colour: x}\n"
        )
        lines = self.refused(
            "--kas-address=grpcs://kas.example:8150",
            "--kubeconfig=/nowhere/kubeconfig",
            f"--configuration-file={modules}",
            "--token-file=/nowhere/token",
            f"--ca-cert-file={self.file('ca.crt', 'nonsense')}",
            f"--observability-cert-file={self.file('x.crt', 'nonsense')}",
            f"--observability-key-file={self.file('x.key', 'nonsense')}",
        )
        parts = (
            "--kas-address: ",
            f"--ca-cert-file: {self.folder}/ca.crt: it contains no CA certificate",
            f"--observability-cert-file: {self.folder}/x.crt: it contains no",
            f"{modules}:1:1: unknown key 'module'",
            f"{modules}:3:20: modules.kubernetes_api: unknown key 'colour'",
            "--token-file: cannot read the token in /nowhere/token",
            "/nowhere/kubeconfig cannot be read",
        )
        self.assertEqual(len(lines), len(parts), lines)
        for part in parts:
            self.assertEqual(sum(part in line for line in lines), 1, (part, lines))

    def test_authorities_of_the_cluster(self) -> None:
        """What is in the files that a kubeconfig names is read as well."""
        path = self.file(
            "other", KUBECONFIG.replace("{server", "{certificate-authority: ca, server")
        )
        self.file("ca", "nonsense")
        (line,) = self.refused(*self.good, f"--kubeconfig={path}")
        self.assertIn(f"{self.folder}/ca", line)

    def test_usage(self) -> None:
        """An option that there is not is a mistake of usage, which Twisted explains."""
        self.assertRaises(usage.UsageError, self.parse, "--colour")

    def test_no_token(self) -> None:
        """Where it comes from is said."""
        del self.environ["AGENTK_TOKEN"]
        (line,) = self.refused(*self.good)
        self.assertIn("kasctl agent add", line)

    def test_two_tokens(self) -> None:
        """Nobody has to guess which one counts."""
        path = self.file("token", "s3cret-other")
        (line,) = self.refused(*self.good, f"--token-file={path}")
        self.assertIn("are mutually exclusive", line)

    def test_unusable_token(self) -> None:
        """What is in the file is not shown."""
        del self.environ["AGENTK_TOKEN"]
        path = self.file("token", "s3cret with spaces\n")
        (line,) = self.refused(*self.good, f"--token-file={path}")
        self.assertIn(path, line)

    def test_modules(self) -> None:
        """A section of a module that is not installed, and one with a mistake."""
        token = self.environ["AGENTK_TOKEN"]
        path = self.file("agentk.yaml", "modules:\n  greter: {}\n")
        (line,) = self.refused(*self.good, f"--configuration-file={path}")
        self.assertIn(f"{path}:2:3: modules.greter: module greter is not inst", line)
        path = self.file("agentk.yaml", "modules:\n  kubernetes_api:\n    colour: x\n")
        self.environ["AGENTK_TOKEN"] = token  # it was taken out
        (line,) = self.refused(*self.good, f"--configuration-file={path}")
        self.assertIn(f"{path}:3:5: ", line)

    def test_no_cluster(self) -> None:
        """Outside a pod and without a kubeconfig there is nothing to serve."""
        (line,) = self.refused(self.good[0])
        self.assertIn("kubeconfig", line)


class MakeServiceTests(_Case):
    """From options to a service."""

    def test_service(self) -> None:
        """Nothing runs yet."""
        service = makeService(self.parse(*self.good, "--log-format=json"))
        assert isinstance(service, AgentkService)
        # Without twistd there is no log of ours.
        self.assertIsNone(service.log_observer)
        self.assertFalse(service.running)

    def test_time(self) -> None:
        """Timers do not follow the time of day."""
        clock: Any = reactor
        self.patch(clock, "seconds", clock.seconds)
        makeService(self.parse(*self.good))
        self.assertIs(clock.seconds, time.monotonic)
