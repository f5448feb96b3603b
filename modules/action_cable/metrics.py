"""Counters of the module, which are read at each scrape."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from typing import Protocol

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

__all__ = ["CableMetrics"]


class Counted(Protocol):
    """A connection, as the metrics see it."""

    def channels(self) -> Iterable[str]:
        """Return the name of the channel of each subscription."""


class CableMetrics(Collector):
    """
    Collector of the module's metrics.

    :ivar connections: the open connections.
    """

    def __init__(self) -> None:
        self.connections: Collection[Counted] = ()
        #: Commands of clients, by name: ``other`` if the name is unknown.
        self.commands: Counter[str] = Counter()
        #: Messages of channels that were sent.
        self.messages = 0
        #: Snapshots because messages were dropped for a slow client.
        self.behind = 0
        self.rejections = 0
        self.disconnects: Counter[str] = Counter()

    def collect(self) -> Iterator[Metric]:
        """See `prometheus_client.registry.Collector`."""
        yield GaugeMetricFamily(
            "kas_action_cable_connections",
            "Connections of ActionCable.",
            len(self.connections),
        )
        subscriptions = GaugeMetricFamily(
            "kas_action_cable_subscriptions",
            "Subscriptions, by channel.",
            labels=["channel"],
        )
        names = (name for one in self.connections for name in one.channels())
        for name, count in sorted(Counter(names).items()):
            subscriptions.add_metric([name], count)
        yield subscriptions
        yield _by(
            "kas_action_cable_commands",
            "Commands of clients, by name.",
            "command",
            self.commands,
        )
        yield CounterMetricFamily(
            "kas_action_cable_messages", "Messages of channels.", self.messages
        )
        yield CounterMetricFamily(
            "kas_action_cable_behind",
            "Subscriptions that dropped messages because their client read too slowly.",
            self.behind,
        )
        yield CounterMetricFamily(
            "kas_action_cable_rejections", "Rejected subscriptions.", self.rejections
        )
        yield _by(
            "kas_action_cable_disconnects",
            "Connections that kas ended, by reason.",
            "reason",
            self.disconnects,
        )


def _by(name: str, text: str, label: str, counter: Counter[str]) -> Metric:
    family = CounterMetricFamily(name, text, labels=[label])
    for key, count in sorted(counter.items()):
        family.add_metric([key], count)
    return family
