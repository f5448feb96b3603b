"""Rows in the store of this kas."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

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
from modules.cluster_data.server.store.row_store import RowStore

__all__ = ["OwnRows"]


class OwnRows:
    """
    A `RowSource`: the rows that agents have sent to this kas.

    :param now: returns the time in seconds since 1970.
    """

    def __init__(self, store: RowStore, now: Callable[[], float]) -> None:
        self._store = store
        self._now = now

    async def clusters(
        self, names: Sequence[str], silent_for: float = 0.0
    ) -> StoredClusters:
        """See `RowSource`."""
        since = self._now() - silent_for if silent_for else None

        def read(database: sqlite3.Connection) -> StoredClusters:
            found = find_clusters(database, names, since)
            count = len(found) if since is None else count_clusters(database, names)
            return StoredClusters(find_store_id(database), found, count)

        return await self._store.read(read)

    async def scopes(self, query: RowQuery) -> Collection[ListScope]:
        """See `RowSource`."""
        return await self._store.read(partial(find_scopes, query=query))

    async def rows(
        self, query: RowQuery, scopes: Collection[ListScope] | None
    ) -> tuple[Sequence[FoundRow], str]:
        """See `RowSource`."""
        return await self._store.read(partial(find_rows, query=query, scopes=scopes))

    async def has_view(self, view: str) -> bool:
        """See `RowSource`."""
        return await self._store.read(partial(has_view, view=view))

    async def summaries(
        self, agents: Collection[str]
    ) -> Mapping[str, Sequence[FoundRow]]:
        """See `RowSource`."""
        return await self._store.read(partial(find_summaries, agents=agents))
