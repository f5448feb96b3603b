"""The line from a worker to its supervisor: that it is ready, and that it turns."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from twisted.internet.error import ReactorNotRunning
from twisted.internet.protocol import Protocol
from twisted.python.failure import Failure

from tunnel.program.opened import Opened
from tunnel.util.timers import Timers

__all__ = ["BEAT_INTERVAL", "REPORTS", "Parent", "read_report"]

#: The descriptor that a worker writes to; what it reads ends with the supervisor.
REPORTS = 3

#: Seconds between two signs that the reactor of a worker turns.
BEAT_INTERVAL = 2.0


class Parent(Protocol):
    """
    Tells the supervisor how this worker is, and ends with it.

    :param reactor: stopped when the supervisor is gone: nobody would tell this worker
        to stop, or kill it where it hangs.
    :param lost: called first, also while the worker stops already.
    """

    def __init__(self, reactor: Any, lost: Callable[[], None]) -> None:
        self._reactor = reactor
        self._lost = lost
        self._timers = Timers(reactor)
        self._stopping = False

    def start(self) -> None:
        """From now on it is seen whether the supervisor lives."""
        # Here, because it imports the reactor.
        from twisted.internet.stdio import StandardIO

        # As mypy sees it, StandardIO is that of Windows.
        make: Any = StandardIO
        make(self, stdin=0, stdout=REPORTS, reactor=self._reactor)

    def ready(self, opened: Sequence[Opened]) -> None:
        """Say that this worker takes connections at the addresses *opened*."""
        self._send({"opened": [one.to_json() for one in opened]})
        self._beat()

    def stop(self) -> None:
        """Say nothing more."""
        self._stopping = True
        self._timers.cancel_all()

    def _beat(self) -> None:
        self._send({})
        self._timers.later("beat", BEAT_INTERVAL, self._beat)

    def _send(self, content: dict[str, Any]) -> None:
        if self.transport is not None and self.connected:
            self.transport.write(json.dumps(content).encode() + b"\n")

    def connectionLost(self, reason: Failure | None = None) -> None:
        self.connected = 0
        if not self._stopping:
            self.stop()
            self._lost()
            try:
                self._reactor.stop()
            except ReactorNotRunning:
                pass  # it stops already


def read_report(line: bytes) -> list[Opened] | None:
    """What one line says: the ports of a worker that is ready; None: that it lives."""
    said = json.loads(line)
    if "opened" not in said:
        return None
    return list(map(Opened.from_json, said["opened"]))
