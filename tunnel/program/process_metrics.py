"""Prometheus metrics that both programs share, computed at each scrape."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

import attrs
from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from tunnel import __version__
from tunnel.compiled import build_name
from tunnel.config import validity
from tunnel.errors import ConfigurationError
from tunnel.program.listening import Listening
from tunnel.session.resume import Keeper

__all__ = ["ProgramCollector", "register_process_metrics", "resumption_metrics"]


@attrs.define(eq=False)
class ProgramCollector(Collector):
    """
    Metrics of version, log, certificates and failed handshakes.

    No label has a value that clients can choose.

    :ivar program: the prefix of the names.
    :ivar dropped_lines: returns the number of dropped log lines.
    """

    program: str
    listening: Listening
    dropped_lines: Callable[[], int]

    def collect(self) -> Iterable[Metric]:
        program, listening = self.program, self.listening
        version = {"version": __version__, "build": build_name()}
        yield InfoMetricFamily(
            f"{program}_build", "Version, and compiled or pure.", value=version
        )
        yield CounterMetricFamily(
            f"{program}_log_lines_dropped",
            "Log lines that arrived faster than they could be written.",
            value=self.dropped_lines(),
        )
        failures = CounterMetricFamily(
            f"{program}_tls_handshake_failures",
            "Failed TLS handshakes of clients.",
            labels=["listener", "reason"],
        )
        for what, failed in listening.handshakes.items():
            for label, count in failed.counts.items():
                failures.add_metric([what, label], count)
        yield failures
        expiry = GaugeMetricFamily(
            f"{program}_certificate_expiry_seconds",
            "Seconds until a certificate expires; negative after that.",
            labels=["for"],
        )
        ends = {what: one.expires for what, one in listening.contexts.items()}
        for what, file in listening.shown.items():
            with suppress(ConfigurationError):
                ends[what] = validity(file)[1]
        for what, end in ends.items():
            expiry.add_metric([what], end.timestamp() - listening.now())
        yield expiry


def register_process_metrics(
    metrics: CollectorRegistry,
    program: str,
    listening: Listening,
    dropped_lines: Callable[[], int],
) -> None:
    """
    Register the metrics of `ProgramCollector`, and metrics of the process and its
    garbage collector.
    """
    ProcessCollector(registry=metrics)
    GCCollector(registry=metrics)
    metrics.register(ProgramCollector(program, listening, dropped_lines))


def resumption_metrics(program: str, keeper: Keeper) -> Iterator[Metric]:
    """Yield the metrics of streams that survive the loss of their path."""
    yield GaugeMetricFamily(
        f"{program}_resumable_kept_bytes",
        "Bytes kept for streams that survive the loss of their path.",
        value=keeper.held,
    )
    paths = CounterMetricFamily(
        f"{program}_resumable_paths",
        "Paths of such streams: lost, replaced, not replaced in time.",
        labels=["event"],
    )
    for event in ("lost", "resumed", "expired"):
        paths.add_metric([event], getattr(keeper, event))
    yield paths
