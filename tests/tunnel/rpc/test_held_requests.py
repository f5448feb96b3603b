"""Limits of the memory that agents' requests take."""

from __future__ import annotations

import pytest

from tunnel.rpc.held_requests import (
    CALL_SIZE,
    LATE_PART,
    MAX_HELD,
    MAX_HELD_BY_ALL,
    MIN_PART,
    HeldRequests,
)


def test_one_agent() -> None:
    held = HeldRequests()
    assert held.take("1", MAX_HELD)
    assert not held.take("1", 1)
    held.give_back("1", 1)
    assert held.take("1", 1)
    held.give_back("1", 2 * MAX_HELD)
    assert held.held("1") == 0


def fill(held: HeldRequests, agents: int) -> int:
    """Let each agent take as much as it may; return the sum."""
    for agent in range(agents):
        for size in (MIN_PART, 64 * 1024, 1024):
            while held.take(str(agent), size):
                pass
    return sum(held.held(str(agent)) for agent in range(agents))


@pytest.mark.parametrize(
    ("agents", "left"), [(4, LATE_PART), (40, LATE_PART), (100, MIN_PART)]
)
def test_all_agents(agents: int, left: int) -> None:
    """The sum has a limit, and an agent without requests may always send some."""
    held = HeldRequests()
    assert fill(held, agents) <= MAX_HELD_BY_ALL + agents * MIN_PART
    assert held.take("new", left)
    assert not held.take("new", LATE_PART + 1 - left)
    assert not held.take("0", 1024)
    assert not held.open_call("0", CALL_SIZE)
    for agent in range(agents):
        held.give_back(str(agent), MAX_HELD)
    held.give_back("new", left)
    assert held.take("0", MAX_HELD)
    held.give_back("0", MAX_HELD)
    assert held._beyond == 0
    assert not held._requests


def test_more_agents_than_parts() -> None:
    """Each further agent adds the bytes that it may always hold, and not more."""
    held = HeldRequests()
    assert fill(held, 1000) <= MAX_HELD_BY_ALL + 1000 * MIN_PART
    before = fill(held, 1000)
    assert fill(held, 1001) == before + MIN_PART


def test_calls_of_all_agents() -> None:
    """Calls without requests count, too, so that many agents cannot fill the memory."""
    held, agents = HeldRequests(), 200
    for agent in range(agents):
        for _ in range(5000):
            if not held.open_call(str(agent), CALL_SIZE):
                break
    total = sum(held.held(str(agent)) for agent in range(agents))
    assert MAX_HELD_BY_ALL <= total <= MAX_HELD_BY_ALL + agents * MIN_PART
    for _ in range(MIN_PART // CALL_SIZE):
        assert held.open_call("new", CALL_SIZE)
    assert not held.open_call("new", CALL_SIZE)
    held.close_call("0", CALL_SIZE)
    assert held.open_call("new", CALL_SIZE)


def test_a_large_fleet() -> None:
    """Open calls of thousands of agents do not use up the limit for all agents."""
    held = HeldRequests()
    for agent in range(20_000):
        for _ in range(4):
            assert held.open_call(str(agent), CALL_SIZE)
    for agent in range(300):
        assert held.take(str(agent), MIN_PART)
    assert held.held("0") == MIN_PART + 4 * CALL_SIZE
    assert fill(held, 50) <= MAX_HELD_BY_ALL + 50 * MIN_PART
    for agent in range(300, 20_000):
        assert held.take(str(agent), MIN_PART - 4 * CALL_SIZE)
    held.close_call("19999", CALL_SIZE)
    assert held.held("19999") == MIN_PART - CALL_SIZE


def test_calls_of_one_agent() -> None:
    held = HeldRequests()
    count = MAX_HELD // CALL_SIZE
    assert all(held.open_call("1", CALL_SIZE) for _ in range(count))
    assert not held.open_call("1", 1)
    assert not held.take("1", 1)
