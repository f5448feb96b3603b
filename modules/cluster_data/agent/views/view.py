"""A view: rows that are derived from the objects of some kinds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import attrs

from tunnel.api import KubernetesShape
from tunnel.kubernetes import HealthStatus, ObjectHealth

__all__ = [
    "MAX_LABELS",
    "MAX_TEXT",
    "ClusterObject",
    "ObjectKind",
    "View",
    "ViewRow",
    "common_columns",
    "shortened",
]

#: Maximum number of characters of a message in a row: a message may be a whole stack
#: trace, and readers need its beginning.
MAX_TEXT = 256

#: Maximum number of labels of a row.
MAX_LABELS = 32


@attrs.frozen
class ObjectKind:
    """Kind of objects that the cache watches; *version* may be an alpha version."""

    group: str
    version: str
    kind: str

    @property
    def api_version(self) -> str:
        """Return the group and version as in manifests."""
        return f"{self.group}/{self.version}" if self.group else self.version


@attrs.frozen
class ClusterObject:
    """
    An object in the cache, as views see it.

    :ivar state: the object's state in one word.
    :ivar since: seconds since 1970 from which the cache has known this state.
    """

    kind: ObjectKind
    found: KubernetesShape
    health: ObjectHealth
    state: str
    since: float

    @property
    def is_well(self) -> bool:
        """Return whether the object has reached the state of its specification."""
        return self.health.status is HealthStatus.CURRENT


@attrs.frozen
class ViewRow:
    """
    A row of a view.

    :ivar columns: the values, which JSON can represent.
    :ivar part: distinguishes several rows of one object.
    """

    columns: Mapping[str, Any]
    part: str = ""


@attrs.frozen
class View:
    """
    A view, computed one object at a time.

    :ivar kinds: the kinds of objects, each with the fields that are read of an object.
    :ivar rows: returns the rows of an object; an object without rows is not in the
        view.
    :ivar pause: minimum number of seconds between two messages about changes.
    """

    name: str
    kinds: Mapping[ObjectKind, type[KubernetesShape]]
    rows: Callable[[ClusterObject], Iterable[ViewRow]]
    pause: float = 1.0


def shortened(text: str | None) -> str:
    """Return the first line of *text*, at most `MAX_TEXT` characters long."""
    line = (text or "").strip().partition("\n")[0]
    return line if len(line) <= MAX_TEXT else line[: MAX_TEXT - 1] + "…"


def common_columns(one: ClusterObject) -> dict[str, Any]:
    """Return the columns that every row about a single object has."""
    metadata = one.found.metadata
    labels = sorted((metadata.labels or {}).items())[:MAX_LABELS]
    columns: dict[str, Any] = {
        "health": one.health.status.value,
        "state": one.state,
        "created": metadata.creation_timestamp or "",
    }
    if one.health.reason:
        columns["reason"] = shortened(one.health.reason)
    if labels:
        columns["labels"] = dict(labels)
    return columns
