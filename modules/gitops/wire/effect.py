"""Effects of a commit on an object, as a preview names them."""

from __future__ import annotations

from enum import Enum

__all__ = ["Effect"]


class Effect(Enum):
    """Kinds of effects on an object."""

    CREATE = "create"
    CHANGE = "change"
    #: The object cannot be changed; agentk would delete it and create it again.
    RECREATE = "recreate"
    NONE = "unchanged"
    #: Other clients have changed it, and its manifest is unchanged: their changes stay.
    LEFT = "left"
    #: It would become ours.
    ADOPT = "adopt"
    #: The API server refuses it: because of validation, admission, or another manager's
    #: fields.
    DENIED = "denied"
    #: It belongs to another owner, and may not be applied.
    REFUSED = "refused"
    #: Its Namespace or its kind does not exist yet, or a webhook does not support dry
    #: runs.
    UNKNOWN = "unknown"
    PRUNE = "prune"
    #: It left Git, and stays in the cluster.
    DETACH = "detach"
    FORGET = "forget"
    #: It left Git, and a prune guard keeps it.
    BLOCKED = "blocked"
