"""Health, metrics and status over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import attrs
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector
from twisted.internet.interfaces import IReactorTime

from kas.agents.registry import Registry
from kas.config.schema import Observability
from kas.routing.router import Router
from tunnel import __version__
from tunnel.compiled import build_name
from tunnel.program.profile import Profiler
from tunnel.program.site import Make, Page, Site, as_json, exposition, plain


@attrs.define(eq=False)
class Health:
    """State that the probes and the status page show."""

    registry: Registry
    router: Router
    #: Function that returns the state of every module, by name.
    module_states: Callable[[], dict[str, str]]
    #: Function that returns the number of other kas that this kas knows.
    peers: Callable[[], int] = lambda: 0
    #: Function that describes the process and its knowledge of other processes.
    about: Callable[[], dict[str, Any]] = dict
    #: Number of refused agents, by reason.
    refusals: Mapping[str, int] = attrs.Factory(dict)
    #: Whether all listeners are open, and kas is not stopping.
    ready: bool = False

    def status(self) -> dict[str, Any]:
        """Return the data for ``kasctl status``."""
        return {
            "version": __version__,
            "build": build_name(),
            **self.about(),
            "ready": self.ready,
            "modules": self.module_states(),
            "peers": self.peers(),
            "waiting_requests": self.router.waiting,
            "agents": [
                {
                    "agent_id": one.agent.agent_id,
                    "agent_name": one.agent.agent_name,
                    "instance_id": one.agent.instance_id.hex(),
                    "generation": one.agent.generation,
                    "version": one.agent.version,
                    "pod_namespace": one.agent.pod_namespace,
                    "pod_name": one.agent.pod_name,
                    "kubernetes_version": one.agent.kubernetes_version.git_version,
                    "cluster_problem": one.agent.cluster_problem,
                    "peer": one.tunnel.peer,
                    "streams": one.tunnel.load,
                    "alive": one.tunnel.alive,
                }
                for one in self.registry
            ],
            "extra_tunnels": [
                {
                    "agent_id": one.agent.agent_id,
                    "agent_name": one.agent.agent_name,
                    "instance_id": one.agent.instance_id.hex(),
                    "peer": one.tunnel.peer,
                    "streams": one.tunnel.load,
                    "alive": one.tunnel.alive,
                }
                for one in self.registry.tunnels()
                if one.extra
            ],
        }


class KasCollector(Collector):
    """Collector of gauges that are read at each scrape."""

    def __init__(self, health: Health) -> None:
        self._health = health

    def collect(self) -> Iterable[Any]:
        health = self._health
        yield GaugeMetricFamily(
            "kas_connected_agents", "Agents here.", value=health.registry.agents
        )
        yield GaugeMetricFamily(
            "kas_agent_connections", "Their connections.", value=len(health.registry)
        )
        yield GaugeMetricFamily(
            "kas_extra_tunnels",
            "Extra tunnels here, of busy agents that are connected to another kas.",
            value=health.registry.extra,
        )
        yield GaugeMetricFamily(
            "kas_agents_without_cluster",
            "Connected agents that cannot reach their Kubernetes API.",
            value=sum(bool(one.agent.cluster_problem) for one in health.registry),
        )
        yield GaugeMetricFamily(
            "kas_tunnel_streams",
            "Open streams of all tunnels.",
            value=sum(one.tunnel.load for one in health.registry.tunnels()),
        )
        yield GaugeMetricFamily(
            "kas_waiting_streams",
            "Streams that wait for an agent that is not connected.",
            value=health.router.waiting,
        )
        refused = CounterMetricFamily(
            "kas_agents_refused", "Refused connections of agents.", labels=["reason"]
        )
        for reason, count in health.refusals.items():
            refused.add_metric([reason], count)
        yield refused


def make_site(
    settings: Observability,
    health: Health,
    metrics: CollectorRegistry,
    clock: IReactorTime,
) -> Site:
    """Return the site of the observability listener."""
    metrics.register(KasCollector(health))

    def readiness() -> Page:
        if health.ready:
            return plain("ready")
        return plain("not ready: starting, or draining", 503)

    pages: dict[str, Make] = {
        settings.liveness_probe.url_path: lambda: plain("alive"),
        settings.readiness_probe.url_path: readiness,
        settings.prometheus.url_path: lambda: exposition(metrics),
        "/status": lambda: as_json(health.status()),
    }
    if settings.profile.enabled:
        pages["/debug/profile"] = Profiler(clock, settings.profile.duration).page
    return Site(pages, clock)
