"""View ``services``: Services with their ports, addresses and selectors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from modules.cluster_data.agent.shapes import LiveService
from tunnel.api import ClusterObject, ClusterView, ObjectKind, ViewRow, common_columns

__all__ = ["SERVICES"]

#: Maximum number of ports, of addresses, and of labels of the selector in a row.
MAX_PORTS, MAX_ADDRESSES, MAX_SELECTOR = 32, 8, 16

_SERVICE = ObjectKind("", "v1", "Service")


def _rows(one: ClusterObject) -> Iterator[ViewRow]:
    service = cast(LiveService, one.found)
    columns = common_columns(one)
    columns["type"] = service.spec.type
    columns["ports"] = [found.port for found in service.spec.ports or ()][:MAX_PORTS]
    # A headless Service has the address "None".
    own = [service.spec.cluster_ip] if service.spec.cluster_ip != "None" else []
    balancer = service.status.load_balancer
    outside = [
        point.hostname or point.ip for point in (balancer and balancer.ingress) or ()
    ]
    columns["addresses"] = [*filter(None, (*outside, *own))][:MAX_ADDRESSES]
    selector = service.spec.selector or {}
    if 0 < len(selector) <= MAX_SELECTOR:
        columns["selector"] = selector
    yield ViewRow(columns)


SERVICES = ClusterView("services", {_SERVICE: LiveService}, _rows, pause=2.0)
