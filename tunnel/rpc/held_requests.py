"""A limit of the memory that requests of one agent take until kas has handled them."""

from __future__ import annotations

import attrs

__all__ = ["CALL_SIZE", "MAX_HELD", "HeldRequests"]

#: Number of bytes that an open call counts in addition to its request: the size of its
#: objects.
CALL_SIZE = 8192

#: Maximum number of bytes of all unfinished requests of one agent: 1,000 sources of 64
#: KiB.  A request has at most 4 MiB and an agent thousands of streams, so without a
#: limit one agent could fill the memory of kas.
MAX_HELD = 64 * 1024 * 1024


@attrs.define(eq=False)
class HeldRequests:
    """The bytes of unfinished requests, by agent id."""

    _held: dict[str, int] = attrs.field(factory=dict, init=False)

    def take(self, agent_id: str, count: int) -> bool:
        """Add bytes that arrived; return False if they exceed the limit."""
        held = self._held.get(agent_id, 0) + count
        if held > MAX_HELD:
            return False
        self._held[agent_id] = held
        return True

    def give_back(self, agent_id: str, count: int) -> None:
        """Subtract bytes that are no longer held."""
        left = self._held.get(agent_id, 0) - count
        if left > 0:
            self._held[agent_id] = left
        else:
            self._held.pop(agent_id, None)

    def held(self, agent_id: str) -> int:
        """Return the bytes that requests of an agent take now."""
        return self._held.get(agent_id, 0)
