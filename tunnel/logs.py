"""Logs: text for a terminal, JSON lines for everything else."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

from twisted.logger import (
    FilteringLogObserver,
    ILogObserver,
    LogEvent,
    LogLevel,
    LogLevelFilterPredicate,
    formatEvent,
    textFileLogObserver,
)
from twisted.python.components import Componentized
from twisted.python.failure import Failure
from zope.interface import implementer

#: A field of one line is cut beyond this: a log is no place for payloads.
MAX_FIELD = 2048


@implementer(ILogObserver)
class JsonLines:
    """
    One event, one flat JSON object: time, level, logger, message, fields.

    Only fields that are plain values are written; what an object looks like is nobody's
    contract.
    """

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def __call__(self, event: LogEvent) -> None:
        """Write one event."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(event.get("log_time", 0.0), UTC).isoformat(),
            "level": getattr(event.get("log_level"), "name", "info"),
            "logger": event.get("log_namespace", ""),
            "message": formatEvent(event)[: 4 * MAX_FIELD],
        }
        for name, value in _fields(event).items():
            line.setdefault(name, value)
        failure = event.get("log_failure")
        if isinstance(failure, Failure):
            line["traceback"] = failure.getTraceback()
        self._out.write(json.dumps(line, ensure_ascii=False) + "\n")
        self._out.flush()


def _fields(event: LogEvent) -> Mapping[str, Any]:
    return {
        name: value[:MAX_FIELD] if isinstance(value, str) else value
        for name, value in event.items()
        if not name.startswith("log_")
        and isinstance(value, str | int | float | bool)
        and name not in ("format", "isError", "message", "system", "time")
    }


def observer(kind: str, level: str, out: TextIO | None = None) -> ILogObserver:
    """
    What the program writes its log with.

    :param kind: ``text``, ``json``, or ``auto``: text when *out* is a terminal.
    :param level: the least important level that is written.
    """
    out = out or sys.stdout
    if kind == "auto":
        kind = "text" if out.isatty() else "json"
    inner: Any = JsonLines(out) if kind == "json" else textFileLogObserver(out)
    predicate = LogLevelFilterPredicate(LogLevel.levelWithName(level))
    return FilteringLogObserver(inner, [predicate])


class LogsItsOwnWay:
    """
    A service that brings the observer of its application with it.

    twistd looks for one in the application, after the service was made and unless it
    was told ``--logger`` itself.
    """

    log_observer: ILogObserver | None = None

    def log_as_told(self, options: Mapping[str, Any], kind: str, level: str) -> None:
        """
        Choose the observer.

        :param options: those of twistd itself.  In the background, with a log file or
            with syslog, its own observer knows where to write; only JSON is ours then.
        """
        if "nodaemon" not in options:
            return  # another runner, which has a log of its own
        file = options.get("logfile")
        if options.get("nodaemon") and not file and not options.get("syslog"):
            self.log_observer = observer(kind, level)
        elif kind == "json":
            path = Path(file or "twistd.log").absolute()
            out = path.open("a", encoding="utf-8") if file != "-" else sys.stdout
            self.log_observer = observer(kind, level, out)

    def setServiceParent(self, parent: Any) -> None:
        """Called by twistd with the application."""
        if self.log_observer is not None and isinstance(parent, Componentized):
            parent.setComponent(ILogObserver, self.log_observer)
        super().setServiceParent(parent)  # type: ignore[misc]
