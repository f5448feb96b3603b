"""
The rows of all kas as one.

After an agent has connected to another kas, two stores have its rows.  A query reads
the rows of each agent from one store only: the store that has the agent's newest rows.
"""

from __future__ import annotations

import heapq
from collections.abc import (
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Mapping,
    Sequence,
)
from typing import TypeVar

import attrs

from modules.cluster_data.server.sources.peer_rows import PeerRows
from modules.cluster_data.server.sources.row_source import RowSource, StoredClusters
from modules.cluster_data.server.store.queries import (
    DEFAULT_LIMIT,
    MAX_CLUSTERS,
    MAX_LIMIT,
    FoundRow,
    KnownCluster,
    ListScope,
    RowQuery,
    page_after,
)
from tunnel.errors import CallError, Status
from tunnel.toolkit.parallel import in_parallel

__all__ = ["FleetRows", "LocatedRows"]

_T = TypeVar("_T")


@attrs.frozen(eq=False)
class _Place:
    """
    A source, and the agents whose rows it provides.

    :ivar agents: None for all agents except *excluded*.
    :ivar address: the address of the kas; empty for this kas.
    """

    source: RowSource
    address: str = ""
    agents: frozenset[str] | None = None
    excluded: frozenset[str] = frozenset()

    def has(self, agent_id: str) -> bool:
        """Return whether the rows of an agent come from here."""
        if self.agents is None:
            return agent_id not in self.excluded
        return agent_id in self.agents


@attrs.frozen(eq=False)
class LocatedRows:
    """
    Rows of clusters whose stores have been found.

    :ivar clusters: the clusters, sorted by name.
    :ivar count: number of the requested clusters, also of those that are not silent.
    :ivar missing: addresses of the kas that did not respond.
    """

    clusters: Sequence[KnownCluster]
    count: int
    missing: set[str]
    _places: Sequence[_Place]

    async def scopes(self, query: RowQuery) -> set[ListScope]:
        """Return the lists that are reviewed for a query."""
        found = await _ask(
            self._chosen(query),
            lambda place: place.source.scopes(_narrowed(query, place)),
            self.missing,
            query.reader,
        )
        return {scope for part in found for scope in part}

    async def rows(
        self, query: RowQuery, scopes: Collection[ListScope] | None
    ) -> tuple[list[FoundRow], str]:
        """Return one page of rows, and the position of the next page."""
        by_place = {
            place: None
            if scopes is None
            else {one for one in scopes if place.has(one.agent_id)}
            for place in self._chosen(query)
        }
        found = await _ask(
            [place for place, some in by_place.items() if some is None or some],
            lambda place: place.source.rows(_narrowed(query, place), by_place[place]),
            self.missing,
            query.reader,
        )
        limit = min(query.limit or DEFAULT_LIMIT, MAX_LIMIT)
        merged = list(heapq.merge(*(rows for rows, _ in found)))
        rows = merged[:limit]
        is_cut = len(merged) > limit or any(page for _, page in found)
        return rows, page_after(rows[-1]) if rows and is_cut else ""

    async def has_view(self, query: RowQuery) -> bool:
        """Return whether an agent of a query has the view of the query."""
        found = await _ask(
            self._chosen(query),
            lambda place: place.source.has_view(query.view, query.agents),
            self.missing,
        )
        return any(found)

    async def summaries(
        self, identities: Mapping[str, str] | None = None
    ) -> dict[str, Sequence[FoundRow]]:
        """
        Return the rows of the view ``summary`` of all clusters, by agent.

        :param identities: as in `RowQuery`.
        """
        agents = [one.agent_id for one in self.clusters]
        chosen = {
            place: mine
            for place in self._places
            if (mine := [one for one in agents if place.has(one)])
        }
        found = await _ask(
            list(chosen),
            lambda place: place.source.summaries(chosen[place], identities),
            self.missing,
        )
        return {agent: rows for part in found for agent, rows in part.items()}

    def _chosen(self, query: RowQuery) -> list[_Place]:
        """Return the places that may have rows of a query."""
        if query.agents is None:
            return list(self._places)
        agents = query.agents
        return [
            place for place in self._places if any(place.has(one) for one in agents)
        ]


async def _ask(
    places: Sequence[_Place],
    ask: Callable[[_Place], Awaitable[_T]],
    missing: set[str],
    reader: str = "",
) -> list[_T]:
    """
    Return the answers of *places*; this kas itself must answer.

    :param missing: receives the addresses of the kas that did not answer.
    :param reader: the reader.  A kas that refuses a reader who has used too much is not
        missing.
    """
    refusals = [Status.INVALID_ARGUMENT]
    if reader:
        refusals.append(Status.RESOURCE_EXHAUSTED)

    async def one(place: _Place) -> list[_T]:
        try:
            return [await ask(place)]
        except CallError as error:
            if not place.address or error.status in refusals:
                raise
            missing.add(place.address)
            return []

    asked = [lambda place=place: one(place) for place in places]
    return [answer for part in await in_parallel(asked) for answer in part]


class FleetRows:
    """
    The rows of this kas and of all other kas.

    :param own: the rows of this kas.
    :param peers: returns the rows of the other kas that are alive.
    """

    def __init__(self, own: RowSource, peers: Callable[[], Sequence[PeerRows]]) -> None:
        self._own = own
        self._peers = peers

    async def locate(
        self, names: Sequence[str], silent_for: float = 0.0, reader: str = ""
    ) -> LocatedRows:
        """
        Find the stores with the rows of clusters.

        :param names: names or ids of agents; empty for all.
        :param silent_for: as in `RowSource.clusters`; the rows of all other clusters
            are found, too.
        :param reader: as in `RowQuery`.
        """
        missing: set[str] = set()
        places = [_Place(self._own), *self._others()]
        found = await _clusters(places, missing, names, silent_for, reader)
        if not silent_for:
            return _divided(found, missing)
        if len(found) == 1:
            ((place, stored),) = found.items()
            return LocatedRows(stored.clusters, stored.count, missing, [place])
        return await _without_old(found, missing)

    async def forget_moved(
        self, forget: Callable[[Collection[str]], Awaitable[object]], age: float
    ) -> None:
        """
        Delete own rows of agents that publish to another kas now.

        :param forget: deletes the rows of agents with these ids.
        :param age: minimum number of seconds since the agents' last message here.
        """
        silent = [
            one.agent_id
            for one in (await self._own.clusters((), age)).clusters
            if not one.is_publishing
        ]
        places = self._others()
        if not silent or not places:
            return
        moved = {
            one.agent_id
            for stored in (await _by_id(places, set(), silent)).values()
            for one in stored.clusters
            if one.is_publishing
        }
        if moved:
            await forget(moved)

    def _others(self) -> list[_Place]:
        return [_Place(one, one.address) for one in self._peers()]


async def _clusters(
    places: Sequence[_Place],
    missing: set[str],
    names: Sequence[str],
    silent_for: float = 0.0,
    reader: str = "",
) -> dict[_Place, StoredClusters]:
    """Return the clusters of each place; each store counts once."""

    async def ask(place: _Place) -> tuple[_Place, StoredClusters] | None:
        try:
            return place, await place.source.clusters(names, silent_for, reader)
        except CallError as error:
            # A kas without the module has no rows.
            if error.status is Status.UNIMPLEMENTED:
                return None
            raise

    found: dict[str, tuple[_Place, StoredClusters]] = {}
    for answer in await _ask(places, ask, missing):
        if answer is not None:
            found.setdefault(answer[1].store_id, answer)
    return dict(found.values())


async def _by_id(
    places: Sequence[_Place], missing: set[str], agents: Sequence[str]
) -> dict[_Place, StoredClusters]:
    """Return the clusters of agents with these ids, of any number of agents."""
    clusters: dict[_Place, list[KnownCluster]] = {}
    for start in range(0, len(agents), MAX_CLUSTERS):
        some = agents[start : start + MAX_CLUSTERS]
        found = await _clusters(places, missing, some)
        for place, stored in found.items():
            clusters.setdefault(place, []).extend(
                # Another agent may have an id of these as its name.
                one
                for one in stored.clusters
                if one.agent_id in some
            )
    return {
        place: StoredClusters("", known, len(known))
        for place, known in clusters.items()
    }


async def _without_old(
    found: Mapping[_Place, StoredClusters], missing: set[str]
) -> LocatedRows:
    """
    Return all clusters of several stores.

    Only silent clusters can have newer rows elsewhere, and few clusters are silent.
    """
    silent = {one.agent_id for stored in found.values() for one in stored.clusters}
    known = await _by_id(list(found), missing, sorted(silent))
    newest = _newest(known)
    excluded = {
        place: frozenset(
            one.agent_id
            for one in stored.clusters
            if newest[one.agent_id][0] is not place
        )
        for place, stored in known.items()
    }
    places = [
        attrs.evolve(place, excluded=excluded.get(place, frozenset()))
        for place in found
    ]
    count = sum(stored.count for stored in found.values())
    count -= sum(map(len, excluded.values()))
    # An agent that is silent in one store may publish to another.
    still = [
        cluster
        for place, stored in found.items()
        for cluster in stored.clusters
        if newest.get(cluster.agent_id, (place, cluster))[0] is place
    ]
    return LocatedRows(_sorted(still), count, missing, places)


def _divided(found: Mapping[_Place, StoredClusters], missing: set[str]) -> LocatedRows:
    """Return the clusters that were asked for by name, each from one store."""
    newest = _newest(found)
    mine: dict[_Place, set[str]] = {}
    for agent, (place, _) in newest.items():
        mine.setdefault(place, set()).add(agent)
    places = [
        attrs.evolve(place, agents=frozenset(agents)) for place, agents in mine.items()
    ]
    clusters = _sorted(cluster for _, cluster in newest.values())
    return LocatedRows(clusters, len(clusters), missing, places)


def _newest(
    found: Mapping[_Place, StoredClusters],
) -> dict[str, tuple[_Place, KnownCluster]]:
    """Return the store with the newest rows of each agent, by id of the agent."""
    newest: dict[str, tuple[_Place, KnownCluster]] = {}
    for place, stored in found.items():
        for cluster in stored.clusters:
            known = newest.get(cluster.agent_id)
            if known is None or _age(cluster) > _age(known[1]):
                newest[cluster.agent_id] = place, cluster
    return newest


def _age(cluster: KnownCluster) -> tuple[bool, float]:
    return cluster.is_publishing, cluster.last_seen


def _sorted(clusters: Iterable[KnownCluster]) -> list[KnownCluster]:
    return sorted(clusters, key=lambda one: (one.agent_name, one.agent_id))


def _narrowed(query: RowQuery, place: _Place) -> RowQuery:
    """Return a query for the agents whose rows come from a place."""
    if query.agents is None and place.agents is None:
        return attrs.evolve(query, excluded=place.excluded)
    agents = place.agents if query.agents is None else query.agents
    return attrs.evolve(query, agents=[one for one in agents or () if place.has(one)])
