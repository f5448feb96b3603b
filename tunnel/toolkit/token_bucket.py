"""Limits for the rate of events: a burst, and a rate in the long run."""

from __future__ import annotations

__all__ = ["TokenBucket"]

#: Smallest number that counts as a whole token, because a clock is inexact.
_WHOLE = 1 - 1e-9


class TokenBucket:
    """
    A rate limiter that starts full.

    All times are from one clock; a time before the last one is treated as the last one.

    :param burst: the number of events that are permitted at once.
    :param per_second: the number of events per second after that.
    :ivar left: the number of events that were still permitted at the last call.
    """

    __slots__ = ("_at", "burst", "left", "per_second")

    def __init__(self, burst: float, per_second: float, now: float) -> None:
        self.burst = burst
        self.per_second = per_second
        self.left = burst
        self._at = now

    def fill(self, now: float) -> float:
        """Update and return `left`."""
        passed = max(0.0, now - self._at)
        self._at += passed
        self.left = min(self.burst, self.left + passed * self.per_second)
        return self.left

    def spend(self, now: float) -> bool:
        """Spend an event; return False if none is permitted."""
        if self.fill(now) < _WHOLE:
            return False
        self.left -= 1
        return True

    def due(self, now: float) -> float:
        """Return the seconds until `spend` permits an event."""
        return max(0.0, (_WHOLE - self.fill(now)) / self.per_second)

    def borrow(self, now: float, longest: float) -> float | None:
        """
        Spend an event, even before it is permitted.

        :returns: the seconds until the event is permitted; None if this is longer than
            *longest*, and then no event is spent.
        """
        missing = _WHOLE - self.fill(now)
        seconds = max(0.0, missing / self.per_second)
        if seconds > longest:
            return None
        self.left -= 1
        return seconds

    def charge(self, now: float, count: float) -> None:
        """Spend *count* events that have happened, even more than are permitted."""
        self.fill(now)
        self.left -= count

    def earn(self, count: float = 1) -> None:
        """Add *count* events, up to the burst."""
        self.left = min(self.burst, self.left + count)
