"""Settings of the process."""

from __future__ import annotations

import ast
import os
import subprocess
import sys

from twisted.internet.selectreactor import SelectReactor
from twisted.trial.unittest import SynchronousTestCase

from tunnel.program.tuning import keep_time


class TimeTests(SynchronousTestCase):
    """A reactor whose timers do not follow the time of day."""

    def setUp(self) -> None:
        self.day = 1_000_000.0
        self.steady = 50.0
        self.reactor = SelectReactor()
        for reader in self.reactor.removeAll():
            reader.connectionLost(None)
        self.fired: list[str] = []

    def later(self, name: str, seconds: float) -> None:
        self.reactor.callLater(seconds, self.fired.append, name)

    def pass_time(self, seconds: float) -> None:
        self.day += seconds
        self.steady += seconds
        self.reactor.runUntilCurrent()

    def keep_time(self) -> None:
        self.reactor.seconds = lambda: self.day
        keep_time(self.reactor, lambda: self.steady)

    def test_set(self) -> None:
        """By an hour, forward and back: nothing is early, and nothing late."""
        for jump in (3600.0, -3600.0):
            self.keep_time()
            self.later("one", 1.0)
            self.later("two", 2.0)
            self.day += jump
            self.pass_time(0.5)
            self.assertEqual(self.fired, [])
            self.pass_time(0.6)
            self.assertEqual(self.fired, ["one"])
            self.pass_time(1.0)
            self.assertEqual(self.fired, ["one", "two"])
            self.fired.clear()

    def test_what_was_planned_before(self) -> None:
        """Stays where it was, also when both programs run in one process."""
        self.reactor.seconds = lambda: self.day
        self.later("early", 5.0)
        later = self.reactor.callLater(1.0, self.fired.append, "put off")
        self.keep_time()
        keep_time(self.reactor, lambda: self.steady)
        later.reset(6.0)
        self.pass_time(4.9)
        self.assertEqual(self.fired, [])
        self.pass_time(0.2)
        self.assertEqual(self.fired, ["early"])
        self.pass_time(1.0)
        self.assertEqual(self.fired, ["early", "put off"])


class HiddenTests(SynchronousTestCase):
    """`hide_memory`."""

    def test_others_of_the_user(self) -> None:
        """They cannot open what this process has; it still can itself."""
        script = """
import os, subprocess, sys
from tunnel.program.tuning import hide_memory
if os.geteuid() == 0:
    os.setgroups([]), os.setgid(65534), os.setuid(65534)
look = ["/bin/ls", f"/proc/{os.getpid()}/fd/"]
hidden = hide_memory()
print(hidden, subprocess.run(look, capture_output=True).returncode != 0,
      len(os.listdir("/proc/self/fd")) > 2, open("/proc/self/stat").read() != "")
"""
        done = subprocess.run(
            [sys.executable, "-c", script],
            capture_output=True,
            check=True,
            text=True,
            env={**os.environ, "PYTHONPATH": os.getcwd()},
        )
        self.assertEqual(done.stdout.split(), ["True"] * 4)


#: Lowers both limits of its process, for good, and then has them raised.
_ALLOW = """\
import resource, sys
from tunnel.program.tuning import allow_many_files
resource.setrlimit(resource.RLIMIT_NOFILE, tuple(map(int, sys.argv[1:])))
said = allow_many_files(enough=100)
print((resource.getrlimit(resource.RLIMIT_NOFILE), said))
"""


class FilesTests(SynchronousTestCase):
    """The limit of open files."""

    def allow(self, soft: int, hard: int) -> tuple[tuple[int, int], str | None]:
        """The limits of a child that began with these, and what it is warned of."""
        done = subprocess.run(
            [sys.executable, "-c", _ALLOW, str(soft), str(hard)],
            capture_output=True,
            text=True,
            check=True,
        )
        found, said = ast.literal_eval(done.stdout)
        return found, said

    def test_raised(self) -> None:
        """The soft limit becomes the hard one."""
        self.assertEqual(self.allow(64, 128), ((128, 128), None))

    def test_not_enough(self) -> None:
        """A hard limit that is too low is named, with the way to raise it."""
        found, said = self.allow(32, 64)
        self.assertEqual(found, (64, 64))
        self.assertIn("may open only 64 files", said or "")
        self.assertIn("LimitNOFILE", said or "")
