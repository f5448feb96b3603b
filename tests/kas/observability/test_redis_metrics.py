"""Metrics of clients of Redis."""

from __future__ import annotations

from prometheus_client import CollectorRegistry
from twisted.internet.defer import Deferred
from twisted.internet.testing import MemoryReactorClock

from kas.config.redis import Redis
from kas.redis import RedisClient
from kas.redis.metrics import RedisCollector
from tunnel.config import RedisServer


def test_each_has_its_own() -> None:
    """One that is down does not hide behind one that works."""
    settings = Redis(server=RedisServer(address="127.0.0.1:1"))
    clients = {
        purpose: RedisClient(settings, MemoryReactorClock(), lambda: 0.0, purpose)
        for purpose in ("directory", "stores")
    }
    works, down = clients.values()
    works.reason, works.listening = "", True
    works.counters.commands = 3
    refused: Deferred[object] = down.call("GET", "x")
    refused.addErrback(lambda failure: None)
    registry = CollectorRegistry()
    registry.register(RedisCollector(clients))
    for name, outcome, *values in (
        ("up", None, 1, 0),
        ("listening", None, 1, 0),
        ("commands_total", "sent", 3, 0),
        ("commands_total", "failed", 0, 0),
        ("commands_total", "refused", 0, 1),
    ):
        for purpose, value in zip(clients, values, strict=True):
            labels = {"purpose": purpose}
            if outcome is not None:
                labels["outcome"] = outcome
            found = registry.get_sample_value(f"kas_redis_{name}", labels)
            assert found == value, (name, labels)
