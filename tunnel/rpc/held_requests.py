"""Limit of the memory that requests of one agent take while kas answers them."""

from __future__ import annotations

import attrs

__all__ = ["CALL_SIZE", "MAX_HELD", "HeldRequests"]

#: Bytes that an open call counts apart from its request: its objects take as many.
CALL_SIZE = 8192

#: Bytes of all requests that one agent has sent and that are not answered: 1,000
#: sources of 64 KiB.  A request has at most 4 MiB and an agent thousands of streams, so
#: without a limit one agent could fill the memory of kas.
MAX_HELD = 64 * 1024 * 1024


@attrs.define(eq=False)
class HeldRequests:
    """Bytes of unanswered requests, by agent id."""

    _held: dict[str, int] = attrs.field(factory=dict, init=False)

    def take(self, agent_id: str, count: int) -> bool:
        """Count bytes that arrived; return False if they exceed the limit."""
        held = self._held.get(agent_id, 0) + count
        if held > MAX_HELD:
            return False
        self._held[agent_id] = held
        return True

    def give_back(self, agent_id: str, count: int) -> None:
        """Count bytes down that are no longer held."""
        left = self._held.get(agent_id, 0) - count
        if left > 0:
            self._held[agent_id] = left
        else:
            self._held.pop(agent_id, None)

    def held(self, agent_id: str) -> int:
        """Return the bytes that requests of an agent take now."""
        return self._held.get(agent_id, 0)
