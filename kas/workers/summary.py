"""
Functions and classes that combine the metrics, states and progress of all workers, so
that kas looks like one process.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from kas.observability.overview import joined

__all__ = ["MetricTotals", "add_agents", "add_progress", "add_states"]

#: Metrics whose largest value is used, because all workers observe the same fact.
_LARGEST = (
    "_info",
    "_timestamp_seconds",
    "process_max_fds",
    "kas_peers",
    "kas_oidc_keys",
    "_age_seconds",
)

#: Metrics whose smallest value is used.
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


#: Key of `MetricTotals`: the family, the sample, and its labels.
_Key = tuple[str, str, tuple[tuple[str, str], ...]]


class MetricTotals:
    """
    Totals of the Prometheus metrics of several processes.

    Counters, histograms and counting gauges are added.  For a fact that all processes
    share, such as the expiry of a certificate, one value is used.  The counters and
    histograms of a process still count after it has ended, because Prometheus
    interprets a falling counter as a restart.
    """

    def __init__(self) -> None:
        #: Last metrics of each process.
        self._said: dict[str, dict[str, Metric]] = {}
        #: Counts of processes that have ended.
        self._ended: dict[_Key, float] = {}
        self._families: dict[str, Metric] = {}

    def add(self, said: Mapping[str, str], alive: Collection[str]) -> list[Metric]:
        """
        Return the metrics of all processes.

        :param said: the current metrics of processes, by name; if a running process did
            not respond, its last metrics are used.
        :param alive: the names of all processes.
        """
        for name, text in said.items():
            if name not in alive:
                continue  # The process has ended, and may already be counted.
            self._said[name] = {
                family.name: family for family in text_string_to_metric_families(text)
            }
        for name in [one for one in self._said if one not in alive]:
            self._retire(self._said.pop(name))
        values = dict(self._ended)
        for families in self._said.values():
            for family in families.values():
                self._families.setdefault(family.name, family)
                _add(values, family)
        found: dict[str, Metric] = {}
        for (name, sample, labels), value in values.items():
            known = self._families[name]
            metric = found.get(name)
            if metric is None:
                metric = found[name] = Metric(name, known.documentation, known.type)
            metric.add_sample(sample, dict(labels), value)
        return list(found.values())

    def _retire(self, families: Mapping[str, Metric]) -> None:
        for family in families.values():
            if family.type in ("counter", "histogram", "summary"):
                self._families.setdefault(family.name, family)
                _add(self._ended, family)


def _add(values: dict[_Key, float], family: Metric) -> None:
    add = _how(family.name)
    for sample in family.samples:
        key = family.name, sample.name, tuple(sorted(sample.labels.items()))
        there = values.get(key)
        if there is None:
            values[key] = sample.value
        elif not sample.name.endswith("_created"):
            values[key] = add(there, sample.value)


def add_progress(said: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """
    Combine the responses of several workers into one.

    Numbers are added, and lists and named problems are joined.  For other values, the
    value of the first worker is used; `ready` and `draining` are true if they are true
    for all workers.
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
    """Combine several states into one; each module has its worst state."""
    total = add_progress(said)
    modules: dict[str, str] = {}
    for one in said:
        for name, state in one.get("modules", {}).items():
            if modules.get(name, "running") == "running":
                modules[name] = state
    total["modules"] = modules
    return total


def add_agents(
    said: Sequence[Mapping[str, Any]], silent: int, *, alone: bool
) -> dict[str, Any]:
    """
    Combine several overviews of agents into one.

    Each overview contains at least the connections of its worker; while another worker
    does not respond, an overview may contain no more.

    :param silent: the number of further workers that did not respond.
    :param alone: whether these workers are the only kas.
    """
    problems: list[str] = []
    if silent:
        does = "worker does" if silent == 1 else "workers do"
        problems.append(f"{silent} {does} not respond")
    if not alone:
        problems += [one["problem"] for one in said if one["problem"]]
    return joined(said, list(dict.fromkeys(problems)))
