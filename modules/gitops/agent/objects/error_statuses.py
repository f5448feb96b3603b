"""Statuses of errors of the API server that say nothing about an object."""

from __future__ import annotations

from tunnel.errors import Status

__all__ = ["AWAY", "UNDECIDED"]

#: Statuses of errors that are unrelated to the object: the API server is unavailable.
AWAY = frozenset(
    {Status.UNAVAILABLE, Status.DEADLINE_EXCEEDED, Status.RESOURCE_EXHAUSTED}
)

#: Statuses of errors that are unrelated to the manifest: `AWAY`, or the API server or a
#: webhook failed for this object.  Other objects are not affected.
UNDECIDED = AWAY | {Status.INTERNAL}
