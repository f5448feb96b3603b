"""A limit for log lines that any stranger can cause."""

from __future__ import annotations

from tunnel.toolkit.token_bucket import TokenBucket

__all__ = ["LINES_AT_ONCE", "LINES_A_SECOND", "LogBudget"]

#: Maximum burst of lines, and lines per second after it: enough to see what happens,
#: and at most 10 MB a day, whatever strangers do.
LINES_AT_ONCE, LINES_A_SECOND = 20, 1


class LogBudget:
    """A limit for lines of one kind, and the number of lines that were left out."""

    def __init__(self) -> None:
        self._bucket: TokenBucket | None = None
        self._left_out = 0

    def spend(self, now: float) -> str | None:
        """
        Take a line from the budget; return None if it must not be logged.

        :param now: seconds of a monotonic clock.
        :returns: text to append to the line: empty, or the number of earlier lines that
            were left out.
        """
        if self._bucket is None:
            self._bucket = TokenBucket(LINES_AT_ONCE, LINES_A_SECOND, now)
        if not self._bucket.spend(now):
            self._left_out += 1
            return None
        left_out, self._left_out = self._left_out, 0
        return f" ({left_out} such lines were left out before)" if left_out else ""
