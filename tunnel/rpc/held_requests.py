"""Limit of the memory that agents' requests take until kas has handled them."""

from __future__ import annotations

from collections import Counter

import attrs

from tunnel.rpc.messages import LENGTH_SIZE, MAX_MESSAGE

__all__ = [
    "CALL_SIZE",
    "LATE_PART",
    "MAX_HELD",
    "MAX_HELD_BY_ALL",
    "MIN_PART",
    "HeldRequests",
]

#: Number of bytes that count for an open call in addition to its request: the size of
#: the call's objects.
CALL_SIZE = 8192

#: Maximum number of bytes of all unfinished requests and open calls of one agent: 1,000
#: sources of 64 KiB.  A request may be 4 MiB long, and an agent may have thousands of
#: streams, so without a limit one agent could fill the memory of kas.
MAX_HELD = 64 * 1024 * 1024

#: Bytes of unfinished requests and open calls that each agent may always hold: each
#: agent of a large fleet has some open calls.
MIN_PART = 1024 * 1024

#: Maximum number of bytes that all agents together hold beyond `MIN_PART` of each
#: agent, because one owner may have any number of agents.  So all requests and calls
#: take at most this number of bytes and `MIN_PART` for each agent.
MAX_HELD_BY_ALL = 512 * 1024 * 1024

#: Maximum number of bytes of one agent while all agents hold more than half of
#: `MAX_HELD_BY_ALL`: a request of maximum length beyond `MIN_PART`.  So a few agents
#: cannot use up the other half before others send a request.
LATE_PART = MIN_PART + LENGTH_SIZE + MAX_MESSAGE


@attrs.define(eq=False)
class HeldRequests:
    """The bytes of unfinished requests and open calls, by agent id."""

    _requests: Counter[str] = attrs.field(factory=Counter, init=False)
    _calls: Counter[str] = attrs.field(factory=Counter, init=False)
    #: The bytes of all agents beyond `MIN_PART` of each agent.
    _beyond: int = attrs.field(default=0, init=False)

    def take(self, agent_id: str, count: int) -> bool:
        """
        Add bytes of a request; return False if the agent would exceed a limit.
        """
        return self._add(self._requests, agent_id, count)

    def give_back(self, agent_id: str, count: int) -> None:
        """Subtract bytes of requests that are no longer held."""
        self._subtract(self._requests, agent_id, count)

    def open_call(self, agent_id: str, count: int) -> bool:
        """
        Add the bytes of an open call; return False if the agent would exceed a limit.
        """
        return self._add(self._calls, agent_id, count)

    def close_call(self, agent_id: str, count: int) -> None:
        """Subtract the bytes of a call that is closed."""
        self._subtract(self._calls, agent_id, count)

    def held(self, agent_id: str) -> int:
        """Return the bytes that requests and calls of an agent take now."""
        return self._requests[agent_id] + self._calls[agent_id]

    def _add(self, counts: Counter[str], agent_id: str, count: int) -> bool:
        before = self.held(agent_id)
        after = before + count
        more = _beyond(after) - _beyond(before)
        if more:
            beyond = self._beyond + more
            is_late = beyond > MAX_HELD_BY_ALL // 2
            if after > (LATE_PART if is_late else MAX_HELD) or beyond > MAX_HELD_BY_ALL:
                return False
            self._beyond = beyond
        counts[agent_id] += count
        return True

    def _subtract(self, counts: Counter[str], agent_id: str, count: int) -> None:
        """Subtract *count* from the count of an agent, which stays at least 0."""
        before = self.held(agent_id)
        left = counts[agent_id] - count
        if left > 0:
            counts[agent_id] = left
        else:
            counts.pop(agent_id, None)
        self._beyond += _beyond(self.held(agent_id)) - _beyond(before)


def _beyond(held: int) -> int:
    """Return the bytes of an agent beyond `MIN_PART`."""
    return max(0, held - MIN_PART)
