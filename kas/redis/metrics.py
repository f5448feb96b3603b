"""Metrics of each Redis client, by its purpose."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import attrs
from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from kas.redis.client import RedisClient

__all__ = ["RedisCollector"]


@attrs.define(eq=False)
class RedisCollector(Collector):
    """
    Collector that reads the counters of each client at each scrape.

    :ivar clients: the clients by their purpose: ``directory``, ``stores``.
    """

    clients: Mapping[str, RedisClient]

    def collect(self) -> Iterator[Metric]:
        up = GaugeMetricFamily(
            "kas_redis_up", "1 while Redis is available.", labels=["purpose"]
        )
        listening = GaugeMetricFamily(
            "kas_redis_listening", "1 while events arrive.", labels=["purpose"]
        )
        commands = CounterMetricFamily(
            "kas_redis_commands",
            "Commands: sent, failed, refused at once because Redis was down.",
            labels=["purpose", "outcome"],
        )
        for purpose, client in self.clients.items():
            up.add_metric([purpose], client.up)
            listening.add_metric([purpose], client.listening)
            counters = client.counters
            commands.add_metric([purpose, "sent"], counters.commands)
            commands.add_metric([purpose, "failed"], counters.failures)
            commands.add_metric([purpose, "refused"], counters.refused)
        yield from (up, listening, commands)
