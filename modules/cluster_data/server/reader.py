"""Answers of the store to a reader, without the rows that the reader may not see."""

from __future__ import annotations

import json
from collections.abc import (
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Mapping,
    Sequence,
)
from functools import partial
from typing import Any

import attrs
import msgspec

from modules.cluster_data.server.rights import ReaderRights
from modules.cluster_data.server.sources.fleet_rows import FleetRows, LocatedRows
from modules.cluster_data.server.store.queries import (
    FoundRow,
    KnownCluster,
    ListScope,
    RowQuery,
    lists_in_namespaces,
    lists_of_view,
)
from modules.cluster_data.server.work_budget import SCOPE_SECONDS, WorkBudget
from modules.cluster_data.wire.view_names import VIEWS
from tunnel.api import Access
from tunnel.errors import CallError, Status
from tunnel.toolkit.parallel import in_parallel

__all__ = [
    "LATE",
    "LIVE",
    "ClusterAnswer",
    "ClustersAnswer",
    "FleetReader",
    "RowsAnswer",
    "item_of",
    "key_of",
    "state_of",
    "summary_json",
]

#: Maximum age of the last message of a cluster that is live, and of one that is late,
#: in seconds.
LIVE, LATE = 30.0, 300.0

#: Views with a row for each object, whose namespaces are those of the cluster.
COMPLETE_VIEWS = ("workloads", "services")

#: Maximum number of lists in namespaces of one cluster that are reviewed whether they
#: have rows or not, if a query names no namespace: agentk answers a hundred at once.
MAX_LISTS_ALWAYS = 300

#: Maximum number of clusters whose API servers are asked at the same time.
AT_ONCE = 20

#: Returns the rights of the reader at an agent.  A `CallError` means that the reader
#: may see nothing, with the reason.
AccessOf = Callable[[str], Awaitable[Access]]


@attrs.frozen
class ClusterAnswer:
    """
    A cluster, as a reader sees it.

    :ivar state: ``live``, ``late``, ``offline``, ``never`` or ``denied``.
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
    :ivar missing_kas: addresses of the kas that did not respond, for operators.
    :ivar reached: ids of the agents that the reader may reach; empty for a reader who
        may see all rows.
    """

    rows: Sequence[FoundRow]
    next_page: str
    incomplete: Sequence[ClusterAnswer]
    queried: int
    as_of: float
    missing_kas: Sequence[str]
    reached: frozenset[str] = frozenset()


@attrs.frozen
class ClustersAnswer:
    """
    Clusters.

    :ivar as_of: time of the answer in seconds since 1970.
    :ivar missing_kas: as in `RowsAnswer`.
    :ivar reached: as in `RowsAnswer`.
    """

    clusters: Sequence[ClusterAnswer]
    as_of: float
    missing_kas: Sequence[str]
    reached: frozenset[str] = frozenset()


def state_of(cluster: KnownCluster, now: float) -> str:
    """Return ``live``, ``late`` or ``offline``."""
    age = now - cluster.last_seen
    if age <= LIVE and cluster.is_publishing and not cluster.is_outdated:
        return "live"
    return "late" if age <= LATE and cluster.is_publishing else "offline"


class FleetReader:
    """
    The one way out of the stores for all kinds of readers.

    :param fleet: the rows of all kas.
    :param now: returns the time in seconds since 1970.
    :param budget: limits the work for each user.
    """

    def __init__(
        self,
        fleet: FleetRows,
        rights: ReaderRights,
        now: Callable[[], float],
        budget: WorkBudget,
    ) -> None:
        self._budget = budget
        self._fleet = fleet
        self._rights = rights
        self._now = now

    async def rows_of_all(self, query: RowQuery, names: Sequence[str]) -> RowsAnswer:
        """
        Return rows for a reader who may see all rows of all clusters.

        :param names: names or ids of agents; empty for all.
        """
        # A fleet has many clusters, and only those that are not live matter here.
        located = await self._fleet.locate(names, 0.0 if names else LIVE)
        if names:
            agents = [one.agent_id for one in located.clusters]
            query = attrs.evolve(query, agents=agents)
        unknown = _unknown(names, located)
        queried = located.count + len(unknown)
        return await self._rows(query, None, located, {}, unknown, queried)

    async def rows(
        self, query: RowQuery, names: Sequence[str], access_of: AccessOf
    ) -> RowsAnswer:
        """
        Return the rows of some clusters that a user may see.

        :param names: names or ids of agents.
        :raises CallError: UNAUTHENTICATED if no cluster accepts the user,
            RESOURCE_EXHAUSTED if the user's queries take too much time.
        """
        accesses, denied = await self.accesses(names, access_of)
        owner = _owner(accesses)
        await self._budget.admit(owner)
        located = await self._known(accesses, owner)
        agents = [one.agent_id for one in located.clusters]
        # The statement that reads the rows compares again, because an agent may move to
        # another cluster between the review and the statement.
        identities = _identities(located)
        query = attrs.evolve(query, agents=agents, reader=owner, identities=identities)
        allowed, reasons = await self._permitted(
            # The other filters of the query must not decide what is reviewed, because
            # a review that fails or takes time would then tell that they match.
            RowQuery(
                view=query.view,
                kind=query.kind,
                namespace=query.namespace,
                agents=agents,
                reader=owner,
                identities=identities,
            ),
            located,
            accesses,
        )
        more = [*denied, *_never(accesses, located)]
        found = await self._rows(query, allowed, located, reasons, more, len(names))
        return attrs.evolve(found, reached=frozenset(accesses))

    async def _rows(
        self,
        query: RowQuery,
        allowed: set[ListScope] | None,
        located: LocatedRows,
        reasons: Mapping[str, str],
        more: Sequence[ClusterAnswer],
        queried: int,
    ) -> RowsAnswer:
        rows, next_page = await located.rows(query, allowed)
        size = sum(len(one.columns) for one in rows)
        self._budget.charge_rows(query.reader, len(rows), size)
        view = query.view
        # Only the clusters of the reader count, so that the views of others look like
        # unknown ones.
        is_known = bool(rows) or not view or view in VIEWS
        if not is_known and not await located.has_view(query):
            raise CallError(
                Status.NOT_FOUND,
                f"none of these clusters has a view {view!r}; every cluster has "
                f"{', '.join(VIEWS)}",
            )
        now = self._now()
        answers = [self._answer(one, now, reasons) for one in located.clusters]
        incomplete = [*(one for one in answers if one.reason), *more]
        missing = sorted(located.missing)
        return RowsAnswer(rows, next_page, incomplete, queried, now, missing)

    async def clusters_of_all(self, names: Sequence[str]) -> ClustersAnswer:
        """Return clusters with all their summaries."""
        located = await self._fleet.locate(names)
        unknown = _unknown(names, located)
        return await self._with_summaries(located, None, {}, unknown)

    async def clusters(
        self, names: Sequence[str], access_of: AccessOf
    ) -> ClustersAnswer:
        """
        Return clusters with the summaries that a user may see.

        :raises CallError: as of `rows`.
        """
        accesses, denied = await self.accesses(names, access_of)
        owner = _owner(accesses)
        await self._budget.admit(owner)
        located = await self._known(accesses, owner)
        query = RowQuery(view="summary", agents=list(accesses), reader=owner)
        allowed, reasons = await self._permitted(query, located, accesses)
        more = [*denied, *_never(accesses, located)]
        found = await self._with_summaries(located, allowed, reasons, more)
        return attrs.evolve(found, reached=frozenset(accesses))

    async def _with_summaries(
        self,
        located: LocatedRows,
        allowed: set[ListScope] | None,
        reasons: Mapping[str, str],
        more: Sequence[ClusterAnswer],
    ) -> ClustersAnswer:
        identities = None if allowed is None else _identities(located)
        summaries = await located.summaries(identities)
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
            for one in located.clusters
        ]
        return ClustersAnswer([*answers, *more], now, sorted(located.missing))

    async def accesses(
        self, names: Sequence[str], access_of: AccessOf
    ) -> tuple[dict[str, Access], list[ClusterAnswer]]:
        """
        Return the rights of a user by id of the agent, and an answer for each cluster
        without them, which tells only what the user has said.

        :raises CallError: UNAUTHENTICATED if no cluster accepts the user.
        """
        accesses: dict[str, Access] = {}
        refused: dict[str, CallError] = {}

        async def check(name: str) -> None:
            try:
                access = await access_of(name)
            except CallError as error:
                refused[name] = error
            else:
                accesses[access.agent_id] = access

        asked = [partial(check, name) for name in dict.fromkeys(names)]
        await in_parallel(asked, AT_ONCE)
        for error in refused.values():
            if not accesses and error.status is Status.UNAUTHENTICATED:
                raise error
        return accesses, [
            ClusterAnswer(KnownCluster("", name, "", False, 0.0), "denied", one.message)
            for name, one in refused.items()
        ]

    async def _known(self, accesses: Mapping[str, Access], owner: str) -> LocatedRows:
        names = list(accesses)
        if not names:
            return LocatedRows([], 0, set(), [])
        located = await self._fleet.locate(names, reader=owner)
        # Another agent may have an id of these as its name.
        clusters = [one for one in located.clusters if one.agent_id in accesses]
        return attrs.evolve(located, clusters=clusters)

    async def _permitted(
        self, query: RowQuery, located: LocatedRows, accesses: Mapping[str, Access]
    ) -> tuple[set[ListScope], dict[str, str]]:
        """
        Return the scopes of the query that a user may see, and by agent why some may be
        missing.
        """
        by_agent: dict[str, list[ListScope]] = {}
        for scope in await self._scopes(query, located):
            by_agent.setdefault(scope.agent_id, []).append(scope)
        reasons: dict[str, str] = {}
        allowed: set[ListScope] = set()
        clusters = {one.agent_id: one for one in located.clusters}

        async def permitted(
            agent_id: str, scopes: Collection[ListScope]
        ) -> frozenset[ListScope]:
            cluster = clusters[agent_id]
            found = await self._rights.permitted(
                accesses[agent_id], scopes, cluster.identity, cluster.is_publishing
            )
            if found.reason:
                reasons[agent_id] = found.reason
            return found.scopes

        denied: dict[str, set[ListScope]] = {}

        async def review_kinds(agent_id: str) -> None:
            """Review lists of all namespaces; most users have these rights."""
            kinds = {
                one._replace(namespace="")
                for one in by_agent.get(agent_id, ())
                if one.resource in known
            }
            found = kinds - await permitted(agent_id, kinds)
            if lists_in_namespaces(found, [""]) and agent_id not in reasons:
                denied[agent_id] = found

        async def review(agent_id: str) -> None:
            mine = by_agent.get(agent_id, [])
            allowed.update(await permitted(agent_id, mine))

        agents = [one for one in accesses if one in clusters]
        known = set() if query.namespace else lists_of_view(query.view)
        if known:
            asked = [partial(review_kinds, one) for one in agents]
            await in_parallel(asked, AT_ONCE)
            for agent_id, more in (
                await self._lists_always(query, located, denied)
            ).items():
                by_agent[agent_id] = [*{*by_agent[agent_id], *more}]
        await in_parallel([partial(review, one) for one in agents], AT_ONCE)
        return allowed, reasons

    async def _lists_always(
        self,
        query: RowQuery,
        located: LocatedRows,
        denied: Mapping[str, set[ListScope]],
    ) -> dict[str, set[ListScope]]:
        """
        Return the lists that are reviewed whether they have rows or not.

        :param denied: kinds by id of the agent, of which the reader may not list all
            objects.
        """
        namespaces: dict[str, set[str]] = {}
        for view in COMPLETE_VIEWS if denied else ():
            every = attrs.evolve(query, view=view, kind="", agents=list(denied))
            for one in await self._scopes(every, located):
                if one.namespace:
                    namespaces.setdefault(one.agent_id, set()).add(one.namespace)
        found = {
            agent_id: lists_in_namespaces(denied[agent_id], some)
            for agent_id, some in namespaces.items()
        }
        return {
            agent_id: lists
            for agent_id, lists in found.items()
            if len(lists) <= MAX_LISTS_ALWAYS
        }

    async def _scopes(
        self, query: RowQuery, located: LocatedRows
    ) -> Collection[ListScope]:
        scopes = await located.scopes(query)
        self._budget.charge(query.reader, len(scopes) * SCOPE_SECONDS)
        return scopes

    def _answer(
        self, cluster: KnownCluster, now: float, reasons: Mapping[str, str]
    ) -> ClusterAnswer:
        state = state_of(cluster, now)
        said = [reasons.get(cluster.agent_id, "")]
        if state != "live":
            age = max(0, round(now - cluster.last_seen))
            said.append(f"{state}: its rows are {age} s old")
        if cluster.is_outdated:
            said.append("kas could not store newer rows")
        reason = "; ".join(one for one in said if one)
        return ClusterAnswer(cluster, state, reason)


def _unknown(names: Sequence[str], located: LocatedRows) -> list[ClusterAnswer]:
    """Return an answer for each name of a cluster that no store has."""
    known = {
        name for one in located.clusters for name in (one.agent_id, one.agent_name)
    }
    reason = _never_reason(located)
    return [
        ClusterAnswer(KnownCluster("", name, "", False, 0.0), "never", reason)
        for name in dict.fromkeys(names)
        if name not in known
    ]


def _never(accesses: Mapping[str, Access], located: LocatedRows) -> list[ClusterAnswer]:
    """Return an answer for each permitted cluster that no store has."""
    known = {one.agent_id for one in located.clusters}
    reason = _never_reason(located)
    return [
        ClusterAnswer(
            KnownCluster(one.agent_id, one.agent_name, "", False, 0.0), "never", reason
        )
        for one in accesses.values()
        if one.agent_id not in known
    ]


#: Reason of a cluster without rows.
_NEVER = (
    "kas has never received rows from an agent with this name: is the module "
    "cluster_data enabled in its agentk?"
)


def _never_reason(located: LocatedRows) -> str:
    if not located.missing:
        return _NEVER
    return (
        "no kas that responded has rows of this cluster, and "
        f"{len(located.missing)} kas did not respond"
    )


def _identities(located: LocatedRows) -> dict[str, str]:
    """Return the identities of clusters by id of the agent."""
    return {one.agent_id: one.identity for one in located.clusters}


def _owner(accesses: Mapping[str, Access]) -> str:
    """Return the user whose rights these are; empty without any."""
    return next((one.budget_owner for one in accesses.values()), "")


def _scope(row: FoundRow) -> ListScope:
    return ListScope(row.agent_id, row.group, row.resource, row.namespace)


def key_of(row: FoundRow) -> str:
    """Return the key of a row among the rows of all agents."""
    # Agents of several projects may have one name.
    return "/".join(
        (row.agent_id, row.group, row.kind, row.namespace, row.name, row.part)
    )


def item_of(row: FoundRow) -> dict[str, Any]:
    """Return a row as users see it: where it is from, and its columns."""
    item: dict[str, Any] = {
        "cluster": row.agent_name,
        "group": row.group,
        "kind": row.kind,
        "namespace": row.namespace,
        "name": row.name,
    }
    # agentk chooses the columns, which must not hide the origin of a row.
    for name, value in msgspec.json.decode(row.columns).items():
        item.setdefault(name, value)
    return item


def summary_json(rows: Iterable[FoundRow]) -> str:
    """Return a JSON object with the counts of each plural."""
    return json.dumps({row.resource: json.loads(row.columns) for row in rows})
