"""Metrics of the cache."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from modules.cluster_data.agent.cache import ClusterCache
from modules.cluster_data.agent.objects.reads import ReadMetrics

__all__ = ["CacheMetrics"]


class CacheMetrics(Collector):
    """
    Collects the size and the contents of the cache, and the requests of its readers.

    :ivar cache: None while this agentk does not lead.
    """

    def __init__(self, reads: ReadMetrics) -> None:
        self.cache: ClusterCache | None = None
        self._reads = reads

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
        whole = GaugeMetricFamily(
            "agentk_cluster_data_whole_objects",
            "Whole objects in the cache, for readers",
            labels=("group", "version", "kind"),
        )
        whole_size = GaugeMetricFamily(
            "agentk_cluster_data_whole_bytes",
            "Accounted bytes of whole objects",
            labels=("group", "version", "kind"),
        )
        if self.cache is not None:
            for kind, state in self.cache.kinds.items():
                labels = (kind.group, kind.kind)
                if state.views:
                    objects.add_metric(labels, len(state.objects))
                    synced.add_metric(labels, float(state.state == "synced"))
                    counted.add_metric(labels, float(state.only_counted))
                if state.store is not None:
                    versioned = (kind.group, kind.version, kind.kind)
                    whole.add_metric(versioned, state.store.count)
                    whole_size.add_metric(versioned, state.store.size)
            size.add_metric((), self.cache.size)
        reads = CounterMetricFamily(
            "agentk_cluster_data_reads",
            "Requests for whole objects",
            labels=("verb", "status"),
        )
        for (verb, status), count in self._reads.results.items():
            reads.add_metric((verb, str(status)), count)
        watches = GaugeMetricFamily(
            "agentk_cluster_data_watches",
            "Open watches of readers",
            value=self._reads.watches.total(),
        )
        yield from (objects, synced, counted, size, whole, whole_size, reads, watches)
