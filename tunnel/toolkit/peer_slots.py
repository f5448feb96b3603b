"""A limited number of slots for each peer, so that no peer delays the others."""

from __future__ import annotations

from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from typing import Generic, TypeVar

from twisted.internet.defer import DeferredSemaphore

from tunnel.toolkit.counts import one_less

__all__ = ["PeerSlots"]

K = TypeVar("K", bound=Hashable)


class PeerSlots(Generic[K]):
    """
    Slots, their holders and the callers that wait for one, by key.

    Keys without holders and waiting callers are not stored.

    :param at_once: the number of slots of each key; further callers wait in order.
    """

    def __init__(self, at_once: int) -> None:
        self._at_once = at_once
        self._rooms: dict[K, DeferredSemaphore] = {}
        #: The number of slots that each peer holds or waits for.
        self._counts: dict[K, int] = {}

    def __len__(self) -> int:
        return len(self._rooms)

    @asynccontextmanager
    async def slot(self, key: K) -> AsyncIterator[None]:
        """Wait for a free slot of *key*, and hold it inside the block."""
        room = self._rooms.get(key)
        if room is None:
            room = self._rooms[key] = DeferredSemaphore(self._at_once)
        self._counts[key] = self._counts.get(key, 0) + 1
        try:
            await room.acquire()
            try:
                yield
            finally:
                room.release()
        finally:
            if not one_less(self._counts, key):
                del self._rooms[key]
