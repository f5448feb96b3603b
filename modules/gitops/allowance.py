"""How often something may happen."""

from __future__ import annotations

from collections import deque

import attrs

__all__ = ["Allowance"]


@attrs.define(eq=False)
class Allowance:
    """So many times in so many seconds."""

    _times: int
    _seconds: float
    _taken: deque[float] = attrs.field(factory=deque)

    def wait(self, now: float) -> float:
        """Seconds until it may happen once more; 0: now."""
        while self._taken and self._taken[0] <= now - self._seconds:
            self._taken.popleft()
        if len(self._taken) < self._times:
            return 0.0
        return self._taken[0] + self._seconds - now

    def take(self, now: float) -> None:
        """It happens."""
        self._taken.append(now)

    def give_back(self) -> None:
        """The last time came to nothing."""
        if self._taken:
            self._taken.pop()

    @property
    def is_spent(self) -> bool:
        """As it was at the last `wait`."""
        return len(self._taken) >= self._times
