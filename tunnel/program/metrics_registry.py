"""Registry of metrics in which a collector that fails does not hide the others."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.registry import Collector
from twisted.logger import Logger

__all__ = ["MetricsRegistry"]


class _Guarded(Collector):
    """
    A collector, which has no metrics while it fails.

    :ivar is_failing: whether the last attempt failed; each failure is logged once.
    """

    _log = Logger()

    def __init__(self, collector: Any) -> None:
        self._collector = collector
        self.is_failing = False

    def describe(self) -> Iterable[Metric]:
        """Return what the collector itself describes."""
        describe = getattr(self._collector, "describe", list)
        found: Iterable[Metric] = describe()
        return found

    def collect(self) -> Iterable[Metric]:
        """Return the metrics; none if the collector fails."""
        try:
            found = list(self._collector.collect())
        except BaseException:
            if not self.is_failing:
                self._log.failure(
                    "a collector of metrics failed: {collector}",
                    collector=type(self._collector).__qualname__,
                )
            self.is_failing = True
            return []
        self.is_failing = False
        return found


class MetricsRegistry(CollectorRegistry):
    """The registry of a program, in which modules register their collectors, too."""

    def __init__(self) -> None:
        super().__init__()
        self._guards: dict[Any, _Guarded] = {}

    def register(self, collector: Any) -> None:
        """Add a collector."""
        guard = _Guarded(collector)
        super().register(guard)
        self._guards[collector] = guard

    def unregister(self, collector: Any) -> None:
        """Remove a collector."""
        super().unregister(self._guards.pop(collector))
