"""Answers of the store to a reader, without the rows that the reader may not see."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial

import attrs

from modules.cluster_data.server.queries import (
    FoundRow,
    KnownCluster,
    ListScope,
    RowQuery,
    count_clusters,
    find_clusters,
    find_rows,
    find_scopes,
    find_summaries,
)
from modules.cluster_data.server.rights import Permitted, ReaderRights
from modules.cluster_data.server.row_store import RowStore
from tunnel.api import Access
from tunnel.errors import CallError
from tunnel.toolkit.parallel import in_parallel

__all__ = ["LATE", "LIVE", "ClusterAnswer", "FleetReader", "RowsAnswer", "state_of"]

#: Maximum age of the last message of a cluster that is live, and of one that is late,
#: in seconds.
LIVE, LATE = 30.0, 300.0

#: Maximum number of clusters whose API servers are asked at the same time.
AT_ONCE = 20

#: Returns the rights of the reader at an agent.  A `CallError` means that the reader
#: may see nothing, with the reason.
AccessOf = Callable[[str], Awaitable[Access]]


@attrs.frozen
class ClusterAnswer:
    """
    A cluster, as a reader sees it.

    :ivar state: ``live``, ``late``, ``offline`` or ``never``.
    :ivar reason: why rows are missing or old; empty if none are.
    :ivar summary: the permitted rows of the view ``summary``.
    """

    cluster: KnownCluster
    state: str
    reason: str = ""
    summary: tuple[FoundRow, ...] = ()


@attrs.frozen
class RowsAnswer:
    """
    One page of rows.

    :ivar incomplete: the queried clusters without current rows.
    :ivar queried: number of queried clusters.
    :ivar as_of: time of the answer in seconds since 1970.
    """

    rows: Sequence[FoundRow]
    next_page: str
    incomplete: Sequence[ClusterAnswer]
    queried: int
    as_of: float


def state_of(cluster: KnownCluster, now: float) -> str:
    """Return ``live``, ``late`` or ``offline``."""
    age = now - cluster.last_seen
    if age <= LIVE and cluster.is_publishing:
        return "live"
    return "late" if age <= LATE and cluster.is_publishing else "offline"


class FleetReader:
    """
    The one way out of the store for all kinds of readers.

    :param now: returns the time in seconds since 1970.
    """

    def __init__(
        self, store: RowStore, rights: ReaderRights, now: Callable[[], float]
    ) -> None:
        self._store = store
        self._rights = rights
        self._now = now

    async def rows(
        self, query: RowQuery, names: Sequence[str], access_of: AccessOf | None
    ) -> RowsAnswer:
        """
        Return the rows of some clusters that the reader may see.

        :param names: names or ids of agents; empty for all.
        :param access_of: None for a reader who may see all rows.
        """
        allowed: set[ListScope] | None = None
        reasons: dict[str, str] = {}
        if names or access_of is not None:
            found = await self._store.read(partial(find_clusters, names=names))
            query = attrs.evolve(query, agents=[one.agent_id for one in found])
            queried = len(found)
        else:
            # A fleet has many clusters, and only those that are not live matter here.
            since = self._now() - LIVE
            found = await self._store.read(partial(find_clusters, not_live_since=since))
            queried = await self._store.read(count_clusters)
        if access_of is not None:
            allowed, reasons = await self._permitted(query, found, access_of)
        rows, next_page = await self._store.read(
            partial(find_rows, query=query, scopes=allowed)
        )
        now = self._now()
        answers = [self._answer(one, now, reasons) for one in found]
        unknown = _unknown(names, found)
        return RowsAnswer(
            rows,
            next_page,
            [one for one in answers if one.reason] + unknown,
            queried + len(unknown),
            now,
        )

    async def clusters(
        self, names: Sequence[str], access_of: AccessOf | None
    ) -> tuple[list[ClusterAnswer], float]:
        """Return clusters with the summaries that the reader may see, and the time."""
        found = await self._store.read(partial(find_clusters, names=names))
        agents = [one.agent_id for one in found]
        allowed: set[ListScope] | None = None
        reasons: dict[str, str] = {}
        if access_of is not None:
            query = RowQuery(view="summary", agents=agents)
            allowed, reasons = await self._permitted(query, found, access_of)
        summaries = await self._store.read(partial(find_summaries, agents=agents))
        now = self._now()
        answers = [
            attrs.evolve(
                self._answer(one, now, reasons),
                summary=tuple(
                    row
                    for row in summaries.get(one.agent_id, ())
                    if allowed is None or _scope(row) in allowed
                ),
            )
            for one in found
        ]
        return answers + _unknown(names, found), now

    async def _permitted(
        self, query: RowQuery, clusters: Sequence[KnownCluster], access_of: AccessOf
    ) -> tuple[set[ListScope], dict[str, str]]:
        """
        Return the scopes of the query that the reader may see, and by agent why some
        may be missing.
        """
        by_agent: dict[str, list[ListScope]] = {}
        for scope in await self._store.read(partial(find_scopes, query=query)):
            by_agent.setdefault(scope.agent_id, []).append(scope)
        reasons: dict[str, str] = {}
        allowed: set[ListScope] = set()

        async def review(cluster: KnownCluster) -> None:
            try:
                access = await access_of(cluster.agent_id)
                mine = by_agent.get(cluster.agent_id, [])
                permitted = await self._rights.permitted(access, mine)
            except CallError as error:
                permitted = Permitted(frozenset(), error.message)
            allowed.update(permitted.scopes)
            if permitted.reason:
                reasons[cluster.agent_id] = permitted.reason

        await in_parallel([partial(review, one) for one in clusters], AT_ONCE)
        return allowed, reasons

    def _answer(
        self, cluster: KnownCluster, now: float, reasons: dict[str, str]
    ) -> ClusterAnswer:
        state = state_of(cluster, now)
        said = [reasons.get(cluster.agent_id, "")]
        if state != "live":
            age = max(0, round(now - cluster.last_seen))
            said.append(f"{state}: its rows are {age} s old")
        reason = "; ".join(one for one in said if one)
        return ClusterAnswer(cluster, state, reason)


def _unknown(
    names: Sequence[str], found: Sequence[KnownCluster]
) -> list[ClusterAnswer]:
    """Return an answer for each name of a cluster that the store does not have."""
    known = {name for one in found for name in (one.agent_id, one.agent_name)}
    return [
        ClusterAnswer(KnownCluster("", name, "", False, 0.0), "never", _NEVER)
        for name in dict.fromkeys(names)
        if name not in known
    ]


#: Reason of a cluster without rows.
_NEVER = (
    "kas has never received rows from an agent with this name: is the module "
    "cluster_data enabled in its agentk?"
)


def _scope(row: FoundRow) -> ListScope:
    return ListScope(row.agent_id, row.group, row.resource, row.namespace)


def summary_json(rows: Iterable[FoundRow]) -> str:
    """Return a JSON object with the counts of each plural."""
    return json.dumps({row.resource: json.loads(row.columns) for row in rows})
