"""Rows in the store of another kas, and the service that answers for this kas."""

from __future__ import annotations

import itertools
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from typing import Any, NamedTuple, TypeVar

from modules.cluster_data.server.sources.row_messages import (
    query_message,
    read_query,
    read_row,
    read_scopes,
    row_message,
    scope_messages,
)
from modules.cluster_data.server.sources.row_source import RowSource, StoredClusters
from modules.cluster_data.server.store.queries import (
    FoundRow,
    KnownCluster,
    ListScope,
    RowQuery,
)
from modules.cluster_data.wire import peers_pb2 as wire
from tunnel.api import IPeers, IServiceClient, OtherKas
from tunnel.errors import CallError, Status

__all__ = ["PEER_ROWS", "AgentChange", "PeerRows", "RowsForPeers"]

PEER_ROWS = wire.DESCRIPTOR.services_by_name["PeerRows"]

#: Timeout of a call in seconds: the store of the other kas gives up after two.
TIMEOUT = 5.0

#: Maximum number of rows, clusters or scopes of one message: a row has at most 16 KiB,
#: and a message 4 MiB.
PART = 200

_T = TypeVar("_T")


class PeerRows:
    """
    A `RowSource`: the rows that agents have sent to another kas.

    :param now: returns the time in seconds since 1970.
    """

    def __init__(
        self, peers: IPeers, other: OtherKas, now: Callable[[], float]
    ) -> None:
        self.address = other.address
        self._peers = peers
        self._other = other
        self._now = now

    async def clusters(
        self, names: Sequence[str], silent_for: float = 0.0, reader: str = ""
    ) -> StoredClusters:
        """See `RowSource`."""
        request = wire.StoredClustersRequest(names=names, silent_for=silent_for)
        client = await self._client()
        store_id, count = "", 0
        found: list[KnownCluster] = []
        async for part in client.stream("Clusters", request, timeout=TIMEOUT):
            store_id, count = store_id or part.store_id, count or part.count
            now = self._now()
            found += [
                KnownCluster(
                    one.agent_id,
                    one.agent_name,
                    one.cluster_uid,
                    one.is_publishing,
                    # The clocks of two kas may differ.
                    now - one.age,
                    # An earlier version does not send it.
                    one.identity or one.cluster_uid,
                    one.is_outdated,
                )
                for one in part.clusters
            ]
        return StoredClusters(store_id, found, count)

    async def scopes(self, query: RowQuery) -> Collection[ListScope]:
        """See `RowSource`."""
        client = await self._client()
        found: set[ListScope] = set()
        async for part in client.stream(
            "Scopes", query_message(query), timeout=TIMEOUT
        ):
            found |= read_scopes(part.scopes)
        return found

    async def rows(
        self, query: RowQuery, scopes: Collection[ListScope] | None
    ) -> tuple[Sequence[FoundRow], str]:
        """See `RowSource`."""
        client = await self._client()
        call = client.open("Find", timeout=TIMEOUT)
        try:
            request = wire.FindRequest(
                query=query_message(query), all_scopes=scopes is None
            )
            await call.send(request)
            for part in _parts(scope_messages(sorted(scopes or ()))):
                await call.send(wire.FindRequest(scopes=part))
            call.finish()
            rows: list[FoundRow] = []
            next_page = ""
            async for response in call:
                rows += [read_row(one) for one in response.rows]
                next_page = response.next_page
            return rows, next_page
        finally:
            call.cancel()

    async def has_view(self, view: str, agents: Collection[str] | None) -> bool:
        """See `RowSource`."""
        client = await self._client()
        request = wire.HasViewRequest(
            view=view, agents=agents, only_agents=agents is not None
        )
        response = await client.call("HasView", request, timeout=TIMEOUT)
        found: bool = response.found
        return found

    async def summaries(
        self, agents: Collection[str], identities: Mapping[str, str] | None = None
    ) -> Mapping[str, Sequence[FoundRow]]:
        """See `RowSource`."""
        client = await self._client()
        request = wire.SummariesRequest(agents=agents, identities=identities)
        found: dict[str, list[FoundRow]] = {}
        async for part in client.stream("Summaries", request, timeout=TIMEOUT):
            for row in map(read_row, part.rows):
                found.setdefault(row.agent_id, []).append(row)
        return found

    async def _client(self) -> IServiceClient:
        client: IServiceClient = await self._peers.client(self._other, PEER_ROWS)
        return client


class AgentChange(NamedTuple):
    """
    A change of the rows of an agent, or of rights in its cluster.

    :ivar rights: whether rights in its cluster have changed, and not the rows.
    """

    agent_id: str
    rights: bool


class RowsForPeers:
    """
    Implementation of `PeerRows` for other kas.

    :param rows: the rows of this kas.
    :param follow: yields the ids of agents whose rows have changed; see `PeerChanges`.
    :param now: returns the time in seconds since 1970.
    :param admit: lets the work for a reader begin; raises a `CallError` if this reader
        has used too much.
    """

    def __init__(
        self,
        rows: RowSource,
        follow: Callable[
            [frozenset[str], frozenset[str]], AsyncGenerator[AgentChange, None]
        ],
        now: Callable[[], float],
        admit: Callable[[str], Awaitable[None]],
    ) -> None:
        self._admit = admit
        self._rows = rows
        self._follow = follow
        self._now = now

    async def clusters(
        self, request: wire.StoredClustersRequest, call: Any
    ) -> AsyncGenerator[wire.StoredClusters, None]:
        """Yield the clusters of this kas."""
        found = await self._rows.clusters(list(request.names), request.silent_for)
        yield wire.StoredClusters(store_id=found.store_id, count=found.count)
        for part in _parts(found.clusters):
            now = self._now()
            yield wire.StoredClusters(
                clusters=[
                    wire.StoredCluster(
                        agent_id=one.agent_id,
                        agent_name=one.agent_name,
                        cluster_uid=one.cluster_uid,
                        is_publishing=one.is_publishing,
                        age=now - one.last_seen,
                        identity=one.identity,
                        is_outdated=one.is_outdated,
                    )
                    for one in part
                ]
            )

    async def scopes(
        self, request: wire.StoredQuery, call: Any
    ) -> AsyncGenerator[wire.StoredScopes, None]:
        """Yield the scopes of a query."""
        await self._admit(request.reader)
        found = await self._rows.scopes(read_query(request))
        for part in _parts(scope_messages(sorted(found))):
            yield wire.StoredScopes(scopes=part)

    async def find(
        self, requests: AsyncIterator[wire.FindRequest], call: Any
    ) -> AsyncGenerator[wire.StoredRows, None]:
        """Yield the rows of a page."""
        first = await anext(requests, None)
        if first is None:
            raise CallError(Status.INVALID_ARGUMENT, "the query is missing")
        query = read_query(first.query)
        scopes = read_scopes(first.scopes)
        async for more in requests:
            scopes |= read_scopes(more.scopes)
        await self._admit(query.reader)
        rows, page = await self._rows.rows(query, None if first.all_scopes else scopes)
        for part in _parts(map(row_message, rows)):
            yield wire.StoredRows(rows=part)
        yield wire.StoredRows(next_page=page)

    async def has_view(
        self, request: wire.HasViewRequest, call: Any
    ) -> wire.HasViewResponse:
        """Return whether one of some agents of this kas has a view."""
        agents = list(request.agents) if request.only_agents else None
        found = await self._rows.has_view(request.view, agents)
        return wire.HasViewResponse(found=found)

    async def summaries(
        self, request: wire.SummariesRequest, call: Any
    ) -> AsyncGenerator[wire.StoredRows, None]:
        """Yield the rows of the view ``summary``."""
        found = await self._rows.summaries(
            list(request.agents), dict(request.identities) or None
        )
        rows = itertools.chain.from_iterable(found.values())
        for part in _parts(map(row_message, rows)):
            yield wire.StoredRows(rows=part)

    async def follow(
        self, request: wire.FollowRequest, call: Any
    ) -> AsyncGenerator[wire.RowsChanged, None]:
        """Yield the changes of some agents."""
        async for agent_id, rights in self._follow(
            frozenset(request.agents), frozenset(request.views)
        ):
            yield wire.RowsChanged(agent_id=agent_id, rights=rights)


def _parts(items: Iterable[_T]) -> Iterator[list[_T]]:
    rest = iter(items)
    while part := list(itertools.islice(rest, PART)):
        yield part
