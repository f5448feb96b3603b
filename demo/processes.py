"""Programs that the demo starts, and that end when it ends for any reason."""

from __future__ import annotations

import ctypes
import logging  # noqa: F401 - a thread must not import it while a program is forked
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from demo.stopping import Stopping

__all__ = ["DemoError", "Program", "end_all", "run"]

#: Seconds between two checks of a condition.
POLL = 0.02

#: Maximum number of seconds for programs to end by themselves.
GRACE = 8.0

_PR_SET_PDEATHSIG = 1
_TAIL_BYTES = 16 * 1024
_TAIL_LINES = 12

_libc: Any = ctypes.CDLL(None)


class DemoError(Exception):
    """
    Raised if the demo cannot continue.

    :param log: the log of the program that failed.
    """

    def __init__(self, message: str, log: Path | None = None) -> None:
        super().__init__(message)
        self.log = log
        # Read now, before the program logs that it is stopping.
        self._tail = [] if log is None else _tail(log)

    def lines(self) -> list[str]:
        """Return the lines to show to the user: the reason, and the end of the log."""
        if self.log is None:
            return [str(self)]
        return [str(self), f"the end of {self.log}:", *self._tail]


def _tail(log: Path) -> list[str]:
    try:
        with log.open("rb") as source:
            source.seek(max(0, log.stat().st_size - _TAIL_BYTES))
            text = source.read().decode(errors="replace")
    except OSError as error:
        return [f"  ({error.strerror})"]
    return [f"  {line}" for line in text.splitlines()[-_TAIL_LINES:]]


def _end_with(parent: int) -> None:
    """
    Make the kernel send SIGTERM to this child process when the demo dies, even if the
    demo is killed.
    """
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


class Program:
    """
    A program that runs in addition to the demo.

    It has its own session, so that Ctrl-C reaches only the demo, which ends its
    programs.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str | Path],
        log: Path,
        environment: Mapping[str, str],
        folder: Path,
    ) -> None:
        self.name = name
        self.log = log
        #: Time of the start, by the clock of the file system.
        self.began = time.time()
        parent = os.getpid()
        with log.open("wb") as out:
            self._process = subprocess.Popen(
                [str(part) for part in command],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                cwd=folder,
                env=dict(environment),
                start_new_session=True,
                preexec_fn=lambda: _end_with(parent),
            )

    @property
    def pid(self) -> int:
        """Return the process id."""
        return self._process.pid

    def check(self) -> None:
        """
        Check that the program is running.

        :raises DemoError: if the program has ended.
        """
        code = self._process.poll()
        if code is not None:
            raise DemoError(f"{self.name} ended with status {code}", self.log)

    def wait_until(self, ready: Callable[[], bool], what: str, seconds: float) -> None:
        """
        Wait for a condition.

        :raises DemoError: if the program has ended, or the condition takes too long.
        """
        deadline = time.monotonic() + seconds
        while not ready():
            Stopping.check()
            self.check()
            if time.monotonic() > deadline:
                raise DemoError(f"{what} did not come within {seconds:g} s", self.log)
            time.sleep(POLL)

    def terminate(self) -> None:
        """Send SIGTERM."""
        if self._process.poll() is None:
            self._process.terminate()

    def join(self, deadline: float) -> None:
        """Wait for the end of the program, and kill it at the deadline."""
        try:
            self._process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def end_all(programs: Sequence[Program]) -> None:
    """End all programs at the same time."""
    for program in programs:
        program.terminate()
    deadline = time.monotonic() + GRACE
    for program in programs:
        program.join(deadline)


def run(
    name: str,
    command: Sequence[str | Path],
    environment: Mapping[str, str],
    folder: Path,
) -> str:
    """
    Run a program to its end, and return its output.

    :raises DemoError: the program failed.
    """
    parent = os.getpid()
    done = subprocess.run(
        [str(part) for part in command],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        cwd=folder,
        env=dict(environment),
        start_new_session=True,
        preexec_fn=lambda: _end_with(parent),
    )
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip()).replace("\n", "\n  ")
        raise DemoError(f"{name} failed with status {done.returncode}:\n  {said}")
    return done.stdout
