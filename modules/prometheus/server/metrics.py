"""Metrics of requests in kas."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

__all__ = ["RequestMetrics"]


class RequestMetrics(Collector):
    """Numbers of requests, by endpoint and class of status."""

    def __init__(self) -> None:
        self._requests: Counter[tuple[str, str, str]] = Counter()
        #: Clusters that were missing in a merged answer.
        self.missing = 0
        #: Responses that ended early.
        self.broken = 0

    def count(self, scope: str, endpoint: str, status: int) -> None:
        """
        Count a response.

        :param scope: ``agent`` or ``fleet``.
        :param endpoint: `Endpoint.name`; empty for a path that kas does not forward.
        """
        self._requests[scope, endpoint or "other", f"{status // 100}xx"] += 1

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        requests = CounterMetricFamily(
            "kas_prometheus_requests",
            "Requests for the Prometheus of one cluster or of several",
            labels=("scope", "endpoint", "code"),
        )
        for labels, count in sorted(self._requests.items()):
            requests.add_metric(labels, count)
        yield requests
        yield CounterMetricFamily(
            "kas_prometheus_missing_clusters",
            "Clusters that were missing in a merged answer",
            value=self.missing,
        )
        yield CounterMetricFamily(
            "kas_prometheus_broken_responses",
            "Responses that ended early, because of their size or a lost connection",
            value=self.broken,
        )
