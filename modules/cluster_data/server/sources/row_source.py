"""A place with the rows of some clusters."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

import attrs

from modules.cluster_data.server.store.queries import (
    FoundRow,
    KnownCluster,
    ListScope,
    RowQuery,
)

__all__ = ["RowSource", "StoredClusters"]


@attrs.frozen
class StoredClusters:
    """
    Clusters with rows in one store.

    :ivar store_id: identifies the store; two workers of one kas have the same store.
    :ivar count: number of the requested clusters, also of those that are not silent.
    """

    store_id: str
    clusters: Sequence[KnownCluster]
    count: int


class RowSource(Protocol):
    """
    Interface of a place with rows.

    Every method raises a `CallError` if the place cannot be read.
    """

    async def clusters(
        self, names: Sequence[str], silent_for: float = 0.0, reader: str = ""
    ) -> StoredClusters:
        """
        Return the clusters with rows in this place.

        :param names: names or ids of agents; empty for all.
        :param silent_for: return only clusters whose agent has not published for so
            many seconds; 0 for all.
        :param reader: as in `RowQuery`.
        """

    async def scopes(self, query: RowQuery) -> Collection[ListScope]:
        """Return the lists that are reviewed for a query; see `find_scopes`."""

    async def rows(
        self, query: RowQuery, scopes: Collection[ListScope] | None
    ) -> tuple[Sequence[FoundRow], str]:
        """
        Return one page of rows in their order, and the position of the next page.

        :param scopes: the scopes whose rows the reader may see; None for all.
        """

    async def has_view(self, view: str, agents: Collection[str] | None) -> bool:
        """Return whether one of some agents publishes a view; None for all agents."""

    async def summaries(
        self, agents: Collection[str], identities: Mapping[str, str] | None = None
    ) -> Mapping[str, Sequence[FoundRow]]:
        """
        Return the rows of the view ``summary``, by id of the agent.

        :param identities: as in `RowQuery`.
        """
