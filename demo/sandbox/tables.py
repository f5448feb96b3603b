"""``Table`` answers: without them `kubectl get` shows little but names."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

from demo.sandbox.store import Kind

__all__ = ["is_table_wanted", "make_table"]

Object = dict[str, Any]


def is_table_wanted(accept: bytes) -> bool:
    """Whether an ``Accept`` header asks for columns."""
    return b"as=Table" in accept and b"g=meta.k8s.io" in accept


def _pod(pod: Object) -> list[Any]:
    states = pod["status"]["containerStatuses"]
    ready = sum(state["ready"] for state in states)
    restarts = sum(state["restartCount"] for state in states)
    return [f"{ready}/{len(states)}", pod["status"]["phase"], restarts]


_COLUMNS: dict[str, tuple[tuple[str, ...], Callable[[Object], list[Any]]]] = {
    "pods": (("Ready", "Status", "Restarts"), _pod),
    "nodes": (
        ("Status", "Roles", "Version"),
        lambda node: ["Ready", "<none>", node["status"]["nodeInfo"]["kubeletVersion"]],
    ),
    "namespaces": (("Status",), lambda found: [found["status"]["phase"]]),
    "configmaps": (
        ("Data",),
        lambda found: [len(found.get("data", {})) + len(found.get("binaryData", {}))],
    ),
}


def make_table(
    kind: Kind, objects: Iterable[Object], version: str, now: datetime
) -> Object:
    """The objects as rows; *version* is that of the list."""
    names, cells = _COLUMNS[kind.plural]
    columns = [
        {
            "name": name,
            "type": "string",
            "format": "name" if name == "Name" else "",
            "description": "",
            "priority": 0,
        }
        for name in ("Name", *names, "Age")
    ]
    rows = [
        {
            "cells": [
                found["metadata"]["name"],
                *cells(found),
                _age(found["metadata"]["creationTimestamp"], now),
            ],
            "object": {
                "kind": "PartialObjectMetadata",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": found["metadata"],
            },
        }
        for found in objects
    ]
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {"resourceVersion": version},
        "columnDefinitions": columns,
        "rows": rows,
    }


def _age(created: str, now: datetime) -> str:
    seconds = max(0, int((now - datetime.fromisoformat(created)).total_seconds()))
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"
