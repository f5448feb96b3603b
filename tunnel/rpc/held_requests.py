"""A limit of the memory that requests of one agent take until kas has handled them."""

from __future__ import annotations

import attrs

__all__ = ["CALL_SIZE", "MAX_HELD", "MAX_HELD_BY_ALL", "HeldRequests"]

#: Bytes that an open call counts in addition to its request: the size of its objects.
CALL_SIZE = 8192

#: Bytes of all unfinished requests of one agent: 1,000 sources of 64 KiB.  A request
#: has at most 4 MiB and an agent thousands of streams, so without a limit one agent
#: could fill the memory of kas.
MAX_HELD = 64 * 1024 * 1024

#: Bytes of all unfinished requests of all agents. Beyond that, an agent has its part of
#: them, so the bytes are never more than twice as many. One owner may have any number
#: of agents.
MAX_HELD_BY_ALL = 256 * 1024 * 1024


@attrs.define(eq=False)
class HeldRequests:
    """The bytes of unfinished requests, by agent id."""

    _held: dict[str, int] = attrs.field(factory=dict, init=False)
    _total: int = attrs.field(default=0, init=False)

    def take(self, agent_id: str, count: int) -> bool:
        """Add bytes that arrived; return False if they exceed the limit."""
        held = self._held.get(agent_id, 0) + count
        total = self._total + count
        if held > MAX_HELD:
            return False
        if total > MAX_HELD_BY_ALL and held > MAX_HELD_BY_ALL // (len(self._held) + 1):
            return False
        self._held[agent_id], self._total = held, total
        return True

    def give_back(self, agent_id: str, count: int) -> None:
        """Subtract bytes that are no longer held."""
        held = self._held.get(agent_id, 0)
        left = max(0, held - count)
        self._total -= held - left
        if left:
            self._held[agent_id] = left
        else:
            self._held.pop(agent_id, None)

    def held(self, agent_id: str) -> int:
        """Return the bytes that requests of an agent take now."""
        return self._held.get(agent_id, 0)
