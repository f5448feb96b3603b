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
    #: Others have changed it, and Git has nothing new of it: it stays as they have it.
    LEFT = "left"
    #: It would become ours.
    ADOPT = "adopt"
    #: The API server refuses it: the kind's rules, admission, or another's fields.
    DENIED = "denied"
    #: It is not ours to apply.
    REFUSED = "refused"
    #: Its Namespace or its kind is not there yet, or a webhook takes no dry run.
    UNKNOWN = "unknown"
    PRUNE = "prune"
    #: It left Git, and stays.
    DETACH = "detach"
    FORGET = "forget"
    #: It left Git, and a prune guard keeps it.
    BLOCKED = "blocked"
