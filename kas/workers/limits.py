"""
Limits that apply to the workers of one kas together.

A worker reports each single event, such as a connection with a token.  The number of
running requests changes too often for that: a worker reports the number only when it
passes a step.  A limit has `STEPS` steps for each worker.  Therefore a key with little
use costs nothing, and all workers together exceed a limit by at most a quarter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

import attrs
from zope.interface import implementer

from tunnel.api import ISharedCount, StoreEvent
from tunnel.hosting.stores import Stores

__all__ = ["STEPS", "CountTogether", "SharedCount", "SharedLimits"]

#: Number of steps of a limit for each worker: the other workers know the amount in use
#: at a worker with the precision of one step.
STEPS = 4

#: Maximum number of keys of one limit and worker whose running requests are remembered;
#: only keys that have passed a step are remembered.  Further keys are counted only by
#: the worker itself.
MAX_KEYS = 10_000


class CountTogether(Protocol):
    """Interface of a limit that all workers share."""

    def heard(self, worker: str, key: str, amount: int) -> None:
        """Record a use at another worker."""

    def gone(self, worker: str) -> None:
        """Forget the uses at another worker that has ended."""

    def now(self) -> Iterable[tuple[str, int]]:
        """
        Return the amounts in use at this worker, for a worker that has just started.
        """


@implementer(ISharedCount)
@attrs.define(eq=False)
class SharedCount:
    """
    Counter of the amounts of a resource that are in use at all workers, by key.

    :ivar step: an amount is reported when it passes a multiple of the step.
    :param tell: called with a key and the amount in use at this worker, to notify the
        other workers.
    """

    step: int
    _tell: Callable[[str, int], None]
    #: The amounts in use at all other workers together.
    elsewhere: Counter[str] = attrs.field(factory=Counter, init=False)
    _by_worker: dict[str, dict[str, int]] = attrs.field(factory=dict, init=False)
    #: The amounts in use at this worker that the other workers know.
    _reported: dict[str, int] = attrs.field(factory=dict, init=False)

    @classmethod
    def of(
        cls, limit: int, workers: int, tell: Callable[[str, int], None]
    ) -> SharedCount:
        """Return a counter for a limit that applies to all workers together."""
        return cls(max(1, limit // (STEPS * workers)), tell)

    def here(self, key: str, amount: int) -> None:
        """Set the amount in use at this worker."""
        shown = amount - amount % self.step
        if shown == self._reported.get(key, 0):
            return
        if shown:
            self._reported[key] = shown
        else:
            del self._reported[key]
        self._tell(key, shown)

    # Methods of CountTogether

    def heard(self, worker: str, key: str, amount: int) -> None:
        """Set the amount in use at another worker."""
        there = self._by_worker.setdefault(worker, {})
        if key not in there and len(there) >= MAX_KEYS:
            return
        self.elsewhere[key] += amount - there.pop(key, 0)
        if amount > 0:
            there[key] = amount
        if self.elsewhere[key] <= 0:
            del self.elsewhere[key]

    def gone(self, worker: str) -> None:
        """Forget the amounts in use at a worker that has ended."""
        for key, amount in self._by_worker.pop(worker, {}).items():
            self.elsewhere[key] -= amount
            if self.elsewhere[key] <= 0:
                del self.elsewhere[key]

    def now(self) -> Iterable[tuple[str, int]]:
        """Return the amounts that were reported to the other workers."""
        return self._reported.items()


@attrs.define(eq=False)
class _Happened:
    """Limit on events, which does not require that this class remembers anything."""

    _count: Callable[[str, int], None]

    def heard(self, worker: str, key: str, amount: int) -> None:
        self._count(key, amount)

    def gone(self, worker: str) -> None:
        pass

    def now(self) -> Iterable[tuple[str, int]]:
        return ()


@attrs.define(eq=False)
class SharedLimits:
    """
    Implementation of `kas.directory.sibling_store.WorkersListener`.

    :ivar workers: the number of workers, including this one.
    :param tell: called with a limit, a key and an amount, to notify the other workers.
    :param stores: the stores of modules, which all workers share.
    """

    workers: int
    _tell: Callable[[str, str, int], None]
    _stores: Stores
    _limits: dict[str, CountTogether] = attrs.field(factory=dict, init=False)

    def under_way(self, name: str, limit: int) -> SharedCount:
        """
        Return a counter of the amounts in use at all workers, for one limit.

        A module that failed and is restarted continues with its former count, because
        the other workers send only changes.
        """
        before = self._limits.get(name)
        if isinstance(before, SharedCount):
            return before
        made = SharedCount.of(
            limit, self.workers, lambda key, amount: self._tell(name, key, amount)
        )
        self._limits[name] = made
        return made

    def happening(
        self, name: str, count: Callable[[str, int], None]
    ) -> Callable[[str, int], None]:
        """
        Register a limit on events at all workers.

        :param count: called with the key and the amount of events at other workers.
        :returns: a function that reports events at this worker to the other workers.
        """
        self._limits[name] = _Happened(count)
        return lambda key, amount: self._tell(name, key, amount)

    # Methods of WorkersListener

    def stored(self, name: str, event: StoreEvent) -> None:
        """Apply another worker's change of a value that all workers share."""
        self._stores.changed(name, event)

    def began(self, worker: str) -> None:
        """Record that changes at a worker may be missing."""
        self._stores.reset()

    def used(self, worker: str, limit: str, key: str, amount: int) -> None:
        """Record the use of a limit at another worker."""
        found = self._limits.get(limit)
        if found is not None:
            found.heard(worker, key, amount)

    def ended(self, worker: str) -> None:
        """Forget the uses of a worker that has ended."""
        for limit in self._limits.values():
            limit.gone(worker)

    def uses(self) -> Iterator[tuple[str, str, int]]:
        """Yield the current uses at this worker: limit, key and amount."""
        for name, limit in self._limits.items():
            for key, amount in limit.now():
                yield name, key, amount
