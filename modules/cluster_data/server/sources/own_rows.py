"""Rows in the store of this kas."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

import attrs
from twisted.internet.interfaces import IReactorTime

from modules.cluster_data.server.sources.row_source import StoredClusters
from modules.cluster_data.server.store.queries import (
    FoundRow,
    ListScope,
    RowQuery,
    count_clusters,
    find_clusters,
    find_rows,
    find_scopes,
    find_store_id,
    find_summaries,
    has_view,
)
from modules.cluster_data.server.store.row_store import READERS, RowStore
from tunnel.errors import CallError, Status
from tunnel.toolkit.peer_turns import PeerTurns, TooManyTurns

__all__ = ["OwnRows"]

#: Maximum number of queries of one reader that wait, and the seconds that each waits:
#: a reader has 20 live queries at most.
MAX_WAITING, WAIT_SECONDS = 30, 10.0


class OwnRows:
    """
    A `RowSource`: the rows that agents have sent to this kas.

    Queries of rows take turns by reader, because one of them may take seconds.

    :param now: returns the time in seconds since 1970.
    :param charge: called with a reader and the processor time of a query in seconds.
    """

    def __init__(
        self,
        store: RowStore,
        clock: IReactorTime,
        now: Callable[[], float],
        charge: Callable[[str, float], object] = lambda reader, seconds: None,
    ) -> None:
        self._store = store
        self._now = now
        self._charge = charge
        self._turns: PeerTurns[str] = PeerTurns(
            clock,
            of_peer=1,
            of_all=READERS - 1,
            most_waiting=MAX_WAITING,
            seconds=WAIT_SECONDS,
        )

    async def clusters(
        self, names: Sequence[str], silent_for: float = 0.0, reader: str = ""
    ) -> StoredClusters:
        """See `RowSource`."""
        is_failing = self._store.is_failing
        # No cluster is live while nothing can be stored.
        since = self._now() - silent_for if silent_for and not is_failing else None

        def read(database: sqlite3.Connection) -> StoredClusters:
            found = find_clusters(database, names, since)
            count = len(found) if since is None else count_clusters(database, names)
            found = [attrs.evolve(one, is_outdated=is_failing) for one in found]
            return StoredClusters(find_store_id(database), found, count)

        return await self._store.read(read, partial(self._charge, reader))

    async def scopes(self, query: RowQuery) -> Collection[ListScope]:
        """See `RowSource`."""
        async with self._turn(query):
            return await self._store.read(
                partial(find_scopes, query=query), partial(self._charge, query.reader)
            )

    async def rows(
        self, query: RowQuery, scopes: Collection[ListScope] | None
    ) -> tuple[Sequence[FoundRow], str]:
        """See `RowSource`."""
        async with self._turn(query):
            return await self._store.read(
                partial(find_rows, query=query, scopes=scopes),
                partial(self._charge, query.reader),
            )

    @asynccontextmanager
    async def _turn(self, query: RowQuery) -> AsyncIterator[None]:
        async with AsyncExitStack() as held:
            try:
                await held.enter_async_context(self._turns.turn(query.reader))
            except TooManyTurns as error:
                text = f"too many queries of live data: {error}"
                raise CallError(Status.RESOURCE_EXHAUSTED, text) from None
            yield

    async def has_view(self, view: str, agents: Collection[str] | None) -> bool:
        """See `RowSource`."""
        return await self._store.read(partial(has_view, view=view, agents=agents))

    async def summaries(
        self, agents: Collection[str], identities: Mapping[str, str] | None = None
    ) -> Mapping[str, Sequence[FoundRow]]:
        """See `RowSource`."""
        return await self._store.read(
            partial(find_summaries, agents=agents, identities=identities)
        )
