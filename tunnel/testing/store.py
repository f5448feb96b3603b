"""Stores of modules in memory, with faults from the test."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator

import attrs
from twisted.internet.interfaces import IReactorTime

from tunnel.api import StoredValue, StoreEvent, StoreEventType
from tunnel.errors import CallError, Status
from tunnel.hosting.stores import (
    DEFAULT_LIMITS,
    BackendListener,
    StoreLimits,
    next_version,
)

__all__ = ["FakeStore"]


@attrs.frozen
class _Entry:
    stored: StoredValue
    #: Time at which the value expires.
    until: float = math.inf


@attrs.define(eq=False)
class _Namespace:
    entries: dict[str, _Entry] = attrs.Factory(dict)
    order: list[str] = attrs.Factory(list)
    version: int = 0
    bytes: int = 0


class FakeStore:
    """
    The store of the modules of a `ModulePair`: its attribute ``store``.

    :ivar down: whether operations fail with UNAVAILABLE, as during an outage of Redis.
    """

    sweep_interval = math.inf

    def __init__(
        self, clock: IReactorTime, limits: StoreLimits = DEFAULT_LIMITS
    ) -> None:
        self._clock = clock
        self._limits = limits
        self._namespaces: dict[str, _Namespace] = {}
        self._listener: BackendListener | None = None
        self._down = False

    @property
    def down(self) -> bool:
        """Whether operations fail."""
        return self._down

    @down.setter
    def down(self, down: bool) -> None:
        was, self._down = self._down, down
        if was and not down and self._listener is not None:
            self._listener.reset()

    @property
    def hears(self) -> bool:
        return not self._down

    def lose(self) -> None:
        """Delete everything, as a flush of Redis does; watches are notified."""
        self._namespaces.clear()
        if self._listener is not None:
            self._listener.reset()

    def start(self, listener: BackendListener) -> None:
        self._listener = listener

    async def stop(self) -> None:
        pass

    async def get(self, name: str, key: str) -> StoredValue | None:
        found = self._open(name).entries.get(key)
        return found.stored if found and found.until > self._clock.seconds() else None

    async def set(
        self,
        name: str,
        key: str,
        value: bytes,
        version: int | None,
        expires_after: float | None,
    ) -> int:
        space = self._open(name)
        self._expire(name, space)
        before = space.entries.get(key)
        there = before.stored.version if before else 0
        if version is not None and version != there:
            raise CallError(
                Status.ABORTED, f"{key} has changed: its version is {there}"
            )
        size = space.bytes + len(value) - _size(key, before) + len(key.encode())
        if before is None and len(space.entries) >= self._limits.keys:
            raise CallError(
                Status.RESOURCE_EXHAUSTED, f"{name} has {self._limits.keys} keys"
            )
        if size > self._limits.bytes:
            raise CallError(
                Status.RESOURCE_EXHAUSTED, f"{name} has {self._limits.bytes} bytes"
            )
        now = self._clock.seconds()
        space.version = next_version(space.version, now)
        until = math.inf if expires_after is None else now + expires_after
        space.entries[key] = _Entry(StoredValue(value, space.version), until)
        space.bytes = size
        if before is None:
            insort(space.order, key)
        self._tell(name, StoreEvent(StoreEventType.SET, key, space.version))
        return space.version

    async def delete(self, name: str, key: str, version: int | None) -> bool:
        space = self._open(name)
        self._expire(name, space)
        before = space.entries.get(key)
        if before is None:
            return False
        if version is not None and version != before.stored.version:
            there = before.stored.version
            raise CallError(
                Status.ABORTED, f"{key} has changed: its version is {there}"
            )
        self._remove(name, space, key)
        return True

    async def page(
        self, name: str, prefix: str, after: str, limit: int
    ) -> tuple[list[str], str]:
        space = self._open(name)
        self._expire(name, space)
        order = space.order
        begin = bisect_right(order, after) if after else bisect_left(order, prefix)
        found = [one for one in order[begin : begin + limit] if one.startswith(prefix)]
        return found, found[-1] if len(found) == limit else ""

    async def sweep(self, name: str) -> float:
        space = self._open(name)
        self._expire(name, space)
        first = min((one.until for one in space.entries.values()), default=math.inf)
        return first - self._clock.seconds()

    def _open(self, name: str) -> _Namespace:
        if self._down:
            raise CallError(Status.UNAVAILABLE, "the test took the store away")
        return self._namespaces.setdefault(name, _Namespace())

    def _expire(self, name: str, space: _Namespace) -> None:
        for key in tuple(_due(space, self._clock.seconds())):
            self._remove(name, space, key)

    def _remove(self, name: str, space: _Namespace, key: str) -> None:
        space.bytes -= _size(key, space.entries.pop(key))
        space.order.remove(key)
        space.version = next_version(space.version, self._clock.seconds())
        self._tell(name, StoreEvent(StoreEventType.DELETED, key, space.version))

    def _tell(self, name: str, event: StoreEvent) -> None:
        if self._listener is not None:
            self._listener.changed(name, event)


def _due(space: _Namespace, now: float) -> Iterator[str]:
    return (key for key, one in space.entries.items() if one.until <= now)


def _size(key: str, entry: _Entry | None) -> int:
    return len(key.encode()) + len(entry.stored.value) if entry else 0
