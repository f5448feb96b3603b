"""The clients see what they are there for."""

from __future__ import annotations

from tests.faults.clients import watch_problems


def test_watch_problems() -> None:
    """An event that is lost, seen twice, or in another order."""
    made = ["event-1", "event-2", "event-3"]
    right = [f"ADDED {name}" for name in made]
    assert watch_problems([right, ["ADDED other", *right]], made) == []
    for wrong in (
        right[:2],
        right[1:],
        [right[0], right[2]],
        [right[0], right[0], *right[1:]],
        right[::-1],
    ):
        (problem,) = watch_problems([wrong], made)
        assert problem.startswith("watch 0")
