"""Ids of inventories."""

from __future__ import annotations

import re
from hashlib import sha256

__all__ = ["inventory_id"]


def inventory_id(agent_id: str, project_id: int, repository: str, name: str) -> str:
    """
    Return the id of a project's inventory, which also marks its objects.

    If the project has no name of its own, and both the agent and the project exist in
    GitLab, the id is the same as in GitLab's agent.  Otherwise the id is a readable
    text, which a hash makes unique.  The id is at most 63 characters long, because it
    is the value of a label.

    :param name: `ManifestProject.name`.
    """
    of_gitlab = agent_id.isdecimal() and project_id
    if of_gitlab and not name:
        return f"{agent_id}-{project_id}"
    names = [agent_id, repository, *([name] if name else [])]
    exact = sha256("\0".join(names).encode()).hexdigest()[:8]
    length = 14 if name else 20
    slugs = [re.sub(r"[^a-z0-9]+", "-", one.lower())[:length] for one in names]
    return "-".join([*(slug.strip("-") or "x" for slug in slugs), exact])
