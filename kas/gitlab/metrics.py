"""Prometheus metrics of the requests to GitLab."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from kas.gitlab.client import GitLabClient
from kas.gitlab.module_requests import GitLabForAgents

__all__ = ["GitLabCollector"]


class GitLabCollector(Collector):
    """A collector that reads its values when Prometheus scrapes."""

    def __init__(self, client: GitLabClient, access: GitLabForAgents) -> None:
        self._client = client
        self._access = access

    def collect(self) -> Iterator[Metric]:
        """See prometheus_client."""
        requests = CounterMetricFamily(
            "kas_gitlab_requests",
            "Requests to GitLab, by path and status of the response.",
            labels=["path", "outcome"],
        )
        for (path, outcome), count in sorted(self._client.outcomes.items()):
            requests.add_metric([path, outcome], count)
        yield requests
        yield GaugeMetricFamily(
            "kas_gitlab_requests_waiting",
            "Requests that wait because of gitlab.api_rate_limit.",
            self._client.queue.waiting,
        )
        yield GaugeMetricFamily(
            "kas_gitlab_module_requests",
            "Requests of modules in agentk to GitLab that are in progress.",
            self._access.running.total(),
        )
