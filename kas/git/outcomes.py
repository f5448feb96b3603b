"""How often something was done, how it ended, and how long it took."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tunnel.errors import CallError

__all__ = ["Outcomes"]


class Outcomes:
    """
    Counts what passes through `measure`.

    :param seconds: what the clock says.
    """

    def __init__(self, seconds: Callable[[], float]) -> None:
        self._now = seconds
        self.counts: Counter[tuple[str, str]] = Counter()
        self.seconds: defaultdict[str, float] = defaultdict(float)

    @contextmanager
    def measure(self, what: str) -> Iterator[list[str]]:
        """
        Count *what*, once it is over, by the status that it fails with.

        A text that is added to the list is its outcome instead of ``ok``.
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
