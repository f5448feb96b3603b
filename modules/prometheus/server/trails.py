"""The search for Prometheus, for operators."""

from __future__ import annotations

from typing import Any, Final

from modules.prometheus.server.agent_path import PROMETHEUS, SEARCH_SECONDS
from modules.prometheus.wire import prometheus_pb2 as wire
from tunnel.api import IServerModuleApi
from tunnel.errors import CallError, Status

__all__ = ["TRAILS", "PrometheusTrails"]

TRAILS: Final = wire.DESCRIPTOR.services_by_name["PrometheusTrails"]


class PrometheusTrails:
    """
    Implementation of the service `PrometheusTrails`.

    Its callers act for kas itself, and not for a user, and so they see all steps.
    """

    def __init__(self, api: IServerModuleApi) -> None:
        self._api = api

    async def find(self, request: wire.TrailRequest, call: Any) -> wire.Trail:
        """
        Return the search at one agent.

        :raises CallError: NOT_FOUND if the agent is not connected.
        """
        agents = await self._api.agents.find()
        ids = {
            one.agent_id
            for one in agents
            if request.agent in (one.agent_id, one.agent_name)
        }
        if len(ids) != 1:
            which = "several agents have" if ids else "no connected agent has"
            raise CallError(
                Status.NOT_FOUND, f"{which} the name or id {request.agent[:100]!r}"
            )
        client = self._api.calls.client(PROMETHEUS, ids.pop())
        return await client.call(  # type: ignore[no-any-return]
            "Find", wire.FindRequest(again=request.again), timeout=SEARCH_SECONDS
        )
