"""Queries of operators and of GitLab, through the external API."""

from __future__ import annotations

from typing import Any

from modules.cluster_data.server.reader import (
    ClusterAnswer,
    FleetReader,
    summary_json,
)
from modules.cluster_data.server.sources.row_messages import row_message
from modules.cluster_data.server.store.queries import RowQuery
from modules.cluster_data.wire import fleet_pb2 as wire

__all__ = ["FLEET", "FleetQueries"]

FLEET = wire.DESCRIPTOR.services_by_name["Fleet"]


class FleetQueries:
    """
    Implementation of `Fleet`.

    Its callers act for kas itself, and not for a user, and so they see all rows.
    """

    def __init__(self, reader: FleetReader) -> None:
        self._reader = reader

    async def query(self, request: wire.QueryRequest, call: Any) -> wire.QueryResponse:
        """Return one page of rows."""
        query = RowQuery(
            view=request.view,
            kind=request.kind,
            namespace=request.namespace,
            name=request.name,
            label_selector=request.label_selector,
            image=request.image,
            limit=request.limit,
            page=request.page,
        )
        found = await self._reader.rows_of_all(query, list(request.clusters))
        return wire.QueryResponse(
            rows=[row_message(one) for one in found.rows],
            next_page=found.next_page,
            incomplete=[_state(one) for one in found.incomplete],
            queried=found.queried,
            as_of=found.as_of,
            missing_kas=found.missing_kas,
        )

    async def clusters(
        self, request: wire.ClustersRequest, call: Any
    ) -> wire.ClustersResponse:
        """Return clusters with their counts."""
        found = await self._reader.clusters_of_all(list(request.clusters))
        return wire.ClustersResponse(
            clusters=[_state(one) for one in found.clusters],
            as_of=found.as_of,
            missing_kas=found.missing_kas,
        )


def _state(one: ClusterAnswer) -> wire.ClusterState:
    return wire.ClusterState(
        agent_id=one.cluster.agent_id,
        agent_name=one.cluster.agent_name,
        state=one.state,
        last_seen=one.cluster.last_seen,
        reason=one.reason,
        cluster_uid=one.cluster.cluster_uid,
        summary=summary_json(one.summary),
    )
