"""Metrics of attempts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

__all__ = ["AttemptMetrics"]


class AttemptMetrics(Collector):
    """Collects the number of requests to receivers, by the class of their status."""

    def __init__(self) -> None:
        self.attempts: Counter[str] = Counter()

    def count(self, status: int) -> None:
        """Count a request; *status* is 0 without a response."""
        self.attempts[f"{status // 100}xx" if status else "none"] += 1

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        found = CounterMetricFamily(
            "agentk_webhooks_requests",
            "Requests to receivers of webhooks, by status",
            labels=("status",),
        )
        for status, count in sorted(self.attempts.items()):
            found.add_metric((status,), count)
        yield found
