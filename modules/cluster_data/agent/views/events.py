"""View ``events``: warnings of the cluster's components about objects."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from modules.cluster_data.agent.shapes import Event
from tunnel.api import (
    ClusterObject,
    ClusterView,
    ObjectKind,
    ViewRow,
    shortened,
)

__all__ = ["EVENT", "EVENTS"]

EVENT = ObjectKind("", "v1", "Event")


def _rows(one: ClusterObject) -> Iterator[ViewRow]:
    event = cast(Event, one.found)
    if event.type != "Warning":
        return
    series = event.series
    # The first three may be None: components that use events.k8s.io set the other ones.
    last = (
        (series.last_observed_time if series else None)
        or event.last_timestamp
        or event.event_time
        or event.metadata.creation_timestamp
        or ""
    )
    yield ViewRow(
        {
            "object": shortened(
                f"{event.involved_object.kind}/{event.involved_object.name}"
            ),
            "reason": shortened(event.reason),
            "message": shortened(event.message),
            "count": (series.count if series else 0) or event.count or 1,
            "last": last,
        }
    )


EVENTS = ClusterView("events", {EVENT: Event}, _rows, pause=2.0)
