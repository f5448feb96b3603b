"""Turns: so many at a time of each peer, so that none makes all the others wait."""

from __future__ import annotations

from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from typing import Generic, TypeVar

from twisted.internet.defer import DeferredSemaphore

from tunnel.util.counts import one_less

__all__ = ["Turns"]

K = TypeVar("K", bound=Hashable)


class Turns(Generic[K]):
    """
    Holders of turns, and those that wait, by key.

    Nothing is kept of a key without any.

    :param at_once: turns of one key at the same time; others of it wait in their order.
    """

    def __init__(self, at_once: int) -> None:
        self._at_once = at_once
        self._rooms: dict[K, DeferredSemaphore] = {}
        #: Those that hold a turn or wait.
        self._counts: dict[K, int] = {}

    def __len__(self) -> int:
        return len(self._rooms)

    @asynccontextmanager
    async def of(self, key: K) -> AsyncIterator[None]:
        """Hold one turn, once there is one."""
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
