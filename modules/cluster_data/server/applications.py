"""
Applications and well-known components, computed from the rows of workloads.

Workloads belong to one application if their labels say so.  kas groups only rows that
the reader may see, so an application never shows a workload that the reader's rights
hide.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

import attrs

from modules.cluster_data.server.known_components import ComponentTable
from modules.cluster_data.server.reader import RowsAnswer
from modules.cluster_data.server.store.queries import MAX_LIMIT, FoundRow, RowQuery

__all__ = [
    "MAX_WORKLOADS",
    "Application",
    "ApplicationsAnswer",
    "Component",
    "ComponentsAnswer",
    "ReadPage",
    "find_applications",
    "find_components",
]

#: Maximum number of workloads of one answer, which kas groups in memory, and sends in
#: one message.
MAX_WORKLOADS = 10_000

#: Maximum number of pods of a workload that an answer can have.
MAX_NUMBER = 2**31 - 1

#: Returns one page of rows for a reader.
ReadPage = Callable[[RowQuery], Awaitable[RowsAnswer]]

#: The states of health, the worst one first.
_WORST = ("failed", "in progress", "terminating", "current")

_STANDARD = "app.kubernetes.io"

#: The labels that name an application, and the tool that sets each of them; the first
#: label of a workload decides.
_NAMES = (
    ("argocd.argoproj.io/instance", "argocd"),
    ("helm.toolkit.fluxcd.io/name", "flux"),
    ("kustomize.toolkit.fluxcd.io/name", "flux"),
    (f"{_STANDARD}/instance", ""),
    (f"{_STANDARD}/part-of", ""),
    (f"{_STANDARD}/name", ""),
    ("release", ""),
    ("app", ""),
)


@attrs.frozen
class MemberWorkload:
    """A workload in an application or a component."""

    kind: str
    name: str
    health: str
    reason: str
    ready: int
    wanted: int


@attrs.frozen
class Application:
    """
    An application in one namespace of one cluster.

    :ivar source: the tool that manages it: ``argocd``, ``flux``, ``helm``, another
        value of the label ``app.kubernetes.io/managed-by``, or empty.
    :ivar version: the versions in the labels of its workloads, or the tags of their
        images.
    :ivar health: the worst health of its workloads.
    """

    agent_id: str
    agent_name: str
    namespace: str
    name: str
    source: str
    version: str
    health: str
    images: Sequence[str]
    workloads: Sequence[MemberWorkload]


@attrs.frozen
class Component:
    """
    A well-known component in a cluster.

    :ivar recognized_by: the image or the label that identifies the component.
    """

    agent_id: str
    agent_name: str
    namespace: str
    name: str
    version: str
    recognized_by: str
    workload: MemberWorkload


@attrs.frozen
class ApplicationsAnswer:
    """
    Applications, sorted by name, namespace and cluster.

    :ivar rows: the last page of the workloads, with what is missing.
    :ivar is_cut: whether there are more than `MAX_WORKLOADS` workloads.
    """

    applications: Sequence[Application]
    rows: RowsAnswer
    is_cut: bool


@attrs.frozen
class ComponentsAnswer:
    """Components, sorted by name and cluster; as `ApplicationsAnswer`."""

    components: Sequence[Component]
    rows: RowsAnswer
    is_cut: bool


async def find_applications(read: ReadPage, namespace: str = "") -> ApplicationsAnswer:
    """
    Return the applications of a reader.

    :param namespace: empty for all namespaces.
    """
    rows, last = await _workloads(read, namespace)
    groups: dict[tuple[str, str, str], list[tuple[FoundRow, Mapping[str, Any]]]] = {}
    for row in rows:
        columns = json.loads(row.columns)
        name, _ = _named(columns, row.name)
        groups.setdefault((name, row.namespace, row.agent_id), []).append(
            (row, columns)
        )
    found = [_application(name, members) for (name, *_), members in groups.items()]
    found.sort(key=lambda one: (one.name, one.namespace, one.agent_name))
    return ApplicationsAnswer(found, last, bool(last.next_page))


async def find_components(
    read: ReadPage, table: ComponentTable, namespace: str = ""
) -> ComponentsAnswer:
    """Return the well-known components of a reader's clusters."""
    rows, last = await _workloads(read, namespace)
    found = []
    for row in rows:
        columns = json.loads(row.columns)
        recognized = table.recognize(_labels(columns), _images(columns))
        if recognized is not None:
            name, by = recognized
            found.append(
                Component(
                    row.agent_id,
                    row.agent_name,
                    row.namespace,
                    name,
                    _version([columns]),
                    by,
                    _workload(row, columns),
                )
            )
    found.sort(key=lambda one: (one.name, one.agent_name, one.namespace))
    return ComponentsAnswer(found, last, bool(last.next_page))


async def _workloads(
    read: ReadPage, namespace: str
) -> tuple[list[FoundRow], RowsAnswer]:
    """Return the rows of workloads, and the last page."""
    query = RowQuery(view="workloads", namespace=namespace, limit=MAX_LIMIT)
    page = await read(query)
    rows = list(page.rows)
    while page.next_page and len(rows) < MAX_WORKLOADS:
        page = await read(attrs.evolve(query, page=page.next_page))
        rows += page.rows
    return rows, page


def _application(
    name: str, members: Sequence[tuple[FoundRow, Mapping[str, Any]]]
) -> Application:
    first, _ = members[0]
    columns = [one for _, one in members]
    workloads = [_workload(row, one) for row, one in members]
    sources = {source for one in columns if (source := _named(one, "")[1])}
    images = dict.fromkeys(image for one in columns for image in _images(one))
    return Application(
        first.agent_id,
        first.agent_name,
        first.namespace,
        name,
        ", ".join(sorted(sources)),
        _version(columns),
        _worst(one.health for one in workloads),
        list(images),
        workloads,
    )


def _named(columns: Mapping[str, Any], name: str) -> tuple[str, str]:
    """
    Return the name of a workload's application and the tool that manages it.

    :param name: the application's name if no label names one.
    """
    labels = _labels(columns)
    manager = labels.get(f"{_STANDARD}/managed-by", "")
    source = "helm" if manager.lower() == "helm" else manager
    for label, tool in _NAMES:
        if found := labels.get(label):
            return found, tool or source
    return name, source


def _workload(row: FoundRow, columns: Mapping[str, Any]) -> MemberWorkload:
    return MemberWorkload(
        row.kind,
        row.name,
        str(columns.get("health", "")),
        str(columns.get("reason", "")),
        _number(columns.get("ready")),
        _number(columns.get("wanted")),
    )


def _version(columns: Sequence[Mapping[str, Any]]) -> str:
    """Return the different versions of workloads."""
    versions: dict[str, None] = {}
    for one in columns:
        version = _labels(one).get(f"{_STANDARD}/version", "")
        if not version and (images := _images(one)):
            version = _tag(images[-1])
        if version:
            versions[version] = None
    return ", ".join(sorted(versions))


def _tag(image: str) -> str:
    """Return the tag of an image; empty if it has none."""
    name = image.partition("@")[0].rpartition("/")[2]
    return name.partition(":")[2]


def _worst(healths: Iterable[str]) -> str:
    found = set(healths)
    return next((one for one in _WORST if one in found), "")


def _labels(columns: Mapping[str, Any]) -> dict[str, str]:
    # agentk chooses the columns.
    found = columns.get("labels")
    if not isinstance(found, dict):
        return {}
    return {name: one for name, one in found.items() if isinstance(one, str)}


def _images(columns: Mapping[str, Any]) -> list[str]:
    found = columns.get("images")
    if not isinstance(found, list):
        return []
    return [one for one in found if isinstance(one, str)]


def _number(found: object) -> int:
    return min(max(found, 0), MAX_NUMBER) if isinstance(found, int) else 0
