"""Log lines for the errors that clients see, with the ids of their traces."""

from __future__ import annotations

from typing import Any

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger, LogLevel

from tunnel.toolkit.texts import clean

__all__ = ["FailureLog"]

#: Maximum number of lines per second for errors of the service, and the same for errors
#: of clients: a flood of bad requests must not hide failures, and an unreachable
#: cluster must not fill the disk.
MAX_LINES = 20

#: Maximum number of characters of a logged message; it may contain text from an agent.
MAX_MESSAGE = 1000


class FailureLog:
    """
    Log of errors with the ids of their traces, which it also adds to clients' messages.
    """

    _log = Logger()

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._ours = _Lines()
        self._callers = _Lines()

    def report(self, message: str, trace_id: str, *, ours: bool, **more: Any) -> str:
        """
        Log *message*, and return it with the id of the trace, for the client.

        :param ours: whether the service failed, and not the client; logged as a
            warning.
        :param more: further fields of the line.
        """
        lines = self._ours if ours else self._callers
        dropped = lines.room(self._clock.seconds())
        if dropped is not None:
            if dropped:
                self._log.warn(
                    "{dropped} errors that clients received are not in this log: "
                    f"the limit is {MAX_LINES} a second",
                    dropped=dropped,
                )
            self._log.emit(
                LogLevel.warn if ours else LogLevel.info,
                "{log_text} [trace {trace_id}]",
                log_text=clean(message, MAX_MESSAGE),
                trace_id=trace_id,
                **more,
            )
        return f"{message} [trace {trace_id}]"


class _Lines:
    """Number of log lines in the current second."""

    def __init__(self) -> None:
        self._second = -1
        self._written = 0
        self._dropped = 0

    def room(self, now: float) -> int | None:
        """
        Count a line, and return the number of lines that were dropped since the last
        written line; None if this line exceeds the limit and must be dropped, too.
        """
        if int(now) != self._second:
            self._second = int(now)
            self._written = 0
        if self._written >= MAX_LINES:
            self._dropped += 1
            return None
        self._written += 1
        dropped, self._dropped = self._dropped, 0
        return dropped
