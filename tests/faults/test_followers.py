"""Numbered lines are told from such that lack one."""

from __future__ import annotations

from tests.faults.followers import gaps


def test_gaps() -> None:
    """A line that is lost, repeated or out of turn; and no line at all."""
    assert gaps([1, 2, 3]) == []
    assert gaps([1, 3]) == ["3 after 1"]
    assert gaps([1, 2, 2]) == ["2 after 2"]
    assert len(gaps([2, 1, 3])) == 2
    assert gaps([])
