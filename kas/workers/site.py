"""Health, metrics and status of all workers as one kas."""

from __future__ import annotations

from typing import Any

import attrs
from prometheus_client import CollectorRegistry, Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from kas.config.schema import Observability
from kas.workers.calls import ANSWER_TIMEOUT, WorkerCalls
from kas.workers.operations import WorkersOperations
from kas.workers.summary import MetricTotals, add_states
from tunnel import __version__
from tunnel.compiled import build_name
from tunnel.program.site import Make, Page, Site, as_json, exposition, plain

__all__ = ["make_workers_site"]


def make_workers_site(
    settings: Observability,
    calls: WorkerCalls,
    operations: WorkersOperations,
    reactor: Any,
) -> Site:
    """Return the site of the observability listener."""
    workers = calls.workers
    totals = MetricTotals()

    def readiness() -> Page:
        if operations.ready:
            return plain("ready")
        return plain("not ready: starting, or draining", 503)

    async def status() -> Page:
        summed = await operations.summed("status", "/status", add_states)
        silent = summed.pop("silent_workers")
        agents = summed.pop("agents", [])
        return as_json(
            {
                "version": __version__,
                "build": build_name(),
                **summed,
                "workers": [
                    {
                        "worker": one.number,
                        "pid": one.pid,
                        "ready": one.opened is not None,
                        "replaced": one.replaced,
                    }
                    for one in workers.processes
                ],
                "silent_workers": silent,
                "agents": agents,
            }
        )

    async def metrics() -> Page:
        # Use the name and not the worker: a name belongs to one process, and another
        # process may soon replace it.
        names = {one: one.name for one in workers.processes}
        answers = await calls.ask_all("status", settings.prometheus.url_path)
        found = totals.add(
            {names[one]: body.decode() for one, body in answers},
            {one.name for one in workers.processes},
        )
        own = [
            GaugeMetricFamily(
                "kas_workers", "Processes of this kas.", value=len(workers.processes)
            ),
            GaugeMetricFamily(
                "kas_workers_ready",
                "Number of ready workers.",
                value=len(workers.open),
            ),
            CounterMetricFamily(
                "kas_workers_replaced",
                "Number of workers that died and were replaced.",
                value=sum(one.replaced for one in workers.processes),
            ),
        ]
        registry = CollectorRegistry()
        registry.register(_Metrics([*found, *own]))
        return exposition(registry)

    async def profile() -> Page:
        # Ask only one worker, because all workers behave alike.
        patience = settings.profile.duration + ANSWER_TIMEOUT
        first = workers.processes[0]
        found = await calls.ask(first, "status", "/debug/profile", timeout=patience)
        return Page(found)

    pages: dict[str, Make] = {
        settings.liveness_probe.url_path: lambda: plain("alive"),
        settings.readiness_probe.url_path: readiness,
        settings.prometheus.url_path: metrics,
        "/status": status,
    }
    if settings.profile.enabled:
        pages["/debug/profile"] = profile
    return Site(pages, reactor)


@attrs.frozen(eq=False)
class _Metrics(Collector):
    found: list[Metric]

    def collect(self) -> list[Metric]:
        return self.found
