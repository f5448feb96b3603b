"""Scope of objects: whether their kind is namespaced, and their Namespace."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from modules.gitops.agent.inventory.inventory import LABEL
from modules.gitops.agent.inventory.own_secret import OWN_LABEL
from modules.gitops.agent.objects.manifests import (
    Manifest,
    ObjectKey,
    SourceProblem,
    definition_of,
)
from tunnel.api import IKubernetesClient, KubernetesResource
from tunnel.errors import CallError, Status

__all__ = ["Resolved", "resolve"]


@attrs.frozen(eq=False)
class Resolved:
    """
    Objects of a source, with the names that they have in the cluster.

    :ivar resources: the resources by API version and kind, without kinds that a
        definition of the source will create.
    :ivar unknown: objects of kinds that neither the cluster nor the source defines,
        each with the reason.
    :ivar problems: manifests that describe the same object.
    """

    manifests: tuple[Manifest, ...]
    resources: Mapping[tuple[str, str], KubernetesResource]
    unknown: Mapping[ObjectKey, str] = attrs.field(factory=dict)
    problems: tuple[SourceProblem, ...] = ()


async def resolve(
    client: IKubernetesClient, manifests: Iterable[Manifest], default_namespace: str
) -> Resolved:
    """
    Determine the names that objects have in the cluster.

    :raises CallError: if the API server cannot list its kinds now.
    """
    # Remove objects that look like agentk's own records.  GitLab's agent let users
    # supply their own inventory, which could change the owner of objects in this
    # inventory.  A Secret with agentk's label could give orders after its owner
    # annotation is removed.
    manifests = tuple(
        one
        for one in manifests
        if not {LABEL, OWN_LABEL} & (one.object["metadata"].get("labels") or {}).keys()
    )
    coming = {
        (one.group, one.kind): one.namespaced
        for manifest in manifests
        if (one := definition_of(manifest.object)) is not None
    }
    resources: dict[tuple[str, str], KubernetesResource] = {}
    unknown: dict[ObjectKey, str] = {}
    found: dict[ObjectKey, Manifest] = {}
    problems: list[SourceProblem] = []
    for manifest in manifests:
        kind = (manifest.api_version, manifest.key.kind)
        if kind not in resources:
            try:
                resources[kind] = await client.resource(*kind)
            except CallError as error:
                if error.status is not Status.NOT_FOUND:
                    raise
        resource = resources.get(kind)
        namespaced = coming.get((manifest.key.group, manifest.key.kind), True)
        if resource is not None:
            namespaced = resource.namespaced
        placed = _placed(manifest, default_namespace if namespaced else "")
        if resource is None and (placed.key.group, placed.key.kind) not in coming:
            unknown[placed.key] = f"the cluster has no kind {kind[1]} in {kind[0]}"
        twin = found.setdefault(placed.key, placed)
        if twin is not placed:
            why = f"{placed.key} is also at {twin.origin}; remove one of the two"
            problems.append(SourceProblem(placed.origin, why))
    return Resolved(tuple(found.values()), resources, unknown, tuple(problems))


def _placed(manifest: Manifest, default_namespace: str) -> Manifest:
    """
    Return the manifest with the namespace in which the API server will store it.

    :param default_namespace: empty for cluster-wide kinds.
    """
    namespace = default_namespace and (manifest.key.namespace or default_namespace)
    if namespace == manifest.key.namespace:
        return manifest
    metadata: dict[str, Any] = {**manifest.object["metadata"], "namespace": namespace}
    if not namespace:
        # Charts write a namespace for every kind, and API servers ignore it for
        # cluster-wide kinds.
        del metadata["namespace"]
    return attrs.evolve(
        manifest,
        key=manifest.key._replace(namespace=namespace),
        object={**manifest.object, "metadata": metadata},
    )
