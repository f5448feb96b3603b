"""Processes under test: started, measured through /proc, and always stopped."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
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
    """A running program, whose output goes to a log file."""

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        log: Path,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.log = log
        self._read = 0
        # A file is used instead of a pipe, so that a program that logs need not wait.
        with log.open("wb") as out:
            self._popen = subprocess.Popen(
                list(arguments),
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=out,
                env={**os.environ, **(environ or {})},
                preexec_fn=_die_with_parent,
            )

    @property
    def pid(self) -> int:
        return self._popen.pid

    def wait_for(self, words: str, seconds: float = 180.0) -> str:
        """
        Return the next line that contains *words*.

        The default timeout allows for eight workers with 100,000 identities each, which
        start while as many agents dial.
        """
        end = time.monotonic() + seconds
        while True:
            with self.log.open("rb") as said:
                said.seek(self._read)
                for line in said:
                    if not line.endswith(b"\n"):
                        break
                    self._read += len(line)
                    if words.encode() in line:
                        return line.decode().strip()
            if self._popen.poll() is not None or time.monotonic() > end:
                tail = self.log.read_text()[-2000:]
                raise RuntimeError(f"{self._popen.args!r}: no {words!r} in:\n{tail}")
            time.sleep(0.01)

    def tell(self, text: str) -> None:
        """Write a line to the standard input of the program."""
        assert self._popen.stdin is not None
        self._popen.stdin.write(text.encode() + b"\n")
        self._popen.stdin.flush()

    def cpu(self) -> float:
        """Return the CPU seconds of all threads and workers of the process."""
        total = 0
        for folder in self._folders():
            for task in (folder / "task").iterdir():
                total += int((task / "schedstat").read_text().split()[0])
        return total / _TICK

    def private_memory(self) -> int:
        """Return the private memory of the process and its workers in bytes."""
        return sum(
            int(line.split()[1]) * 1024
            for folder in self._folders()
            for line in (folder / "smaps_rollup").read_text().splitlines()
            if line.startswith(("Private_Clean", "Private_Dirty"))
        )

    def _folders(self) -> list[Path]:
        """Return the folders in ``/proc`` of the process and of its children."""
        own = Path(f"/proc/{self.pid}")
        tasks = (own / "task").iterdir()
        children = [
            pid for task in tasks for pid in (task / "children").read_text().split()
        ]
        return [own, *(Path("/proc", pid) for pid in children)]

    def stop(self) -> None:
        """Kill the process and its workers."""
        if self._popen.poll() is None:
            for folder in self._folders():
                with suppress(ProcessLookupError):  # a worker that ended meanwhile
                    os.kill(int(folder.name), signal.SIGKILL)
        self._popen.wait()
        if self._popen.stdin is not None:
            self._popen.stdin.close()


def python(module: str, *arguments: str, log: Path) -> Process:
    """Start a module of ours as a process."""
    return Process([sys.executable, "-m", module, *arguments], log=log)


def twistd(*arguments: str, log: Path, environ: Any = None) -> Process:
    """Start `twistd -n ...` as an operator would, with its log on standard output."""
    command = [str(Path(sys.executable).parent / "twistd"), "-n", "--pidfile="]
    return Process([*command, *arguments], log=log, environ=environ)
