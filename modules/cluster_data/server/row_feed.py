"""Rows for other modules, as they arrive at this process."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import attrs
from twisted.internet.defer import Deferred
from zope.interface import implementer

from modules.cluster_data.server.reader import item_of, key_of
from modules.cluster_data.server.sources.own_rows import OwnRows
from modules.cluster_data.server.store.queries import MAX_LIMIT, FoundRow, RowQuery
from modules.cluster_data.server.store.row_store import Publication
from modules.cluster_data.wire import cluster_data_pb2 as wire
from tunnel.api import IClusterRows, IRowFollower, PublishingAgent
from tunnel.toolkit.for_each import for_each

__all__ = ["RowFeed"]


@attrs.frozen(eq=False)
class _Following:
    views: frozenset[str]
    follower: Any


@implementer(IClusterRows)
class RowFeed:
    """
    Implementation of `IClusterRows`.

    :param rows: the rows in the store of this kas.
    """

    def __init__(self, rows: OwnRows) -> None:
        self._rows = rows
        self._following: dict[_Following, None] = {}
        self._publishing: dict[str, tuple[Publication, Collection[str]]] = {}

    # IClusterRows

    def follow(
        self, views: Collection[str], follower: IRowFollower
    ) -> Callable[[], None]:
        """See `IClusterRows`."""
        following = _Following(frozenset(views), follower)
        self._following[following] = None
        for publication, its_views in tuple(self._publishing.values()):
            _tell([following], "began", publication, its_views)
        return lambda: self._following.pop(following, None)

    def read(
        self, agent: PublishingAgent, view: str
    ) -> Deferred[Mapping[str, Mapping[str, Any]] | None]:
        """See `IClusterRows`."""
        return Deferred.fromCoroutine(self._read(agent.agent_id, view))

    async def _read(
        self, agent_id: str, view: str
    ) -> Mapping[str, Mapping[str, Any]] | None:
        query = RowQuery(
            view=view, agents=[agent_id], limit=MAX_LIMIT, reader="a module of kas"
        )
        found, next_page = await self._rows.rows(query, None)
        return None if next_page else {key_of(one): item_of(one) for one in found}

    # The receiver

    @property
    def views(self) -> frozenset[str]:
        """Return the views that modules follow."""
        return frozenset().union(*(one.views for one in self._following))

    def began(self, publication: Publication, views: Collection[str]) -> None:
        """Record a publication, which replaces an earlier one of its agent."""
        self._publishing[publication.agent_id] = (publication, views)
        _tell(self._following, "began", publication, views)

    def stored(
        self, publication: Publication, change: wire.Snapshot | wire.Delta
    ) -> None:
        """Notify the followers of a message that the store has."""
        following = [one for one in self._following if change.view in one.views]
        if not following or not self._is_current(publication):
            return
        if isinstance(change, wire.Delta):
            # agentk may repeat a key in a message; the later row counts.
            put = dict(_entry(publication, row) for row in change.put)
            deleted = [key_of(_found(publication, key)) for key in change.deleted]
            gone = [key for key in deleted if key not in put]
            if put or gone:
                _tell(following, "changed", publication, change.view, put, gone)
        elif change.last:
            _tell(following, "replaced", publication, change.view)

    def ended(self, publication: Publication) -> None:
        """Record the end of a publication, unless a newer one has replaced it."""
        if self._is_current(publication):
            del self._publishing[publication.agent_id]
            _tell(self._following, "ended", publication)

    def _is_current(self, publication: Publication) -> bool:
        current, _ = self._publishing.get(publication.agent_id, (None, ()))
        return current is publication


def _tell(
    following: Collection[_Following], what: str, publication: Publication, *rest: Any
) -> None:
    agent = PublishingAgent(publication.agent_id, publication.agent_name)
    for_each(
        tuple(following),
        lambda one: getattr(one.follower, what)(agent, *rest),
        "notifying a module of rows",
    )


def _entry(publication: Publication, row: wire.Row) -> tuple[str, dict[str, Any]]:
    found = _found(publication, row.key, row.resource, row.columns.decode())
    return key_of(found), item_of(found)


def _found(
    publication: Publication,
    key: wire.RowKey,
    resource: str = "",
    columns: str = "{}",
) -> FoundRow:
    return FoundRow(
        publication.agent_id,
        key.group,
        key.kind,
        key.namespace,
        key.name,
        key.part,
        resource,
        columns,
        publication.agent_name,
    )
