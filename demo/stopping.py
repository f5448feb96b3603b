"""
Stops by Ctrl-C or a signal.

An exception that a signal handler raises can get lost: Python drops exceptions inside a
finalizer, or around a fork.  So the signal is recorded as well, and the demo checks the
record before it waits or starts a program.
"""

from __future__ import annotations

import signal

__all__ = ["SIGNALS", "Stopped", "Stopping"]

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stopped(BaseException):
    """Raised if a signal stops the demo; *number* is the signal."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class Stopping:
    """
    Record of a received signal; the process has one record, because signals belong to
    the process.
    """

    _number = 0

    @classmethod
    def begin(cls) -> None:
        """Raise `Stopped` for signals from now on."""
        for number in SIGNALS:
            signal.signal(number, cls._signalled)

    @classmethod
    def end(cls) -> None:
        """Ignore signals from now on, because the demo is ending anyway."""
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)

    @classmethod
    def _signalled(cls, number: int, frame: object) -> None:
        cls._number = number
        raise Stopped(number)

    @classmethod
    def check(cls) -> None:
        """
        Check whether a signal was received.

        :raises Stopped: if a signal was received.
        """
        if cls._number:
            raise Stopped(cls._number)
