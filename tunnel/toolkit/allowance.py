"""A limit for the rate of an action."""

from __future__ import annotations

from collections import deque

import attrs

__all__ = ["Allowance"]


@attrs.define(eq=False)
class Allowance:
    """
    Limit for the rate of an action: at most *times* actions in any period of *seconds*.
    """

    _times: int
    _seconds: float
    _taken: deque[float] = attrs.field(factory=deque)

    def wait(self, now: float) -> float:
        """
        Return the seconds until the action is allowed again; 0 if it is allowed now.
        """
        while self._taken and self._taken[0] <= now - self._seconds:
            self._taken.popleft()
        if len(self._taken) < self._times:
            return 0.0
        return self._taken[0] + self._seconds - now

    def take(self, now: float) -> None:
        """Count an action."""
        self._taken.append(now)

    def give_back(self) -> None:
        """Take back the last count, because the action had no effect."""
        if self._taken:
            self._taken.pop()

    @property
    def is_spent(self) -> bool:
        """
        Whether the limit is reached; only `wait` forgets actions that no longer count.
        """
        return len(self._taken) >= self._times
