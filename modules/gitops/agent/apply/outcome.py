"""The outcome of a plan for one object."""

from __future__ import annotations

from enum import Enum

import attrs

from modules.gitops.agent.objects.manifests import ObjectKey, Origin

__all__ = ["Outcome", "Result"]


class Outcome(Enum):
    """The result of a plan for an object."""

    CREATED = "created"
    CHANGED = "changed"
    #: Deleted and created again, because it could not be changed.
    RECREATED = "recreated"
    UNCHANGED = "unchanged"
    #: Changed by other clients; the drift is only reported.
    LEFT = "left"
    PRUNED = "pruned"
    #: Left in the cluster, but no longer owned by the source.
    DETACHED = "detached"
    #: Removed from the inventory, because it was gone or had another owner.
    FORGOTTEN = "forgotten"
    BLOCKED = "blocked"
    FAILED = "failed"
    #: Not attempted, because another object failed.
    SKIPPED = "skipped"


@attrs.frozen
class Result:
    """
    The result for one object.

    :ivar reason: why it did not succeed, in the words of the API server.
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
