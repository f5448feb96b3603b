"""Rows of a view in tests."""

from __future__ import annotations

from typing import Any

import msgspec

from tunnel.api import ClusterObject, ClusterView, ObjectKind, ViewRow
from tunnel.kubernetes import health_of

__all__ = ["view_rows"]


def view_rows(
    view: ClusterView, found: dict[str, Any], now: float = 0.0
) -> list[ViewRow]:
    """
    Return the rows of one object in a view.

    :param found: the object, as in a manifest.
    :param now: the time in seconds since 1970.
    :raises KeyError: the view does not read objects of this kind.
    """
    group, _, version = found["apiVersion"].rpartition("/")
    kind = ObjectKind(group, version, found["kind"])
    health = health_of(found, now)
    return list(
        view.rows(
            ClusterObject(
                kind,
                msgspec.convert(found, view.kinds[kind]),
                health.status.value,
                health.reason,
                health.status.value,
                now,
            )
        )
    )
