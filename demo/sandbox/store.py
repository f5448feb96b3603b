"""The objects, and what changed: every change has the next ``resourceVersion``."""

from __future__ import annotations

import copy
import uuid
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import attrs

from demo.sandbox.status import ApiError

__all__ = ["KINDS", "MAX_HISTORY", "Change", "Kind", "Store"]

Object = dict[str, Any]

#: Changes that a watch can start behind; older ones are answered with 410, as by etcd.
MAX_HISTORY = 1000

_READ = ("get", "list", "watch")
_WRITE = (*_READ, "create", "update", "patch", "delete")


@attrs.frozen
class Kind:
    """A resource of the core group."""

    plural: str
    kind: str
    short: str
    namespaced: bool = True
    verbs: tuple[str, ...] = _READ


KINDS = {
    kind.plural: kind
    for kind in (
        Kind("configmaps", "ConfigMap", "cm", verbs=_WRITE),
        Kind("namespaces", "Namespace", "ns", namespaced=False, verbs=_WRITE),
        Kind("nodes", "Node", "no", namespaced=False),
        Kind("pods", "Pod", "po"),
    )
}


@attrs.frozen
class Change:
    """One change of one object."""

    version: int
    kind: Kind
    before: Object | None
    after: Object | None

    @property
    def namespace(self) -> str:
        """Where the object is; empty for those of the whole cluster."""
        found = self.after or self.before or {}
        return str(found["metadata"].get("namespace", ""))


class Store:
    """
    Everything there is.

    :param now: the time, as Kubernetes writes it.
    """

    def __init__(self, now: Callable[[], str]) -> None:
        self._now = now
        self._objects: dict[tuple[str, str, str], Object] = {}
        self._history: deque[Change] = deque(maxlen=MAX_HISTORY)
        self._watchers: set[Callable[[Change], None]] = set()
        #: Of the last change.
        self.version = 0

    def select(self, kind: Kind, namespace: str) -> Iterator[Object]:
        """The objects of one kind; without a namespace, those of all."""
        for (plural, where, _), found in sorted(self._objects.items()):
            if plural == kind.plural and namespace in ("", where):
                yield found

    def get(self, kind: Kind, namespace: str, name: str) -> Object:
        """:raises ApiError: when it is not there."""
        try:
            return self._objects[kind.plural, namespace, name]
        except KeyError:
            raise ApiError(404, f'{kind.plural} "{name}" not found') from None

    def create(self, kind: Kind, namespace: str, content: Object) -> Object:
        """Add an object; what only a server knows is filled in."""
        found = copy.deepcopy(content)
        metadata = found.setdefault("metadata", {})
        if not metadata.get("name") and metadata.get("generateName"):
            metadata["name"] = metadata["generateName"] + uuid.uuid4().hex[:5]
        name = metadata.get("name")
        if not isinstance(name, str) or not name or "/" in name:
            raise ApiError(422, "metadata.name is missing or malformed", "Invalid")
        if (kind.plural, namespace, name) in self._objects:
            message = f'{kind.plural} "{name}" already exists'
            raise ApiError(409, message, "AlreadyExists")
        if kind.namespaced:
            self.get(KINDS["namespaces"], "", namespace)
            metadata["namespace"] = namespace
        metadata |= {"uid": str(uuid.uuid4()), "creationTimestamp": self._now()}
        found |= {"apiVersion": "v1", "kind": kind.kind}
        if kind.plural == "namespaces":
            found["status"] = {"phase": "Active"}
        return self._change(kind, namespace, name, found)

    def replace(self, kind: Kind, namespace: str, name: str, content: Object) -> Object:
        """Put *content* where an object is, unless it has changed meanwhile."""
        before = self.get(kind, namespace, name)
        found = copy.deepcopy(content)
        metadata = found.setdefault("metadata", {})
        known = metadata.get("resourceVersion")
        if known and known != before["metadata"]["resourceVersion"]:
            raise ApiError(409, f'{kind.plural} "{name}" has changed since it was read')
        for key in ("name", "namespace", "uid", "creationTimestamp"):
            if key in before["metadata"]:
                metadata[key] = before["metadata"][key]
        found |= {"apiVersion": "v1", "kind": kind.kind}
        return self._change(kind, namespace, name, found)

    def merge(self, kind: Kind, namespace: str, name: str, patch: Object) -> Object:
        """Change an object by a merge patch (RFC 7396)."""
        before = self.get(kind, namespace, name)
        return self.replace(kind, namespace, name, _merged(before, patch))

    def delete(self, kind: Kind, namespace: str, name: str) -> Object:
        """Remove an object; a namespace goes with all that is in it."""
        found = self.get(kind, namespace, name)
        if kind.plural == "namespaces":
            if any(self.select(KINDS["pods"], name)):
                raise ApiError(409, f"the sandbox keeps the namespace {name!r}")
            inside = [k for k in self._objects if k[1] == name]
            for plural, where, inner in inside:
                self._change(KINDS[plural], where, inner, None)
        self._change(kind, namespace, name, None)
        return found

    def _change(
        self, kind: Kind, namespace: str, name: str, after: Object | None
    ) -> Object:
        key = (kind.plural, namespace, name)
        self.version += 1
        before = self._objects.pop(key, None)
        if after is None:
            assert before is not None
            # The last state has the version of its removal.
            before = copy.deepcopy(before)
            before["metadata"]["resourceVersion"] = str(self.version)
        else:
            after["metadata"]["resourceVersion"] = str(self.version)
            self._objects[key] = after
        change = Change(self.version, kind, before, after)
        self._history.append(change)
        for told in tuple(self._watchers):
            told(change)
        return after or {}

    def since(self, version: int) -> list[Change]:
        """
        What changed after *version*.

        :raises ApiError: nobody remembers all of it.
        """
        oldest = self._history[0].version if self._history else self.version + 1
        if version + 1 < oldest:
            raise ApiError(410, f"too old resource version: {version} ({oldest})")
        return [change for change in self._history if change.version > version]

    def watch(self, told: Callable[[Change], None]) -> Callable[[], None]:
        """Be told every change until the result is called."""
        self._watchers.add(told)
        return lambda: self._watchers.discard(told)


def _merged(target: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = _merged(result.get(key), value)
    return result
