"""
Limits that apply to the workers of one kas together.

A worker reports each single event, such as a connection with a token.  Running requests
change too often for that: a worker reports their number when it passes a step; a limit
has `STEPS` steps for each worker.  Therefore a key with little use costs nothing, and
all workers together exceed a limit by at most a quarter.
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

#: Number of steps of a limit for each worker: the other workers know its amount to the
#: precision of one step.
STEPS = 4

#: Maximum number of keys of one limit and worker whose running requests are remembered;
#: each of them has passed a step.  Only that worker counts further keys.
MAX_KEYS = 10_000


class CountTogether(Protocol):
    """A limit that all workers share."""

    def heard(self, worker: str, key: str, amount: int) -> None:
        """Count a use at another worker."""

    def gone(self, worker: str) -> None:
        """Forget another worker that ended."""

    def now(self) -> Iterable[tuple[str, int]]:
        """Return the amounts in use in this worker, for a worker that has just
        started."""


@implementer(ISharedCount)
@attrs.define(eq=False)
class SharedCount:
    """
    Amount of a resource in use, by a key.

    :ivar step: an amount is reported when it passes a multiple of the step.
    :param tell: called with a key and the amount in use here, to notify the other
        workers.
    """

    step: int
    _tell: Callable[[str, int], None]
    #: The amounts in use at all other workers.
    elsewhere: Counter[str] = attrs.field(factory=Counter, init=False)
    _by_worker: dict[str, dict[str, int]] = attrs.field(factory=dict, init=False)
    #: The amounts that the other workers know.
    _reported: dict[str, int] = attrs.field(factory=dict, init=False)

    @classmethod
    def of(
        cls, limit: int, workers: int, tell: Callable[[str, int], None]
    ) -> SharedCount:
        """Return a count for a limit over all workers."""
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
        """Forget the amounts of a worker that ended."""
        for key, amount in self._by_worker.pop(worker, {}).items():
            self.elsewhere[key] -= amount
            if self.elsewhere[key] <= 0:
                del self.elsewhere[key]

    def now(self) -> Iterable[tuple[str, int]]:
        """Return the amounts that the others get for this worker."""
        return self._reported.items()


@attrs.define(eq=False)
class _Happened:
    """Limit on events, which needs no memory here."""

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
    :param tell: called with limit, key and amount, to notify the other workers.
    :param stores: the stores of modules, which all workers share.
    """

    workers: int
    _tell: Callable[[str, str, int], None]
    _stores: Stores
    _limits: dict[str, CountTogether] = attrs.field(factory=dict, init=False)

    def under_way(self, name: str, limit: int) -> SharedCount:
        """
        Return a limit of amounts in progress at all workers.

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
        Return a limit of events at all workers.

        :param count: called with events at other workers.
        :returns: a function that reports events of this worker.
        """
        self._limits[name] = _Happened(count)
        return lambda key, amount: self._tell(name, key, amount)

    # Methods of WorkersListener

    def stored(self, name: str, event: StoreEvent) -> None:
        """Apply another worker's change of a value that all workers share."""
        self._stores.changed(name, event)

    def began(self, worker: str) -> None:
        """Note that changes of a worker may be missing."""
        self._stores.reset()

    def used(self, worker: str, limit: str, key: str, amount: int) -> None:
        """Count the use of a limit at another worker."""
        found = self._limits.get(limit)
        if found is not None:
            found.heard(worker, key, amount)

    def ended(self, worker: str) -> None:
        """Forget a worker that ended."""
        for limit in self._limits.values():
            limit.gone(worker)

    def uses(self) -> Iterator[tuple[str, str, int]]:
        """Return the running uses here."""
        for name, limit in self._limits.items():
            for key, amount in limit.now():
                yield name, key, amount
