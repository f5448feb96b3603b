"""
Metrics of both halves.

The metrics are plain numbers that become samples when Prometheus scrapes them.  A
request updates six metrics, and updating a counter of `prometheus_client` would take a
lock and a microsecond each time. Labels are bounded and never contain an agent, a user
or a path.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import Final

from prometheus_client import Metric
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.registry import Collector

__all__ = ["ProxyMetrics"]

# Seconds to the head of a response: a cached GET, a list, a slow webhook, a timeout.
_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5, 30)
_CLASSES: Final = ("1xx", "2xx", "3xx", "4xx", "5xx")


class ProxyMetrics(Collector):
    """
    Metrics of the proxy in kas, or in agentk.

    :param prefix: the prefix of the metric names, such as ``kas_kubernetes_api``.
    """

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._answers = [0] * len(_CLASSES)
        self._heads = [0] * (len(_BUCKETS) + 1)
        self._heads_sum = 0.0
        #: The number of requests in progress.
        self.in_flight = 0
        #: The number of requests that ended before their response was complete.
        self.broken = 0
        self.bytes_received = 0
        self.bytes_sent = 0
        #: The responses to upgrade requests, by result.
        self.upgrades = {"switched": 0, "refused": 0, "failed": 0}
        #: The responses that kas or agentk made itself, by the hop that failed.
        self.failures: dict[str, int] = {}

    def head_passed(self, status: int, seconds: float) -> None:
        """Count the head of a response, *seconds* after the head of the request."""
        self._answers[min(status // 100, 5) - 1] += 1
        self._heads[bisect_left(_BUCKETS, seconds)] += 1
        self._heads_sum += seconds

    def answered(self, status: int) -> None:
        """Count a response that kas made itself."""
        self._answers[min(status // 100, 5) - 1] += 1

    def failed(self, hop: str) -> None:
        """Count an error that kas made itself; *hop* is one of a few constants."""
        self.failures[hop] = self.failures.get(hop, 0) + 1

    def collect(self) -> Iterator[Metric]:
        """See `prometheus_client.registry.Collector`."""
        prefix = self._prefix
        requests = CounterMetricFamily(
            f"{prefix}_requests", "Answers by class of their status.", labels=["code"]
        )
        for name, count in zip(_CLASSES, self._answers, strict=True):
            requests.add_metric([name], count)
        yield requests
        upgrades = CounterMetricFamily(
            f"{prefix}_upgrades",
            "Requests for an upgrade (exec, attach, port-forward) by result.",
            labels=["result"],
        )
        for name, count in self.upgrades.items():
            upgrades.add_metric([name], count)
        yield upgrades
        failures = CounterMetricFamily(
            f"{prefix}_failures",
            (
                "Requests to which kas or agentk responded with an error, by the hop "
                "that failed."
            ),
            labels=["hop"],
        )
        for name, count in self.failures.items():
            failures.add_metric([name], count)
        yield failures
        yield GaugeMetricFamily(
            f"{prefix}_requests_in_flight", "Requests under way.", self.in_flight
        )
        yield CounterMetricFamily(
            f"{prefix}_requests_broken",
            "Requests whose client left, or whose response ended early.",
            self.broken,
        )
        traffic = CounterMetricFamily(
            f"{prefix}_bytes", "Bytes of bodies by direction.", labels=["direction"]
        )
        traffic.add_metric(["request"], self.bytes_received)
        traffic.add_metric(["response"], self.bytes_sent)
        yield traffic
        total = 0
        buckets = []
        for bound, count in zip((*_BUCKETS, "+Inf"), self._heads, strict=True):
            total += count
            buckets.append((str(bound), float(total)))
        yield HistogramMetricFamily(
            f"{prefix}_head_seconds",
            "Seconds from the head of a request to the head of its response.",
            buckets=buckets,
            sum_value=self._heads_sum,
        )
