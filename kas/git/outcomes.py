"""Counters of operations, by outcome, and of their durations."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tunnel.errors import CallError

__all__ = ["Outcomes"]


class Outcomes:
    """
    Counters for the operations that `measure` wraps.

    :param seconds: returns the time of a monotonic clock.
    """

    def __init__(self, seconds: Callable[[], float]) -> None:
        self._now = seconds
        self.counts: Counter[tuple[str, str]] = Counter()
        self.seconds: defaultdict[str, float] = defaultdict(float)

    @contextmanager
    def measure(self, what: str) -> Iterator[list[str]]:
        """
        Count an operation by the status of its error.

        If the caller adds a text to the list, this text replaces the outcome ``ok``.
        """
        begun = self._now()
        said: list[str] = []
        outcome = "cancelled"
        try:
            yield said
            outcome = said[-1] if said else "ok"
        except CallError as error:
            outcome = error.status.name.lower()
            raise
        finally:
            self.counts[what, outcome] += 1
            self.seconds[what] += self._now() - begun
