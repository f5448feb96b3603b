"""Turns for expensive work: a limit for each peer, one for all, and short queues."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Hashable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Generic, TypeVar

from twisted.internet.defer import Deferred, DeferredSemaphore
from twisted.internet.defer import TimeoutError as WaitedTooLong
from twisted.internet.interfaces import IReactorTime

from tunnel.toolkit.counts import one_less
from tunnel.toolkit.peer_slots import PeerSlots

__all__ = ["PeerTurns", "TooManyTurns"]

K = TypeVar("K", bound=Hashable)


class TooManyTurns(Exception):
    """Error for work that does not get a turn; the text contains the limit."""


class PeerTurns(Generic[K]):
    """
    Turns, their holders and the callers that wait.

    A peer with many callers delays another peer by the turns of one caller at most,
    because each peer has *of_peer* callers among those that wait for *of_all*.

    :param of_peer: number of turns of one peer at once.
    :param of_all: number of turns of all peers at once.
    :param most_waiting: number of callers of one peer that may wait.
    :param seconds: maximum time that a caller waits.
    :ivar running: number of callers that hold a turn.
    :ivar waiting: number of callers that wait.
    """

    def __init__(
        self,
        clock: IReactorTime,
        *,
        of_peer: int,
        of_all: int,
        most_waiting: int,
        seconds: float,
    ) -> None:
        self._clock = clock
        self._peers: PeerSlots[K] = PeerSlots(of_peer)
        self._all = DeferredSemaphore(of_all)
        self._most_waiting = most_waiting
        self._seconds = seconds
        self._limits = f"at most {of_peer} of a user and {of_all} of all users run"
        self._waiting: Counter[K] = Counter()
        self.running = 0

    @property
    def waiting(self) -> int:
        """Return the number of callers that wait."""
        return self._waiting.total()

    @asynccontextmanager
    async def turn(self, peer: K) -> AsyncIterator[None]:
        """
        Wait for a turn, and hold it inside the block.

        :raises TooManyTurns: too many callers of *peer* wait, or this one waited for
            too long.
        """
        if self._waiting[peer] >= self._most_waiting:
            raise TooManyTurns(
                f"{self._limits}, and {self._most_waiting} of this user wait already"
            )
        async with AsyncExitStack() as held:
            self._waiting[peer] += 1
            entering = Deferred.fromCoroutine(self._enter(held, peer))
            entering.addTimeout(self._seconds, self._clock)
            try:
                await entering
            except WaitedTooLong:
                text = f"{self._limits}, and {self._seconds:g} seconds have passed"
                raise TooManyTurns(text) from None
            finally:
                one_less(self._waiting, peer)
            self.running += 1
            try:
                yield
            finally:
                self.running -= 1

    async def _enter(self, held: AsyncExitStack, peer: K) -> None:
        """Wait for both slots, and let *held* release them."""
        await held.enter_async_context(self._peers.slot(peer))
        await self._all.acquire()
        held.callback(self._all.release)
