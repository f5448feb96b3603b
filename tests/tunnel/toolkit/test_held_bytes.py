"""Limits on bytes in memory."""

from __future__ import annotations

import pytest

from tunnel.toolkit.held_bytes import HeldBytes, TooManyBytes


def test_limits() -> None:
    """One peer cannot take the room of all others."""
    memory = HeldBytes(10, 30)
    with memory.holder() as first, memory.holder() as second:
        first.take("1", 10)
        with pytest.raises(TooManyBytes, match="too many large responses"):
            second.take("1", 1)
        for peer in ("2", "3"):
            second.take(peer, 10)
        with pytest.raises(TooManyBytes, match="too many large responses"):
            second.take("4", 1)
        assert memory.held.total() == 30
    assert not memory.held
