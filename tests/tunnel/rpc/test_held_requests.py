"""Limits of the memory that agents' requests take."""

from __future__ import annotations

from tunnel.rpc.held_requests import (
    CALL_SIZE,
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


def test_all_agents() -> None:
    """Many agents have parts of one limit, and the smallest holders go on."""
    held, count = HeldRequests(), 40
    for _ in range(64):
        for agent in range(count):
            held.take(str(agent), MAX_HELD // 64)
    total = sum(held.held(str(agent)) for agent in range(count))
    assert MAX_HELD_BY_ALL <= total <= 2 * MAX_HELD_BY_ALL
    assert held.take("small", MIN_PART)
    assert not held.take("0", MAX_HELD // 64)
    for agent in range(count):
        held.give_back(str(agent), MAX_HELD)
    assert held.take("0", MAX_HELD)


def test_a_large_fleet() -> None:
    """Open calls of thousands of agents count for each agent alone."""
    held = HeldRequests()
    for agent in range(20_000):
        for _ in range(4):
            assert held.open_call(str(agent), CALL_SIZE)
    for agent in range(300):
        assert held.take(str(agent), MIN_PART)
    assert held.held("0") == MIN_PART + 4 * CALL_SIZE
    held.close_call("0", CALL_SIZE)
    assert held.held("0") == MIN_PART + 3 * CALL_SIZE


def test_calls_of_one_agent() -> None:
    held = HeldRequests()
    count = MAX_HELD // CALL_SIZE
    assert all(held.open_call("1", CALL_SIZE) for _ in range(count))
    assert not held.open_call("1", 1)
    assert not held.take("1", 1)
