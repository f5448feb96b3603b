"""Metrics of which one collector fails."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import Counter, Metric, generate_latest
from prometheus_client.core import GaugeMetricFamily
from twisted.internet.testing import EventLoggingObserver
from twisted.logger import globalLogPublisher

from tunnel.program.metrics_registry import MetricsRegistry


class Failing:
    """A collector that fails on demand."""

    fails = True

    def collect(self) -> Iterable[Metric]:
        yield GaugeMetricFamily("acme", "Things.", 1)
        if self.fails:
            raise SystemExit


def test_the_others_stay() -> None:
    """The failure is logged once, until the collector works again."""
    observer = EventLoggingObserver()
    globalLogPublisher.addObserver(observer)
    registry, failing = MetricsRegistry(), Failing()
    count = Counter("calls", "Calls.", registry=registry)
    count.inc()
    registry.register(failing)
    for _ in range(3):
        text = generate_latest(registry).decode()
        assert "calls_total 1.0" in text
        assert "acme" not in text
    failing.fails = False
    assert "acme 1.0" in generate_latest(registry).decode()
    registry.unregister(failing)
    assert "acme" not in generate_latest(registry).decode()
    globalLogPublisher.removeObserver(observer)
    assert len(list(observer)) == 1
