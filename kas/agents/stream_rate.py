"""Limit on how often an agent may open streams to kas."""

from __future__ import annotations

import attrs
from twisted.internet.interfaces import IReactorTime

from tunnel.util.recent import Recent
from tunnel.util.token_bucket import TokenBucket

__all__ = ["STREAMS_AT_ONCE", "STREAMS_PER_SECOND", "StreamRate"]

#: Streams that an agent may open at once.  After a restart, an agentk with 500 projects
#: opens four for each of them.
STREAMS_AT_ONCE = 5000

#: ... and each second from then on.  A call costs kas about 100 microseconds: an agent
#: can occupy two hundredths of a core, and not all of it.
STREAMS_PER_SECOND = 200

#: Agents whose rate is known; kas forgets the rate of the agent seen longest ago.
MAX_AGENTS = 100_000


@attrs.define(eq=False)
class StreamRate:
    """Rates of all agents, by agent id: tunnels of one agent share its rate."""

    clock: IReactorTime
    _rates: Recent[str, TokenBucket] = attrs.field(
        init=False, factory=lambda: Recent(MAX_AGENTS)
    )

    def allows(self, agent_id: str) -> bool:
        """Count one more stream; return False if it exceeds the rate."""
        now = self.clock.seconds()
        rate = self._rates.get(agent_id)
        if rate is None:
            rate = TokenBucket(STREAMS_AT_ONCE, STREAMS_PER_SECOND, now)
            self._rates[agent_id] = rate
        return rate.spend(now)
