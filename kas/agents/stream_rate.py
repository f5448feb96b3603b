"""Limit on the streams that an agent may open to kas."""

from __future__ import annotations

import attrs
from twisted.internet.interfaces import IReactorTime

from tunnel.errors import ErrorCode, ProtocolError
from tunnel.toolkit.recent import Recent
from tunnel.toolkit.token_bucket import TokenBucket

__all__ = ["STREAMS_AT_ONCE", "STREAMS_PER_SECOND", "StreamRate"]

#: Maximum burst of streams that an agent may open.  After a restart, an agentk with 500
#: projects opens four streams for each project.
STREAMS_AT_ONCE = 5000

#: Streams per second after the burst.  A call costs kas about 100 microseconds, so an
#: agent can occupy only 2 % of a core.
STREAMS_PER_SECOND = 200

#: Maximum streams above that rate, as a burst and per second: kas refuses these
#: streams, and ends the agent's tunnels if there are more.  A refusal costs 30
#: microseconds.
REFUSED_AT_ONCE, REFUSED_PER_SECOND = 5000, 200

#: Maximum number of agents whose rate is known; the agent that was seen longest ago is
#: forgotten first.
MAX_AGENTS = 100_000


@attrs.frozen(eq=False)
class _Rate:
    accepted: TokenBucket
    refused: TokenBucket


@attrs.define(eq=False)
class StreamRate:
    """
    Rate limits of all agents, by agent id: the tunnels of one agent share one limit.
    """

    clock: IReactorTime
    at_once: int = STREAMS_AT_ONCE
    refused_at_once: int = REFUSED_AT_ONCE
    _rates: Recent[str, _Rate] = attrs.field(
        init=False, factory=lambda: Recent(MAX_AGENTS)
    )

    def check(self, agent_id: str) -> None:
        """
        Count one more stream.

        :raises ProtocolError: REFUSED if the stream exceeds the rate; FLOOD if too many
            earlier streams exceeded it, too.
        """
        now = self.clock.seconds()
        rate = self._rates.get(agent_id)
        if rate is None:
            rate = self._rates[agent_id] = _Rate(
                TokenBucket(self.at_once, STREAMS_PER_SECOND, now),
                TokenBucket(self.refused_at_once, REFUSED_PER_SECOND, now),
            )
        if rate.accepted.spend(now):
            return
        code = ErrorCode.REFUSED if rate.refused.spend(now) else ErrorCode.FLOOD
        raise ProtocolError(code, "this agent opens too many streams; slow down")

    def is_flooding(self, agent_id: str) -> bool:
        """
        Return whether kas would end the agent's tunnels because of one more stream.
        """
        rate = self._rates.get(agent_id)
        now = self.clock.seconds()
        return rate is not None and rate.refused.fill(now) < 1
