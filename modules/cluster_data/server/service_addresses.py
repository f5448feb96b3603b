"""The addresses of workloads, by the Services that select their pods."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from modules.cluster_data.server.declarations import pairs_in, texts_in
from modules.cluster_data.server.store.queries import FoundRow

__all__ = ["MAX_OF_WORKLOAD", "ServiceAddresses"]

#: Maximum number of addresses of a workload.
MAX_OF_WORKLOAD = 10


class ServiceAddresses:
    """
    The Services of some clusters.

    :param rows: rows of the view ``services``.
    """

    def __init__(self, rows: Iterable[FoundRow]) -> None:
        #: The Services of each agent and namespace, by one label that their pods have.
        self._by_label: dict[tuple[str, str, str, str], list[_Service]] = {}
        for row in rows:
            columns = json.loads(row.columns)
            selector = pairs_in(columns.get("selector"))
            if selector:
                label = min(selector.items())
                key = (row.agent_id, row.namespace, *label)
                service = selector, _addresses(row, columns)
                self._by_label.setdefault(key, []).append(service)

    def of(self, row: FoundRow, columns: Mapping[str, Any]) -> list[str]:
        """Return the addresses of a workload."""
        pods = pairs_in(columns.get("pod_labels", columns.get("labels")))
        found: dict[str, None] = {}
        for label in pods.items():
            key = (row.agent_id, row.namespace, *label)
            for selector, addresses in self._by_label.get(key, ()):
                if len(found) >= MAX_OF_WORKLOAD:
                    return list(found)[:MAX_OF_WORKLOAD]
                if selector.items() <= pods.items():
                    found |= dict.fromkeys(addresses)
        return list(found)[:MAX_OF_WORKLOAD]


#: The selector and the addresses of a Service.
_Service = tuple[dict[str, str], list[str]]


def _addresses(row: FoundRow, columns: Mapping[str, Any]) -> list[str]:
    ports = columns.get("ports")
    inside = [
        f"{row.name}.{row.namespace}.svc:{port}"
        for port in (ports if isinstance(ports, list) else ())
        if isinstance(port, int)
    ]
    if columns.get("type") != "LoadBalancer":
        return inside
    return [*inside, *texts_in(columns.get("addresses"))]
