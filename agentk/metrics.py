"""Metrics of the tunnel, read at each scrape."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import attrs
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from agentk.dialer import Dialer
from agentk.extra_tunnels import ExtraTunnels
from agentk.kubernetes.reachability import ClusterReachability
from agentk.leader_election import LeaderElection
from tunnel.program.process_metrics import resumption_metrics

__all__ = ["LeaderCollector", "ReachCollector", "TunnelCollector"]


@attrs.define(eq=False)
class TunnelCollector(Collector):
    """Metrics of the tunnel; their labels contain no values from outside."""

    dialer: Dialer
    extra_tunnels: ExtraTunnels

    def collect(self) -> Iterable[Any]:
        dialer = self.dialer
        yield GaugeMetricFamily(
            "agentk_tunnel_up",
            "1 while the tunnel to kas is established.",
            value=int(dialer.ready),
        )
        yield CounterMetricFamily(
            "agentk_tunnel_connections",
            "Connections that kas welcomed.",
            value=dialer.connections,
        )
        yield GaugeMetricFamily(
            "agentk_extra_tunnels",
            "Extra tunnels, to kas that relayed many requests of this agent.",
            value=len(self.extra_tunnels.tunnels),
        )
        yield from resumption_metrics("agentk", dialer.keeper)


@attrs.define(eq=False)
class ReachCollector(Collector):
    """The metric that shows whether the API server responds."""

    reach: ClusterReachability

    def collect(self) -> Iterable[Any]:
        yield GaugeMetricFamily(
            "agentk_cluster_up",
            "1 while the Kubernetes API responds.",
            value=int(not self.reach.problem),
        )


@attrs.define(eq=False)
class LeaderCollector(Collector):
    """The metric that shows whether this agentk leads."""

    election: LeaderElection

    def collect(self) -> Iterable[Any]:
        """Return the current metric."""
        yield GaugeMetricFamily(
            "agentk_leader",
            "1 while this agentk leads; also 0 if no module needs a leader.",
            value=int(self.election.leading),
        )
