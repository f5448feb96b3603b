"""The objects, and what changed: every change has the next ``resourceVersion``."""

from __future__ import annotations

import copy
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import attrs

__all__ = [
    "KINDS",
    "MAX_HISTORY",
    "ApiError",
    "Change",
    "Kind",
    "Store",
    "failure",
    "selects",
]

Object = dict[str, Any]

#: Changes that a watch can start behind; older ones are answered with 410, as by etcd.
MAX_HISTORY = 1000

_READ = ("get", "list", "watch")

_REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    404: "NotFound",
    405: "MethodNotAllowed",
    409: "AlreadyExists",
    410: "Expired",
    413: "RequestEntityTooLarge",
    415: "UnsupportedMediaType",
    422: "Invalid",
}


class ApiError(Exception):
    """What a client asked for cannot be; becomes the answer."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def failure(code: int, message: str, reason: str = "") -> Object:
    """A ``Status`` that tells of a failure."""
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason or _REASONS.get(code, ""),
        "code": code,
    }


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
        Kind("configmaps", "ConfigMap", "cm", verbs=(*_READ, "create", "delete")),
        Kind("namespaces", "Namespace", "ns", namespaced=False),
        Kind("pods", "Pod", "po"),
    )
}


@attrs.frozen
class Change:
    """One change of one object."""

    version: int
    kind: Kind
    type: str
    object: Object


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
        name = metadata.get("name")
        if not isinstance(name, str) or not name or "/" in name:
            raise ApiError(422, "metadata.name is missing or malformed")
        if (kind.plural, namespace, name) in self._objects:
            raise ApiError(409, f'{kind.plural} "{name}" already exists')
        if kind.namespaced:
            self.get(KINDS["namespaces"], "", namespace)
            metadata["namespace"] = namespace
        metadata |= {"uid": str(uuid.uuid4()), "creationTimestamp": self._now()}
        found |= {"apiVersion": "v1", "kind": kind.kind}
        self._objects[kind.plural, namespace, name] = found
        self._changed(kind, "ADDED", found)
        return found

    def delete(self, kind: Kind, namespace: str, name: str) -> Object:
        """Remove an object; its last state has the version of its removal."""
        found = copy.deepcopy(self.get(kind, namespace, name))
        del self._objects[kind.plural, namespace, name]
        self._changed(kind, "DELETED", found)
        return found

    def _changed(self, kind: Kind, what: str, found: Object) -> None:
        self.version += 1
        found["metadata"]["resourceVersion"] = str(self.version)
        change = Change(self.version, kind, what, found)
        self._history.append(change)
        for callback in tuple(self._watchers):
            callback(change)

    def since(self, version: int) -> list[Change]:
        """
        What changed after *version*.

        :raises ApiError: not all of it is remembered.
        """
        oldest = self._history[0].version if self._history else self.version + 1
        if version + 1 < oldest:
            raise ApiError(410, f"too old resource version: {version} ({oldest})")
        return [change for change in self._history if change.version > version]

    def watch(self, callback: Callable[[Change], None]) -> Callable[[], None]:
        """Call *callback* with every change until the result is called."""
        self._watchers.add(callback)
        return lambda: self._watchers.discard(callback)


def selects(query: Mapping[str, str], found: Object) -> bool:
    """
    Whether the selectors of *query* mean an object.

    :raises ApiError: they say more than what has to be equal.
    """
    for term in filter(None, query.get("fieldSelector", "").split(",")):
        path, value = _term(term)
        field: Any = found
        for name in path.split("."):
            field = field.get(name, "") if isinstance(field, dict) else ""
        if field != value:
            return False
    labels = found["metadata"].get("labels", {})
    for term in filter(None, query.get("labelSelector", "").split(",")):
        path, value = _term(term)
        if labels.get(path) != value:
            return False
    return True


def _term(term: str) -> tuple[str, str]:
    path, equal, value = term.replace("==", "=").partition("=")
    if not equal or path.endswith("!"):
        raise ApiError(400, f"the sandbox knows no selector like {term!r}; use a=b")
    return path, value
