"""The metrics, states and progress of all workers, as if they were one kas."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

__all__ = ["add_metrics", "add_progress", "add_states"]

#: Metrics of which the largest is that of all, because each worker sees the same.
_LARGEST = (
    "_info",
    "_timestamp_seconds",
    "process_max_fds",
    "kas_peers",
    "kas_oidc_keys",
    "_age_seconds",
)

#: Those of which the smallest is.
_SMALLEST = (
    "_expiry_seconds",
    "process_start_time_seconds",
    "kas_redis_up",
    "kas_redis_listening",
)


def _how(name: str) -> Callable[[float, float], float]:
    if name.endswith(_SMALLEST):
        return min
    if name.endswith(_LARGEST):
        return max
    return lambda one, other: one + other


def add_metrics(texts: Iterable[str]) -> list[Metric]:
    """
    One of each metric of what Prometheus would read from several processes.

    Counters, histograms and counts are added; of what describes all of them alike, such
    as the end of a certificate, there is one.
    """
    found: dict[str, Metric] = {}
    values: dict[str, dict[tuple[str, tuple[tuple[str, str], ...]], float]] = {}
    for text in texts:
        for family in text_string_to_metric_families(text):
            found.setdefault(
                family.name, Metric(family.name, family.documentation, family.type)
            )
            of_family = values.setdefault(family.name, {})
            add = _how(family.name)
            for sample in family.samples:
                key = sample.name, tuple(sorted(sample.labels.items()))
                if key in of_family and not sample.name.endswith("_created"):
                    of_family[key] = add(of_family[key], sample.value)
                else:
                    of_family.setdefault(key, sample.value)
    for name, metric in found.items():
        for (sample_name, labels), value in values[name].items():
            metric.add_sample(sample_name, dict(labels), value)
    return list(found.values())


def add_progress(said: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """
    One of the answers of several workers.

    Numbers are added, what lists and names problems is joined; of anything else there
    is what the first says, and `ready` and `draining` are what is true of all.
    """
    total: dict[str, Any] = {}
    for one in said:
        for key, value in one.items():
            there = total.get(key)
            if there is None:
                total[key] = value
            elif isinstance(value, bool):
                total[key] = there and value
            elif key in ("peers", "pid"):
                continue
            elif isinstance(value, int | float):
                total[key] = there + value
            elif isinstance(value, list):
                total[key] = [*there, *value]
            elif isinstance(value, dict):
                total[key] = {**value, **there}
    return total


def add_states(said: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One status of those of several; a module is as it is where it is worst."""
    total = add_progress(said)
    modules: dict[str, str] = {}
    for one in said:
        for name, state in one.get("modules", {}).items():
            if modules.get(name, "running") == "running":
                modules[name] = state
    total["modules"] = modules
    return total
