"""Metrics of the cache."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from modules.cluster_data.agent.cache import ClusterCache

__all__ = ["CacheMetrics"]


class CacheMetrics(Collector):
    """Collects the size and the contents of the cache; nothing while none exists."""

    def __init__(self) -> None:
        self.cache: ClusterCache | None = None

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        objects = GaugeMetricFamily(
            "agentk_cluster_data_objects",
            "Objects in the cache",
            labels=("group", "kind"),
        )
        synced = GaugeMetricFamily(
            "agentk_cluster_data_kind_synced",
            "1 if the objects of a kind are up to date",
            labels=("group", "kind"),
        )
        counted = GaugeMetricFamily(
            "agentk_cluster_data_kind_only_counted",
            "1 if the cache has no room for rows of a kind",
            labels=("group", "kind"),
        )
        size = GaugeMetricFamily(
            "agentk_cluster_data_bytes", "Accounted bytes of the cache"
        )
        if self.cache is not None:
            for kind, state in self.cache.kinds.items():
                labels = (kind.group, kind.kind)
                objects.add_metric(labels, len(state.objects))
                synced.add_metric(labels, float(state.state == "synced"))
                counted.add_metric(labels, float(state.only_counted))
            size.add_metric((), self.cache.size)
        yield from (objects, synced, counted, size)
