"""
Light agents and light clients, for experiments in which kas and Redis are the subject.

Each is a process of its own: `tests.faults.light_agents`, `tests.faults.light_load`.
It gets its settings as JSON.  Every line on its standard input is a command, and gets
one line of JSON; when the input ends, so does it.
"""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Self

from tests.integration.processes import ROOT, clean_environment, die_with_parent

#: For the answer to a command: thousands of handshakes take their time.
ANSWER_SECONDS = 120

_LOAD = "tests.faults.light_load"


class Child:
    """One of them, as its parent sees it; a context manager that ends it."""

    def __init__(self, *command: str, **settings: Any) -> None:
        module, *kind = command
        self.child = subprocess.Popen(
            [sys.executable, "-m", module, *kind, json.dumps(settings)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=clean_environment(),
            cwd=ROOT,
            preexec_fn=die_with_parent,
            text=True,
        )
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.child.stdout is not None
        for line in self.child.stdout:
            self._lines.put(line)
        self._lines.put("")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.child.kill()
        self.child.wait()
        assert self.child.stdin is not None
        self.child.stdin.close()

    def ask(self, command: str, *arguments: Any) -> Any:
        """Its answer to a command."""
        assert self.child.stdin is not None
        self.child.stdin.write(json.dumps([command, *arguments]) + "\n")
        self.child.stdin.flush()
        line = self._lines.get(timeout=ANSWER_SECONDS)
        assert line, f"it ended with {self.child.wait()}"
        return json.loads(line)


class Agents(Child):
    """
    Agents with real tunnels, which answer every request at once.

    An agent that loses its connection comes back as agentk does: as the same instance,
    with a newer generation, at any of *ports*.
    """

    def __init__(self, ca: Path, ports: list[int]) -> None:
        super().__init__("tests.faults.light_agents", ca=str(ca), ports=ports)

    def connect(self, tokens: list[str], port: int) -> None:
        """One agent for each token, at one kas."""
        self.ask("connect", tokens, port)

    def move(self, tokens: list[str], port: int) -> None:
        """Cut their connections, which stand, and come back at another kas."""
        self.ask("move", tokens, port)

    @property
    def made(self) -> int:
        """Connections that were made so far, by all of them."""
        return int(self.ask("made"))


class Load(Child):
    """
    *rate* requests a second in all, evenly over *ports* and *paths*.

    Latency counts from when a request was due.
    """

    def __init__(
        self, ports: list[int], paths: list[str], token: str, rate: float
    ) -> None:
        super().__init__(
            _LOAD, "load", ports=ports, paths=paths, token=token, rate=rate
        )

    def window(self, name: str) -> None:
        """Requests that are due from now on are counted under this name."""
        self.ask("window", name)

    def stop(self) -> dict[str, Any]:
        """By window: requests, failed, failures, p50, p99 and longest in seconds."""
        seen: dict[str, Any] = self.ask("stop")
        return seen


class Churn(Child):
    """Requests that are given up after a moment, each on its own connection."""

    def __init__(self, ports: list[int], path: str, token: str, rate: float) -> None:
        super().__init__(_LOAD, "churn", ports=ports, path=path, token=token, rate=rate)

    def run(self, seconds: float, patience: float) -> dict[str, Any]:
        """For so long; how many were sent, and what was answered nevertheless."""
        seen: dict[str, Any] = self.ask("run", seconds, patience)
        return seen
