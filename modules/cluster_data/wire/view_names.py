"""Names of views, as agentk and kas accept them."""

from __future__ import annotations

import re

__all__ = [
    "COMPUTED_VIEWS",
    "KINDS",
    "MAX_VIEWS",
    "SUMMARY",
    "VIEWS",
    "is_view_name",
]

#: Names of the two views that the cache itself computes: the number of objects by kind
#: and state, and the state of the watch of each kind.
SUMMARY, KINDS = COMPUTED_VIEWS = ("summary", "kinds")

#: Names of the views that every cluster has; modules add others.
VIEWS = (
    *COMPUTED_VIEWS,
    "workloads",
    "nodes",
    "problems",
    "events",
    "applications",
    "services",
)

#: Maximum number of views of one agent: kas limits the rows of each view.
MAX_VIEWS = 20

_NAME = re.compile(r"[a-z][a-z0-9-]{0,39}")


def is_view_name(name: str) -> bool:
    """Return whether a view may have a name."""
    return _NAME.fullmatch(name) is not None
