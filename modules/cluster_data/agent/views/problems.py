"""View ``problems``: objects that have not reached the state of their specification."""

from __future__ import annotations

from collections.abc import Iterator

from modules.cluster_data.agent.shapes import Namespace, Node, Pod
from modules.cluster_data.agent.views.nodes import NODE
from modules.cluster_data.agent.views.workloads import WORKLOAD_KINDS
from tunnel.api import (
    ClusterObject,
    ClusterView,
    ObjectKind,
    ViewRow,
    common_columns,
)

__all__ = ["NAMESPACE", "POD", "PROBLEMS"]

POD = ObjectKind("", "v1", "Pod")
NAMESPACE = ObjectKind("", "v1", "Namespace")


def _rows(one: ClusterObject) -> Iterator[ViewRow]:
    if one.is_well:
        return
    columns = common_columns(one)
    columns["since"] = round(one.since, 3)
    owners = one.found.metadata.owner_references or []
    owner = next((found for found in owners if found.controller), None)
    if owner is not None:
        columns["owner"] = f"{owner.kind}/{owner.name}"
    if isinstance(one.found, Pod):
        columns["node"] = one.found.spec.node_name
        columns["restarts"] = sum(
            found.restart_count for found in one.found.status.container_statuses or []
        )
    yield ViewRow(columns)


PROBLEMS = ClusterView(
    "problems",
    {**WORKLOAD_KINDS, NODE: Node, POD: Pod, NAMESPACE: Namespace},
    _rows,
    pause=0.25,
)
