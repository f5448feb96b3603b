"""
Applications and well-known components, computed from the rows of workloads.

An application is what an object declares (`Declarations`), or the workloads whose
labels name the same one.  kas groups only rows that the reader may see, so an
application never shows a workload that the reader's rights hide.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

import attrs

from modules.cluster_data.server.declarations import (
    Declaration,
    Declarations,
    labels_of,
)
from modules.cluster_data.server.known_components import ComponentTable
from modules.cluster_data.server.reader import RowsAnswer
from modules.cluster_data.server.service_addresses import ServiceAddresses
from modules.cluster_data.server.store.queries import MAX_LIMIT, FoundRow, RowQuery

__all__ = [
    "MAX_DECLARATIONS",
    "MAX_SERVICES",
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

#: Maximum number of Services of one answer.
MAX_SERVICES = 10_000

#: Maximum number of declarations of one answer.
MAX_DECLARATIONS = 2_000

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

#: The columns that name an application, and the tool of each.
_NAME_COLUMNS = (("argo_application", "argocd"), ("helm_release", "helm"))


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
    :ivar version: the declared version, otherwise the versions in the labels of its
        workloads, or the tags of their images.
    :ivar health: the worst health of its workloads; empty without workloads.
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
    declarations: Sequence[Declaration]


@attrs.define
class _Group:
    """An application whose workloads are being collected."""

    agent_name: str
    members: list[tuple[FoundRow, Mapping[str, Any]]] = attrs.field(factory=list)
    declarations: list[Declaration] = attrs.field(factory=list)

    def declare(self, one: Declaration) -> None:
        """Add a declaration, unless the group has it."""
        if not any(one is known for known in self.declarations):
            self.declarations.append(one)


#: The agent, the namespace and the name of an application, and whether it is declared:
#: workloads with the same labels must not seem to be components of a declared one.
_GroupKey = tuple[str, str, str, bool]


@attrs.frozen
class Component:
    """
    A well-known component in a cluster.

    :ivar recognized_by: the image or the label that identifies the component.
    :ivar addresses: ``NAME.NAMESPACE.svc:PORT`` of each port of its Services, and the
        addresses of their load balancers.
    """

    agent_id: str
    agent_name: str
    namespace: str
    name: str
    version: str
    recognized_by: str
    workload: MemberWorkload
    addresses: Sequence[str]


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
    rows, last = await _pages(read, "workloads", namespace, MAX_WORKLOADS)
    # An Argo CD application may be in another namespace than its workloads.
    declared, more = await _pages(read, "applications", "", MAX_DECLARATIONS)
    declarations = Declarations(declared)
    groups = _grouped(rows, declared, declarations)
    found = [
        _application(key, group)
        for key, group in groups.items()
        if namespace in ("", key[1])
    ]
    found.sort(
        key=lambda one: (
            one.name,
            one.namespace,
            one.agent_name,
            not one.declarations,
        )
    )
    is_cut = bool(last.next_page or more.next_page) or declarations.is_cut
    return ApplicationsAnswer(found, last, is_cut)


def _grouped(
    rows: Sequence[FoundRow], declared: Sequence[FoundRow], declarations: Declarations
) -> dict[_GroupKey, _Group]:
    groups: dict[_GroupKey, _Group] = {}
    # Declarations that are in a group.
    placed: set[int] = set()

    def group(row: FoundRow, namespace: str, name: str, is_declared: bool) -> _Group:
        key = row.agent_id, namespace, name, is_declared
        return groups.setdefault(key, _Group(row.agent_name))

    for row in rows:
        columns = json.loads(row.columns)
        labels = labels_of(columns)
        selecting = declarations.selecting(row, labels)
        managing = declarations.managing(row, columns, labels)
        managers = [] if managing is None else [managing]
        homes = {(one.namespace, one.name): [one, *managers] for one in selecting}
        if not homes:
            name = managing.name if managing else _named(columns, row.name)[0]
            homes = {(row.namespace, name): managers}
        for (namespace, name), declaring in homes.items():
            of = group(row, namespace, name, bool(declaring))
            of.members.append((row, columns))
            for one in declaring:
                of.declare(one)
                placed.add(id(one))
    for row, one in zip(declared, declarations.all, strict=True):
        if id(one) not in placed:
            group(row, one.target or one.namespace, one.name, True).declare(one)
    return groups


async def find_components(
    read: ReadPage, table: ComponentTable, namespace: str = ""
) -> ComponentsAnswer:
    """Return the well-known components of a reader's clusters."""
    rows, last = await _pages(read, "workloads", namespace, MAX_WORKLOADS)
    services = ServiceAddresses(
        (await _pages(read, "services", namespace, MAX_SERVICES))[0]
    )
    found = []
    for row in rows:
        columns = json.loads(row.columns)
        recognized = table.recognize(labels_of(columns), _images(columns))
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
                    services.of(row, columns),
                )
            )
    found.sort(key=lambda one: (one.name, one.agent_name, one.namespace))
    return ComponentsAnswer(found, last, bool(last.next_page))


async def _pages(
    read: ReadPage, view: str, namespace: str, most: int
) -> tuple[list[FoundRow], RowsAnswer]:
    """Return the rows of a view, and the last page."""
    query = RowQuery(view=view, namespace=namespace, limit=MAX_LIMIT)
    page = await read(query)
    rows = list(page.rows)
    while page.next_page and len(rows) < most:
        page = await read(attrs.evolve(query, page=page.next_page))
        rows += page.rows
    return rows, page


def _application(key: _GroupKey, group: _Group) -> Application:
    agent_id, namespace, name, _ = key
    columns = [one for _, one in group.members]
    workloads = [_workload(row, one) for row, one in group.members]
    sources = {source for one in columns if (source := _named(one, "")[1])}
    sources |= {one.tool for one in group.declarations if one.tool != "app.k8s.io"}
    images = dict.fromkeys(image for one in columns for image in _images(one))
    versions = {one.version for one in group.declarations if one.version}
    return Application(
        agent_id,
        group.agent_name,
        namespace,
        name,
        ", ".join(sorted(sources)),
        ", ".join(sorted(versions)) or _version(columns),
        _worst(one.health for one in workloads),
        list(images),
        workloads,
        group.declarations,
    )


def _named(columns: Mapping[str, Any], name: str) -> tuple[str, str]:
    """
    Return the name of a workload's application and the tool that manages it.

    :param name: the application's name if no label names one.
    """
    labels = labels_of(columns)
    for column, tool in _NAME_COLUMNS:
        if isinstance(found := columns.get(column), str):
            return found, tool
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
        version = labels_of(one).get(f"{_STANDARD}/version", "")
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


def _images(columns: Mapping[str, Any]) -> list[str]:
    found = columns.get("images")
    if not isinstance(found, list):
        return []
    return [one for one in found if isinstance(one, str)]


def _number(found: object) -> int:
    return min(max(found, 0), MAX_NUMBER) if isinstance(found, int) else 0
