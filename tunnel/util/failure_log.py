"""A line in the log for each error that a client sees, found by the id of its trace."""

from __future__ import annotations

from typing import Any

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger, LogLevel

from tunnel.util.texts import clean

__all__ = ["FailureLog"]

#: Lines a second of errors of the service, and as many of those that are the client's:
#: a flood of bad requests hides no failure, and a cluster that is away fills no disk.
MAX_LINES = 20

#: Characters of a message that are logged; what an agent says can be part of it.
MAX_MESSAGE = 1000


class FailureLog:
    """Logs errors with their ids, and adds the ids to what clients are told."""

    _log = Logger()

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._ours = _Lines()
        self._callers = _Lines()

    def told(self, message: str, trace_id: str, *, ours: bool, **more: Any) -> str:
        """
        *message* as the client gets it.

        :param ours: the service failed, and not the client: logged as a warning.
        :param more: further fields of the line.
        """
        lines = self._ours if ours else self._callers
        dropped = lines.room(self._clock.seconds())
        if dropped is not None:
            if dropped:
                self._log.warn(
                    "{dropped} errors were told to clients and are not in this log: "
                    f"at most {MAX_LINES} a second are",
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
    """How many were written in this second."""

    def __init__(self) -> None:
        self._second = -1
        self._written = 0
        self._dropped = 0

    def room(self, now: float) -> int | None:
        """None: none for another line; else how many were dropped since the last."""
        if int(now) != self._second:
            self._second = int(now)
            self._written = 0
        if self._written >= MAX_LINES:
            self._dropped += 1
            return None
        self._written += 1
        dropped, self._dropped = self._dropped, 0
        return dropped
