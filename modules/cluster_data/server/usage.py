"""CPU and memory that nodes and pods of all clusters use, for operators."""

from __future__ import annotations

from contextlib import aclosing
from functools import partial
from typing import Any, Final

import attrs

from modules.cluster_data.server.reader import ClusterAnswer, FleetReader
from modules.cluster_data.wire import usage_pb2 as wire
from tunnel.api import IServerModuleApi
from tunnel.errors import CallError, Status
from tunnel.toolkit.parallel import in_parallel

__all__ = ["FLEET_USAGE", "FleetUsage"]

FLEET_USAGE: Final = wire.DESCRIPTOR.services_by_name["FleetUsage"]
_USAGE: Final = wire.DESCRIPTOR.services_by_name["ClusterUsage"]

#: Maximum number of clusters that are asked at the same time.
AT_ONCE: Final = 20

#: Timeout of one cluster in seconds.
TIMEOUT: Final = 10.0

#: Number of rows without a limit in the request, and the maximum.
DEFAULT_LIMIT, MAX_LIMIT = 500, 5000


class FleetUsage:
    """
    Implementation of `FleetUsage`.

    Its callers act for kas itself, and not for a user, and so the clusters answer with
    the rights of agentk.
    """

    def __init__(self, api: IServerModuleApi, reader: FleetReader) -> None:
        self._api = api
        self._reader = reader

    async def top(self, request: wire.TopRequest, call: Any) -> wire.TopResponse:
        """Return the largest rows, and the clusters without rows."""
        found = await self._reader.clusters_of_all(list(request.clusters))
        usage = request.usage
        most = min(usage.limit or DEFAULT_LIMIT, MAX_LIMIT)
        answers = await in_parallel(
            [partial(self._read, one, usage) for one in found.clusters], AT_ONCE
        )
        rows = [row for answer in answers for row in answer.rows]
        rows.sort(key=partial(_size, usage.by_memory), reverse=True)
        return wire.TopResponse(
            rows=rows[:most],
            missing=[one.missing for one in answers if one.missing is not None],
            queried=len(answers),
            cut=len(rows) > most,
        )

    async def _read(self, one: ClusterAnswer, usage: wire.UsageRequest) -> _Answer:
        """Return the rows of a cluster, or why it has none."""
        cluster = one.cluster
        answer = _Answer()
        try:
            if one.state not in ("live", "late"):
                raise CallError(Status.UNAVAILABLE, "the cluster is offline")
            client = self._api.calls.client(_USAGE, cluster.agent_id)
            stream = client.stream("Read", usage, timeout=TIMEOUT)
            async with aclosing(stream) as messages:
                async for message in messages:
                    answer.rows += [
                        wire.TopRow(
                            agent_id=cluster.agent_id,
                            agent_name=cluster.agent_name,
                            usage=row,
                        )
                        for row in message.rows
                    ]
        except CallError as error:
            reason = error.message
            if error.status is Status.UNIMPLEMENTED:
                reason = "its agentk is too old"
            # Some of the rows would look like all of them.
            answer = _Answer(
                missing=wire.MissingUsage(
                    agent_id=cluster.agent_id,
                    agent_name=cluster.agent_name,
                    reason=reason,
                )
            )
        return answer


@attrs.define
class _Answer:
    rows: list[wire.TopRow] = attrs.field(factory=list)
    missing: wire.MissingUsage | None = None


def _size(by_memory: bool, row: wire.TopRow) -> int:
    return row.usage.memory if by_memory else row.usage.millicores
