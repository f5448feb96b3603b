"""
Being told to stop, by Ctrl-C or a signal.

An exception out of a signal handler can get lost: Python drops what is raised inside a
finalizer, or around a fork.  So the order is remembered as well, and whoever waits or
begins something looks.
"""

from __future__ import annotations

import signal

__all__ = ["SIGNALS", "Stopped", "Stopping"]

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stopped(BaseException):
    """The demo was told to stop; *number* is the signal."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class Stopping:
    """Whether the demo was told to stop; one for the process, as signals are."""

    _number = 0

    @classmethod
    def begin(cls) -> None:
        """From now on a signal raises `Stopped`."""
        for number in SIGNALS:
            signal.signal(number, cls._told)

    @classmethod
    def end(cls) -> None:
        """From now on signals change nothing: what follows is the end anyway."""
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)

    @classmethod
    def _told(cls, number: int, frame: object) -> None:
        cls._number = number
        raise Stopped(number)

    @classmethod
    def check(cls) -> None:
        """:raises Stopped: it was told to, and went on."""
        if cls._number:
            raise Stopped(cls._number)
