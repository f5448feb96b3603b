"""Outcome of a plan for one object."""

from __future__ import annotations

from enum import Enum

import attrs

from modules.gitops.agent.objects.manifests import ObjectKey, Origin

__all__ = ["Outcome", "Result"]


class Outcome(Enum):
    """Kind of the result that a plan has for an object."""

    CREATED = "created"
    CHANGED = "changed"
    #: The object was deleted and created again, because it could not be changed.
    RECREATED = "recreated"
    UNCHANGED = "unchanged"
    #: Other clients changed the object; the drift is only reported.
    LEFT = "left"
    PRUNED = "pruned"
    #: The object stays in the cluster, but the source no longer owns it.
    DETACHED = "detached"
    #: The object was removed from the inventory, because it did not exist or had
    #: another owner.
    FORGOTTEN = "forgotten"
    BLOCKED = "blocked"
    FAILED = "failed"
    #: The object was not attempted, because another object failed.
    SKIPPED = "skipped"


@attrs.frozen
class Result:
    """
    Result for one object.

    :ivar reason: why the plan failed for the object: the message of the API server.
    :ivar origin: the place of the manifest in Git; None if Git does not contain it.
    """

    key: ObjectKey
    outcome: Outcome
    reason: str = ""
    origin: Origin | None = None

    def __str__(self) -> str:
        where = f"{self.origin}: " if self.origin is not None else ""
        why = f": {self.reason}" if self.reason else ""
        return f"{where}{self.key} {self.outcome.value}{why}"
