"""
Objects that declare an application, and the workloads that belong to each of them.

agentk chooses the columns of rows, and users of clusters choose many of their texts.
Therefore this module takes only fields of the expected types.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import attrs

from modules.cluster_data.server.store.queries import FoundRow
from modules.cluster_data.wire.safe_links import is_safe_link
from tunnel.kubernetes import LabelRequirement, label_requirements

__all__ = [
    "MAX_COMPARISONS",
    "Declaration",
    "Declarations",
    "labels_of",
    "pairs_in",
    "texts_in",
]

#: Maximum number of comparisons of a selector with a workload for one answer; each
#: takes about a microsecond, during which other connections wait.
MAX_COMPARISONS = 50_000

#: The kinds whose objects the view ``workloads`` has.
_KNOWN_KINDS = (
    "Deployment.apps",
    "StatefulSet.apps",
    "DaemonSet.apps",
    "Job.batch",
    "CronJob.batch",
)

_ARGO = "argocd.argoproj.io/instance"
_INSTANCE = "app.kubernetes.io/instance"
_FLUX = {
    "Kustomization": "kustomize.toolkit.fluxcd.io",
    "HelmRelease": "helm.toolkit.fluxcd.io",
}

#: Identifies a declaration of Argo CD or Flux as a workload names it.
_Reference = tuple[str, ...]


@attrs.frozen
class Declaration:
    """
    An object that declares an application.

    :ivar tool: ``app.k8s.io``, ``argocd`` or ``flux``.
    :ivar stated: parts of the object's status, which kas did not verify.
    :ivar unknown_components: kinds of components that live data does not have.
    :ivar problem: why the components are unknown.
    :ivar repository: where the tool reads the application; *wanted* is the revision or
        version in the specification, and *revision* the one in the cluster.
    :ivar target: the namespace of the components; may be empty.
    :ivar links: addresses that are safe to follow, each with a description.
    :ivar references: values that other objects have, each with the name of the object.
    """

    tool: str
    kind: str
    namespace: str
    name: str
    type: str
    version: str
    description: str
    problem: str
    repository: str
    path: str
    wanted: str
    revision: str
    target: str
    owners: Sequence[str]
    links: Mapping[str, str]
    info: Mapping[str, str]
    references: Mapping[str, str]
    stated: Mapping[str, str]
    unknown_components: Sequence[str]


@attrs.frozen
class _Selector:
    """The components of an Application of app.k8s.io."""

    declaration: Declaration
    requirements: Sequence[LabelRequirement]
    kinds: frozenset[str]

    def has(self, kind: str, labels: Mapping[str, str]) -> bool:
        """Return whether a workload is a component."""
        return (not self.kinds or kind in self.kinds) and all(
            one.matches(labels) for one in self.requirements
        )


class Declarations:
    """
    The declarations of some clusters.

    An ``Application`` of app.k8s.io selects workloads of its own namespace only.  Two
    namespaces with the same labels, such as those of two stages, are two applications.

    :param rows: rows of the view ``applications``.
    """

    def __init__(self, rows: Iterable[FoundRow]) -> None:
        #: The declaration of each row.
        self.all: list[Declaration] = []
        #: Whether the answer took more than `MAX_COMPARISONS`.
        self.is_cut = False
        self._left = MAX_COMPARISONS
        self._selectors: dict[tuple[str, str], list[_Selector]] = {}
        self._references: dict[_Reference, Declaration] = {}
        for row in rows:
            self._add(row, json.loads(row.columns))

    def _add(self, row: FoundRow, columns: Mapping[str, Any]) -> None:
        one = _declaration(row, columns)
        self.all.append(one)
        if one.tool == "app.k8s.io":
            if requirements := _requirements(_text(columns, "selector")):
                kinds = frozenset(texts_in(columns.get("components")))
                of = self._selectors.setdefault((row.agent_id, row.namespace), [])
                of.append(_Selector(one, requirements, kinds))
        elif one.tool == "argocd":
            for name in (row.name, f"{row.namespace}_{row.name}"):
                self._references["argocd", row.agent_id, name] = one
            if one.target:
                self._references["instance", row.agent_id, one.target, row.name] = one
        else:
            self._references[row.kind, row.agent_id, row.namespace, row.name] = one

    def selecting(self, row: FoundRow, labels: Mapping[str, str]) -> list[Declaration]:
        """Return the declarations of app.k8s.io that select a workload."""
        selectors = self._selectors.get((row.agent_id, row.namespace), ())
        if len(selectors) > self._left:
            self.is_cut = True
            return []
        self._left -= len(selectors)
        kind = f"{row.kind}.{row.group}"
        return [one.declaration for one in selectors if one.has(kind, labels)]

    def managing(
        self, row: FoundRow, columns: Mapping[str, Any], labels: Mapping[str, str]
    ) -> Declaration | None:
        """Return the declaration of Argo CD or Flux that manages a workload."""
        for reference in _named_by(row, columns, labels):
            if (found := self._references.get(reference)) is not None:
                return found
        return None


def labels_of(columns: Mapping[str, Any]) -> dict[str, str]:
    """Return the labels in the columns of a row."""
    return pairs_in(columns.get("labels"))


def _named_by(
    row: FoundRow, columns: Mapping[str, Any], labels: Mapping[str, str]
) -> Iterator[_Reference]:
    agent = row.agent_id
    for name in (columns.get("argo_application"), labels.get(_ARGO)):
        if isinstance(name, str):
            yield "argocd", agent, name
    for kind, group in _FLUX.items():
        if name := labels.get(f"{group}/name"):
            yield kind, agent, labels.get(f"{group}/namespace", ""), name
    if name := labels.get(_INSTANCE):
        yield "instance", agent, row.namespace, name


def _declaration(row: FoundRow, columns: Mapping[str, Any]) -> Declaration:
    components = texts_in(columns.get("components"))
    return Declaration(
        kind=row.kind,
        namespace=row.namespace,
        name=row.name,
        tool=_text(columns, "tool"),
        type=_text(columns, "type"),
        version=_text(columns, "version"),
        description=_text(columns, "description"),
        problem=_text(columns, "problem"),
        repository=_text(columns, "repository"),
        path=_text(columns, "path"),
        wanted=_text(columns, "wanted"),
        revision=_text(columns, "revision"),
        target=_text(columns, "target"),
        owners=texts_in(columns.get("owners")),
        links={
            url: text
            for url, text in pairs_in(columns.get("links")).items()
            if is_safe_link(url)
        },
        info=pairs_in(columns.get("info")),
        references=pairs_in(columns.get("references")),
        stated=pairs_in(columns.get("stated")),
        unknown_components=sorted({*components} - {*_KNOWN_KINDS}),
    )


def _requirements(selector: str) -> list[LabelRequirement]:
    try:
        return label_requirements(selector)
    except ValueError:
        # agentk sends no such selector.
        return []


def _text(columns: Mapping[str, Any], key: str) -> str:
    found = columns.get(key)
    return found if isinstance(found, str) else ""


def texts_in(found: Any) -> list[str]:
    """Return the texts of a list; an empty list for another value."""
    if not isinstance(found, list):
        return []
    return [one for one in found if isinstance(one, str)]


def pairs_in(found: Any) -> dict[str, str]:
    """Return the texts of a mapping; an empty mapping for another value."""
    if not isinstance(found, dict):
        return {}
    return {name: one for name, one in found.items() if isinstance(one, str)}
