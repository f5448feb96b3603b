"""Logs: text for a terminal, JSON lines for everything else."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any, TextIO

from twisted.logger import (
    FilteringLogObserver,
    ILogObserver,
    LegacyLogObserverWrapper,
    LogEvent,
    LogLevel,
    LogLevelFilterPredicate,
    formatEvent,
    formatEventAsClassicLogText,
)
from twisted.python.components import Componentized
from twisted.python.failure import Failure
from zope.interface import implementer

from tunnel.errors import ConfigurationError
from tunnel.program.log_writer import FileSink, LogWriter, Sink, StreamSink

#: Size of a log file in bytes at which it is renamed, as in twistd.
ROTATE_AT = 1_000_000

#: Maximum number of characters of one field; a log is not the place for payloads.
MAX_FIELD = 2048


#: Twisted's lines about its own work, which do not concern our users.
_TWISTEDS = re.compile(
    r".* starting on .*|\(.* Port .* Closed\)|(Starting|Stopping) factory .*"
)

#: Function that formats an event as a line with its line feed, or returns None for
#: events that are not logged.
Format = Callable[[LogEvent], str | None]


def json_line(event: LogEvent) -> str:
    """
    Return one event as one flat JSON object: time, level, logger, message, fields.

    The object contains only fields with plain values, because the texts of other values
    are not a stable format.
    """
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
    return json.dumps(line, ensure_ascii=False) + "\n"


def _fields(event: LogEvent) -> Mapping[str, Any]:
    return {
        name: value[:MAX_FIELD] if isinstance(value, str) else value
        for name, value in event.items()
        if not name.startswith("log_")
        and isinstance(value, str | int | float | bool)
        and name not in ("format", "isError", "message", "system", "time")
    }


@implementer(ILogObserver)
class Lines:
    """Formatter of events, which passes the lines to the writer."""

    def __init__(
        self,
        form: Format,
        write: Callable[[str], object],
        fields: Mapping[str, str | int] = MappingProxyType({}),
    ) -> None:
        self._form = form
        self._write = write
        self._fields = fields

    def __call__(self, event: LogEvent) -> None:
        shown = _in_our_words({**self._fields, **event} if self._fields else event)
        line = None if shown is None else self._form(shown)
        if line:
            self._write(line)


def _in_our_words(event: LogEvent) -> LogEvent | None:
    """
    Return *event*; remove the full stop from Twisted's own messages, and return None
    for messages about its factories.
    """
    namespace = str(event.get("log_namespace", ""))
    if namespace != "log_legacy" and not namespace.startswith("twisted."):
        return event
    if isinstance(event.get("log_failure"), Failure):
        return event
    text = formatEvent(event)
    if _TWISTEDS.fullmatch(text):
        return None
    return {**event, "log_format": "{log_text}", "log_text": text.removesuffix(".")}


def _format(kind: str) -> Format:
    return json_line if kind == "json" else formatEventAsClassicLogText


def _text_of(fields: Mapping[str, str | int]) -> Format:
    """
    Return a text formatter that adds the values of *fields* to the name of the program.
    """
    us = " ".join(f"{name} {value}" for name, value in fields.items())

    def line(event: LogEvent) -> str | None:
        level = getattr(event.get("log_level"), "name", "-")
        said = event.get("log_system") or f"{event.get('log_namespace', '-')}#{level}"
        return formatEventAsClassicLogText({**event, "log_system": f"{us} {said}"})

    return line


def log_levels(level: str) -> LogLevelFilterPredicate:
    """Return a filter for events of *level* and above; its level can change later."""
    return LogLevelFilterPredicate(LogLevel.levelWithName(level))


def observer(
    kind: str,
    levels: LogLevelFilterPredicate,
    write: Callable[[str], object],
    fields: Mapping[str, str | int] = MappingProxyType({}),
) -> ILogObserver:
    """
    Return the observer that formats the log.

    :param kind: ``text`` or ``json``.
    :param levels: selects the events to write.
    :param write: receives lines.
    :param fields: fields of every line; in text they precede the name of the logger.
    """
    form = _text_of(fields) if fields and kind != "json" else _format(kind)
    lines = Lines(form, write, fields)
    return FilteringLogObserver(lines, [levels])


def log_writer(kind: str, sink: Sink) -> LogWriter:
    """Return the writer of the log, which also logs how many lines it dropped."""

    def note(count: int) -> str:
        event: LogEvent = {
            "log_time": time.time(),
            "log_level": LogLevel.warn,
            "log_namespace": __name__,
            "log_format": (
                "{dropped} log lines were dropped: they arrived faster than they "
                "could be written"
            ),
            "dropped": count,
        }
        return _format(kind)(event) or ""

    return LogWriter(sink, note)


class LoggingService:
    """
    A service with the log observer of its application.

    twistd looks for the observer in the application after it has created the service,
    unless ``--logger`` sets another one.
    """

    log_observer: ILogObserver | None = None
    log_writer: LogWriter | None = None
    #: ``text`` or ``json``.
    log_format = "text"
    #: Whether the log goes to our standard output.
    log_is_output = True
    #: Fields of every line.
    log_fields: Mapping[str, str | int] = MappingProxyType({})
    _log_level = "info"
    _levels: LogLevelFilterPredicate | None = None

    def log_as_told(self, options: Mapping[str, Any], kind: str, level: str) -> None:
        """
        Choose the log observer.

        :param options: options of twistd itself, which set the destination of the log.
        :raises ConfigurationError: the file cannot be written.
        """
        if "nodaemon" not in options:
            return  # another runner, with its own log
        self._log_level = level
        self._levels = levels = log_levels(level)
        if options.get("syslog"):
            self.log_is_output = False
            from twisted.python.syslog import SyslogObserver

            emit: Any = SyslogObserver(options.get("prefix") or "twisted").emit
            wrapper = LegacyLogObserverWrapper(emit)
            self.log_observer = FilteringLogObserver(wrapper, [levels])
            return
        file = options.get("logfile")
        if file == "-" or (options.get("nodaemon") and not file):
            # The value is None if standard output was closed when the program started.
            out = sys.stdout
            sink: Sink = StreamSink(_descriptor(out))
            if kind == "auto":
                kind = "text" if out is not None and out.isatty() else "json"
        else:
            self.log_is_output = False
            path = Path(file or "twistd.log")
            try:
                # JSON is for log collectors, which rotate the file themselves.
                sink = FileSink(path, None if kind == "json" else ROTATE_AT)
            except OSError as error:
                message = (
                    f"--logfile: cannot write {path} ({error.strerror}); correct the "
                    "path or its permissions"
                )
                raise ConfigurationError([message]) from None
        self.log_format = "json" if kind == "json" else "text"
        self.log_writer = log_writer(kind, sink)
        write = self.log_writer.write
        self.log_observer = observer(kind, levels, write, self.log_fields)

    def set_log_level(self, level: str | None) -> None:
        """Set the lowest level to write; None for the level of the program's start."""
        if self._levels is not None:
            name = level or self._log_level
            self._levels.setLogLevelForNamespace("", LogLevel.levelWithName(name))

    def start_logging(self, reactor: Any) -> None:
        """
        Start the writer's thread, so that the log never blocks; called when the service
        starts.
        """
        if self.log_writer is not None:
            self.log_writer.start()
            reactor.addSystemEventTrigger(
                "after", "shutdown", self.log_writer.last_words
            )

    def rotate_log(self) -> None:
        """Rename the log file, and start a new one."""
        if self.log_writer is not None:
            self.log_writer.rotate()

    def reopen_log(self) -> None:
        """Reopen the log file after it was moved."""
        if self.log_writer is not None:
            self.log_writer.reopen()

    @property
    def dropped_lines(self) -> int:
        """The number of dropped log lines."""
        return 0 if self.log_writer is None else self.log_writer.dropped

    def setServiceParent(self, parent: Any) -> None:
        """Set the log observer of the application, which twistd passes as *parent*."""
        if self.log_observer is not None and isinstance(parent, Componentized):
            parent.setComponent(ILogObserver, self.log_observer)
        super().setServiceParent(parent)  # type: ignore[misc]


def _descriptor(out: TextIO | None) -> int:
    try:
        if out is not None:
            return out.fileno()
    except (OSError, ValueError):
        pass
    return os.open(os.devnull, os.O_WRONLY)
