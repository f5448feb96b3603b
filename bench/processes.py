"""Processes under test: started, measured through /proc, and stopped for certain."""

from __future__ import annotations

import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
_TICK = 1e9


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class Process:
    """One program; `line` waits for what it prints first."""

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        log: Path,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.log = log
        self._popen = subprocess.Popen(
            list(arguments),
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log.open("wb"),
            env={**os.environ, **(environ or {})},
            preexec_fn=_die_with_parent,
        )

    @property
    def pid(self) -> int:
        return self._popen.pid

    def line(self, seconds: float = 30.0) -> str:
        """The next line that it prints."""
        assert self._popen.stdout is not None
        ready, _, _ = select.select([self._popen.stdout], [], [], seconds)
        text = self._popen.stdout.readline().decode().strip() if ready else ""
        if not text:
            raise RuntimeError(
                f"{self._popen.args!r} said nothing:\n{self.log.read_text()[-2000:]}"
            )
        return text

    def wait_for(self, words: str, seconds: float = 60.0) -> str:
        """The first line that has *words* in it."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            text = self.line(end - time.monotonic())
            if words in text:
                return text
        raise RuntimeError(f"no {words!r} within {seconds} s")

    def tell(self, text: str) -> None:
        """A line for its standard input."""
        assert self._popen.stdin is not None
        self._popen.stdin.write(text.encode() + b"\n")
        self._popen.stdin.flush()

    def cpu(self) -> float:
        """CPU seconds used so far, by all of its threads."""
        total = 0
        for task in Path(f"/proc/{self.pid}/task").iterdir():
            total += int((task / "schedstat").read_text().split()[0])
        return total / _TICK

    def private_memory(self) -> int:
        """Bytes that only this process holds."""
        text = Path(f"/proc/{self.pid}/smaps_rollup").read_text()
        return sum(
            int(line.split()[1]) * 1024
            for line in text.splitlines()
            if line.startswith(("Private_Clean", "Private_Dirty"))
        )

    def stop(self) -> None:
        """End it now."""
        if self._popen.poll() is None:
            self._popen.kill()
        self._popen.wait()
        for pipe in (self._popen.stdin, self._popen.stdout):
            if pipe is not None:
                pipe.close()


def python(module: str, *arguments: str, log: Path) -> Process:
    """A module of ours as a process."""
    return Process([sys.executable, "-m", module, *arguments], log=log)


def twistd(*arguments: str, log: Path, environ: Any = None) -> Process:
    """`twistd -n ...` as an operator starts it, its log on standard output."""
    command = [sys.executable, "-m", "twisted", "--log-format=text", *arguments]
    command = [str(Path(sys.executable).parent / "twistd"), "-n", "--pidfile="]
    return Process([*command, *arguments], log=log, environ=environ)
