"""Metrics of agentk's projects, for Prometheus."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from modules.gitops.agent.drift.drift import DriftState
from modules.gitops.agent.project.project import Project

__all__ = ["GitopsMetrics"]

_RESULTS = {
    DriftState.REPAIRED: "repaired",
    DriftState.FAILED: "failed",
    DriftState.PAUSED: "paused",
}


class GitopsMetrics(Collector):
    """
    Collector that reads the state of projects when Prometheus scrapes.

    The labels are projects and kinds from the agent's configuration and Git, but never
    single objects.

    :param projects: the active projects, by id.
    :param now: returns the time in seconds since 1970.
    """

    def __init__(
        self, projects: Mapping[str, Project], now: Callable[[], float]
    ) -> None:
        self._projects = projects
        self._now = now

    def collect(self) -> Iterator[Metric]:
        """See `prometheus_client.registry.Collector`."""
        objects = GaugeMetricFamily(
            "agentk_gitops_objects",
            "Objects by their result when the source was last applied.",
            labels=["project", "outcome"],
        )
        out_of_sync = GaugeMetricFamily(
            "agentk_gitops_out_of_sync_seconds",
            "Seconds since an object began to differ from Git; 0 if none differs.",
            labels=["project"],
        )
        drifted = GaugeMetricFamily(
            "agentk_gitops_drifted_objects",
            "Objects that other clients have changed and that are not repaired.",
            labels=["project"],
        )
        drifts = CounterMetricFamily(
            "agentk_gitops_drifts",
            "Changes by other clients to applied objects, by kind of the object.",
            labels=["project", "kind"],
        )
        repairs = CounterMetricFamily(
            "agentk_gitops_drift_repairs",
            "Results of the repairs of such changes.",
            labels=["project", "result"],
        )
        for name, project in sorted(self._projects.items()):
            report = project.passes.report
            if report is not None:
                found = Counter(one.outcome.value for one in report.results.values())
                for outcome, count in sorted(found.items()):
                    objects.add_metric([name, outcome], count)
            since = project.status.out_of_sync_since
            seconds = max(0.0, self._now() - since) if since is not None else 0.0
            out_of_sync.add_metric([name], seconds)
            drifted.add_metric([name], len(project.drifts.present))
            for kind, count in sorted(project.drifts.by_kind.items()):
                drifts.add_metric([name, kind], count)
            for state, result in _RESULTS.items():
                repairs.add_metric([name, result], project.drifts.by_state[state])
        yield from (objects, out_of_sync, drifted, drifts, repairs)
