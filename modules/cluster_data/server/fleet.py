"""Queries of operators and of GitLab, through the external API."""

from __future__ import annotations

from typing import Any

import attrs

from modules.cluster_data.server.applications import (
    ReadPage,
    find_applications,
    find_components,
)
from modules.cluster_data.server.known_components import ComponentTable
from modules.cluster_data.server.reader import (
    ClusterAnswer,
    FleetReader,
    RowsAnswer,
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

    def __init__(self, reader: FleetReader, components: ComponentTable) -> None:
        self._reader = reader
        self._components = components

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

    async def applications(
        self, request: wire.ApplicationsRequest, call: Any
    ) -> wire.ApplicationsResponse:
        """Return applications."""
        found = await find_applications(self._pages(request), request.namespace)
        return wire.ApplicationsResponse(
            applications=[
                wire.Application(**attrs.asdict(one)) for one in found.applications
            ],
            completeness=_completeness(found.rows, found.is_cut),
        )

    async def components(
        self, request: wire.ApplicationsRequest, call: Any
    ) -> wire.ComponentsResponse:
        """Return well-known components."""
        found = await find_components(
            self._pages(request), self._components, request.namespace
        )
        return wire.ComponentsResponse(
            components=[
                wire.Component(**attrs.asdict(one)) for one in found.components
            ],
            completeness=_completeness(found.rows, found.is_cut),
        )

    def _pages(self, request: wire.ApplicationsRequest) -> ReadPage:
        names = list(request.clusters)
        return lambda query: self._reader.rows_of_all(query, names)


def _completeness(rows: RowsAnswer, is_cut: bool) -> wire.Completeness:
    return wire.Completeness(
        incomplete=[_state(one) for one in rows.incomplete],
        missing_kas=rows.missing_kas,
        cut=is_cut,
        queried=rows.queried,
        as_of=rows.as_of,
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
