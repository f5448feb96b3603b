"""Views of live data: rows that agentk derives from objects, and kas stores."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import attrs
from zope.interface import Interface

from tunnel.api.kubernetes import KubernetesShape

__all__ = [
    "ClusterObject",
    "ClusterView",
    "ClusterViewsStarted",
    "IClusterViews",
    "ObjectKind",
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
    """Kind of objects that a view reads; *version* may be an alpha version."""

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
    An object as views see it.

    :ivar found: the fields that the view's shape has.
    :ivar health: ``current``, ``in progress``, ``failed`` or ``terminating``, as GitOps
        computes it.
    :ivar reason: why the object is not current.
    :ivar state: the object's state in one word, such as ``Running``.
    :ivar since: when agentk first saw this state, in seconds since 1970.
    """

    kind: ObjectKind
    found: KubernetesShape
    health: str
    reason: str
    state: str
    since: float

    @property
    def is_well(self) -> bool:
        """Return whether the object has reached the state of its specification."""
        return self.health == "current"


@attrs.frozen
class ViewRow:
    """
    A row of a view.

    :ivar columns: the values, which JSON can represent, of at most 16 KiB.
    :ivar part: distinguishes several rows of one object.
    """

    columns: Mapping[str, Any]
    part: str = ""


@attrs.frozen
class ClusterView:
    """
    A view, computed one object at a time.

    :ivar name: at most 40 lower-case letters, digits and hyphens.
    :ivar kinds: the kinds of objects, each with the fields that are read of an object.
        Two views of one kind need the same shape.
    :ivar rows: returns the rows of an object; an object without rows is not in the
        view.  It must not wait, and is called for each change.
    :ivar pause: minimum number of seconds between two messages about changes.
    """

    name: str
    kinds: Mapping[ObjectKind, type[KubernetesShape]]
    rows: Callable[[ClusterObject], Iterable[ViewRow]]
    pause: float = 1.0


class IClusterViews(Interface):
    """
    In agentk: the views of live data, a capability of the module ``cluster_data``.

    A row is visible to readers who may list its objects.
    """

    def add(view: ClusterView) -> Callable[[], None]:
        """
        Publish a further view, unless it is published already, and return a function
        that ends this.

        :raises ValueError: the name is invalid or taken, one of the kinds has another
            shape in another view, or too many views exist.
        """


@attrs.frozen
class ClusterViewsStarted:
    """
    In agentk: `IClusterViews` is available, for the first time or after a restart.
    """


def shortened(text: str | None) -> str:
    """Return the first line of *text*, at most `MAX_TEXT` characters long."""
    line = (text or "").strip().partition("\n")[0]
    return line if len(line) <= MAX_TEXT else line[: MAX_TEXT - 1] + "…"


def common_columns(one: ClusterObject) -> dict[str, Any]:
    """Return the columns that every row about a single object has."""
    metadata = one.found.metadata
    labels = sorted((metadata.labels or {}).items())[:MAX_LABELS]
    columns: dict[str, Any] = {
        "health": one.health,
        "state": one.state,
        "created": metadata.creation_timestamp or "",
    }
    if one.reason:
        columns["reason"] = shortened(one.reason)
    if labels:
        columns["labels"] = dict(labels)
    return columns
