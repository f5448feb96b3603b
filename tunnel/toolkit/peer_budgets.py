"""Budgets of work: a burst and a rate for each peer, in any unit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from typing import Final, Generic, TypeVar

from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater

from tunnel.toolkit.counts import one_less
from tunnel.toolkit.peer_slots import PeerSlots
from tunnel.toolkit.token_bucket import TokenBucket
from tunnel.toolkit.token_buckets import TokenBuckets

__all__ = ["OverBudget", "PeerBudgets"]

#: Maximum number of peers, with 300 bytes each; if there are more, kas forgets the peer
#: whose work is longest ago, which at worst permits another burst.
MAX_PEERS: Final = 20_000

K = TypeVar("K", bound=Hashable)


class OverBudget(Exception):
    """
    Error for work that would have to wait for too long.

    :ivar seconds: time after which the peer may try again.
    """

    def __init__(self, seconds: float) -> None:
        super().__init__(f"the budget is spent; try again in {seconds:.0f} seconds")
        self.seconds = seconds


class PeerBudgets(Generic[K]):
    """
    Budgets by peer.

    The cost of work is known at its end, and may be more than a budget has left: the
    next work of this peer then waits, in the order of its arrival.

    :param burst: the units that a peer may spend at once.
    :param per_second: the units that a peer may spend per second in the long run.
    :param most_waiting: maximum number of callers of one peer that wait.
    :param seconds: maximum time that a caller waits.
    """

    def __init__(
        self,
        clock: IReactorTime,
        *,
        burst: float,
        per_second: float,
        most_waiting: int = 0,
        seconds: float = 0.0,
    ) -> None:
        self._clock = clock
        self._most_waiting = most_waiting
        self._seconds = seconds
        self._buckets: TokenBuckets[K] = TokenBuckets(MAX_PEERS, burst, per_second)
        self._turns: PeerSlots[K] = PeerSlots(1)
        self._waiting: Counter[K] = Counter()

    @property
    def waiting(self) -> int:
        """Return the number of callers that wait."""
        return self._waiting.total()

    async def admit(self, peer: K) -> None:
        """
        Spend one unit of a peer, and wait until its budget permits that.

        :raises OverBudget: this would take too long, or too many callers wait.
        """
        if not self._waiting[peer] and not self.due(peer):
            self.charge(peer)
            return
        if self._waiting[peer] >= self._most_waiting:
            raise OverBudget(self._seconds)
        end = self._clock.seconds() + self._seconds
        self._waiting[peer] += 1
        try:
            async with self._turns.slot(peer):
                while due := self.due(peer):
                    if self._clock.seconds() + due > end:
                        raise OverBudget(due)
                    await deferLater(self._clock, due)
                self.charge(peer)
        finally:
            one_less(self._waiting, peer)

    def charge(self, peer: K, count: float = 1) -> None:
        """Spend units for work that has been done, even if the budget has fewer."""
        self._bucket(peer).charge(self._clock.seconds(), count)

    def due(self, peer: K) -> float:
        """Return the seconds until the budget of a peer has a unit."""
        return self._bucket(peer).due(self._clock.seconds())

    def _bucket(self, peer: K) -> TokenBucket:
        return self._buckets.used(peer, self._clock.seconds())
