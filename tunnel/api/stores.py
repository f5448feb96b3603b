"""Small durable values that all kas share."""

from __future__ import annotations

from collections.abc import (
    AsyncGenerator,
    Awaitable,
)
from enum import Enum
from pathlib import Path

import attrs
from zope.interface import Interface

__all__ = [
    "IStore",
    "IStores",
    "StoreEvent",
    "StoreEventType",
    "StoredValue",
]


@attrs.frozen
class StoredValue:
    """
    Value of a key in an `IStore`.

    :ivar version: a number that differs after each change, and has no other meaning.
    """

    value: bytes = attrs.field(repr=lambda value: f"{len(value)} bytes")
    version: int


class StoreEventType(Enum):
    """Kind of a `StoreEvent`."""

    #: Start of the events: changes before it may be missing.
    RESET = "RESET"
    SET = "SET"
    #: The key was deleted, or has expired.
    DELETED = "DELETED"


@attrs.frozen
class StoreEvent:
    """
    One event of a watch: a key has changed.  Get the key to learn its current value.

    :ivar key: empty for RESET.
    :ivar version: version of the value after the change; 0 for RESET.
    """

    type: StoreEventType
    key: str = ""
    version: int = 0


class IStore(Interface):
    """
    Small durable values by key, in a namespace of one module.

    All kas that share Redis see the same values.  A key is text of 1 to 256 bytes in
    UTF-8 without control characters; a value may be at most 64 KiB long; a namespace
    may contain at most 10,000 keys and 16 MiB.

    Every failure is a `tunnel.errors.CallError`: INVALID_ARGUMENT for invalid keys and
    values; RESOURCE_EXHAUSTED for an exceeded limit; UNAVAILABLE while the store cannot
    be reached; DATA_LOSS if the file of the store is damaged.  After UNAVAILABLE, a
    change may or may not have happened.  An operation that has begun completes even if
    its Deferred is cancelled.
    """

    def get(key: str) -> Awaitable[StoredValue | None]:
        """Return the value of *key*; None if the key does not exist or has expired."""

    def set(
        key: str,
        value: bytes,
        *,
        version: int | None = None,
        expires_after: float | None = None,
    ) -> Awaitable[int]:
        """
        Set the value of *key*, and return its version.

        :param version: set only if the key has this version (compare-and-set); 0: only
            if the key does not exist (create); None: always.
        :param expires_after: seconds until the key expires, at most ten years; None:
            never.
        :raises CallError: ABORTED if the key has another version; get it, and decide
            again.
        """

    def delete(key: str, *, version: int | None = None) -> Awaitable[bool]:
        """
        Delete *key*, and return whether it existed.

        :param version: delete *key* only if it has this version.
        :raises CallError: ABORTED if *key* has another version.
        """

    def keys(prefix: str = "", *, limit: int = 500) -> AsyncGenerator[list[str], None]:
        """
        Yield the keys that begin with *prefix*, sorted, page by page.

        If a key changes in the meantime, a page may contain its old or its new state.

        :param limit: number of keys per page, at most 1000.
        """

    def watch(prefix: str = "") -> AsyncGenerator[StoreEvent, None]:
        """
        Yield the changes of keys that begin with *prefix*.

        The first event is RESET.  RESET is repeated whenever changes may be missing:
        Redis was unavailable or lost its contents, or 1000 events waited for the
        reader.  So one loop suffices: after RESET, read all keys; after SET or DELETED,
        read the key of the event.  The module's own changes are included.  The
        iteration ends when the module stops; to end it earlier, close it
        (`contextlib.aclosing`) or cancel its reader.

        :raises CallError: RESOURCE_EXHAUSTED if the namespace already has 100 watches.
        """


class IStores(Interface):
    """The stores of a module: `IServerModuleApi.stores`."""

    def folder() -> Path:
        """
        Return a folder for files of this module that may be lost, such as a cache.

        Only this machine has the files, and the workers of one kas share them.  They
        outlive the module.  The folder may be on a network volume.
        """

    def open(namespace: str) -> IStore:
        """
        Return the store of a namespace of this module.

        Other modules have no access to the store.  The values are in a file of kas'
        state directory, or in Redis if Redis is configured, and outlive the module.
        Opening a store is cheap; for the same namespace, this method returns the same
        store.

        :param namespace: at most 63 of ``a-z 0-9 - _``; a module may use at most 32
            namespaces.
        :raises ValueError: the namespace is invalid, or the module uses too many.
        """
