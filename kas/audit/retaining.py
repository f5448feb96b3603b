"""The removal of old files of kas' audit log, as a part of kas."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector
from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from kas.audit.exports.cursor import CursorFile
from kas.audit.retention import Dropped, Retention
from kas.config.schema import Audit
from kas.state.directory import StateDirectory
from tunnel.api import AuditEvent
from tunnel.errors import TunnelError
from tunnel.program.parts import Part
from tunnel.program.runtime import Runtime
from tunnel.toolkit.repeated import Repeated

__all__ = ["PRUNE_SECONDS", "AuditRetention"]

#: Seconds between two looks at the files.
PRUNE_SECONDS = 60.0

_DAY = 86400.0


class AuditRetention(Collector, Part):
    """
    The limits in ``observability.audit.keep``.

    Of all processes with the same log, one removes its files.

    :param record: records an event in the audit log.
    :param in_thread: calls a function that blocks.
    """

    name = "the retention of the audit log"
    _log = Logger()

    def __init__(
        self,
        settings: Audit | None,
        runtime: Runtime,
        state: StateDirectory,
        record: Callable[[AuditEvent], None],
        in_thread: Callable[..., Deferred[Any]],
    ) -> None:
        self._record = record
        self._in_thread = in_thread
        self._retention: Retention | None = None
        self._lock: CursorFile | None = None
        self._loop = Repeated(
            runtime.reactor, "removing old files of the audit log", self._prune
        )
        self._dropped = 0
        self._problem = ""
        if settings is not None and settings.keep is not None:
            log, keep = settings.file.absolute(), settings.keep
            self._retention = Retention(
                log,
                None if keep.days is None else keep.days * _DAY,
                keep.size,
                state,
                {
                    one.name: CursorFile(state, log, one.name)
                    for one in settings.exports
                },
                runtime.now,
            )
            # No export can have this name.
            self._lock = CursorFile(state, log, "_retention")

    def start(self) -> None:
        """Begin to look at the files."""
        if self._retention is not None:
            self._loop.start(PRUNE_SECONDS)

    def stop(self) -> None:
        """Stop looking at the files."""
        self._loop.stop()
        if self._lock is not None:
            self._lock.unlock()

    def _prune(self) -> Deferred[None]:
        pruning: Deferred[list[Dropped]] = self._in_thread(self._prune_files)
        return pruning.addCallbacks(self._pruned, self._failed)

    def _prune_files(self) -> list[Dropped]:
        assert self._retention is not None and self._lock is not None
        return list(self._retention.prune()) if self._lock.lock() else []

    def _pruned(self, files: list[Dropped]) -> None:
        assert self._retention is not None
        for one in files:
            self._dropped += 1
            self._record(AuditEvent("audit.drop", None, "OK", one.details()))
            self._log.info("removed {file}: {why}", file=one.name, why=one.why)
        self._report(self._retention.problem)

    def _failed(self, failure: Failure) -> None:
        if failure.check(OSError, TunnelError) is None:
            # The next look tries again.
            self._log.failure("cannot remove files of the audit log", failure)
        self._report(failure.getErrorMessage())

    def _report(self, problem: str) -> None:
        if problem and not self._problem:
            self._log.error(
                "the audit log has more files than observability.audit.keep permits, "
                "and none can be removed: {problem}",
                problem=problem,
            )
        self._problem = problem

    def collect(self) -> Iterator[Metric]:
        """See `prometheus_client.registry.Collector`."""
        if self._retention is not None:
            yield CounterMetricFamily(
                "kas_audit_files_removed",
                "Files of the audit log that retention removed.",
                self._dropped,
            )
            yield GaugeMetricFamily(
                "kas_audit_retention_blocked",
                "1 while a file beyond the limits cannot be removed.",
                1 if self._problem else 0,
            )
