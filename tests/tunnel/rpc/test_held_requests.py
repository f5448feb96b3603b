"""Limits of the memory that agents' requests take."""

from __future__ import annotations

from tunnel.rpc.held_requests import MAX_HELD, MAX_HELD_BY_ALL, HeldRequests


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
    assert held.take("small", 64 * 1024)
    assert not held.take("0", MAX_HELD // 64)
    for agent in range(count):
        held.give_back(str(agent), MAX_HELD)
    assert held.take("0", MAX_HELD)
