"""Several workers as one."""

from __future__ import annotations

from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)

from kas.workers.summary import MetricTotals, add_agents, add_progress, add_states


def _metrics(factor: int) -> str:
    registry = CollectorRegistry()
    counter = Counter("kas_requests", "Requests.", ["code"], registry=registry)
    counter.labels("200").inc(factor)
    counter.labels(f"30{factor}").inc()
    Gauge("kas_connected_agents", "Agents.", registry=registry).set(factor)
    Gauge("kas_redis_up", "1.", ["purpose"], registry=registry).labels("x").set(
        factor == 1
    )
    Gauge("kas_peers", "Others.", registry=registry).set(3)
    Gauge("kas_certificate_expiry_seconds", "Left.", registry=registry).set(
        100 - factor
    )
    histogram = Histogram("kas_seconds", "Time.", buckets=(1, 5), registry=registry)
    histogram.observe(factor)
    return generate_latest(registry).decode()


def test_metrics() -> None:
    found = {
        (sample.name, *sample.labels.values()): sample.value
        for metric in MetricTotals().add(
            {"1": _metrics(1), "2": _metrics(2)}, ["1", "2"]
        )
        for sample in metric.samples
        if not sample.name.endswith("_created")
    }
    assert found == {
        ("kas_requests_total", "200"): 3,
        ("kas_requests_total", "301"): 1,
        ("kas_requests_total", "302"): 1,
        ("kas_connected_agents",): 3,
        ("kas_redis_up", "x"): 0,
        ("kas_peers",): 3,
        ("kas_certificate_expiry_seconds",): 98,
        ("kas_seconds_bucket", "1.0"): 1,
        ("kas_seconds_bucket", "5.0"): 2,
        ("kas_seconds_bucket", "+Inf"): 2,
        ("kas_seconds_count",): 2,
        ("kas_seconds_sum",): 3,
    }


def _samples(
    totals: MetricTotals, said: dict[str, str], alive: list[str]
) -> dict[str, float]:
    return {
        sample.name: sample.value
        for metric in totals.add(said, alive)
        for sample in metric.samples
        if not sample.labels
    }


def test_what_was_counted_stays_counted() -> None:
    """A process that ends, and one that does not answer."""
    totals = MetricTotals()
    said = {"1.0": _metrics(1), "2.0": _metrics(2)}
    assert _samples(totals, said, list(said))["kas_seconds_sum"] == 3
    silent = _samples(totals, {"1.0": _metrics(1)}, list(said))
    assert (silent["kas_seconds_sum"], silent["kas_connected_agents"]) == (3, 3)
    for _ in range(2):
        after = _samples(totals, {"1.0": _metrics(1)}, ["1.0", "2.1"])
        assert (after["kas_seconds_sum"], after["kas_connected_agents"]) == (3, 1)
    # It answered, and ended before all others had: what it said before is counted.
    late = _samples(totals, {"1.0": _metrics(1), "2.0": _metrics(2)}, ["1.0", "2.1"])
    assert late["kas_seconds_sum"] == 3
    new = {"1.0": _metrics(1), "2.1": _metrics(2)}
    after = _samples(totals, new, list(new))
    assert (after["kas_seconds_sum"], after["kas_connected_agents"]) == (5, 3)


def test_progress() -> None:
    one = {"pid": 1, "ready": True, "agents": 2, "requests": 1, "peers": 1}
    two = {"pid": 2, "ready": False, "agents": 3, "requests": 0, "peers": 1}
    assert add_progress([one, two]) == {
        "pid": 1,
        "ready": False,
        "agents": 5,
        "requests": 1,
        "peers": 1,
    }
    assert add_progress([]) == {}


def test_states() -> None:
    one = {
        "modules": {"a": "running", "b": "running"},
        "agents": [{"agent_id": "x"}],
        "cluster_problems": {"x": "down"},
    }
    two = {
        "modules": {"a": "restarting", "b": "running"},
        "agents": [{"agent_id": "y"}],
        "cluster_problems": {"y": "up"},
    }
    assert add_states([one, two]) == {
        "modules": {"a": "restarting", "b": "running"},
        "agents": [{"agent_id": "x"}, {"agent_id": "y"}],
        "cluster_problems": {"x": "down", "y": "up"},
    }


def _overview(problem: str, **agents: int | None) -> dict[str, Any]:
    """Of agents, with the times at which one instance of each connected."""
    return {
        "problem": problem,
        "agents": [
            {
                "agent_id": name,
                "connected": time is not None,
                "last_seen": None if time else 5.0,
                "connections": [{"instance_id": "i", "connected_at": time}]
                if time
                else [],
            }
            for name, time in agents.items()
        ],
    }


def test_agents() -> None:
    """What one worker has is known, whatever others know of it."""
    hung = "another worker does not respond"
    said = [_overview(hung, a=1, b=None, c=None), _overview(hung, a=None, b=7, c=None)]
    whole = add_agents([*said, _overview("", a=1, b=6, c=None)], 0, alone=True)
    agents = {one["agent_id"]: one for one in whole["agents"]}
    assert whole["problem"] == ""
    assert [agents[name]["connected"] for name in "abc"] == [True, True, False]
    assert [one["connected_at"] for one in agents["b"]["connections"]] == [7]
    assert agents["c"]["last_seen"] == 5.0
    part = add_agents(said, 1, alone=True)
    assert part["problem"] == "1 worker does not respond"
    assert [one["connected"] for one in part["agents"]] == [True, True, None]
    # Other kas may have it.
    cut_off = add_agents([_overview("no Redis", c=None)] * 2, 0, alone=False)
    assert cut_off["problem"] == "no Redis"
    assert cut_off["agents"][0]["connected"] is None
