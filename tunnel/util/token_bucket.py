"""How often something may happen: at once, and in the long run."""

from __future__ import annotations

__all__ = ["TokenBucket"]

#: A clock that is not exact may leave the last bit of a token missing.
_WHOLE = 1 - 1e-9


class TokenBucket:
    """
    Full at first.

    Times are those of one clock; one that is before the last counts as the last.

    :param burst: how often at once.
    :param per_second: how often a second from then on.
    :ivar left: how often still, when it was looked at last.
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

    def borrow(self, now: float, longest: float) -> float | None:
        """
        Spend one that may still have to come.

        :return: the seconds until it has come; None: they are more than *longest*, and
            nothing is spent.
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
