"""``kasctl get``, ``problems`` and other commands: live data of all clusters."""

from __future__ import annotations

import contextlib
import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs
import click
import yaml

from kas.ctl.calls import Callee, callee_options
from kas.ctl.common import Ctl, command, counted, printable
from kas.ctl.completion import complete_agents
from tunnel.toolkit.csv_text import csv_text

__all__ = [
    "NO_LIVE_DATA",
    "clusters_option",
    "declare",
    "namespace_option",
    "selector_option",
]

_SERVICE = "txkas.cluster_data.v1.Fleet"

#: Timeout of one page in seconds.
TIMEOUT = 20.0

#: Number of rows of one page.
PAGE = 1000

#: Maximum number of rows that a command prints, unless ``--limit`` is given.
LIMIT = 10_000

#: Seconds between two queries of ``--watch``, which kas answers without a request to a
#: cluster.
WATCH_PAUSE = 2.0

#: Maximum number of clusters that are named because of missing or old rows.
NAMED = 10

#: The columns of each kind of rows: heading, and key in the row.
_DECLARING = [("TOOL", "tool"), ("STATED", "stated"), ("VERSION", "version")]
_COLUMNS: Mapping[str, Sequence[tuple[str, str]]] = {
    "Application": _DECLARING,
    "HelmRelease": _DECLARING,
    "Kustomization": _DECLARING,
    "Node": [("STATE", "state"), ("VERSION", "version"), ("REASON", "reason")],
    "Event": [
        ("OBJECT", "object"),
        ("REASON", "reason"),
        ("COUNT", "count"),
        ("MESSAGE", "message"),
    ],
    "CronJob": [("SCHEDULE", "schedule"), ("SUSPENDED", "suspended"), ("LAST", "last")],
    "Service": [("TYPE", "type"), ("PORTS", "ports"), ("ADDRESSES", "addresses")],
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
watch_option = click.option(
    "-w",
    "--watch",
    is_flag=True,
    help="Go on, and print each change, until Ctrl-C.",
)
sort_option = click.option(
    "--sort-by",
    default="",
    metavar="COLUMN",
    help="Column of the rows, such as 'ready' or 'since'.",
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
@sort_option
@watch_option
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
    sort_by: str,
    watch: bool,
    limit: int,
) -> None:
    """
    Show objects of all clusters.

    KIND is deployments, statefulsets, daemonsets, jobs, cronjobs, nodes, events,
    services, or a kind that declares applications, such as kustomizations.  The
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
    rows = _Rows(callee, request | {"clusters": _names(clusters)}, sort_by, limit)
    _show(ctl, rows, shape, watch)


@selector_option
@namespace_option
@clusters_option
@format_option
@sort_option
@watch_option
@limit_option
@callee_options
def _problems(
    ctl: Ctl,
    callee: Callee,
    selector: str,
    namespace: str,
    clusters: str,
    shape: str,
    sort_by: str,
    watch: bool,
    limit: int,
) -> None:
    """Show the objects of all clusters that are not as specified, and why."""
    request = {
        "view": "problems",
        "labelSelector": selector,
        "namespace": namespace,
    }
    rows = _Rows(callee, request | {"clusters": _names(clusters)}, sort_by, limit)
    _show(ctl, rows, shape, watch)


@namespace_option
@clusters_option
@format_option
@sort_option
@watch_option
@limit_option
@callee_options
def _events(
    ctl: Ctl,
    callee: Callee,
    namespace: str,
    clusters: str,
    shape: str,
    sort_by: str,
    watch: bool,
    limit: int,
) -> None:
    """Show the warnings in all clusters."""
    request = {"view": "events", "namespace": namespace}
    rows = _Rows(callee, request | {"clusters": _names(clusters)}, sort_by, limit)
    _show(ctl, rows, shape, watch)


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
        ctl.result(answer, NO_LIVE_DATA)
        return
    ctl.table(answer, head, rows)


@namespace_option
@clusters_option
@click.option(
    "--matrix",
    is_flag=True,
    help="One row for each application, and one column for each cluster.",
)
@callee_options
def _applications(
    ctl: Ctl, callee: Callee, namespace: str, clusters: str, matrix: bool
) -> None:
    """
    Show the applications of all clusters, with their versions and their health.

    Objects declare applications: Application of app.k8s.io and of Argo CD, and
    Kustomization and HelmRelease of Flux. The labels of other workloads name their
    application: those of Argo CD, Flux and Helm, and the common labels
    app.kubernetes.io/instance, part-of and name.

    A '!' in a matrix marks a version that differs from the version in most clusters.
    """
    answer = _grouped(callee, "Applications", namespace, clusters)
    found = answer.get("applications", [])
    if matrix:
        _show_groups(ctl, answer, *_application_matrix(found))
        return
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
    for one in found:
        for declared in one.get("declarations", []):
            if problem := declared.get("problem"):
                name = f"{declared.get('namespace')}/{declared.get('name')}"
                ctl.note(printable(f"{declared.get('kind')} {name}: {problem}"))


def _application_matrix(
    found: Sequence[Mapping[str, Any]],
) -> tuple[Sequence[str], list[Sequence[str]]]:
    """Return the head and the rows of a table of applications by clusters."""
    clusters = sorted({str(one.get("agentName", "")) for one in found})
    # The versions of an application in each cluster, each with its health.
    cells: dict[str, dict[str, dict[str, str]]] = {}
    for one in found:
        of = cells.setdefault(printable(one.get("name", "")), {})
        version = printable(one.get("version", "")) or "?"
        health = printable(one.get("health", ""))
        of.setdefault(str(one.get("agentName", "")), {})[version] = health
    rows: list[Sequence[str]] = []
    for name, of in cells.items():
        counts = Counter(tuple(one) for one in of.values())
        ((usual, most), *others) = counts.most_common()
        # Without a version that most clusters have, all of them differ.
        is_tie = bool(others) and others[0][1] == most
        row = [name]
        for cluster in clusters:
            texts = [
                version if health in ("", "current") else f"{version} ({health})"
                for version, health in of.get(cluster, {}).items()
            ]
            differs = texts and (is_tie or tuple(of[cluster]) != usual)
            row.append((", ".join(texts) or "-") + " !" * bool(differs))
        rows.append(row)
    return ("NAME", *map(printable, clusters)), rows


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
    head = ("NAME", "CLUSTER", "NAMESPACE", "VERSION", "HEALTH", "ADDRESS", "BY")
    rows = [
        (
            *(
                printable(one.get(key, ""))
                for key in ("name", "agentName", "namespace", "version")
            ),
            printable(one.get("workload", {}).get("health", "")),
            printable(", ".join(one.get("addresses", [])[:2])),
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
    """Print applications or components, and warn about missing or old data."""
    complete = answer.get("completeness", {})
    if rows or ctl.as_json:
        ctl.table(answer, head, rows)
    else:
        ctl.result(answer, "none" if complete.get("queried") else NO_LIVE_DATA)
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


#: Answer to a query of a kind that live data may not have.
NO_ROWS = (
    "no rows; there are rows of deployments, statefulsets, daemonsets, jobs, cronjobs, "
    "nodes, events, services, and objects that declare applications; for pods, see "
    "'kasctl problems' and 'kasctl top pods'"
)

NO_LIVE_DATA = (
    "kas has no live data: enable the module cluster_data in agentk (modules: "
    "cluster_data: {}) and in kas"
)


@attrs.define
class _Rows:
    """
    A query, and the rows that it finds.

    :ivar sort_by: a column; empty for the order of clusters and names.
    """

    callee: Callee
    request: Mapping[str, Any]
    sort_by: str
    limit: int

    @property
    def view(self) -> str:
        """Return the view of the query; empty if it selects a kind."""
        return str(self.request.get("view", ""))

    def read(self) -> dict[str, Any]:
        """Return the rows of all pages, and what is missing."""
        rows: list[dict[str, Any]] = []
        page = ""
        while True:
            number = min(PAGE, self.limit - len(rows))
            request = {**self.request, "limit": number, "page": page}
            answer = self.callee.call(f"{_SERVICE}/Query", request, TIMEOUT)
            rows += answer.get("rows", [])
            page = answer.get("nextPage", "")
            if not page or len(rows) >= self.limit:
                break
        for row in rows:
            row["columns"] = json.loads(row.get("columns") or "{}")
        if self.sort_by:
            rows.sort(key=lambda row: _order(row["columns"].get(self.sort_by)))
        return {
            "rows": rows,
            "asOf": answer.get("asOf", 0),
            "queried": answer.get("queried", 0),
            "incomplete": answer.get("incomplete", []),
            "missingKas": answer.get("missingKas", []),
            "more": bool(page),
        }


def _order(value: object) -> tuple[int, Any]:
    """Return the sort key of a value: numbers, then texts, then other values."""
    if isinstance(value, int | float):
        return 0, value
    return (1, value) if isinstance(value, str) else (2, str(value))


def _show(ctl: Ctl, found: _Rows, shape: str, watch: bool) -> None:
    """Print the rows, and then each change if *watch* is true."""
    content = found.read()
    rows = content["rows"]
    if ctl.as_json or shape == "json":
        ctl.result(content, json.dumps(content, indent=2))
    elif shape == "yaml":
        ctl.result(content, yaml.safe_dump(content, sort_keys=False).rstrip())
    elif shape == "csv":
        ctl.result(content, _csv(rows))
    elif not rows:
        nothing = NO_ROWS if found.request.get("kind") else "no rows"
        ctl.result(content, nothing if content["queried"] else NO_LIVE_DATA)
    else:
        head, lines = _table(rows, content, found.view, shape == "wide")
        ctl.table(content, head, lines)
    _warn(ctl, content)
    if watch:
        # Ctrl-C is the usual end.
        with contextlib.suppress(KeyboardInterrupt):
            _watch(ctl, found, shape)


def _watch(ctl: Ctl, found: _Rows, shape: str) -> None:
    """Print each change, until the user interrupts the program."""
    before = {_key(row): row for row in found.read()["rows"]}
    while True:
        time.sleep(WATCH_PAUSE)
        content = found.read()
        now = {_key(row): row for row in content["rows"]}
        changed = [row for key, row in now.items() if before.get(key) != row]
        gone = [row for key, row in before.items() if key not in now]
        before = now
        if ctl.as_json or shape == "json":
            for kind, rows in (("put", changed), ("deleted", gone)):
                for row in rows:
                    click.echo(json.dumps({"type": kind, "row": row}))
            continue
        for kind, rows in (("", changed), ("deleted: ", gone)):
            if rows:
                _, lines = _table(rows, content, found.view, shape == "wide")
                for line in lines:
                    click.echo(kind + "  ".join(line).rstrip())


def _key(row: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the key of a row."""
    parts = ("agentId", "group", "kind", "namespace", "name", "part")
    return tuple(str(row.get(part, "")) for part in parts)


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
