"""
Reports of failures to Sentry: log events of level error and above, with tracebacks.

Sentry's SDK sends the reports in a separate thread; while Sentry is slow or
unavailable, reports are dropped, and nothing blocks.
"""

from __future__ import annotations

import re
from functools import partial
from typing import Any, Final

from twisted.internet.interfaces import IReactorTime
from twisted.logger import (
    ILogObserver,
    LogEvent,
    LogLevel,
    formatEvent,
    globalLogPublisher,
)
from twisted.python.failure import Failure
from zope.interface import implementer

from tunnel import __version__
from tunnel.config import Sentry
from tunnel.program.logs import MAX_FIELD
from tunnel.program.shutdown import SHUTDOWN_SECONDS, run_at_shutdown

__all__ = ["ErrorReports"]

#: Maximum number of events per minute: an error of every request need be reported only
#: once.
PER_MINUTE: Final = 30

#: Fields of an event that Sentry can search for.
_TAGS: Final = ("trace_id", "agent_name", "method", "name", "status")

#: A client's port number, which is removed: it differs each time, so Sentry would treat
#: each occurrence as a new error.
_PORT: Final = re.compile(r"(?<=\d|\])(:\d{1,5})(?=\D|$)")


@implementer(ILogObserver)
class ErrorReports:
    """
    Reporter of failures, from `start` to `stop`.

    Reports contain neither variables nor requests, because these may contain secrets.

    :param program: ``kas`` or ``agentk``.
    """

    def __init__(self, settings: Sentry, program: str, clock: IReactorTime) -> None:
        self._settings = settings
        self._program = program
        self._clock = clock
        self._client: Any = None
        self._minute = 0.0
        self._left = PER_MINUTE

    def start(self) -> None:
        """Start to report failures, if Sentry is configured."""
        if not self._settings.dsn:
            return
        import sentry_sdk

        self._client = sentry_sdk.Client(
            dsn=self._settings.dsn,
            environment=self._settings.environment or None,
            release=f"txkas@{__version__}",
            default_integrations=False,
            auto_enabling_integrations=False,
            auto_session_tracking=False,
            include_local_variables=False,
            max_breadcrumbs=0,
            shutdown_timeout=0,
        )
        globalLogPublisher.addObserver(self)

    async def stop(self, reactor: Any) -> None:
        """Send the remaining events; waits for at most `SHUTDOWN_SECONDS` seconds."""
        client, self._client = self._client, None
        if client is None:
            return
        globalLogPublisher.removeObserver(self)
        await run_at_shutdown(reactor, partial(client.close, timeout=SHUTDOWN_SECONDS))

    def __call__(self, event: LogEvent) -> None:
        level = event.get("log_level")
        # Threads also log, even while this method runs.
        client = self._client
        if client is None or level not in (LogLevel.error, LogLevel.critical):
            return
        now = self._clock.seconds()
        if now - self._minute >= 60:
            self._minute, self._left = now, PER_MINUTE
        if self._left:
            self._left -= 1
            self._report(event, client)

    def _report(self, event: LogEvent, client: Any) -> None:
        from sentry_sdk.utils import event_from_exception

        said = _without_ports(formatEvent(event)[:MAX_FIELD])
        failure = event.get("log_failure")
        report: Any = {}
        hint: dict[str, Any] = {}
        if isinstance(failure, Failure) and failure.value is not None:
            traceback = failure.getTracebackObject()
            report, hint = event_from_exception(
                (type(failure.value), failure.value, traceback),
                client_options=client.options,
            )
            for one in report["exception"]["values"]:
                one["value"] = _without_ports(str(one.get("value"))[:MAX_FIELD])
        tags = {name: str(event[name])[:200] for name in _TAGS if event.get(name)}
        report |= {
            "level": "error" if failure is None else "fatal",
            "logger": event.get("log_namespace", ""),
            "logentry": {"formatted": said},
            "tags": {"program": self._program, **tags},
        }
        if event.get("agent_id"):
            report["user"] = {"id": str(event["agent_id"])[:200]}
        client.capture_event(report, hint=hint)


def _without_ports(text: str) -> str:
    return _PORT.sub("", text)
