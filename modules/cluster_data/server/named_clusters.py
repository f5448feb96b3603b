"""Clusters that a request names: one by one, or all that its user may reach."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection

from tunnel.api import Reach
from tunnel.errors import CallError, Status

__all__ = [
    "ALL_CLUSTERS",
    "MAX_CLUSTERS",
    "MAX_REACHED",
    "check_names",
    "named_clusters",
]

#: Names all clusters that the user may reach.
ALL_CLUSTERS = "*"

#: Maximum number of clusters that one request names: kas checks the credential for each
#: of them, and some checks are requests to GitLab.
MAX_CLUSTERS = 50

#: Maximum number of clusters that `ALL_CLUSTERS` stands for.  The credential's agents
#: can be listed, so each check takes some 20 us, and all of them less than 50 ms.
MAX_REACHED = 2000


def check_names(names: Collection[str]) -> None:
    """
    Check the names in a request.

    :raises CallError: INVALID_ARGUMENT for too few or too many.
    """
    is_alone = len(names) == 1 or ALL_CLUSTERS not in names
    if not 1 <= len(names) <= MAX_CLUSTERS or not is_alone:
        raise CallError(
            Status.INVALID_ARGUMENT,
            f"clusters names 1 to {MAX_CLUSTERS} clusters, or {ALL_CLUSTERS} alone for "
            "all clusters that you may reach",
        )


async def named_clusters(
    names: Collection[str], reach: Callable[[], Awaitable[Reach]]
) -> list[str]:
    """
    Return names or ids of the clusters.

    :param names: the names in the request.
    :param reach: returns the agents that the user may reach; called for `ALL_CLUSTERS`.
    :raises CallError: the user may reach no cluster or too many, or see `IUsers.reach`.
    """
    if ALL_CLUSTERS not in names:
        return list(names)
    found = await reach()
    if not found.agents:
        raise CallError(
            Status.PERMISSION_DENIED,
            "you may reach no cluster"
            if found.is_complete
            else "kas cannot list the clusters that you may reach; name them",
        )
    if len(found.agents) > MAX_REACHED:
        raise CallError(
            Status.RESOURCE_EXHAUSTED,
            f"you may reach {len(found.agents)} clusters, and one request reads at "
            f"most {MAX_REACHED}; name them",
        )
    return [one.agent_id for one in found.agents]
