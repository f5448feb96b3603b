"""``kasctl top``: CPU and memory that nodes and pods of all clusters use."""

from __future__ import annotations

import json
from typing import Any

import click

from kas.ctl.calls import Callee, callee_options
from kas.ctl.common import Ctl, command, printable
from kas.ctl.live import (
    NO_LIVE_DATA,
    clusters_option,
    namespace_option,
    selector_option,
)
from tunnel.toolkit.csv_text import csv_text

__all__ = ["declare"]

_METHOD = "txkas.cluster_data.v1.FleetUsage/Top"

#: Timeout in seconds: kas waits ten seconds for each cluster, for twenty at once.
TIMEOUT = 60.0

#: Maximum number of rows, unless ``--limit`` is given, and in any case.
LIMIT, MAX_LIMIT = 500, 5000


def declare(group: click.Group) -> None:
    """Add the command to *group*."""
    command(group, "top")(_top)


@click.argument("kind", type=click.Choice(["nodes", "pods"]))
@selector_option
@namespace_option
@clusters_option
@click.option(
    "--sort-by",
    type=click.Choice(["cpu", "memory"]),
    default="cpu",
    show_default=True,
    help="Column that decides the order; the largest rows come first.",
)
@click.option(
    "-o",
    "--format",
    "shape",
    type=click.Choice(["table", "json", "csv"]),
    default="table",
    show_default=True,
    help="Format of the rows.",
)
@click.option(
    "--limit",
    type=click.IntRange(1, MAX_LIMIT),
    default=LIMIT,
    show_default=True,
    help="Maximum number of rows.",
)
@callee_options
def _top(
    ctl: Ctl,
    callee: Callee,
    kind: str,
    selector: str,
    namespace: str,
    clusters: str,
    sort_by: str,
    shape: str,
    limit: int,
) -> None:
    """
    Show the CPU and memory that nodes or pods of all clusters use now.

    Each cluster needs metrics-server, or another program that serves metrics.k8s.io.
    """
    if namespace and kind == "nodes":
        raise click.UsageError("nodes have no namespace")
    usage = {
        "resource": kind,
        "namespace": namespace,
        "labelSelector": selector,
        "byMemory": sort_by == "memory",
        "limit": limit,
    }
    names = [one.strip() for one in clusters.split(",") if one.strip()]
    answer = callee.call(_METHOD, {"usage": usage, "clusters": names}, TIMEOUT)
    rows = [_cells(one, kind) for one in answer.get("rows", [])]
    places = ["CLUSTER", *["NAMESPACE"] * (kind == "pods"), "NAME"]
    if ctl.as_json or shape == "json":
        ctl.result(answer, json.dumps(answer, indent=2))
    elif shape == "csv":
        head = [one.lower() for one in places]
        ctl.result(answer, csv_text([*head, "millicores", "memory"], rows).rstrip("\n"))
    elif rows:
        lines = [
            [
                *(printable(str(cell)) for cell in one[:-2]),
                f"{one[-2]}m",
                f"{int(one[-1]) >> 20}Mi",
            ]
            for one in rows
        ]
        ctl.table(answer, [*places, "CPU", "MEMORY"], lines)
    else:
        ctl.result(answer, "no rows" if answer.get("queried") else NO_LIVE_DATA)
    for one in answer.get("missing", []):
        name = one.get("agentName") or one.get("agentId", "")
        ctl.note(f"cluster {printable(name)}: {printable(one.get('reason', ''))}")
    if answer.get("cut"):
        ctl.note("there are more rows: see --limit")


def _cells(row: dict[str, Any], kind: str) -> list[Any]:
    """Return the cells of a row; large numbers are texts in JSON of protobuf."""
    usage = row.get("usage", {})
    return [
        row.get("agentName", ""),
        *[usage.get("namespace", "")] * (kind == "pods"),
        usage.get("name", ""),
        int(usage.get("millicores", 0)),
        int(usage.get("memory", 0)),
    ]
