"""Differences between an object and its manifest in Git, and their writers."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any

import attrs

from modules.gitops.agent.objects.control_plane import without_owned
from modules.gitops.agent.objects.field_takeover import FIELD_MANAGER
from modules.gitops.agent.objects.manifests import ObjectKey
from tunnel.api import KubernetesObject
from tunnel.toolkit.texts import clean

__all__ = [
    "AppliedVersion",
    "ChangedField",
    "Writer",
    "applied_version",
    "changed_fields",
    "owned_fields",
    "writers_named",
    "writers_of",
]

#: Maximum number of changed fields of one object that are named; further fields are
#: only counted.
MAX_FIELDS = 20

#: Maximum characters of a displayed value and of a field's path: the length of keys is
#: not limited.
MAX_VALUE, MAX_PATH = 200, 300

#: Maximum number of writers of one object that are named: any number of clients may
#: have applied the object.
MAX_WRITERS = 20

#: Maximum characters of a field manager; the limit of API servers.
MAX_MANAGER = 128

#: Replacement for a value that may be secret.
MASK = "***"

#: Fields of ``metadata`` that only the API server writes; all others are compared.
_OF_THE_SERVER = frozenset(
    (
        *("creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp"),
        *("generation", "managedFields", "resourceVersion", "selfLink", "uid"),
    )
)

#: Annotation that contains the whole object, including the data of a Secret.
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"

#: Path of a field: the keys of objects and the indices of lists.
_Path = tuple[str | int, ...]

_ABSENT = object()


@attrs.frozen
class ChangedField:
    """
    Field that differs from Git.

    :ivar path: the path as a JSON pointer, truncated, in one line.
    :ivar wanted: the value as JSON, truncated and masked; empty if Git does not have
        the field.
    :ivar live: the live value, in the same form; empty if the field does not exist.
    """

    path: str
    wanted: str
    live: str


@attrs.frozen
class Writer:
    """
    An entry of an object's ``managedFields``.

    :ivar time: the time of the last write, such as ``2026-01-02T03:04:05Z``.
    """

    manager: str
    operation: str
    subresource: str = ""
    time: str = ""

    def __str__(self) -> str:
        how = f"{self.manager} ({self.operation})" if self.operation else self.manager
        return f"{how} at {self.time}" if self.time else how


@attrs.frozen
class AppliedVersion:
    """
    Version of an object after it was applied.

    :ivar fields: the result of `owned_fields`.
    """

    uid: str
    version: str
    fields: str


def applied_version(metadata: Mapping[str, Any]) -> AppliedVersion:
    """Return the version of a live object with these metadata."""
    return AppliedVersion(
        metadata.get("uid", ""),
        metadata.get("resourceVersion", ""),
        owned_fields(metadata, FIELD_MANAGER),
    )


def owned_fields(metadata: Mapping[str, Any], manager: str) -> str:
    """
    Return a digest that changes when the fields that *manager* applied change.

    A client that changes a value owns the field from then on.

    :returns: empty if *manager* has not applied any field.
    """
    mine = [
        (one.get("time"), one.get("fieldsV1"))
        for one in metadata.get("managedFields") or ()
        if one.get("manager") == manager and one.get("operation") == "Apply"
    ]
    if not mine:
        return ""
    return sha256(json.dumps(mine, sort_keys=True).encode()).hexdigest()[:24]


def changed_fields(
    key: ObjectKey, wanted: KubernetesObject, live: KubernetesObject
) -> tuple[list[tuple[_Path, ChangedField]], int]:
    """
    Return the fields that differ in *live*, and the number of further fields that
    differ.

    :param wanted: the result of a dry run that applies the manifest again.
    """
    found: list[tuple[_Path, ChangedField]] = []
    more = 0
    for path, one, other in _differences(_compared(wanted), _compared(live), ()):
        if len(found) >= MAX_FIELDS:
            more += 1
            continue
        masked = _is_secret(key, path)
        # Keys may contain any characters, and appear in logs and terminals.
        pointer = _cut(clean(_pointer(path), MAX_PATH + 1), MAX_PATH)
        field = ChangedField(pointer, _shown(one, masked), _shown(other, masked))
        found.append((path, field))
    return found, more


def writers_named(live: KubernetesObject, names: Collection[str]) -> list[Writer]:
    """Return the writers with these field manager names."""
    found = live["metadata"].get("managedFields") or ()
    return [_writer(one) for one in found if one.get("manager") in names]


def writers_of(
    live: KubernetesObject, paths: Sequence[_Path], ours: str
) -> list[Writer]:
    """
    Return the current owners of fields, except *ours*.

    A removed field has no owner; in this case the last writer of the object is
    returned.
    """
    metadata = live["metadata"]
    others = [
        one
        for one in metadata.get("managedFields") or ()
        if (one.get("manager"), one.get("operation")) != (ours, "Apply")
        and one.get("subresource") != "status"
    ]
    found = [
        one
        for one in others
        if any(_owns(one.get("fieldsV1") or {}, live, path) for path in paths)
    ]
    if not found and others:
        last = max(one.get("time") or "" for one in others)
        found = [one for one in others if (one.get("time") or "") == last]
    return [_writer(one) for one in found[:MAX_WRITERS]]


def _writer(entry: Mapping[str, Any]) -> Writer:
    return Writer(
        clean(entry.get("manager", ""), MAX_MANAGER),
        entry.get("operation", ""),
        entry.get("subresource", ""),
        entry.get("time") or "",
    )


def _compared(found: KubernetesObject) -> dict[str, Any]:
    metadata = {
        name: value
        for name, value in found["metadata"].items()
        if name not in _OF_THE_SERVER
    }
    rest = {name: value for name, value in found.items() if name != "status"}
    return without_owned({**rest, "metadata": metadata})


def _differences(one: Any, other: Any, path: _Path) -> Iterator[tuple[_Path, Any, Any]]:
    if isinstance(one, dict) and isinstance(other, dict):
        for name in sorted({*one, *other}):
            yield from _differences(
                one.get(name, _ABSENT), other.get(name, _ABSENT), (*path, name)
            )
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for number, (each, its) in enumerate(zip(one, other, strict=True)):
            yield from _differences(each, its, (*path, number))
    elif one is _ABSENT and isinstance(other, dict) and other:
        # The owner of a field is the writer that added the field.
        for name in sorted(other):
            yield from _differences(_ABSENT, other[name], (*path, name))
    elif one != other or type(one) is not type(other):
        yield path, one, other


def _pointer(path: _Path) -> str:
    return "".join("/" + str(one).replace("~", "~0").replace("/", "~1") for one in path)


def _is_secret(key: ObjectKey, path: _Path) -> bool:
    if _LAST_APPLIED in path:
        return True
    return (key.group, key.kind) == ("", "Secret") and (
        not path or path[0] in ("data", "stringData")
    )


def _shown(value: Any, masked: bool) -> str:
    if value is _ABSENT:
        return ""
    if masked:
        return MASK
    text = json.dumps(value, ensure_ascii=False)
    if _LAST_APPLIED in text:
        # Treat all annotations as one value, because an annotation may contain the
        # whole earlier object.
        return MASK
    return _cut(text, MAX_VALUE)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _owns(fields: Any, live: Any, path: _Path) -> bool:
    """Return whether a set of fields contains the field at *path*."""
    for one in path:
        if not isinstance(fields, dict):
            return False
        inside: dict[str, Any] = fields
        if isinstance(one, int):
            item = live[one] if isinstance(live, list) and one < len(live) else None
            names = (name for name in inside if _names(name, item, one))
            fields = inside.get(next(names, ""))
            live = item
        else:
            fields = inside.get(f"f:{one}")
            live = live.get(one) if isinstance(live, dict) else None
        if fields == {}:
            # The field is a leaf, or a list with a single owner.
            return True
    return isinstance(fields, dict)


def _names(name: str, item: Any, number: int) -> bool:
    """Return whether a key of ``fieldsV1`` selects an item of a list."""
    kind, _, text = name.partition(":")
    try:
        said = json.loads(text) if kind in ("k", "v", "i") else None
    except ValueError:
        return False
    if kind == "k":
        return (
            isinstance(item, dict)
            and isinstance(said, dict)
            and all(item.get(each) == value for each, value in said.items())
        )
    return (kind == "v" and said == item) or (kind == "i" and said == number)
