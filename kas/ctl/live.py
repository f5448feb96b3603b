"""``kasctl get``, ``problems`` and other commands: live data of all clusters."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click
import yaml

from kas.ctl.calls import Callee, callee_options
from kas.ctl.common import Ctl, command, counted, printable
from kas.ctl.completion import complete_agents
from tunnel.toolkit.csv_text import csv_text

__all__ = ["declare"]

_SERVICE = "txkas.cluster_data.v1.Fleet"

#: Timeout of one page in seconds.
TIMEOUT = 20.0

#: Number of rows of one page.
PAGE = 1000

#: Maximum number of rows that a command prints, unless ``--limit`` is given.
LIMIT = 10_000

#: Maximum number of clusters that are named because of missing or old rows.
NAMED = 10

#: The columns of each kind of rows: heading, and key in the row.
_COLUMNS: Mapping[str, Sequence[tuple[str, str]]] = {
    "Node": [("STATE", "state"), ("VERSION", "version"), ("REASON", "reason")],
    "Event": [
        ("OBJECT", "object"),
        ("REASON", "reason"),
        ("COUNT", "count"),
        ("MESSAGE", "message"),
    ],
    "CronJob": [("SCHEDULE", "schedule"), ("SUSPENDED", "suspended"), ("LAST", "last")],
}
#: The views whose columns this program knows; the empty name selects a view by kind.
_KNOWN_VIEWS = ("", "workloads", "nodes", "problems", "events")

#: Maximum number of columns of other views, and their columns that ``-o wide`` shows.
MAX_SHOWN = 6
_HIDDEN = ("labels", "images", "created")

_WORKLOAD = [("READY", "ready"), ("HEALTH", "health"), ("REASON", "reason")]
_PROBLEM = [("STATE", "state"), ("SINCE", "since"), ("REASON", "reason")]
_WIDE = [("IMAGES", "images"), ("LABELS", "labels")]

clusters_option = click.option(
    "--clusters",
    default="",
    metavar="NAMES",
    help="Names or ids of agents, separated by commas  [default: all].",
)
namespace_option = click.option("-n", "--namespace", default="", help="One namespace.")
selector_option = click.option(
    "-l",
    "--selector",
    default="",
    help="A label selector, such as 'app=web,tier!=cache'.",
)
format_option = click.option(
    "-o",
    "--format",
    "shape",
    type=click.Choice(["table", "wide", "json", "yaml", "csv"]),
    default="table",
    show_default=True,
    help="Format of the rows.",
)
limit_option = click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=LIMIT,
    show_default=True,
    help="Maximum number of rows.",
)


def declare(group: click.Group) -> None:
    """Add the commands to *group*."""
    command(group, "get")(_get)
    command(group, "problems")(_problems)
    command(group, "events")(_events)
    command(group, "clusters")(_clusters)
    command(group, "applications")(_applications)
    command(group, "components")(_components)


@click.argument("kind", default="")
@click.argument("name", default="")
@click.option("--view", default="", help="A view, such as one of another module.")
@click.option("--image", default="", help="Text that an image of the object contains.")
@selector_option
@namespace_option
@clusters_option
@format_option
@limit_option
@callee_options
def _get(
    ctl: Ctl,
    callee: Callee,
    kind: str,
    name: str,
    view: str,
    image: str,
    selector: str,
    namespace: str,
    clusters: str,
    shape: str,
    limit: int,
) -> None:
    """
    Show objects of all clusters.

    KIND is deployments, statefulsets, daemonsets, jobs, cronjobs, nodes or events.  The
    rows come from kas, not from the clusters, so clusters that are offline appear as
    they were last seen.  With --view, KIND may be omitted.
    """
    if not kind and not view:
        raise click.UsageError("name a KIND, or a view with --view")
    request = {
        "view": view,
        "kind": kind,
        "name": name,
        "image": image,
        "labelSelector": selector,
        "namespace": namespace,
    }
    _show(ctl, callee, request, clusters, shape, limit)


@selector_option
@namespace_option
@clusters_option
@format_option
@limit_option
@callee_options
def _problems(
    ctl: Ctl,
    callee: Callee,
    selector: str,
    namespace: str,
    clusters: str,
    shape: str,
    limit: int,
) -> None:
    """Show the objects of all clusters that are not as specified, and why."""
    request = {
        "view": "problems",
        "labelSelector": selector,
        "namespace": namespace,
    }
    _show(ctl, callee, request, clusters, shape, limit)


@namespace_option
@clusters_option
@format_option
@limit_option
@callee_options
def _events(
    ctl: Ctl,
    callee: Callee,
    namespace: str,
    clusters: str,
    shape: str,
    limit: int,
) -> None:
    """Show the warnings in all clusters."""
    request = {"view": "events", "namespace": namespace}
    _show(ctl, callee, request, clusters, shape, limit)


@click.argument("names", nargs=-1, shell_complete=complete_agents)
@callee_options
def _clusters(ctl: Ctl, callee: Callee, names: Sequence[str]) -> None:
    """
    Show the clusters, the age of their data, and their numbers of objects.

    NAMES are names or ids of agents; without NAMES, all clusters.
    """
    answer = callee.call(f"{_SERVICE}/Clusters", {"clusters": names}, TIMEOUT)
    found = answer.get("clusters", [])
    for one in found:
        one["summary"] = json.loads(one.get("summary") or "{}")
    rows = [
        (
            printable(one.get("agentName", "")),
            one.get("state", ""),
            _age(answer, one.get("lastSeen", 0)),
            *(_counts(one["summary"], kind) for kind in ("nodes", "pods")),
            *(_counts(one["summary"], kind) for kind in ("deployments",)),
        )
        for one in found
    ]
    _warn_of_kas(ctl, answer)
    head = ("CLUSTER", "STATE", "SEEN", "NODES", "PODS", "DEPLOYMENTS")
    if not found:
        ctl.result(answer, _NONE)
        return
    ctl.table(answer, head, rows)


@namespace_option
@clusters_option
@callee_options
def _applications(ctl: Ctl, callee: Callee, namespace: str, clusters: str) -> None:
    """
    Show the applications of all clusters, with their versions and their health.

    The labels of workloads name their application: those of Argo CD, Flux and Helm, and
    the common labels app.kubernetes.io/instance, part-of and name.
    """
    answer = _grouped(callee, "Applications", namespace, clusters)
    found = answer.get("applications", [])
    head = ("NAME", "NAMESPACE", "CLUSTER", "VERSION", "HEALTH", "READY", "SOURCE")
    rows = [
        (
            *(
                printable(one.get(key, ""))
                for key in ("name", "namespace", "agentName", "version", "health")
            ),
            _ready(one.get("workloads", [])),
            printable(one.get("source", "")),
        )
        for one in found
    ]
    _show_groups(ctl, answer, head, rows)


@namespace_option
@clusters_option
@callee_options
def _components(ctl: Ctl, callee: Callee, namespace: str, clusters: str) -> None:
    """
    Show well-known components of all clusters, such as ingress controllers.

    kas recognizes them by their images, or by the label app.kubernetes.io/name.
    """
    answer = _grouped(callee, "Components", namespace, clusters)
    found = answer.get("components", [])
    head = ("NAME", "CLUSTER", "NAMESPACE", "VERSION", "HEALTH", "RECOGNIZED BY")
    rows = [
        (
            *(
                printable(one.get(key, ""))
                for key in ("name", "agentName", "namespace", "version")
            ),
            printable(one.get("workload", {}).get("health", "")),
            printable(one.get("recognizedBy", "")),
        )
        for one in found
    ]
    _show_groups(ctl, answer, head, rows)


def _grouped(
    callee: Callee, method: str, namespace: str, clusters: str
) -> dict[str, Any]:
    request = {"clusters": _names(clusters), "namespace": namespace}
    answer: dict[str, Any] = callee.call(f"{_SERVICE}/{method}", request, TIMEOUT)
    return answer


def _show_groups(
    ctl: Ctl,
    answer: dict[str, Any],
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
) -> None:
    """Print applications or components, and what is missing."""
    complete = answer.get("completeness", {})
    if rows or ctl.as_json:
        ctl.table(answer, head, rows)
    else:
        ctl.result(answer, "none" if complete.get("queried") else _NONE)
    _warn(
        ctl,
        {
            "incomplete": complete.get("incomplete", []),
            "missingKas": complete.get("missingKas", []),
            "more": False,
        },
    )
    if complete.get("cut"):
        ctl.note("there are more workloads than kas groups: name clusters")


def _ready(workloads: Sequence[Mapping[str, Any]]) -> str:
    ready = sum(one.get("ready", 0) for one in workloads)
    return f"{ready}/{sum(one.get('wanted', 0) for one in workloads)}"


def _names(clusters: str) -> list[str]:
    return [one.strip() for one in clusters.split(",") if one.strip()]


_NONE = (
    "kas has no live data: enable the module cluster_data in agentk (modules: "
    "cluster_data: {}) and in kas"
)


def _show(
    ctl: Ctl,
    callee: Callee,
    request: dict[str, Any],
    clusters: str,
    shape: str,
    limit: int,
) -> None:
    """Print the rows of all pages."""
    request = {**request, "clusters": _names(clusters)}
    rows: list[dict[str, Any]] = []
    while True:
        request["limit"] = min(PAGE, limit - len(rows))
        answer = callee.call(f"{_SERVICE}/Query", request, TIMEOUT)
        rows += answer.get("rows", [])
        request["page"] = answer.get("nextPage", "")
        if not request["page"] or len(rows) >= limit:
            break
    for row in rows:
        row["columns"] = json.loads(row.get("columns") or "{}")
    content = {
        "rows": rows,
        "asOf": answer.get("asOf", 0),
        "queried": answer.get("queried", 0),
        "incomplete": answer.get("incomplete", []),
        "missingKas": answer.get("missingKas", []),
        "more": bool(request["page"]),
    }
    if ctl.as_json or shape == "json":
        ctl.result(content, json.dumps(content, indent=2))
    elif shape == "yaml":
        ctl.result(content, yaml.safe_dump(content, sort_keys=False).rstrip())
    elif shape == "csv":
        ctl.result(content, _csv(rows))
    elif not rows:
        ctl.result(content, "no rows" if content["queried"] else _NONE)
    else:
        head, lines = _table(rows, answer, request.get("view", ""), shape == "wide")
        ctl.table(content, head, lines)
    _warn(ctl, content)


def _warn(ctl: Ctl, content: Mapping[str, Any]) -> None:
    """Name the clusters whose rows are missing or old."""
    incomplete = content["incomplete"]
    for one in incomplete[:NAMED]:
        name = one.get("agentName") or one.get("agentId", "")
        ctl.note(f"cluster {printable(name)}: {printable(one.get('reason', ''))}")
    if len(incomplete) > NAMED:
        rest = counted(len(incomplete) - NAMED, "further cluster")
        ctl.note(f"{rest} with missing or old rows")
    _warn_of_kas(ctl, content)
    if content["more"]:
        ctl.note("there are more rows: see --limit")


def _warn_of_kas(ctl: Ctl, content: Mapping[str, Any]) -> None:
    """Name the kas that did not respond."""
    for address in content.get("missingKas", []):
        ctl.note(
            f"kas at {printable(address)} did not respond: the rows of its clusters "
            "are missing"
        )


def _table(
    rows: Sequence[dict[str, Any]],
    answer: Mapping[str, Any],
    view: str,
    is_wide: bool,
) -> tuple[list[str], Iterator[list[str]]]:
    """Return the heading and the lines of a table."""
    kinds = {row.get("kind", "") for row in rows}
    is_problem = view == "problems"
    has_kind = len(kinds) > 1 or is_problem
    columns = list(_COLUMNS.get(next(iter(kinds)), _WORKLOAD))
    if is_problem:
        columns = _PROBLEM
    elif view not in _KNOWN_VIEWS:
        columns = _columns_of(rows)
    elif len(kinds) > 1:
        columns = _WORKLOAD
    if is_wide:
        columns = [*columns, *_WIDE]
    has_namespace = any(row.get("namespace") for row in rows)
    head = ["CLUSTER", *["NAMESPACE"] * has_namespace, *["KIND"] * has_kind, "NAME"]
    lines = (
        [
            printable(row.get("agentName", "")),
            *[printable(row.get("namespace", ""))] * has_namespace,
            *[printable(row.get("kind", ""))] * has_kind,
            printable(row.get("name", "")),
            *(_cell(answer, row["columns"], key) for _, key in columns),
        ]
        for row in rows
    )
    return [*head, *(heading for heading, _ in columns)], lines


def _columns_of(rows: Sequence[dict[str, Any]]) -> list[tuple[str, str]]:
    """Return the first columns of a view that this program does not know."""
    keys = dict.fromkeys(key for row in rows for key in row["columns"])
    shown = [key for key in keys if key not in _HIDDEN][:MAX_SHOWN]
    return [(key.upper(), key) for key in shown]


def _cell(answer: Mapping[str, Any], columns: Mapping[str, Any], key: str) -> str:
    found = columns.get(key, "")
    if key == "ready" and "wanted" in columns:
        return f"{found}/{columns['wanted']}"
    if key == "since" and isinstance(found, int | float):
        return _age(answer, found)
    if isinstance(found, list):
        return printable(", ".join(map(str, found)))
    if isinstance(found, dict):
        return printable(",".join(f"{name}={one}" for name, one in found.items()))
    return printable(str(found))


def _age(answer: Mapping[str, Any], since: float) -> str:
    """Return how long ago a time was, in the largest two units."""
    if not since:
        return "never"
    seconds = max(0, round(float(answer.get("asOf") or time.time()) - since))
    for size, unit, smaller, part in (
        (86400, "d", 3600, "h"),
        (3600, "h", 60, "m"),
        (60, "m", 1, "s"),
    ):
        if seconds >= size:
            rest = seconds % size // smaller
            return (
                f"{seconds // size}{unit}{rest}{part}"
                if rest
                else f"{seconds // size}{unit}"
            )
    return f"{seconds}s"


def _counts(summary: Mapping[str, Any], kind: str) -> str:
    """Return the number of well objects and of all objects of a kind."""
    found = summary.get(kind)
    if found is None:
        return "-"
    states = found.get("states", {})
    well = sum(
        states.get(one, 0)
        for one in ("current", "Ready", "Running", "Completed", "Succeeded")
    )
    return f"{well}/{found.get('total', 0)}"


def _csv(rows: Sequence[dict[str, Any]]) -> str:
    """Return the rows as CSV, with a column for each key of a row."""
    keys = sorted({key for row in rows for key in row["columns"]})
    places = ("agentName", "namespace", "kind", "name")
    cells = (
        [
            *(row.get(one, "") for one in places),
            *(row["columns"].get(key, "") for key in keys),
        ]
        for row in rows
    )
    return csv_text(["cluster", *places[1:], *keys], cells).rstrip("\n")
