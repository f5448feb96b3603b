"""Metrics about all kas of a fleet, which are read at each scrape."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import attrs
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from kas.fleet.balance import Balance
from kas.fleet.fleet import Fleet
from kas.routing.router import Router
from tunnel.program.process_metrics import resumption_metrics

__all__ = ["FleetCollector"]


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(name, text, value=value)


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)


@attrs.define(eq=False)
class FleetCollector(Collector):
    """Collector of the metrics of the fleet; no label contains a value from outside."""

    fleet: Fleet
    router: Router
    balance: Balance

    def collect(self) -> Iterable[Any]:
        router = self.router
        yield _counter(
            "kas_routing_rerouted",
            "Requests that were sent to another connection after a refusal or a loss.",
            router.rerouted,
        )
        yield _gauge(
            "kas_routing_remote_streams",
            "Streams of clients here to agents that are connected to another kas.",
            router.remote,
        )
        yield from resumption_metrics("kas", router.keeper)
        yield _counter(
            "kas_agents_moved",
            "Agents that were asked to connect to another kas.",
            self.balance.moved,
        )
        yield from self._peers()
        yield from self._directory()

    def _peers(self) -> Iterable[Metric]:
        fleet = self.fleet
        if fleet.peers is None or fleet.gateway is None:
            return
        yield _gauge("kas_peers", "Other living kas.", len(fleet.others()))
        yield _gauge(
            "kas_peer_sessions", "Sessions to other kas.", fleet.peers.connected
        )
        yield _counter(
            "kas_peer_failures",
            "Failed attempts to reach another kas.",
            fleet.peers.failures,
        )
        yield _gauge(
            "kas_gateway_streams",
            "Streams that other kas have open to agents here.",
            fleet.gateway.load,
        )
        asked = CounterMetricFamily(
            "kas_gateway_requests",
            "Streams that other kas requested: relayed, or refused.",
            labels=["outcome"],
        )
        asked.add_metric(["relayed"], fleet.gateway.relayed)
        asked.add_metric(["refused"], fleet.gateway.refused)
        yield asked

    def _directory(self) -> Iterable[Metric]:
        directory = self.fleet.directory
        yield _gauge(
            "kas_directory_answers",
            "Agents whose location is cached.",
            directory.entries,
        )
        yield _counter(
            "kas_directory_lookups", "Lookups in the store.", directory.lookups
        )
        yield _counter(
            "kas_directory_asked",
            "Lookups at other kas, because the store was down.",
            directory.asked,
        )
        yield _counter(
            "kas_directory_news",
            "Messages about agents of other kas.",
            directory.events_received,
        )
