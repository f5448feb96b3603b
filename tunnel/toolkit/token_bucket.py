"""How often something may happen: at once, and in the long run."""

from __future__ import annotations

__all__ = ["TokenBucket"]

#: A clock that is not exact may leave the last bit of a token missing.
_WHOLE = 1 - 1e-9


class TokenBucket:
    """
    Rate limiter that starts full.

    Times are on one clock; a time before the last one counts as the last one.

    :param burst: events that are permitted at once.
    :param per_second: events that are permitted each second from then on.
    :ivar left: events that were still permitted at the last call.
    """

    __slots__ = ("_at", "burst", "left", "per_second")

    def __init__(self, burst: float, per_second: float, now: float) -> None:
        self.burst = burst
        self.per_second = per_second
        self.left = burst
        self._at = now

    def fill(self, now: float) -> float:
        """`left`, as it is now."""
        passed = max(0.0, now - self._at)
        self._at += passed
        self.left = min(self.burst, self.left + passed * self.per_second)
        return self.left

    def spend(self, now: float) -> bool:
        """Once more; False: it may not happen."""
        if self.fill(now) < _WHOLE:
            return False
        self.left -= 1
        return True

    def due(self, now: float) -> float:
        """Return the seconds until `spend` permits an event."""
        return max(0.0, (_WHOLE - self.fill(now)) / self.per_second)

    def borrow(self, now: float, longest: float) -> float | None:
        """
        Spend an event that may not be permitted yet.

        :return: seconds until it is permitted; None if they are more than *longest*:
            then nothing is spent.
        """
        missing = _WHOLE - self.fill(now)
        seconds = max(0.0, missing / self.per_second)
        if seconds > longest:
            return None
        self.left -= 1
        return seconds

    def earn(self, count: float = 1) -> None:
        """*count* times more, though never more than at first."""
        self.left = min(self.burst, self.left + count)
