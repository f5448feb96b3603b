"""Metrics of deliveries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

__all__ = ["WebhookMetrics"]


class WebhookMetrics(Collector):
    """
    Collects the deliveries of the agents that are connected to this kas.

    :param states: returns the number of deliveries in each state.
    """

    def __init__(self, states: Callable[[], Counter[str]]) -> None:
        self._states = states
        #: Number of pushes that caused a delivery, and number of attempts by result.
        self.pushes = 0
        self.attempts: Counter[str] = Counter()

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        yield CounterMetricFamily(
            "kas_webhooks_pushes",
            "Pushes that caused a delivery to a target",
            value=self.pushes,
        )
        attempts = CounterMetricFamily(
            "kas_webhooks_attempts",
            "Attempts to deliver a webhook, by result",
            labels=("result",),
        )
        for result, count in sorted(self.attempts.items()):
            attempts.add_metric((result,), count)
        yield attempts
        deliveries = GaugeMetricFamily(
            "kas_webhooks_deliveries",
            "Newest deliveries of the agents connected to this kas, by state",
            labels=("state",),
        )
        for state, count in sorted(self._states().items()):
            deliveries.add_metric((state,), count)
        yield deliveries
