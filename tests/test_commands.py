"""`kas` and `agentk` as commands of their own, and without what kas needs."""

from __future__ import annotations

import subprocess
import sys

from twisted.trial.unittest import SynchronousTestCase

_WITHOUT = """
import sys
sys.modules["cryptography"] = None
sys.argv = {arguments!r}
from {module} import {name}
{name}()
"""


def _run(code: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def _command(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    code = f"import sys; sys.argv = {[name, *arguments]!r}\n"
    return _run(f"{code}from tunnel.program.command import {name}; {name}()")


class CommandTests(SynchronousTestCase):
    """What they take, and what they say."""

    def test_help(self) -> None:
        """Its own options, and none of twistd's."""
        for name in ("kas", "agentk"):
            done = _command(name, "--help")
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertTrue(done.stdout.startswith(f"Usage: {name} "), done.stdout)
            self.assertIn("--log-format", done.stdout)
            self.assertNotIn("--nodaemon", done.stdout)

    def test_mistake(self) -> None:
        """One line, and status 2."""
        done = _command("agentk", "--nonsense")
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertEqual(
            done.stderr,
            "agentk: option --nonsense not recognized; see 'agentk --help'\n",
        )

    def test_misspelt(self) -> None:
        """What was meant."""
        for name, said, meant in (
            ("agentk", "--tokn-file=x", "--token-file"),
            ("agentk", "--kas_adress", "--kas-address"),
            ("kas", "--chek", "--check"),
        ):
            done = _command(name, said)
            self.assertEqual(done.returncode, 2)
            self.assertIn(f"not recognized; did you mean {meant}?", done.stderr)

    def test_reader_that_leaves(self) -> None:
        """As with ``kas --help | head -1``: silence."""
        child = subprocess.Popen(
            [
                sys.executable,
                "-c",
                "from tunnel.program.command import kas; kas()",
                "--help",
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert child.stdout is not None and child.stderr is not None
        child.stdout.close()
        self.assertEqual(child.stderr.read(), b"")
        child.stderr.close()
        child.wait(60)


class MissingTests(SynchronousTestCase):
    """Installed without ``[server]``."""

    def test_one_line(self) -> None:
        """The same one for each command."""
        for name, module, arguments in (
            ("run", "twisted.scripts.twistd", ["twistd", "-n", "kas"]),
            ("kas", "tunnel.program.command", ["kas"]),
        ):
            code = _WITHOUT.format(arguments=arguments, module=module, name=name)
            done = _run(code)
            self.assertEqual(done.returncode, 1)
            self.assertEqual(
                done.stderr,
                (
                    "kas: cryptography is not installed; install everything with: pip "
                    "install 'txkas[server]'\n"
                ),
            )
