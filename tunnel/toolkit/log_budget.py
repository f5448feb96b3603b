"""A limit for log lines that any stranger can cause."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

from tunnel.toolkit.recent import Recent
from tunnel.toolkit.token_bucket import TokenBucket

__all__ = ["LINES_AT_ONCE", "LINES_A_SECOND", "LogBudget", "LogBudgets"]

#: Maximum burst of lines, and lines per second after it: enough to see what happens,
#: and at most 10 MB a day, whatever strangers do.
LINES_AT_ONCE, LINES_A_SECOND = 20, 1

#: Maximum number of budgets of one table: ten times the number of agents of one kas. A
#: forgotten key begins with a full budget.
MAX_BUDGETS = 100_000

K = TypeVar("K", bound=Hashable)


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


class LogBudgets(Generic[K]):
    """A budget for each of many keys, such as agents: no key uses up another's."""

    def __init__(self) -> None:
        self._budgets: Recent[K, LogBudget] = Recent(MAX_BUDGETS)

    def spend(self, key: K, now: float) -> str | None:
        """Take a line from the budget of *key*; see `LogBudget.spend`."""
        budget = self._budgets.get(key)
        if budget is None:
            budget = LogBudget()
        self._budgets[key] = budget
        return budget.spend(now)
