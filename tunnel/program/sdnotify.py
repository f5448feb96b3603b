"""
Reports of the state of the service to systemd (`sd_notify(3)`, only the datagram).
"""

from __future__ import annotations

import os
import socket

from twisted.internet.interfaces import IReactorTime

from tunnel.program.parts import Part, Phase
from tunnel.toolkit.timers import Timers


def notify(state: str) -> bool:
    """
    Send *state*, such as ``READY=1``, to systemd; return False if systemd did not start
    this process.

    An unreachable socket is not an error, because the service itself works.
    """
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return False
    if address.startswith("@"):
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.connect(address)
            sock.sendall(state.encode())
    except OSError:
        return False
    return True


def watchdog_interval() -> float | None:
    """
    Return the seconds between two ``WATCHDOG=1``, half of systemd's limit; None if
    systemd's watchdog is off.
    """
    usec = os.environ.get("WATCHDOG_USEC", "")
    pid = os.environ.get("WATCHDOG_PID", "")
    if not usec.isdigit() or (pid and pid != str(os.getpid())):
        return None
    return int(usec) / 2_000_000


class Watchdog(Part):
    """
    Part that reports to systemd, at the required interval, that the reactor is running.
    """

    name = "the watchdog"

    def __init__(self, clock: IReactorTime) -> None:
        self._timers = Timers(clock)
        self._stopped = False

    def start(self) -> None:
        """Start, unless the service was stopped while it started."""
        interval = watchdog_interval()
        if interval is not None and not self._stopped:
            notify("WATCHDOG=1")
            self._timers.later("watchdog", interval, self.start)

    def drain(self, phase: Phase) -> None:
        """
        Announce the end of the service to systemd, which has separate timeouts for the
        end.
        """
        if phase is Phase.READINESS:
            notify("STOPPING=1")
            self.stop()

    def stop(self) -> None:
        """Stop the watchdog."""
        self._stopped = True
        self._timers.cancel_all()
