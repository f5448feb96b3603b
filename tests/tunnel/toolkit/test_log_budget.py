"""A limit for log lines that any stranger can cause."""

from __future__ import annotations

from tunnel.toolkit.log_budget import (
    LINES_A_SECOND,
    LINES_AT_ONCE,
    LogBudget,
    LogBudgets,
)


def test_lines() -> None:
    """Some at once, then some each second; a line says how many were left out."""
    budget = LogBudget()
    said = [budget.spend(100.0) for _ in range(LINES_AT_ONCE + 30)]
    assert said == [""] * LINES_AT_ONCE + [None] * 30
    found = budget.spend(100.0 + 1 / LINES_A_SECOND)
    assert found == " (30 such lines were left out before)"
    assert budget.spend(101.0) is None
    assert budget.spend(103.0) == " (1 such lines were left out before)"
    assert budget.spend(103.0) == ""


def test_budgets_of_keys() -> None:
    """One key leaves the budgets of all others alone."""
    budgets: LogBudgets[str] = LogBudgets()
    said = [budgets.spend("loud", 100.0) for _ in range(LINES_AT_ONCE + 1)]
    assert said == [""] * LINES_AT_ONCE + [None]
    assert budgets.spend("quiet", 100.0) == ""
    assert budgets.spend("loud", 101.0) == " (1 such lines were left out before)"
