"""Budgets of work by peer."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock

from tunnel.toolkit import peer_budgets as peer_budgets_module
from tunnel.toolkit.peer_budgets import OverBudget, PeerBudgets


class BudgetStand:
    """Budgets of three units, and of two more per second."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.budgets: PeerBudgets[str] = PeerBudgets(
            self.clock, burst=3, per_second=2, most_waiting=4, seconds=3
        )
        self.done: list[Any] = []

    def admit(self, peer: str = "alice", note: Any = None) -> Deferred[None]:
        """Begin work, and note that, or the error."""
        admitted = Deferred.fromCoroutine(self.budgets.admit(peer))
        admitted.addCallbacks(
            lambda _: self.done.append(note or peer),
            lambda failure: self.done.append(failure.value),
        )
        return admitted


@pytest.fixture
def stand() -> BudgetStand:
    return BudgetStand()


def test_a_burst_and_a_rate(stand: BudgetStand) -> None:
    for number in range(1, 6):
        stand.admit(note=number)
    assert stand.done == [1, 2, 3]
    stand.clock.advance(0.5)
    assert stand.done == [1, 2, 3, 4]
    stand.clock.advance(0.5)
    assert stand.done == [1, 2, 3, 4, 5]
    assert stand.budgets.waiting == 0


def test_a_peer_does_not_wait_for_another(stand: BudgetStand) -> None:
    stand.budgets.charge("alice", 100)
    stand.admit("bob")
    assert stand.done == ["bob"]


def test_work_that_cost_more(stand: BudgetStand) -> None:
    """The next work waits for it, also if it was in the queue already."""
    stand.budgets.charge("alice", 3)
    stand.admit(note=1)
    stand.admit(note=2)
    stand.clock.advance(0.5)
    stand.budgets.charge("alice", 2)
    for _ in range(3):
        stand.clock.advance(0.5)
    assert stand.done == [1, 2]


def test_too_long_a_wait(stand: BudgetStand) -> None:
    stand.budgets.charge("alice", 10)
    stand.admit()
    (error,) = stand.done
    assert isinstance(error, OverBudget)
    assert error.seconds == pytest.approx(4)
    assert str(error) == "the budget is spent; try again in 4 seconds"


def test_too_many_callers(stand: BudgetStand) -> None:
    stand.budgets.charge("alice", 3)
    for number in range(1, 6):
        stand.admit(note=number)
    (error,) = stand.done
    assert isinstance(error, OverBudget)
    for _ in range(4):
        stand.clock.advance(0.5)
    assert stand.done[1:] == [1, 2, 3, 4]


def test_a_caller_that_leaves(stand: BudgetStand) -> None:
    stand.budgets.charge("alice", 3)
    first = stand.admit()
    stand.admit(note=2)
    first.cancel()
    assert isinstance(stand.done[0], CancelledError)
    stand.clock.advance(0.5)
    assert stand.done[1:] == [2]
    assert stand.budgets.waiting == 0


def test_peers_are_limited(stand: BudgetStand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_budgets_module, "MAX_PEERS", 2)
    stand.budgets = PeerBudgets(stand.clock, burst=3, per_second=2)
    for peer in ("alice", "bob", "alice", "carol"):
        stand.budgets.charge(peer, 3)
    assert [bool(stand.budgets.due(one)) for one in ("alice", "bob")] == [True, False]
