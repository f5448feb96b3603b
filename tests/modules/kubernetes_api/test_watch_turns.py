"""Turns of connections with paused watches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from modules.kubernetes_api.watch_turns import TURN_SECONDS, WatchTurns


class Reactor:
    """A clock whose calls without delay are due in its next turn, as in a reactor."""

    def __init__(self) -> None:
        self.now = 0.0
        self.calls: list[Callable[[], object]] = []

    def seconds(self) -> float:
        return self.now

    def callLater(self, delay: float, call: Callable[[], object]) -> None:
        assert delay == 0
        self.calls.append(call)

    def turn(self) -> None:
        calls, self.calls = self.calls, []
        for one in calls:
            one()


class Turning:
    """A connection that needs some turns, each of which takes time."""

    def __init__(
        self, clock: Reactor, name: str, log: list[str], turns: int, seconds: float
    ) -> None:
        self.clock = clock
        self.name = name
        self.log = log
        self.turns = turns
        self.seconds = seconds

    def take_turn(self) -> bool:
        self.log.append(self.name)
        self.clock.now += self.seconds
        self.turns -= 1
        return self.turns > 0


def test_owners_take_turns() -> None:
    clock, log = Reactor(), list[str]()
    turns = WatchTurns(cast(Any, clock))
    for name in ("a1", "a2", "a3"):
        turns.add("a", Turning(clock, name, log, 2, TURN_SECONDS))
    turns.add("b", Turning(clock, "b1", log, 2, TURN_SECONDS))
    for _ in range(8):
        before = len(log)
        clock.turn()
        # The time of a turn is used up.
        assert len(log) == before + 1
    assert log == ["a1", "b1", "a2", "b1", "a3", "a1", "a2", "a3"]
    assert clock.calls == []


def test_many_short_turns_at_once() -> None:
    """But each connection takes one, and other connections of kas come in between."""
    clock, log = Reactor(), list[str]()
    turns = WatchTurns(cast(Any, clock))
    for name in "abc":
        turns.add(name, Turning(clock, name, log, 2, TURN_SECONDS / 10))
    clock.turn()
    assert log == ["a", "b", "c"]
    clock.turn()
    assert log == ["a", "b", "c"] * 2


def test_a_failure_does_not_stop_others() -> None:
    clock, log = Reactor(), list[str]()
    turns = WatchTurns(cast(Any, clock))
    broken = Turning(clock, "broken", log, 1, 0)
    broken.take_turn = lambda: bool(1 / 0)  # type: ignore[method-assign]
    turns.add("a", broken)
    turns.add("b", Turning(clock, "b", log, 1, 0))
    clock.turn()
    assert log == ["b"]
