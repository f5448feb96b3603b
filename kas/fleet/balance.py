"""
Balancing of agents: moves agents to other kas when this kas stops, or when it has too
many.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import attrs
from twisted.logger import Logger

from kas.agents.registry import AgentConnection, Registry
from kas.directory.directory import Directory
from kas.directory.records import KasRecord
from tunnel.errors import ErrorCode
from tunnel.pb import tunnel_pb2 as pb
from tunnel.program.runtime import Runtime
from tunnel.toolkit.repeated import Repeated

__all__ = ["Balance"]

#: Seconds between two checks: the same as the interval at which kas report their number
#: of agents.
INTERVAL = 10.0

#: Number of consecutive checks that must find too many agents before the first agent is
#: moved: the agents of a kas that died are counted twice until the lease of that kas
#: expires, because they have already connected to other kas.
FIRST_LOOKS = 3

#: Number of such checks after a move, because the agents have to reconnect, and all kas
#: have to read the new numbers.
NEXT_LOOKS = 2

#: Seconds until all kas know of an agent that connected to one of them: that kas counts
#: the agent in its next lease, and the other kas read the lease at their next check.
KNOWN_SECONDS = 2 * INTERVAL

#: Share above the mean that a kas may have before it moves agents.  Moving an agent
#: costs a handshake, and a tenth more agents than the mean is harmless.
TOLERANCE = 0.1

#: Maximum number of agents that may be asked to move in one second: each move causes a
#: TLS handshake at another kas.
PER_SECOND = 200

#: Minimum seconds over which the reconnections of moved agents are spread.
SPREAD = 5.0

#: Maximum seconds that an agent may stay after it was asked to move: after this time,
#: it is either connected elsewhere, or cannot reach another kas.
DEADLINE = 3600.0


@attrs.define(eq=False)
class Balance:
    """
    Balancer that keeps the number of agents here near the mean of all kas.

    Agents choose a kas through a name or a load balancer, so kas can only ask some
    agents to reconnect.
    """

    registry: Registry
    directory: Directory
    runtime: Runtime
    #: Number of moved agents since the start.
    moved: int = 0
    _looks: int = FIRST_LOOKS
    #: Number of agents of all kas before the last move, and time until which some of
    #: them may not be counted at any kas.
    _before: int = 0
    _until: float = 0.0
    _loop: Repeated = attrs.field(init=False)
    _log = Logger()

    def __attrs_post_init__(self) -> None:
        self._loop = Repeated(self.runtime.reactor, "balancing agents", self.look)

    def start(self) -> None:
        """Start the checks."""
        if self._loop.running:
            return
        self._loop.start(INTERVAL)

    def stop(self) -> None:
        """Stop the checks."""
        self._loop.stop()

    def look(self) -> None:
        """Move agents if there were too many of them in several consecutive checks."""
        if len(self._here()) <= math.ceil(self._mean() * (1 + TOLERANCE)):
            self._looks = FIRST_LOOKS
            return
        self._looks -= 1
        if self._looks <= 0:
            self._looks = NEXT_LOOKS
            self.rebalance()

    def _here(self) -> list[AgentConnection]:
        return [one for one in self.registry if not (one.leaving or one.retired)]

    def _peers(self) -> list[KasRecord]:
        if not self.directory.is_current():
            return []  # Old counts would move all agents.
        return [kas for kas in self.directory.living() if not kas.draining]

    def _total(self) -> int:
        """
        Count the agents of all kas.

        For a while after agents were moved, some of them are not counted at any kas;
        during that time, the result is at least the total from before the move.
        """
        here = sum(not one.retired for one in self.registry)
        total = here + sum(peer.agents for peer in self._peers())
        return (
            max(total, self._before)
            if self.runtime.reactor.seconds() < self._until
            else total
        )

    def _mean(self) -> float:
        return self._total() / (1 + len(self._peers()))

    def rebalance(self) -> int:
        """
        Move the agents above the mean now; return the number of agents that were asked.

        At most half of the difference to the kas with the fewest agents is moved,
        including agents that are still moving: this kas cannot choose the new kas of
        these agents, and if all of them connected to the same kas, that kas would have
        too many instead.
        """
        here, mean, peers = len(self._here()), self._mean(), self._peers()
        if not peers or here <= math.ceil(mean):
            return 0
        kas = 1 + len(peers)
        on_their_way = self._total() - here - sum(peer.agents for peer in peers)
        fewest = min(peer.agents for peer in peers) + on_their_way
        # Ask more agents than necessary: some will return to this kas, because a load
        # balancer does not know why they reconnect.
        many = min(math.ceil((here - mean) * kas / (kas - 1)), (here - fewest) // 2)
        if many < 1:
            return 0
        self._log.info(
            "{here} agents here, {mean:.0f} at a kas on average: asking {many} to move",
            here=here,
            mean=mean,
            many=many,
        )
        chosen = self._some(self._here(), many)
        self._before = self._total()
        self._until = (
            self.runtime.reactor.seconds() + self._spread(many) + KNOWN_SECONDS
        )
        return self.send_away(chosen, "other kas have fewer agents")

    def _some(
        self, connections: Sequence[AgentConnection], many: int
    ) -> list[AgentConnection]:
        # Start with the connections with the fewest streams.
        chosen = sorted(
            connections, key=lambda one: (one.tunnel.load > 0, self.runtime.random())
        )
        return chosen[:many]

    @staticmethod
    def _spread(many: int, least: float = SPREAD) -> float:
        return max(least, many / PER_SECOND)

    def send_away(
        self,
        connections: Iterable[AgentConnection],
        why: str,
        *,
        spread: float = SPREAD,
        deadline: float = DEADLINE,
    ) -> int:
        """
        Ask agents to connect elsewhere; their connections accept streams until they
        have done so.

        :param spread: minimum seconds over which the reconnections are spread.
        :param deadline: seconds after which kas cuts their connections to this kas.
        """
        chosen = [one for one in connections if not one.leaving]
        # Extra tunnels do not reconnect.
        many = sum(not one.extra for one in chosen)
        spread = self._spread(many, spread)
        for connection in chosen:
            self.registry.send_away(
                connection,
                pb.GoAway(
                    code=ErrorCode.SHUTDOWN,
                    message=why,
                    deadline_ms=round(deadline * 1000),
                    elsewhere=True,
                    reconnect_within_ms=round(spread * 1000),
                ),
            )
        self.moved += many
        return many
