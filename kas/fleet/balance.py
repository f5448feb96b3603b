"""Moves of agents to other kas: when this kas leaves, and when it has too many."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import attrs
from twisted.internet.task import LoopingCall
from twisted.logger import Logger

from kas.agents.registry import AgentConnection, Registry
from kas.directory.directory import Directory
from kas.directory.records import KasRecord
from tunnel.errors import ErrorCode
from tunnel.pb import tunnel_pb2 as pb
from tunnel.program.runtime import Runtime

__all__ = ["Balance"]

#: Seconds between two checks: the interval at which kas report their number of agents.
INTERVAL = 10.0

#: Number of consecutive checks that must find too many agents before the first agent is
#: moved: a kas that died is counted until its lease expires, while its agents are
#: already here.
FIRST_LOOKS = 3

#: Number of such checks after a move: the agents have to reconnect, and all kas have to
#: learn of it.
NEXT_LOOKS = 2

#: Seconds until all kas know of an agent that connected to one of them: it is counted
#: with the next lease, and read with the one after it.
KNOWN_SECONDS = 2 * INTERVAL

#: Share above the mean that a kas may have before it moves agents.  Moving an agent
#: costs a handshake, and a tenth more agents does not matter.
TOLERANCE = 0.1

#: Maximum number of agents that may be asked to move in one second: each causes a TLS
#: handshake elsewhere.
PER_SECOND = 200

#: Minimum seconds over which moved agents spread their reconnection.
SPREAD = 5.0

#: Maximum seconds that a moved agent may stay: by then it is connected elsewhere, or
#: has no other kas.
DEADLINE = 3600.0


@attrs.define(eq=False)
class Balance:
    """
    Balancer that keeps the number of agents here near the mean of all kas.

    Agents choose a kas through a name or a load balancer, so kas can only ask some of
    them to choose again.
    """

    registry: Registry
    directory: Directory
    runtime: Runtime
    #: Number of moved agents since the start.
    moved: int = 0
    _looks: int = FIRST_LOOKS
    #: Number of agents of all kas before the last move, and time until which some may
    #: be counted at no kas.
    _before: int = 0
    _until: float = 0.0
    _loop: LoopingCall = attrs.field(init=False)
    _log = Logger()

    def __attrs_post_init__(self) -> None:
        self._loop = LoopingCall(self.look)
        self._loop.clock = self.runtime.reactor

    def start(self) -> None:
        """Start the checks."""
        if self._loop.running:
            return
        self._loop.start(INTERVAL, now=False)

    def stop(self) -> None:
        """Stop the checks."""
        if self._loop.running:
            self._loop.stop()

    def look(self) -> None:
        """
        Move the agents above the mean, if there are too many in several consecutive
        checks.
        """
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

        For a while after agents were moved, some are counted at no kas; during that
        time, the result is at least the total from before.
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
        including agents that are still moving: this kas cannot choose their new kas,
        and if all of them went to the same one, the two would only change places.
        """
        here, mean, peers = len(self._here()), self._mean(), self._peers()
        if not peers or here <= math.ceil(mean):
            return 0
        kas = 1 + len(peers)
        on_their_way = self._total() - here - sum(peer.agents for peer in peers)
        fewest = min(peer.agents for peer in peers) + on_their_way
        # Some will return, because a load balancer does not know why they reconnect.
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
        Ask agents to connect elsewhere; they serve until they have.

        :param spread: seconds over which they reconnect, at least.
        :param deadline: seconds after which their connections here are cut.
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
