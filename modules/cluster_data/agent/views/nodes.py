"""View ``nodes``: readiness, versions and capacity of nodes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from modules.cluster_data.agent.shapes import Node
from tunnel.api import (
    ClusterObject,
    ClusterView,
    ObjectKind,
    ViewRow,
    common_columns,
    shortened,
)

__all__ = ["NODE", "NODES", "node_state"]

NODE = ObjectKind("", "v1", "Node")

#: Conditions that are true on a node with too few resources.
_PRESSURES = ("MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable")

_CAPACITIES = ("cpu", "memory", "pods")


def node_state(node: Node) -> str:
    """Return the state of a node, as ``kubectl get nodes`` prints it."""
    ready = next(
        (one for one in node.status.conditions or [] if one.type == "Ready"), None
    )
    state = "Unknown"
    if ready is not None:
        state = "Ready" if ready.status == "True" else "NotReady"
    return f"{state},SchedulingDisabled" if node.spec.unschedulable else state


def _rows(one: ClusterObject) -> Iterator[ViewRow]:
    node = cast(Node, one.found)
    columns = common_columns(one)
    pressures = [
        condition.type
        for condition in node.status.conditions or []
        if condition.type in _PRESSURES and condition.status == "True"
    ]
    if pressures:
        columns["pressures"] = pressures
    if info := node.status.node_info:
        columns["version"] = shortened(info.kubelet_version)
        columns["os"] = shortened(info.os_image)
        columns["architecture"] = shortened(info.architecture)
    capacity = node.status.capacity or {}
    columns["capacity"] = {
        name: str(capacity[name]) for name in _CAPACITIES if name in capacity
    }
    yield ViewRow(columns)


NODES = ClusterView("nodes", {NODE: Node}, _rows)
