"""The exports of kas' audit log, as a part of kas."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.threads import deferToThreadPool
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.python.threadpool import ThreadPool

from kas.audit.exports.cursor import CursorFile
from kas.audit.exports.dead import DeadLetters
from kas.audit.exports.exporter import Exporter, ExportReceiver
from kas.audit.exports.reader import LogReader
from kas.audit.exports.receivers import (
    OtlpReceiver,
    SyslogReceiver,
    WebhookReceiver,
)
from kas.config.schema import Audit, AuditExport
from kas.http_client import make_agent
from kas.state.directory import StateDirectory
from tunnel.program.parts import Part
from tunnel.program.runtime import Runtime
from tunnel.transport.tls import client_context, identity_files

__all__ = ["AuditExports"]

#: Port of syslog over TLS, if the URL has none.
SYSLOG_PORT = 6514


class AuditExports(Collector, Part):
    """
    One exporter for each entry of ``observability.audit.exports``.

    Of all processes with the same log, one exports it; if it ends, another one
    continues.
    """

    name = "the exports of the audit log"
    _log = Logger()

    def __init__(
        self, settings: Audit | None, runtime: Runtime, state: StateDirectory
    ) -> None:
        self._runtime = runtime
        self._running: list[Deferred[None]] = []
        self._pool: ThreadPool | None = None
        exports = () if settings is None else settings.exports
        self.exporters: list[Exporter] = []
        if settings is not None and exports:
            # Each exporter reads, writes or sends, one at a time.
            self._pool = ThreadPool(0, len(exports), "audit exports")
            log = settings.file.absolute()
            self.exporters = [self._make(one, log, state) for one in exports]

    def _make(
        self, settings: AuditExport, log: Path, state: StateDirectory
    ) -> Exporter:
        runtime = self._runtime
        return Exporter(
            settings.name,
            self._receiver(settings),
            LogReader(log, runtime.now),
            CursorFile(state, log, settings.name),
            DeadLetters(state, settings.name),
            runtime,
            self._in_thread,
        )

    def _receiver(self, settings: AuditExport) -> ExportReceiver:
        runtime, host = self._runtime, socket.gethostname()
        if settings.format == "syslog":
            address = urlsplit(settings.url)
            assert address.hostname is not None
            return SyslogReceiver(
                address.hostname,
                address.port or SYSLOG_PORT,
                partial(_context, settings),
                self._in_thread,
                host,
            )
        agent = make_agent(
            settings.ca_certificate_file,
            f"observability.audit.exports: {settings.name}: ca_certificate_file",
            runtime.reactor,
            runtime.environ,
            connections=1,
        )
        url = settings.url
        if settings.format == "otlp" and urlsplit(url).path in ("", "/"):
            url = f"{url.rstrip('/')}/v1/logs"
        shared = (url, agent, runtime.reactor, runtime.now, self._in_thread)
        if settings.format == "otlp":
            return OtlpReceiver(host, settings.secret_file, *shared)
        assert settings.secret_file is not None
        return WebhookReceiver(settings.secret_file, *shared)

    def _in_thread(self, act: Callable[..., Any], *arguments: Any) -> Deferred[Any]:
        assert self._pool is not None
        reactor = self._runtime.reactor
        return deferToThreadPool(reactor, self._pool, act, *arguments)

    def start(self) -> None:
        """Start all exporters."""
        if self._pool is not None:
            self._pool.start()
        for one in self.exporters:
            running = Deferred.fromCoroutine(one.run())
            running.addErrback(self._ended, one)
            self._running.append(running)

    def _ended(self, failure: Failure, exporter: Exporter) -> None:
        if failure.check(CancelledError) is None:
            self._log.failure("audit export {name} ended", failure, name=exporter.name)

    async def stop(self) -> None:
        """Stop all exporters; the next start continues where they were."""
        running, self._running = self._running, []
        for one in running:
            one.cancel()
        pool, self._pool = self._pool, None
        if pool is not None:
            reactor = self._runtime.reactor
            await deferToThreadPool(reactor, reactor.getThreadPool(), pool.stop)

    def collect(self) -> Iterator[Metric]:
        """See `prometheus_client.registry.Collector`."""
        active = [one for one in self.exporters if one.is_active]
        families: tuple[tuple[GaugeMetricFamily | CounterMetricFamily, str], ...] = (
            (
                GaugeMetricFamily(
                    "kas_audit_export_lag_seconds",
                    "Age of the oldest event that was not sent.",
                    labels=["sink"],
                ),
                "lag_seconds",
            ),
            (
                GaugeMetricFamily(
                    "kas_audit_export_lag_bytes",
                    "Bytes of the audit log that were not sent.",
                    labels=["sink"],
                ),
                "lag_bytes",
            ),
            (
                CounterMetricFamily(
                    "kas_audit_exported",
                    "Events that the receiver has accepted.",
                    labels=["sink"],
                ),
                "sent",
            ),
            (
                CounterMetricFamily(
                    "kas_audit_export_failures",
                    "Failed attempts to send events, which kas repeats.",
                    labels=["sink"],
                ),
                "failures",
            ),
            (
                CounterMetricFamily(
                    "kas_audit_export_rejected",
                    "Events that the receiver did not accept.",
                    labels=["sink"],
                ),
                "rejected",
            ),
            (
                CounterMetricFamily(
                    "kas_audit_export_losses",
                    "Times that a file was removed before its events were sent.",
                    labels=["sink"],
                ),
                "losses",
            ),
        )
        for family, value in families:
            for one in active:
                family.add_metric([one.name], getattr(one, value))
            yield family


def _context(settings: AuditExport) -> ssl.SSLContext:
    """Return the context of TLS, with the current content of the files."""
    ca = settings.ca_certificate_file
    return client_context(
        ca_file=None if ca is None else str(ca),
        identity=identity_files(settings.certificate_file, settings.key_file),
        alpn=(),
        minimum_version=ssl.TLSVersion.TLSv1_2,
        system_pool=ca is None,
    )
