"""
Connection of a worker to its supervisor, through which the worker reports that it is
ready and alive.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import attrs
from twisted.internet.error import ReactorNotRunning
from twisted.internet.protocol import Protocol
from twisted.python.failure import Failure

from tunnel.program.opened import Opened
from tunnel.toolkit.timers import Timers

__all__ = ["BEAT_INTERVAL", "REPORTS", "Parent", "WorkerReport"]

#: Descriptor for a worker's reports; reading from this descriptor ends when the
#: supervisor dies.
REPORTS = 3

#: Seconds between two reports that show that the reactor of a worker is running.
BEAT_INTERVAL = 2.0


@attrs.frozen
class WorkerReport:
    """
    Report of a worker, which it sends when it is ready and at each beat.

    :ivar draining: whether the worker accepts no agents.
    :ivar opened: the ports of the worker when it becomes ready; None if they were
        already reported.
    """

    draining: bool
    opened: list[Opened] | None = None

    def to_line(self) -> bytes:
        """Return the report as a line of text."""
        said: dict[str, Any] = {"draining": self.draining}
        if self.opened is not None:
            said["opened"] = [one.to_json() for one in self.opened]
        return json.dumps(said).encode() + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> WorkerReport:
        """
        Parse a line of a worker.

        :raises ValueError, KeyError, TypeError: if the line is not a report.
        """
        said = json.loads(line)
        opened = said.get("opened")
        return cls(
            bool(said["draining"]),
            None if opened is None else list(map(Opened.from_json, opened)),
        )


class Parent(Protocol):
    """
    Connection to the supervisor, for reports of this worker's state.

    :param reactor: reactor that is stopped when the supervisor is dead, because no
        other process would stop this worker, or kill it if it did not respond.
    :param draining: returns whether this worker accepts no agents now.
    :param lost: called when the supervisor is dead, before the reactor is stopped, even
        if the worker is already stopping.
    """

    def __init__(
        self, reactor: Any, draining: Callable[[], bool], lost: Callable[[], None]
    ) -> None:
        self._reactor = reactor
        self._draining = draining
        self._lost = lost
        self._timers = Timers(reactor)
        self._stopping = False

    def start(self) -> None:
        """Detect from now on when the supervisor dies."""
        # Import it here, because importing it installs the reactor.
        from twisted.internet.stdio import StandardIO

        # Hide the class from mypy, because mypy uses the StandardIO class for Windows.
        make: Any = StandardIO
        make(self, stdin=0, stdout=REPORTS, reactor=self._reactor)

    def ready(self, opened: Sequence[Opened]) -> None:
        """Report that this worker accepts connections at the addresses *opened*."""
        self._send(list(opened))
        self._beat()

    def stop(self) -> None:
        """Stop reporting."""
        self._stopping = True
        self._timers.cancel_all()

    def _beat(self) -> None:
        self._send()
        self._timers.later("beat", BEAT_INTERVAL, self._beat)

    def _send(self, opened: list[Opened] | None = None) -> None:
        if self.transport is not None and self.connected:
            self.transport.write(WorkerReport(self._draining(), opened).to_line())

    def connectionLost(self, reason: Failure | None = None) -> None:
        self.connected = 0
        if not self._stopping:
            self.stop()
            self._lost()
            try:
                self._reactor.stop()
            except ReactorNotRunning:
                pass  # The reactor is already stopping.
