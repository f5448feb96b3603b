"""Starts the processes of this package, and sends them commands."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

_ROOT = Path(__file__).resolve().parents[2]

#: Maximum number of seconds for the response to a command: thousands of handshakes take
#: long.
ANSWER_SECONDS = 400

#: Niceness of processes that have priority, and of processes that yield to others.
FIRST, LAST = -10, 19

#: Maximum number of seconds until the first response to a load.
BEGIN_SECONDS = 60


class Child:
    """A process of this package; a context manager that ends it."""

    def __init__(self, module: str, **settings: Any) -> None:
        self._child = subprocess.Popen(
            [sys.executable, "-m", f"tools.load.{module}", json.dumps(settings)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=_ROOT,
            text=True,
            # Ctrl-C should only reach the parent, which ends this process.
            start_new_session=True,
        )
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._child.stdout is not None
        for line in self._child.stdout:
            self._lines.put(line)
        self._lines.put("")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end()

    def yield_to_others(self) -> None:
        """
        Give this process the lowest priority, because it simulates other machines.
        """
        self._set_niceness(LAST)

    def come_first(self) -> None:
        """
        Give this process priority over others, because the simulated machines are not
        busy.

        Only root may do this.
        """
        with contextlib.suppress(PermissionError):
            self._set_niceness(FIRST)

    def _set_niceness(self, niceness: int) -> None:
        os.setpriority(os.PRIO_PROCESS, self._child.pid, niceness)
        # If configured, Linux first divides the cores among sessions.
        group = Path(f"/proc/{self._child.pid}/autogroup")
        if group.exists():
            group.write_text(str(niceness))

    def end(self) -> None:
        """Kill the process."""
        self._child.kill()
        self._child.wait()
        assert self._child.stdin is not None
        self._child.stdin.close()

    def ask(
        self, command: str, *arguments: Any, seconds: float = ANSWER_SECONDS
    ) -> Any:
        """Send a command and return the response."""
        assert self._child.stdin is not None
        self._child.stdin.write(json.dumps([command, *arguments]) + "\n")
        self._child.stdin.flush()
        try:
            line = self._lines.get(timeout=seconds)
        except queue.Empty:
            raise AssertionError(f"no answer to {command} after {seconds} s") from None
        assert line, f"it ended with {self._child.wait()}"
        return json.loads(line)


class Agents(Child):
    """
    Process with agents that have real tunnels, and that respond to every request at
    once.

    An agent that loses its connection returns as agentk does: as the same instance,
    with a newer generation, at any of *ports*.

    :param at_once: the number of light agents that greet at the same time; 0: all.
    :param kind: ``light`` agents need little memory; ``following`` agents are agentk's
        own dialers, which follow the instructions of kas, and always return at their
        first port; ``bare`` agents are only TLS connections.
    :param hosts: addresses of kas; each has ports for 28,000 connections.
    """

    def __init__(
        self,
        ca: str | Path,
        ports: Sequence[int],
        *,
        at_once: int = 64,
        kind: str = "light",
        hosts: Sequence[str] = ("127.0.0.1",),
    ) -> None:
        super().__init__(
            "agents",
            ca=str(ca),
            ports=list(ports),
            at_once=at_once,
            kind=kind,
            hosts=list(hosts),
        )

    def connect(self, tokens: Sequence[str], port: int) -> None:
        """
        Connect an agent for each token to one kas, and wait until all agents are
        connected.
        """
        self.ask("connect", tokens, port)

    def move(self, tokens: Sequence[str], port: int) -> None:
        """Cut the connections of these agents, and connect them to another kas."""
        self.ask("move", tokens, port)

    def come_back_at(self, *ports: int) -> None:
        """Use these ports from now on for agents that return."""
        self.ask("come back at", ports)

    @property
    def made(self) -> int:
        """Return the number of connections that all agents have made so far."""
        return int(self.ask("made"))

    def wait_until_made(self, count: int) -> None:
        """Wait until *count* connections were made, and each agent has one."""
        self.ask("wait until made", count)


class Load(Child):
    """
    Process that sends *rate* requests per second in total, evenly over *ports* and
    *targets*.

    :param kind: ``get``; ``post`` creates objects, ``watch`` watches a list.
    :param ca: CA certificates that verify the server; None for plain HTTP.
    :param begin: whether entering the context waits for the first response.
    :ivar seen: the results, after the end of the context.
    """

    def __init__(
        self,
        kind: str,
        ports: Sequence[int],
        targets: Sequence[str],
        token: str,
        *,
        ca: str | Path = "",
        begin: bool = True,
        **settings: Any,
    ) -> None:
        self.seen: dict[str, Any] = {}
        self._begin = begin
        super().__init__(
            "requests",
            kind=kind,
            ports=list(ports),
            targets=list(targets),
            token=token,
            ca=str(ca),
            **settings,
        )
        # The measuring process must not cause delays itself.
        self.come_first()

    def __enter__(self) -> Self:
        if self._begin:
            self.ask("begun", seconds=BEGIN_SECONDS)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                self.stop()
        finally:
            self.end()

    def window(self, name: str) -> None:
        """From now on, count due requests under this name, too."""
        self.ask("window", name)

    def stop(self) -> dict[str, Any]:
        """Stop sending, wait for the requests in progress, and return the results."""
        if not self.seen:
            self.seen = self.ask("stop")
        return self.seen

    def windows(self) -> dict[str, dict[str, Any]]:
        """Call `stop`, and return the results by the names of `window`."""
        found: dict[str, dict[str, Any]] = self.stop()["windows"]
        return found

    def __getitem__(self, name: str) -> Any:
        return self.seen[name]


class Churn(Child):
    """Requests that are cancelled after a moment, each on its own connection."""

    def __init__(
        self, ports: Sequence[int], target: str, token: str, rate: float
    ) -> None:
        super().__init__(
            "churn", ports=list(ports), target=target, token=token, rate=rate
        )

    def run(self, seconds: float, patience: float) -> dict[str, Any]:
        """
        Send requests for *seconds*; return their number, and the number of responses
        that arrived before the cancellation.
        """
        seen: dict[str, Any] = self.ask("run", seconds, patience)
        return seen
