"""
Stores of modules, `IStores`: limits, watches, and backends.

    NamespaceStore ──> StoreBackend: a file, Redis, or the memory of a test
         ^                   │
         └──── Stores <──────┘  changes, for the watches

A backend executes operations, and reports every change and every gap in the changes.
This file checks the requests of modules, so that the checks are the same for every
backend.
"""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine
from pathlib import Path
from typing import Any, Protocol, TypeVar

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from tunnel.api import IStore, IStores, StoredValue, StoreEvent, StoreEventType
from tunnel.errors import CallError, Status
from tunnel.hosting.scope import ModuleScope
from tunnel.toolkit.timers import Timers

__all__ = [
    "DEFAULT_LIMITS",
    "BackendListener",
    "ModuleStores",
    "NamespaceStore",
    "StoreBackend",
    "StoreLimits",
    "Stores",
    "is_key",
    "next_version",
]

_T = TypeVar("_T")

#: Minimum number of seconds between two searches for expired values, so that the cost
#: stays low however many keys expire one after the other.
MIN_SWEEP = 0.2

#: Seconds until the next attempt after a failed sweep.
SWEEP_AGAIN = 10.0

#: Characters that a key must not contain.
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")

_NAMESPACE = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")


@attrs.frozen(kw_only=True)
class StoreLimits:
    """Limits on a module's use of a store, each with its reason."""

    #: Maximum number of bytes of a key: a path of several names and ids.
    key: int = 256

    #: Maximum number of bytes of a value.  A store is for state, not for content: one
    #: value crosses the connection to Redis, which all modules share, in less than a
    #: millisecond.
    value: int = 64 * 1024

    #: Maximum number of keys of a namespace: one for each agent of a large
    #: installation.
    keys: int = 10_000

    #: Maximum number of bytes of all keys and values of a namespace: ten modules that
    #: fill their namespaces fit into a small Redis.
    bytes: int = 16 * 1024 * 1024

    #: Maximum number of keys per page: at most a quarter of a MiB, and Redis serves
    #: other clients between two pages.
    page: int = 1000

    #: Maximum number of watches of a namespace: a module needs one or a few; if there
    #: are more, the module does not close its watches.
    watches: int = 100

    #: Maximum number of events that wait for the reader of one watch: at most 256 KiB
    #: of keys. A reader that is further behind reads everything again faster.
    events: int = 1000

    #: Maximum number of concurrent operations of a namespace, each with a value: at
    #: most 6 MiB.
    pending: int = 100

    #: Maximum number of namespaces of a module: with several kas, each needs a query to
    #: Redis every ten seconds.
    namespaces: int = 32

    #: Maximum number of seconds until a value expires: ten years.
    expiry: float = 10 * 365 * 86400.0


DEFAULT_LIMITS = StoreLimits()


def is_key(key: str, limits: StoreLimits = DEFAULT_LIMITS) -> bool:
    """
    Return whether a module can request *key*: backends that other programs write to
    leave out all other keys.
    """
    is_text = bool(key) and not _CONTROL.search(key)
    return is_text and len(key.encode(errors="surrogatepass")) <= limits.key


def next_version(last: int, now: float) -> int:
    """
    Return the version of a change that follows the version *last*, at the time of day
    *now*.

    Versions are times in microseconds, so that a store that lost all data does not
    reuse an earlier version.
    """
    return max(last + 1, int(now * 1_000_000))


class BackendListener(Protocol):
    """A receiver of the changes that any kas makes."""

    def changed(self, name: str, event: StoreEvent) -> None:
        """Handle the change of a key in a namespace."""

    def reset(self, name: str = "") -> None:
        """
        Handle a gap: changes of a namespace, or of all namespaces, may be missing.
        """


class StoreBackend(Protocol):
    """
    A backend that stores values; every failure is a `CallError`.

    Namespaces have their full names here, ``<module>/<namespace>``.
    """

    @property
    def hears(self) -> bool:
        """Whether changes are reported now; if not, a reset follows later."""

    @property
    def sweep_interval(self) -> float:
        """
        The maximum number of seconds between two sweeps; `math.inf` if only the expiry
        of values determines the next sweep.
        """

    def start(self, listener: BackendListener) -> None:
        """Start the backend; called once, before all other methods."""

    async def stop(self) -> None:
        """Release all resources."""

    async def get(self, name: str, key: str) -> StoredValue | None:
        """See `IStore`."""

    async def set(
        self,
        name: str,
        key: str,
        value: bytes,
        version: int | None,
        expires_after: float | None,
    ) -> int:
        """See `IStore`; the backend also checks the limits of the namespace."""

    async def delete(self, name: str, key: str, version: int | None) -> bool:
        """See `IStore`."""

    async def page(
        self, name: str, prefix: str, after: str, limit: int
    ) -> tuple[list[str], str]:
        """
        Return the next keys, and the key after which to continue; this key is empty
        after the last page.

        A page may have fewer keys than *limit*, or none, although more follow.
        """

    async def sweep(self, name: str) -> float:
        """
        Remove expired values; return the seconds until the next value expires, or
        `math.inf`.
        """


class Stores:
    """
    The stores of all modules; one object for the process.

    :param make: creates the backend when the first store is opened: if no module of a
        kas uses a store, kas needs no file and no connection for stores.
    """

    def __init__(
        self,
        make: Callable[[], StoreBackend],
        clock: IReactorTime,
        limits: StoreLimits = DEFAULT_LIMITS,
    ) -> None:
        self._make = make
        self.clock = clock
        self.limits = limits
        self._backend: StoreBackend | None = None
        self._open: dict[str, NamespaceStore] = {}

    def open(self, owner: str, namespace: str) -> NamespaceStore:
        """
        Return the store of a module's namespace.

        :raises ValueError: see `IStores.open`.
        """
        if _NAMESPACE.fullmatch(namespace) is None:
            raise ValueError(
                f"{namespace[:100]!r} is not a namespace: 1 to 63 of a-z, 0-9, - and _"
            )
        # The names of modules contain no slash, so each namespace belongs to one
        # module.
        name = f"{owner}/{namespace}"
        found = self._open.get(name)
        if found is not None:
            return found
        mine = [one for one in self._open if one.startswith(f"{owner}/")]
        if len(mine) >= self.limits.namespaces:
            raise ValueError(
                f"module {owner} has reached its limit of {len(mine)} namespaces"
            )
        if self._backend is None:
            self._backend = self._make()
            self._backend.start(self)
        made = NamespaceStore(name, self._backend, self.clock, self.limits)
        self._open[name] = made
        return made

    def release(self, owner: str) -> None:
        """End the watches of a module; the values stay."""
        for name in [one for one in self._open if one.startswith(f"{owner}/")]:
            self._open.pop(name).close()

    async def stop(self) -> None:
        """Close all stores."""
        for name in tuple(self._open):
            self._open.pop(name).close()
        if self._backend is not None:
            await self._backend.stop()

    # Methods of BackendListener

    def changed(self, name: str, event: StoreEvent) -> None:
        """Forward the change of a key to the watches of its namespace."""
        store = self._open.get(name)
        if store is not None:
            store.tell(event)

    def reset(self, name: str = "") -> None:
        """Notify the watches of a namespace, or of all, that changes may be missing."""
        for one, store in tuple(self._open.items()):
            if name in ("", one):
                store.reset()
            if not name:
                # The backend works again: let it look for lost data at once.
                store.sweep_soon()


@implementer(IStores)
class ModuleStores:
    """
    Access of one module to the stores.

    :param folders: the parent of the modules' folders.
    """

    def __init__(
        self, scope: ModuleScope, stores: Stores, folders: Path | None = None
    ) -> None:
        self._name = scope.name
        self._stores = stores
        self._folders = folders
        scope.on_release(lambda: stores.release(scope.name))

    def open(self, namespace: str) -> NamespaceStore:
        """Return the store of a namespace of this module."""
        return self._stores.open(self._name, namespace)

    def folder(self) -> Path:
        """Return the folder of this module, and create it if necessary."""
        if self._folders is None:
            raise ValueError("this program has no folders for modules")
        folder = self._folders / self._name
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return folder


@implementer(IStore)
class NamespaceStore:
    """See `tunnel.api.IStore`."""

    _log = Logger()

    def __init__(
        self,
        name: str,
        backend: StoreBackend,
        clock: IReactorTime,
        limits: StoreLimits,
    ) -> None:
        self.name = name
        self._backend = backend
        self._clock = clock
        self._limits = limits
        self._pending = 0
        self._watches: set[_Watch] = set()
        self._closed = False
        self._timers = Timers(clock)
        self._sweep_at = math.inf
        # Remove values that have already expired, and schedule the next sweep.
        self._sweep_within(0.0)

    async def get(self, key: str) -> StoredValue | None:
        """Return the value at *key*."""
        self._check_key(key)
        return await self._do(lambda: self._backend.get(self.name, key))

    async def set(
        self,
        key: str,
        value: bytes,
        *,
        version: int | None = None,
        expires_after: float | None = None,
    ) -> int:
        """Store *value* at *key*."""
        self._check_key(key)
        if not isinstance(value, bytes):
            raise CallError(Status.INVALID_ARGUMENT, "a value must be bytes")
        if len(value) > self._limits.value:
            raise CallError(
                Status.RESOURCE_EXHAUSTED,
                f"a value may have at most {self._limits.value} bytes, not "
                f"{len(value)}",
            )
        _check_version(version)
        if expires_after is not None and not 0 < expires_after <= self._limits.expiry:
            raise CallError(
                Status.INVALID_ARGUMENT,
                "a value must expire after more than 0 s and at most "
                f"{self._limits.expiry:.0f} s, not {expires_after:g} s",
            )
        backend = self._backend
        done = await self._do(
            lambda: backend.set(self.name, key, value, version, expires_after)
        )
        if expires_after is not None:
            self._sweep_within(max(expires_after, MIN_SWEEP))
        return done

    async def delete(self, key: str, *, version: int | None = None) -> bool:
        """Delete *key*."""
        self._check_key(key)
        _check_version(version)
        return await self._do(lambda: self._backend.delete(self.name, key, version))

    async def keys(
        self, prefix: str = "", *, limit: int = 500
    ) -> AsyncGenerator[list[str], None]:
        """Yield the keys that begin with *prefix*, page by page."""
        self._check_text(prefix)
        if not 1 <= limit <= self._limits.page:
            raise CallError(
                Status.INVALID_ARGUMENT,
                f"a page may have 1 to {self._limits.page} keys, not {limit}",
            )
        after, more = "", True
        while more:

            def read(after: str = after) -> Coroutine[Any, Any, tuple[list[str], str]]:
                return self._backend.page(self.name, prefix, after, limit)

            page, after = await self._do(read)
            more = bool(after)
            if page:
                yield page

    async def watch(self, prefix: str = "") -> AsyncGenerator[StoreEvent, None]:
        """Yield the changes of keys that begin with *prefix*."""
        self._check_text(prefix)
        if len(self._watches) >= self._limits.watches:
            raise CallError(
                Status.RESOURCE_EXHAUSTED,
                f"{self.name} has reached its limit of {len(self._watches)} watches: "
                "close watches that have no reader",
            )
        watch = _Watch(prefix, self._limits.events, self._closed)
        if self._backend.hears:
            watch.reset()
        self._watches.add(watch)
        try:
            while (event := await watch.next()) is not None:
                yield event
        finally:
            self._watches.discard(watch)

    # Notifications of the backend.

    def tell(self, event: StoreEvent) -> None:
        """Queue the change of a key."""
        for watch in tuple(self._watches):
            if event.key.startswith(watch.prefix):
                watch.add(event)

    def reset(self) -> None:
        """Queue a reset: changes may be missing."""
        for watch in tuple(self._watches):
            watch.reset()

    def sweep_soon(self) -> None:
        """Sweep now, instead of at the end of the interval."""
        self._sweep_within(0.0)

    def close(self) -> None:
        """Stop background tasks; the module may still store values."""
        self._closed = True
        self._timers.cancel_all()
        for watch in tuple(self._watches):
            watch.end()

    # Checks of requests.

    def _check_key(self, key: str) -> None:
        if not key:
            raise CallError(Status.INVALID_ARGUMENT, "a key must not be empty")
        self._check_text(key)

    def _check_text(self, key: str) -> None:
        try:
            size = len(key.encode())
        except UnicodeEncodeError:
            size = -1
        if size < 0 or _CONTROL.search(key):
            raise CallError(
                Status.INVALID_ARGUMENT, "a key must be text without control characters"
            )
        if size > self._limits.key:
            raise CallError(
                Status.INVALID_ARGUMENT,
                f"a key may have at most {self._limits.key} bytes, not {size}",
            )

    async def _do(self, operation: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        """
        Run one operation to its end: a cancelled operation keeps its slot until the
        backend has responded.
        """
        if self._pending >= self._limits.pending:
            raise CallError(
                Status.RESOURCE_EXHAUSTED,
                f"{self._pending} operations of {self.name} are already waiting",
            )
        self._pending += 1
        answer: Deferred[_T] = Deferred()

        def ended(result: _T | Failure) -> None:
            self._pending -= 1
            answer.callback(result)

        Deferred.fromCoroutine(operation()).addBoth(ended)
        return await answer

    # Expiry.

    def _sweep_within(self, seconds: float) -> None:
        due = self._clock.seconds() + seconds
        if due < self._sweep_at and not self._closed:
            self._sweep_at = due
            self._timers.later("sweep", seconds, self._sweep)

    def _sweep(self) -> None:
        self._sweep_at = math.inf
        sweeping = Deferred.fromCoroutine(self._backend.sweep(self.name))
        sweeping.addErrback(self._not_swept)
        sweeping.addCallback(
            lambda left: self._sweep_within(
                max(min(left, self._backend.sweep_interval), MIN_SWEEP)
            )
        )

    def _not_swept(self, failure: Failure) -> float:
        if failure.check(CallError) is None:
            self._log.failure("removing expired values failed", failure)
        return SWEEP_AGAIN


def _check_version(version: int | None) -> None:
    if version is not None and version < 0:
        raise CallError(Status.INVALID_ARGUMENT, f"{version} is not a version")


@attrs.define(eq=False)
class _Watch:
    """A reader of changes, and the events that wait for it."""

    prefix: str
    _limit: int
    _ended: bool
    _events: deque[StoreEvent] = attrs.Factory(deque)
    _waiting: Deferred[None] | None = None

    def add(self, event: StoreEvent) -> None:
        if len(self._events) >= self._limit:
            self.reset()
            return
        self._events.append(event)
        self._wake()

    def reset(self) -> None:
        """Discard waiting events, because a reset replaces them."""
        self._events.clear()
        self._events.append(StoreEvent(StoreEventType.RESET))
        self._wake()

    def end(self) -> None:
        self._ended = True
        self._events.clear()
        self._wake()

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.callback(None)

    async def next(self) -> StoreEvent | None:
        """Return the next event; None after the end of the watch."""
        while not self._events and not self._ended:
            self._waiting = Deferred(self._cancelled)
            await self._waiting
        return None if self._ended else self._events.popleft()

    def _cancelled(self, waiting: object) -> None:
        self._waiting = None
