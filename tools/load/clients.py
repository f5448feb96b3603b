"""What starts the processes of this package, and asks them."""

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

#: For the answer to a command: thousands of handshakes take their time.
ANSWER_SECONDS = 400

#: Niceness of those who come first, and of those who come last.
FIRST, LAST = -10, 19

#: Seconds in which the first answer to a load is there.
BEGIN_SECONDS = 60


class Child:
    """One of them, as its parent sees it; a context manager that ends it."""

    def __init__(self, module: str, **settings: Any) -> None:
        self._child = subprocess.Popen(
            [sys.executable, "-m", f"tools.load.{module}", json.dumps(settings)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=_ROOT,
            text=True,
            # Ctrl-C is for its parent, which ends it.
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
        """Run when nobody else wants to: it stands for other machines."""
        self._set_niceness(LAST)

    def come_first(self) -> None:
        """Run before others: machines it stands for have time.  Only root may."""
        with contextlib.suppress(PermissionError):
            self._set_niceness(FIRST)

    def _set_niceness(self, niceness: int) -> None:
        os.setpriority(os.PRIO_PROCESS, self._child.pid, niceness)
        # Linux shares the cores among sessions first, where it is set up to.
        group = Path(f"/proc/{self._child.pid}/autogroup")
        if group.exists():
            group.write_text(str(niceness))

    def end(self) -> None:
        """End it now."""
        self._child.kill()
        self._child.wait()
        assert self._child.stdin is not None
        self._child.stdin.close()

    def ask(
        self, command: str, *arguments: Any, seconds: float = ANSWER_SECONDS
    ) -> Any:
        """Its answer to a command."""
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
    Agents with real tunnels, which answer every request at once.

    An agent that loses its connection comes back as agentk does: as the same instance,
    with a newer generation, at any of *ports*.

    :param at_once: how many light ones greet at the same time; 0: all.
    :param kind: ``light``; ``following`` ones are agentk's own dialers, which do what
        kas tells them, and come back at the port of the beginning; ``bare`` ones are
        TLS connections and nothing else.
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
        """One agent for each token, at one kas; all are welcome there."""
        self.ask("connect", tokens, port)

    def move(self, tokens: Sequence[str], port: int) -> None:
        """Cut their connections, which stand, and come back at another kas."""
        self.ask("move", tokens, port)

    def come_back_at(self, *ports: int) -> None:
        """From now on, in place of the ports of the beginning."""
        self.ask("come back at", ports)

    @property
    def made(self) -> int:
        """Connections that were made so far, by all of them."""
        return int(self.ask("made"))

    def wait_until_made(self, count: int) -> None:
        """Until there were so many, and each agent has one."""
        self.ask("wait until made", count)


class Load(Child):
    """
    *rate* requests a second in all, evenly over *ports* and *targets*.

    :param kind: ``get``; ``post`` makes objects, ``watch`` watches a list.
    :param ca: its certificates are asked for; plain HTTP without.
    :param begin: to enter waits for the first answer.
    :ivar seen: what it saw; there once it ended.
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
        # What is late must not be late in the one that measures.
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
        """Requests that are due from now on are counted under this name, too."""
        self.ask("window", name)

    def stop(self) -> dict[str, Any]:
        """Send no more, and wait for what is under way; what it saw."""
        if not self.seen:
            self.seen = self.ask("stop")
        return self.seen

    def windows(self) -> dict[str, dict[str, Any]]:
        """`stop`, by the names of `window`."""
        found: dict[str, dict[str, Any]] = self.stop()["windows"]
        return found

    def __getitem__(self, name: str) -> Any:
        return self.seen[name]


class Churn(Child):
    """Requests that are given up after a moment, each on its own connection."""

    def __init__(
        self, ports: Sequence[int], target: str, token: str, rate: float
    ) -> None:
        super().__init__(
            "churn", ports=list(ports), target=target, token=token, rate=rate
        )

    def run(self, seconds: float, patience: float) -> dict[str, Any]:
        """For so long; how many were sent, and what was answered nevertheless."""
        seen: dict[str, Any] = self.ask("run", seconds, patience)
        return seen
