"""Small durable values that all kas share."""

from __future__ import annotations

from collections.abc import (
    AsyncGenerator,
    Awaitable,
)
from enum import Enum

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
    Value at a key of an `IStore`.

    :ivar version: differs after each change, and has no other meaning.
    """

    value: bytes = attrs.field(repr=lambda value: f"{len(value)} bytes")
    version: int


class StoreEventType(Enum):
    """Kinds of a `StoreEvent`."""

    #: Start of the changes: changes before it may be missing.
    RESET = "RESET"
    SET = "SET"
    #: Deleted, or expired.
    DELETED = "DELETED"


@attrs.frozen
class StoreEvent:
    """
    One event of a watch: that a key changed.  Read it for its value of now.

    :ivar key: empty for RESET.
    :ivar version: of the change; 0 for RESET.
    """

    type: StoreEventType
    key: str = ""
    version: int = 0


class IStore(Interface):
    """
    Small durable values by key, in a namespace of one module.

    All kas that share Redis see the same values.  A key is text of 1 to 256 bytes in
    UTF-8 without control characters, a value at most 64 KiB; a namespace has at most
    10,000 keys and 16 MiB.

    Every failure is a `tunnel.errors.CallError`: INVALID_ARGUMENT for invalid keys and
    values; RESOURCE_EXHAUSTED for an exceeded limit; UNAVAILABLE while the store cannot
    be reached; DATA_LOSS when the file of the store is damaged.  After UNAVAILABLE a
    change may have happened or not.  An operation that was begun completes, even if its
    Deferred is cancelled.
    """

    def get(key: str) -> Awaitable[StoredValue | None]:
        """Return the value at *key*; None: it does not exist, or has expired."""

    def set(
        key: str,
        value: bytes,
        *,
        version: int | None = None,
        expires_after: float | None = None,
    ) -> Awaitable[int]:
        """
        Put *value* at *key*, and return its version.

        :param version: only if the key has this version (compare-and-set); 0: only if
            the key does not exist (create); None: always.
        :param expires_after: seconds until the key expires, at most ten years; None:
            never.
        :raises CallError: ABORTED, the key has another version: get it, and decide
            again.
        """

    def delete(key: str, *, version: int | None = None) -> Awaitable[bool]:
        """
        Delete *key*, and return whether it existed.

        :param version: only if the key has this version.
        :raises CallError: ABORTED, it has another version.
        """

    def keys(prefix: str = "", *, limit: int = 500) -> AsyncGenerator[list[str], None]:
        """
        Keys that begin with *prefix*, sorted, page by page.

        Of keys that change meanwhile a page may have the old state or the new one.

        :param limit: keys of one page, at most 1000.
        """

    def watch(prefix: str = "") -> AsyncGenerator[StoreEvent, None]:
        """
        Iterate over changes of keys that begin with *prefix*.

        The first event is RESET.  RESET comes again whenever changes may be missing:
        Redis was away or lost its contents, or 1000 events waited for the reader.  So
        one loop suffices: on RESET read all keys, on SET and DELETED read the key.  Own
        changes are events as well.  The iteration ends when the module stops; to end it
        earlier, close it (`contextlib.aclosing`) or cancel its reader.

        :raises CallError: RESOURCE_EXHAUSTED, the namespace has 100 watches.
        """


class IStores(Interface):
    """The stores of a module: `IServerModuleApi.stores`."""

    def open(namespace: str) -> IStore:
        """
        Return the small durable values of a namespace of this module.

        No other module reaches them.  They are in a file of kas' state directory, or in
        Redis where that is configured, and outlive the module.  Cheap; the same
        namespace gives the same store.

        :param namespace: at most 63 of ``a-z 0-9 - _``; a module has at most 32.
        :raises ValueError: it cannot be a namespace, or is one too many.
        """
