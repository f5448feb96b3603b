"""Prometheus metrics of reads of repositories."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from kas.git.outcomes import Outcomes
from kas.git.repositories import Repositories

__all__ = ["GitCollector"]


class GitCollector(Collector):
    """A collector that reads its values when Prometheus scrapes."""

    def __init__(self, repositories: Repositories) -> None:
        self._repositories = repositories

    def collect(self) -> Iterator[Metric]:
        """See prometheus_client."""
        found = self._repositories
        yield from _counters("kas_git_command", "command", found.commands)
        yield GaugeMetricFamily(
            "kas_git_copies", "Repositories of Git servers that are here", found.copies
        )
        yield GaugeMetricFamily(
            "kas_git_copy_bytes",
            "Bytes of their packs",
            found.copy_bytes,
        )
        gitaly = found.gitaly
        yield from _counters("kas_gitaly_call", "method", gitaly.outcomes)
        yield GaugeMetricFamily(
            "kas_gitaly_calls_waiting",
            "Calls to Gitaly that wait for their turn, by gitaly.*_api_rate_limit",
            gitaly.waiting,
        )
        yield GaugeMetricFamily(
            "kas_gitaly_servers", "Gitaly servers in use", len(gitaly)
        )


def _counters(name: str, label: str, outcomes: Outcomes) -> Iterator[Metric]:
    counted = CounterMetricFamily(
        f"{name}s", f"By {label} and outcome", labels=[label, "outcome"]
    )
    for (what, outcome), count in sorted(outcomes.counts.items()):
        counted.add_metric([what, outcome], count)
    yield counted
    took = CounterMetricFamily(
        f"{name}_seconds", f"Seconds that they took, by {label}", labels=[label]
    )
    for what, seconds in sorted(outcomes.seconds.items()):
        took.add_metric([what], seconds)
    yield took
