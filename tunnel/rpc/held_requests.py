"""Limit of the memory that agents' requests take until kas has handled them."""

from __future__ import annotations

import attrs

__all__ = ["CALL_SIZE", "MAX_HELD", "MAX_HELD_BY_ALL", "MIN_PART", "HeldRequests"]

#: Number of bytes that count for an open call in addition to its request: the size of
#: the call's objects.
CALL_SIZE = 8192

#: Maximum number of bytes of all unfinished requests and open calls of one agent: 1,000
#: sources of 64 KiB.  A request may be 4 MiB long, and an agent may have thousands of
#: streams, so without a limit one agent could fill the memory of kas.
MAX_HELD = 64 * 1024 * 1024

#: Bytes of all unfinished requests of all agents, because one owner may have any number
#: of agents.  If the requests exceed this number, each agent may hold an equal part of
#: it, and at least `MIN_PART`; so the sum is at most twice this number.  Open calls do
#: not count, because each agent of a large fleet has some.
MAX_HELD_BY_ALL = 256 * 1024 * 1024

#: Bytes of unfinished requests that each agent may always hold.
MIN_PART = 1024 * 1024


@attrs.define(eq=False)
class HeldRequests:
    """The bytes of unfinished requests and open calls, by agent id."""

    _requests: dict[str, int] = attrs.field(factory=dict, init=False)
    _calls: dict[str, int] = attrs.field(factory=dict, init=False)
    _total: int = attrs.field(default=0, init=False)

    def take(self, agent_id: str, count: int) -> bool:
        """
        Add bytes of a request; return False if the agent's requests would exceed a
        limit.
        """
        held = self._requests.get(agent_id, 0) + count
        total = self._total + count
        if held + self._calls.get(agent_id, 0) > MAX_HELD:
            return False
        if total > MAX_HELD_BY_ALL:
            part = MAX_HELD_BY_ALL // (len(self._requests) + 1)
            if held > max(part, MIN_PART):
                return False
        self._requests[agent_id], self._total = held, total
        return True

    def give_back(self, agent_id: str, count: int) -> None:
        """Subtract bytes of requests that are no longer held."""
        self._total -= _subtract(self._requests, agent_id, count)

    def open_call(self, agent_id: str, count: int) -> bool:
        """
        Add the bytes of an open call; return False if the agent would exceed its limit.
        """
        calls = self._calls.get(agent_id, 0) + count
        if self._requests.get(agent_id, 0) + calls > MAX_HELD:
            return False
        self._calls[agent_id] = calls
        return True

    def close_call(self, agent_id: str, count: int) -> None:
        """Subtract the bytes of a call that is closed."""
        _subtract(self._calls, agent_id, count)

    def held(self, agent_id: str) -> int:
        """Return the bytes that requests and calls of an agent take now."""
        return self._requests.get(agent_id, 0) + self._calls.get(agent_id, 0)


def _subtract(counts: dict[str, int], agent_id: str, count: int) -> int:
    """
    Subtract *count* from the count of an agent, which stays at least 0; return the
    number of bytes that were subtracted.
    """
    before = counts.get(agent_id, 0)
    left = max(0, before - count)
    if left:
        counts[agent_id] = left
    else:
        counts.pop(agent_id, None)
    return before - left
