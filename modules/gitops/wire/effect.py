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
    #: Other clients have changed the object, and its manifest is unchanged: their
    #: changes stay.
    LEFT = "left"
    #: The object would become part of the project.
    ADOPT = "adopt"
    #: The API server refuses the object: because of validation, admission, or another
    #: manager's fields.
    DENIED = "denied"
    #: The object belongs to another owner, and this project may not apply it.
    REFUSED = "refused"
    #: The object's Namespace or kind does not exist yet, or a webhook does not support
    #: dry runs.
    UNKNOWN = "unknown"
    PRUNE = "prune"
    #: The object was removed from Git, and stays in the cluster.
    DETACH = "detach"
    FORGET = "forget"
    #: The object was removed from Git, and a prune guard keeps it.
    BLOCKED = "blocked"
