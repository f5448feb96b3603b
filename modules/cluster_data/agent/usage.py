"""CPU and memory that nodes and pods use now, from the metrics API."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Iterator
from decimal import Decimal
from typing import Any, Final
from urllib.parse import quote, urlencode

from modules.cluster_data.wire import usage_pb2 as wire
from tunnel.api import Access, IAgentModuleApi
from tunnel.errors import CallError, Status
from tunnel.toolkit.peer_turns import PeerTurns, TooManyTurns

__all__ = ["ResourceUsage", "quantity"]

#: Number of rows of one message.
ROWS: Final = 200

#: Number of rows without a limit in the request, and the maximum.
DEFAULT_LIMIT, MAX_LIMIT = 500, 5000

#: Maximum number of requests that run at the same time, one of each user: the metrics
#: API returns all pods of a cluster at once.
AT_ONCE: Final = 2

#: Maximum number of requests of one user that wait, and the seconds that each waits.
MAX_WAITING, WAIT_SECONDS = 5, 10.0

_PATH: Final = "/apis/metrics.k8s.io/v1beta1"

_QUANTITY: Final = re.compile(r"([0-9]{1,30}(?:\.[0-9]{0,30})?)([A-Za-z]{0,2})")

#: Factors of the suffixes of quantities.
_FACTORS: Final = {
    "": Decimal(1),
    **{
        one: Decimal(1000) ** power
        for power, one in enumerate(("n", "u", "m", "", "k", "M", "G", "T", "P"), -3)
    },
    **{
        f"{one}i": Decimal(1024) ** power
        for power, one in enumerate(("K", "M", "G", "T", "P"), 1)
    },
}


class ResourceUsage:
    """Implementation of `ClusterUsage`."""

    def __init__(self, api: IAgentModuleApi) -> None:
        self._kubernetes = api.kubernetes
        self._turns: PeerTurns[str] = PeerTurns(
            api.clock,
            of_peer=1,
            of_all=AT_ONCE,
            most_waiting=MAX_WAITING,
            seconds=WAIT_SECONDS,
        )

    async def read(
        self, request: wire.UsageRequest, call: Any
    ) -> AsyncGenerator[wire.UsageRows, None]:
        """
        Yield the rows, the largest first.

        :raises CallError: FAILED_PRECONDITION if the cluster has no metrics API.
        """
        if request.resource not in ("nodes", "pods"):
            raise CallError(Status.INVALID_ARGUMENT, "neither nodes nor pods")
        access: Access | None = call.access
        kubernetes = self._kubernetes
        # Without a user, an operator of kas calls.
        client = kubernetes.acting_for(access) if access else kubernetes.as_agentk()
        path = _PATH
        if request.namespace and request.resource == "pods":
            path += f"/namespaces/{quote(request.namespace, safe='')}"
        path += f"/{request.resource}"
        if request.label_selector:
            path += "?" + urlencode({"labelSelector": request.label_selector})
        try:
            async with self._turns.turn(access.owner if access else ""):
                found = await client.json("GET", path)
        except TooManyTurns as error:
            text = f"too many requests for metrics: {error}"
            raise CallError(Status.RESOURCE_EXHAUSTED, text) from None
        except ValueError as error:
            raise CallError(Status.INVALID_ARGUMENT, str(error)) from None
        except CallError as error:
            if error.status is Status.NOT_FOUND:
                raise CallError(
                    Status.FAILED_PRECONDITION,
                    "the cluster has no metrics API (metrics.k8s.io); install "
                    "metrics-server",
                ) from None
            raise
        rows = sorted(_rows(found), key=_order_by(request.by_memory), reverse=True)
        most = min(request.limit or DEFAULT_LIMIT, MAX_LIMIT)
        # One more row tells that there are more.
        for start in range(0, min(len(rows), most + 1), ROWS):
            yield wire.UsageRows(rows=rows[start : min(start + ROWS, most + 1)])


def _order_by(memory: bool) -> Any:
    def key(row: wire.UsageRow) -> tuple[int, int]:
        by_cpu = (row.millicores, row.memory)
        return (by_cpu[1], by_cpu[0]) if memory else by_cpu

    return key


def _rows(found: Any) -> Iterator[wire.UsageRow]:
    """Yield the row of each node or pod; a pod uses the sum of its containers."""
    items = found.get("items") if isinstance(found, dict) else None
    for one in items or ():
        metadata = one.get("metadata") or {}
        parts = [one, *(one.get("containers") or ())]
        used = [part["usage"] for part in parts if part.get("usage")]
        yield wire.UsageRow(
            namespace=str(metadata.get("namespace") or ""),
            name=str(metadata.get("name") or ""),
            millicores=round(sum(quantity(part.get("cpu")) for part in used) * 1000),
            memory=round(sum(quantity(part.get("memory")) for part in used)),
        )


def quantity(text: object) -> Decimal:
    """Return a quantity of Kubernetes, such as ``250m`` or ``5Mi``; 0 if invalid."""
    match = _QUANTITY.fullmatch(str(text))
    if match is None or match[2] not in _FACTORS:
        return Decimal(0)
    return Decimal(match[1]) * _FACTORS[match[2]]
