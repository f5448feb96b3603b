"""Programs that tests start: what they say, how they end, and that they do end."""

from __future__ import annotations

import ctypes
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from click.testing import CliRunner

from kas.ctl.cli import cli

T = TypeVar("T")

#: The folder above tests/.
ROOT = Path(__file__).resolve().parents[2]

#: Between two looks at a condition; what is waited for takes longer.
PAUSE = 0.02

#: Seconds that are waited where no test is about the time: three programs have begun
#: after 30 on a machine on which fifteen others wanted to run.
PATIENCE = 90.0

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)

#: Those that run, for the report of a failed test.
running: list[Process] = []


def eventually(
    look: Callable[[], T | None],
    seconds: float = PATIENCE,
    what: str = "",
    pause: float = PAUSE,
) -> T:
    """
    Wait until *look* gives something true, and return that.

    :param what: is waited for, for the message.
    :param pause: between two looks.
    """
    end = time.monotonic() + seconds
    while not (found := look()):
        if time.monotonic() > end:
            raise AssertionError(
                f"after {seconds} s: {what or look.__name__}: {found!r}"
            )
        time.sleep(pause)
    return found


def die_with_parent() -> None:
    """In a child: be told to stop when the tests are killed."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def clean_environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Ours, without what would lead a program somewhere else."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.lower().endswith("_proxy")
        and not name.startswith(("KUBE", "AGENTK_", "STATE_", "NOTIFY_", "LISTEN_"))
    }
    return {**kept, "PYTHONUNBUFFERED": "1", **(more or {})}


class Process:
    """
    One program; everything that it prints is kept in *log*.

    :param pass_fds: stay open in the child.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str | Path],
        log: Path,
        *,
        environment: Mapping[str, str] | None = None,
        pass_fds: Sequence[int] = (),
        prepare: Callable[[], None] | None = None,
    ) -> None:
        self.name = name
        self.log = log

        def before() -> None:
            die_with_parent()
            if prepare is not None:
                prepare()

        with log.open("ab") as out:
            # What an earlier process of this name said is not what this one says.
            self._begin = out.tell()
            self.child = subprocess.Popen(
                [str(part) for part in command],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env=clean_environment(environment),
                cwd=log.parent,
                pass_fds=pass_fds,
                preexec_fn=before,
                start_new_session=True,
            )
        self.pid = self.child.pid
        running.append(self)

    def said(self) -> str:
        """All that it printed."""
        return self.log.read_bytes()[self._begin :].decode(errors="replace")

    def wait_for(self, pattern: str, seconds: float = PATIENCE) -> re.Match[str]:
        """Until it prints a match of *pattern*."""

        def look() -> re.Match[str] | None:
            found = re.search(pattern, self.said())
            if found is None and self.child.poll() is not None:
                raise AssertionError(
                    f"{self.name} ended with {self.child.returncode} "
                    f"before it said {pattern!r}:\n{self.said()[-4000:]}"
                )
            return found

        return eventually(look, seconds, f"{self.name} says {pattern!r}")

    def stop(self, how: signal.Signals = signal.SIGTERM, seconds: float = 30) -> int:
        """End it, and return its status."""
        if self.child.poll() is None:
            self.child.send_signal(how)
        return self.ended(seconds)

    def stops_cleanly(
        self, how: signal.Signals = signal.SIGTERM, seconds: float = 30
    ) -> bool:
        """
        Tell it to end, and whether it did so in good order.

        twistd passes on what ended it: a shell sees 128 + *how*, systemd a clean exit.
        """
        code = self.stop(how, seconds)
        return code == -how and "Server Shut Down" in self.said()

    def ended(self, seconds: float = 30) -> int:
        """Its status, once it has ended by itself."""
        try:
            return self.child.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(
                f"{self.name} runs {seconds} s later:\n{self.said()[-4000:]}"
            ) from None

    def kill(self) -> None:
        """End it now; for a clean-up that has to work."""
        if self in running:
            running.remove(self)
        if self.child.poll() is None:
            self.child.kill()
        self.child.wait()

    def descriptors(self) -> list[str]:
        """What it has open."""
        return descriptors(self.pid)

    def resident(self) -> int:
        """Bytes of memory."""
        return memory(self.pid)


def descriptors(pid: int) -> list[str]:
    """What a process has open."""
    found = []
    for link in Path(f"/proc/{pid}/fd").iterdir():
        try:
            found.append(os.readlink(link))
        except FileNotFoundError:
            continue
    return found


def memory(pid: int) -> int:
    """Bytes that a process holds in memory."""
    status = Path(f"/proc/{pid}/status").read_text()
    match = re.search(r"^VmRSS:\s+(\d+) kB", status, re.MULTILINE)
    assert match is not None
    return int(match[1]) * 1024


def twistd(*arguments: str | Path) -> list[str | Path]:
    """A command that runs one of our services in the foreground."""
    return [script("twistd"), "-n", "--pidfile=", *arguments]


def script(name: str) -> Path:
    """A program that is installed beside this Python."""
    return Path(sys.executable).with_name(name)


def kasctl(
    *arguments: str | Path, state: Path, check: bool = True
) -> subprocess.CompletedProcess[str]:
    """Run kasctl on a state directory."""
    command = [script("kasctl"), *arguments]
    done = subprocess.run(
        [*command, "--state-directory", state],
        capture_output=True,
        text=True,
        timeout=60,
        env=clean_environment(),
    )
    assert not check or done.returncode == 0, done.stderr + done.stdout
    return done


def kasctl_here(*arguments: str | Path, state: Path) -> str:
    """
    What kasctl prints, run in this process: for what a test only stands on.

    A process of its own takes a second of CPU, nearly all of it for imports.
    """
    kept = clean_environment()
    done = CliRunner().invoke(
        cli,
        [*map(str, arguments), "--state-directory", str(state)],
        env={name: kept.get(name) for name in os.environ},
    )
    assert done.exit_code == 0, done.output
    return done.stdout
