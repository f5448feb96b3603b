"""Watches from the cache of an agent in tests."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import attrs
from twisted.internet.defer import Deferred
from zope.interface import implementer

from tunnel.api import Access, ICachedWatches
from tunnel.errors import CallError

__all__ = ["FakeCachedWatch", "FakeCachedWatches"]


@attrs.define(eq=False)
class FakeCachedWatch:
    """
    One watch.

    :ivar taken: number of parts that the caller has taken.
    :ivar closed: whether the caller has ended the watch.
    """

    access: Access
    target: str
    taken: int = 0
    closed: bool = False
    _parts: list[bytes | CallError | None] = attrs.field(factory=list)
    _waiting: Deferred[None] | None = None

    def send(self, *parts: bytes | CallError | None) -> None:
        """Send parts, an error, or None for the end; the first part is empty."""
        self._parts.extend(parts)
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.callback(None)

    async def parts(self) -> AsyncGenerator[bytes, None]:
        """Yield the parts."""
        try:
            while True:
                while not self._parts:
                    self._waiting = Deferred()
                    await self._waiting
                part = self._parts.pop(0)
                if part is None:
                    return
                if isinstance(part, CallError):
                    raise part
                self.taken += 1
                yield part
        finally:
            self.closed = True


@implementer(ICachedWatches)
class FakeCachedWatches:
    """
    `ICachedWatches` whose watches a test answers.

    :ivar watches: the watches so far.
    """

    def __init__(self) -> None:
        self.watches: list[FakeCachedWatch] = []

    def open(self, access: Access, target: str) -> AsyncGenerator[bytes, None]:
        watch = FakeCachedWatch(access, target)
        self.watches.append(watch)
        return watch.parts()
