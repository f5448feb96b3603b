"""The objects of one kind, and their recent changes."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

import attrs
import msgspec
from twisted.internet.defer import Deferred

from modules.cluster_data.agent.objects.packing import ObjectText, Packer
from tunnel.api import KubernetesResource, PrintedObject
from tunnel.errors import CallError

__all__ = [
    "MAX_CHANGES",
    "MAX_CHANGES_SIZE",
    "OVERHEAD",
    "KeptKey",
    "KeptObject",
    "ObjectChange",
    "ObjectStore",
]

#: Maximum number of changes from which a watch can continue.  A reader that is further
#: behind gets 410, and reads the list again, from the cache.
MAX_CHANGES: Final = 2000

#: Maximum bytes of these changes.
MAX_CHANGES_SIZE: Final = 4 * 1024 * 1024

#: Bytes of the Python objects of an object beside its compressed bytes.
OVERHEAD: Final = 350


class KeptKey(NamedTuple):
    """Key of an object; *namespace* is empty for kinds without namespaces."""

    namespace: str
    name: str


@attrs.frozen(slots=True)
class KeptObject:
    """An object: its ``resourceVersion``, and its compressed bytes."""

    version: str
    packed: bytes


@attrs.frozen(slots=True)
class ObjectChange:
    """
    A change of an object.

    :ivar version: the position after the change.
    :ivar before: None for a new object.
    :ivar after: None for a deleted object.
    :ivar last: the deleted object as the API server sent it; None if agentk did not see
        the deletion.
    """

    version: str
    key: KeptKey
    before: KeptObject | None
    after: KeptObject | None
    last: KeptObject | None = None

    @property
    def size(self) -> int:
        """Return the bytes of the change."""
        parts = (self.before, self.after, self.last)
        return OVERHEAD + sum(len(one.packed) for one in parts if one is not None)


class ObjectStore:
    """
    The objects of one kind.

    When the kind is read again, readers see the previous objects until all have
    arrived; then they see the differences as changes.

    :ivar version: the position of the kind; empty until all objects have arrived.
    :ivar columns: ``columnDefinitions`` of the cells; empty without cells.
    :ivar size: bytes of the objects and changes.
    :ivar count: number of objects.
    :ivar bookmark: the last position that was reported without a change.
    :ivar error: why the kind cannot be read now; None if it can.
    :ivar ended: whether the cache does not update this store any more.
    :ivar readers: number of requests that read the store now.
    :ivar used_at: time of the end of the last request.
    """

    def __init__(self, resource: KubernetesResource, now: float) -> None:
        self.resource = resource
        self.version = ""
        self.columns = b""
        self.size = 0
        self.count = 0
        self.bookmark = ""
        self.error: CallError | None = None
        self.ended = False
        self.readers = 0
        self.used_at = now
        self._packer = Packer(resource)
        self._objects: dict[str, dict[str, KeptObject]] = {}
        self._changes: deque[ObjectChange] = deque()
        self._changes_size = 0
        #: Number of changes that *_changes* has forgotten.
        self._forgotten = 0
        #: The position before the first of *_changes*.
        self._base = ""
        #: While the kind is read again: new states, and keys that have not arrived.
        self._arrived: dict[KeptKey, KeptObject] = {}
        self._unseen: set[KeptKey] | None = None
        self._waiting: set[Deferred[None]] = set()
        self._last: tuple[bytes, ObjectText] | None = None

    # Events of the watch.

    def begin(self) -> None:
        """Note that all objects follow."""
        self._arrived.clear()
        self._unseen = {
            KeptKey(namespace, name)
            for namespace, objects in self._objects.items()
            for name in objects
        }

    def put(self, key: KeptKey, version: str, printed: PrintedObject) -> None:
        """Note a new state of an object."""
        before = self._get(key)
        if self._unseen is not None:
            self._unseen.discard(key)
            if before is not None and before.version == version:
                return
        kept = self._pack(version, printed)
        if kept is None:
            return
        if not self.version:
            self._set(key, kept)
        elif self._unseen is not None:
            self._arrived[key] = kept
        else:
            self._change(ObjectChange(version, key, before, kept))

    def delete(self, key: KeptKey, version: str, printed: PrintedObject) -> None:
        """Note that an object was deleted; *printed* is its last state."""
        before = self._get(key)
        if before is not None:
            last = self._pack(version, printed)
            self._change(ObjectChange(version, key, before, None, last))

    def complete(self, version: str, columns: bytes) -> None:
        """Note that all objects have arrived."""
        self.columns = columns or self.columns
        self.error = None
        unseen, self._unseen = self._unseen or set(), None
        arrived, self._arrived = self._arrived, {}
        if self.version:
            self._replace(version, arrived, unseen)
        else:
            self._base = version
        self.version = version
        self._wake()

    def reached(self, version: str) -> None:
        """Note a position at which nothing has changed."""
        self.version = self.bookmark = version
        self._wake()

    def fail(self, error: CallError) -> None:
        """Note that the kind cannot be read now."""
        self.error = error
        self._wake()

    def end(self, error: CallError) -> None:
        """End all requests that read this store."""
        self.ended = True
        self.fail(error)

    # Readers.

    def get(self, key: KeptKey) -> KeptObject | None:
        """Return an object."""
        return self._get(key)

    def select(self, namespace: str, name: str) -> list[tuple[KeptKey, KeptObject]]:
        """
        Return the objects in the order of the API server; empty names select all.
        """
        # etcd sorts the texts NAMESPACE/NAME: shop-test/ is before shop/.
        spaces = (
            [namespace]
            if namespace
            else sorted(self._objects, key=lambda space: f"{space}/")
        )
        found: list[tuple[KeptKey, KeptObject]] = []
        for space in spaces:
            objects = self._objects.get(space, {})
            names = [name] if name else sorted(objects)
            found += [
                (KeptKey(space, one), objects[one]) for one in names if one in objects
            ]
        return found

    def text(self, kept: KeptObject) -> ObjectText:
        """Return an object and its cells."""
        # All readers need the same object when it changes.
        if self._last is None or self._last[0] is not kept.packed:
            self._last = (kept.packed, self._packer.unpack(kept.packed))
        return self._last[1]

    @property
    def position(self) -> int:
        """Return the number of the next change."""
        return self._forgotten + len(self._changes)

    def position_at(self, version: str) -> int | None:
        """
        Return the number of the first change after *version*; None if that is too old,
        or if versions cannot be compared.
        """
        if version == self.version:
            return self.position
        number, base = _number(version), _number(self._base)
        if number is None or base is None or number < base:
            return None
        for index in range(len(self._changes) - 1, -1, -1):
            at = _number(self._changes[index].version)
            if at is None:
                return None
            if at <= number:
                return self._forgotten + index + 1
        return self._forgotten

    def is_ahead(self, version: str) -> bool:
        """Return whether *version* is newer than all that the store knows."""
        number, own = _number(version), _number(self.version)
        return number is not None and own is not None and number > own

    def since(self, position: int, most: int) -> Sequence[ObjectChange] | None:
        """Return the next changes, *most* at once; None if they are forgotten."""
        start = position - self._forgotten
        if start < 0:
            return None
        # A reader is nearly always at the end.
        stop = min(start + most, len(self._changes))
        return [self._changes[index] for index in range(start, stop)]

    def changed(self) -> Deferred[None]:
        """Return a Deferred that fires after the next event."""
        waiting: Deferred[None] = Deferred(self._waiting.discard)
        self._waiting.add(waiting)
        return waiting

    # Inside.

    def _get(self, key: KeptKey) -> KeptObject | None:
        objects = self._objects.get(key.namespace)
        return None if objects is None else objects.get(key.name)

    def _pack(self, version: str, printed: PrintedObject) -> KeptObject | None:
        try:
            packed = self._packer.pack(printed)
        except (msgspec.DecodeError, KeyError, RecursionError):
            # It has no metadata, so it has neither a name nor a version.
            return None
        self.columns = bytes(printed.columns) or self.columns
        return KeptObject(version, packed)

    def _set(self, key: KeptKey, kept: KeptObject | None) -> None:
        objects = self._objects.setdefault(key.namespace, {})
        before = objects.pop(key.name, None)
        if before is not None:
            self.count -= 1
            self.size -= len(before.packed) + len(key.name) + OVERHEAD
        if kept is not None:
            objects[key.name] = kept
            self.count += 1
            self.size += len(kept.packed) + len(key.name) + OVERHEAD
        elif not objects:
            del self._objects[key.namespace]

    def _change(self, change: ObjectChange) -> None:
        self._set(change.key, change.after)
        self.version = change.version
        self._changes.append(change)
        self._changes_size += change.size
        self.size += change.size
        while len(self._changes) > MAX_CHANGES or self._changes_size > MAX_CHANGES_SIZE:
            self._forget_oldest()
        self._wake()

    def _forget_oldest(self) -> None:
        oldest = self._changes.popleft()
        self._changes_size -= oldest.size
        self.size -= oldest.size
        self._forgotten += 1
        self._base = oldest.version

    def _replace(
        self, version: str, arrived: dict[KeptKey, KeptObject], unseen: set[KeptKey]
    ) -> None:
        """Make the differences from the previous objects changes."""
        changes = [
            ObjectChange(one.version, key, self._get(key), one)
            for key, one in arrived.items()
        ]
        numbers = [_number(one.version) for one in changes]
        since, until = _number(self.version), _number(version)
        is_in_order = (
            since is not None
            and until is not None
            and since <= until
            and all(one is not None and since < one <= until for one in numbers)
        )
        if not is_in_order:
            # etcd was restored from a backup, or versions cannot be compared: no reader
            # can continue.
            while self._changes:
                self._forget_oldest()
            self._forgotten += 1
            for key, kept in arrived.items():
                self._set(key, kept)
            for key in unseen:
                self._set(key, None)
            self._base = version
            return
        changes.sort(key=lambda one: int(one.version))
        for change in changes:
            self._change(change)
        for key in sorted(unseen):
            self._change(ObjectChange(version, key, self._get(key), None))

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, set()
        for one in waiting:
            one.callback(None)


def _number(version: str) -> int | None:
    """Return a version as a number of 64 bits; None if it is not one."""
    return int(version) if re.fullmatch("[0-9]{1,20}", version, re.ASCII) else None
