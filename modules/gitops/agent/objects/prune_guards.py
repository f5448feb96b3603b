"""
Prune guards, which prevent deletes: a mistake in Git must not empty a cluster.

A prune guard prevents only deletes, and never prevents applying; its text names the
objects. Every delete must pass all prune guards, whatever its purpose.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Mapping
from functools import partial
from typing import Any

from modules.gitops.agent.objects.error_statuses import AWAY
from modules.gitops.agent.objects.manifests import Definition, ObjectKey, definition_of
from modules.gitops.agent.objects.owner_annotations import owner_of
from modules.gitops.wire.settings import PruneLimits
from tunnel.api import IKubernetesClient, KubernetesObject, KubernetesResource
from tunnel.errors import CallError, Status
from tunnel.toolkit.parallel import in_parallel

__all__ = [
    "groups_elsewhere",
    "guard_of_object",
    "guard_of_set",
    "is_kept",
]

#: Maximum number of deletes that are exempt from the limit by share, because small
#: sources change a lot.  The documentation of ``prune_limits`` mentions it.
FEW = 3

#: Maximum number of foreign objects that a message names; further objects are only
#: counted.
NAMED = 5

#: Maximum number of objects of one kind that are examined; if more exist, an operator
#: has to examine them.
LOOKED_AT = 10_000

#: Annotations (and labels, for Flux) that keep a live object, and their values in lower
#: case: Flux and Helm ignore case. Sources: the documentation of cli-utils, Argo CD,
#: Flux and Helm.
_KEEP: Mapping[str, Collection[str]] = {
    "cli-utils.sigs.k8s.io/on-remove": ("keep",),
    "client.lifecycle.config.k8s.io/deletion": ("detach",),
    "helm.sh/resource-policy": ("keep",),
    "kustomize.toolkit.fluxcd.io/prune": ("disabled",),
}
_SYNC_OPTIONS = "argocd.argoproj.io/sync-options"
_STAYING = frozenset(
    f"{what}={how}" for what in ("prune", "delete") for how in ("false", "confirm")
)

#: Objects that an API server or its controllers create in each Namespace.
_USUAL = frozenset(
    {
        ("", "ConfigMap", "kube-root-ca.crt"),
        ("", "ServiceAccount", "default"),
    }
)
_USUAL_KINDS = frozenset(
    {
        ("", "Event"),
        ("", "Endpoints"),
        ("discovery.k8s.io", "EndpointSlice"),
        ("events.k8s.io", "Event"),
        ("metrics.k8s.io", "PodMetrics"),
    }
)

#: Groups whose objects are computed instead of stored.
_MEASURED = frozenset(
    ("metrics.k8s.io", "custom.metrics.k8s.io", "external.metrics.k8s.io")
)


def is_kept(live: KubernetesObject) -> str:
    """
    Return the annotation that keeps a live object; empty if the object has no such
    annotation.
    """
    metadata = live.get("metadata", {})
    for said in (metadata.get("annotations") or {}, metadata.get("labels") or {}):
        for name, values in _KEEP.items():
            if str(said.get(name, "")).strip().lower() in values:
                return f"{name}: {said[name]}"
        options = str(said.get(_SYNC_OPTIONS, "")).lower().split(",")
        if any(one.strip() in _STAYING for one in options):
            return f"{_SYNC_OPTIONS}: {said[_SYNC_OPTIONS]}"
    return ""


async def groups_elsewhere(client: IKubernetesClient) -> dict[str, bool]:
    """
    Return the groups of aggregated API servers, and whether each server is available.

    Objects of an unavailable server may still exist.

    :raises CallError: if the API server does not list the groups.
    """
    try:
        services = await client.resource("apiregistration.k8s.io/v1", "APIService")
    except CallError as error:
        if error.status is not Status.NOT_FOUND:
            raise
        return {}
    found: dict[str, bool] = {}
    async for page in client.list(services):
        for one in page:
            spec = one.get("spec") or {}
            if spec.get("service"):
                group = spec.get("group", "")
                conditions = (one.get("status") or {}).get("conditions") or ()
                there = any(
                    (each.get("type"), each.get("status")) == ("Available", "True")
                    for each in conditions
                )
                found[group] = found.get(group, True) and there
    return found


async def kinds_defined(
    client: IKubernetesClient, groups: Collection[str]
) -> set[tuple[str, str]]:
    """
    Return the groups and kinds that have a CustomResourceDefinition, served or not.

    :param groups: the groups to look for.
    :raises CallError: if the API server does not list the definitions.
    """
    try:
        resource = await client.resource(
            "apiextensions.k8s.io/v1", "CustomResourceDefinition"
        )
    except CallError as error:
        if error.status is not Status.NOT_FOUND:
            raise
        return set()
    names: list[str] = []
    # Omit the schemas, which are megabytes.
    async for page in client.list(resource, metadata_only=True):
        names += [one["metadata"]["name"] for one in page]
    found: set[tuple[str, str]] = set()
    for name in names:
        if name.partition(".")[2] not in groups:
            continue
        try:
            made = definition_of(await client.get(resource, name))
        except CallError as error:
            if error.status is not Status.NOT_FOUND:
                raise
            continue
        if made is not None:
            found.add((made.group, made.kind))
    return found


def guard_of_set(deletes: int, before: int, wanted: int, limits: PruneLimits) -> str:
    """
    Return why a source must not delete this number of objects; empty if the source may
    delete them.

    :param before: the number of objects of the source in the cluster.
    :param wanted: the number of its objects in Git now.
    """
    if not deletes:
        return ""
    if not wanted:
        return "the source has no objects any more"
    if deletes > limits.count:
        return f"{deletes} objects would be deleted, more than {limits.count}"
    if deletes > FEW and deletes * 100 > limits.percent * before:
        return (
            f"{deletes} of {before} objects would be deleted, "
            f"more than {limits.percent:g} %"
        )
    return ""


async def guard_of_object(
    client: IKubernetesClient,
    live: KubernetesObject,
    owner: str,
    going: Callable[[ObjectKey], bool],
) -> str:
    """
    Return why an object must not be deleted because other objects would be deleted with
    it.

    :param owner: the inventory that deletes the object.
    :param going: returns whether the plan deletes an object of this inventory anyway.
    :returns: the reason; empty if the object may be deleted.
    :raises CallError: if the API server is unavailable.
    """
    made = definition_of(live)
    try:
        if made is not None:
            return await _instances(client, live, made, owner, going)
        if (live.get("apiVersion"), live.get("kind")) == ("v1", "Namespace"):
            return await _content(client, live["metadata"]["name"], owner, going)
    except CallError as error:
        if error.status in AWAY:
            raise
        return f"cannot tell what would be deleted with it: {error.message}"
    return ""


async def _instances(
    client: IKubernetesClient,
    live: KubernetesObject,
    made: Definition,
    owner: str,
    going: Callable[[ObjectKey], bool],
) -> str:
    for resource in await client.resources():
        if (resource.group, resource.kind) == (made.group, made.kind):
            staying = [
                key
                async for key, one in _listed(client, resource, "")
                if not _goes(key, one, owner, going)
            ]
            return _named("objects of this kind would be deleted, too", staying)
    conditions = (live.get("status") or {}).get("conditions") or ()
    if any(one.get("type") == "Established" for one in conditions):
        # A kind that is not served may still have objects, in versions that are no
        # longer served.
        return "cannot tell whether objects of this kind exist: it is not served"
    return ""


async def _content(
    client: IKubernetesClient,
    namespace: str,
    owner: str,
    going: Callable[[ObjectKey], bool],
) -> str:
    resources = await client.resources()
    groups = {one.group for one in resources} | _MEASURED
    elsewhere = await groups_elsewhere(client)
    # An available server that lists no kinds, as some servers do, has no objects.
    if away := {group for group, there in elsewhere.items() if not there} - groups:
        names = ", ".join(sorted(away)[:NAMED])
        return (
            "cannot tell what would be deleted with it: "
            f"the API server of {names} is unavailable"
        )
    inside = {(one.group, one.kind) for one in resources if one.namespaced}
    kinds: dict[tuple[str, str], KubernetesResource] = {}
    for resource in resources:
        kind = (resource.group, resource.kind)
        listed = resource.namespaced and {"list", "delete"} <= resource.verbs
        if listed and kind not in _USUAL_KINDS:
            # Of several served versions, only the first one is needed.
            kinds.setdefault(kind, resource)

    async def staying(resource: KubernetesResource) -> list[ObjectKey]:
        found: list[ObjectKey] = []
        async for key, one in _listed(client, resource, namespace):
            owners = one["metadata"].get("ownerReferences") or ()
            # If the object's owner is in this Namespace, the check of the owner also
            # covers the object.
            owned = owners and all(_kind_of(each) in inside for each in owners)
            usual = (key.group, key.kind, key.name) in _USUAL
            if not (usual or owned or _goes(key, one, owner, going)):
                found.append(key)
        return found

    found = await in_parallel(partial(staying, one) for one in kinds.values())
    return _named(
        "objects in it would be deleted, too", [key for one in found for key in one]
    )


def _kind_of(owner: Mapping[str, Any]) -> tuple[str, str]:
    return str(owner.get("apiVersion", "")).rpartition("/")[0], owner.get("kind", "")


def _goes(
    key: ObjectKey,
    one: KubernetesObject,
    owner: str,
    going: Callable[[ObjectKey], bool],
) -> bool:
    """
    Return whether the plan deletes an object anyway, or the object is already being
    deleted.
    """
    if one["metadata"].get("deletionTimestamp"):
        return True
    return going(key) and owner_of(one) == owner


async def _listed(
    client: IKubernetesClient, resource: KubernetesResource, namespace: str
) -> AsyncIterator[tuple[ObjectKey, KubernetesObject]]:
    """Yield the objects of a kind, at most `LOOKED_AT`."""
    left = LOOKED_AT
    try:
        async for page in client.list(resource, namespace):
            for one in page:
                metadata: Mapping[str, Any] = one["metadata"]
                yield (
                    ObjectKey(
                        resource.group,
                        resource.kind,
                        metadata.get("namespace", ""),
                        metadata["name"],
                    ),
                    one,
                )
            left -= len(page)
            if left < 0:
                raise CallError(
                    Status.FAILED_PRECONDITION,
                    f"there are too many objects of kind {resource.kind}: agentk "
                    f"examines at most {LOOKED_AT}",
                )
    except CallError as error:
        if error.status is not Status.NOT_FOUND:
            raise


def _named(what: str, foreign: Collection[ObjectKey]) -> str:
    if not foreign:
        return ""
    names = ", ".join(map(str, sorted(foreign)[:NAMED]))
    more = f" and {len(foreign) - NAMED} more" if len(foreign) > NAMED else ""
    return f"{what}: {names}{more}"
