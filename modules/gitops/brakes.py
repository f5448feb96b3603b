"""
What stops deletes: a mistake in Git must not empty a cluster.

A brake stops deletes alone, never what is applied, and names the objects.  Every delete
asks all of them, whatever it is for.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Mapping
from functools import partial
from typing import Any

from modules.gitops.manifests import Definition, ObjectKey, definition_of
from modules.gitops.parallel import in_parallel
from modules.gitops.settings import PruneLimits
from tunnel.errors import CallError, Status
from tunnel.interfaces import IKubernetesClient, KubernetesObject, KubernetesResource

__all__ = [
    "AWAY",
    "CLAIMED_BY",
    "GIVEN_BY",
    "OWNER",
    "UNDECIDED",
    "brake_of_object",
    "brake_of_set",
    "claimed_by",
    "engine_of",
    "given_by",
    "groups_elsewhere",
    "is_kept",
    "owner_of",
]

#: On each object, the inventory that has it.  Source: cli-utils, pkg/inventory.
OWNER = "config.k8s.io/owning-inventory"

#: On an object, the inventory of another agent that has it in Git and claims it.
CLAIMED_BY = "txkas/claimed-by"

#: On an object of no inventory, the one that let it go for another agent, and has it
#: again at once if the manifest comes back.  Whoever may write this may write `OWNER`.
GIVEN_BY = "txkas/given-by"

#: Says nothing of an object: the API server cannot be asked now.
AWAY = frozenset(
    {Status.UNAVAILABLE, Status.DEADLINE_EXCEEDED, Status.RESOURCE_EXHAUSTED}
)

#: Says nothing of a manifest: besides `AWAY`, the API server or a webhook for this
#: object failed.  Other objects are not concerned.
UNDECIDED = AWAY | {Status.INTERNAL}

#: Deletes of so many objects are never too large a share: small sources change a lot.
#: The documentation of ``prune_limits`` says it.
FEW = 3

#: Foreign objects that are named; the rest is counted.
NAMED = 5

#: Objects of one kind that are looked through; where there are more a person has to.
LOOKED_AT = 10_000

#: Annotations (of Flux labels, too) that keep a live object, and the values that do, in
#: small letters: Flux and Helm take any.  Sources: cli-utils, Argo CD, Flux and Helm,
#: as their documentation has them.
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

#: How the labels begin with which Flux marks objects, and of what.
_FLUX = {
    "kustomize.toolkit.fluxcd.io": "Kustomization",
    "helm.toolkit.fluxcd.io": "HelmRelease",
}

#: What an API server or its controllers put into each Namespace.
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

#: Groups whose objects nobody stores.
_MEASURED = frozenset(
    ("metrics.k8s.io", "custom.metrics.k8s.io", "external.metrics.k8s.io")
)


def owner_of(live: KubernetesObject) -> str:
    """The inventory that has an object; empty: none."""
    annotations = live["metadata"].get("annotations") or {}
    owner: str = annotations.get(OWNER, "")
    return owner


def claimed_by(live: KubernetesObject) -> str:
    """The inventory that claims an object, as the object says; empty: none."""
    annotations = live["metadata"].get("annotations") or {}
    claimed: str = annotations.get(CLAIMED_BY, "")
    return claimed


def given_by(live: KubernetesObject) -> str:
    """Return the inventory that let an object go for another agent; empty: none."""
    annotations = live["metadata"].get("annotations") or {}
    given: str = annotations.get(GIVEN_BY, "")
    return given


def engine_of(live: KubernetesObject) -> str:
    """
    Which other engine applies an object, and for what; empty: none that is known.

    Sources: Flux, kustomize-controller and helm-controller; Argo CD, resource tracking.
    """
    metadata = live["metadata"]
    labels = metadata.get("labels") or {}
    for domain, kind in _FLUX.items():
        if name := labels.get(f"{domain}/name"):
            return f"Flux ({kind} {labels.get(f'{domain}/namespace', '')}/{name})"
    annotations = metadata.get("annotations") or {}
    application = annotations.get("argocd.argoproj.io/tracking-id", "").partition(":")[
        0
    ] or labels.get("argocd.argoproj.io/instance", "")
    return f"Argo CD (Application {application})" if application else ""


def is_kept(live: KubernetesObject) -> str:
    """The annotation that keeps a live object; empty: none."""
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
    Groups that another API server has, and whether it is said to be there.

    Where it is away nothing is gone.

    :raises CallError: the API server does not say.
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
    Groups and kinds that have a CustomResourceDefinition, served or not.

    :param groups: of others nothing is said.
    :raises CallError: the API server does not say.
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
    # Without the schemas, which are megabytes.
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


def brake_of_set(deletes: int, before: int, wanted: int, limits: PruneLimits) -> str:
    """
    Why so many objects of a source may not go at once; empty: they may.

    :param before: objects that the source has in the cluster.
    :param wanted: objects that it has in Git now.
    """
    if not deletes:
        return ""
    if not wanted:
        return "the source has no objects any more"
    if deletes > limits.count:
        return f"{deletes} objects would go, more than {limits.count}"
    if deletes > FEW and deletes * 100 > limits.percent * before:
        return f"{deletes} of {before} objects would go, more than {limits.percent:g} %"
    return ""


async def brake_of_object(
    client: IKubernetesClient,
    live: KubernetesObject,
    owner: str,
    going: Callable[[ObjectKey], bool],
) -> str:
    """
    Why this object may not go because of what would go with it; empty: it may.

    :param owner: the inventory that deletes it.
    :param going: whether an object of this inventory is deleted for itself.
    :raises CallError: the API server cannot be asked now.
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
        return f"what would go with it cannot be seen: {error.message}"
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
            return _named("objects of this kind would go, too", staying)
    conditions = (live.get("status") or {}).get("conditions") or ()
    if any(one.get("type") == "Established" for one in conditions):
        # It was, so there may be objects, in no version that is served.
        return "whether there are objects of this kind cannot be seen: none is served"
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
    # One that is there and shows no kind, as some do, has none.
    if away := {group for group, there in elsewhere.items() if not there} - groups:
        names = ", ".join(sorted(away)[:NAMED])
        return (
            f"what would go with it cannot be seen: the API server of {names} is away"
        )
    inside = {(one.group, one.kind) for one in resources if one.namespaced}
    kinds: dict[tuple[str, str], KubernetesResource] = {}
    for resource in resources:
        kind = (resource.group, resource.kind)
        listed = resource.namespaced and {"list", "delete"} <= resource.verbs
        if listed and kind not in _USUAL_KINDS:
            # Of one that is served in several versions the first is enough.
            kinds.setdefault(kind, resource)

    async def staying(resource: KubernetesResource) -> list[ObjectKey]:
        found: list[ObjectKey] = []
        async for key, one in _listed(client, resource, namespace):
            owners = one["metadata"].get("ownerReferences") or ()
            # What another object of this Namespace owns is as that one is.
            owned = owners and all(_kind_of(each) in inside for each in owners)
            usual = (key.group, key.kind, key.name) in _USUAL
            if not (usual or owned or _goes(key, one, owner, going)):
                found.append(key)
        return found

    found = await in_parallel(partial(staying, one) for one in kinds.values())
    return _named("objects in it would go, too", [key for one in found for key in one])


def _kind_of(owner: Mapping[str, Any]) -> tuple[str, str]:
    return str(owner.get("apiVersion", "")).rpartition("/")[0], owner.get("kind", "")


def _goes(
    key: ObjectKey,
    one: KubernetesObject,
    owner: str,
    going: Callable[[ObjectKey], bool],
) -> bool:
    """It is deleted for itself, or goes already."""
    if one["metadata"].get("deletionTimestamp"):
        return True
    return going(key) and owner_of(one) == owner


async def _listed(
    client: IKubernetesClient, resource: KubernetesResource, namespace: str
) -> AsyncIterator[tuple[ObjectKey, KubernetesObject]]:
    """Objects of a kind, `LOOKED_AT` at the most."""
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
            if left <= 0:
                raise CallError(
                    Status.FAILED_PRECONDITION,
                    f"there are more than {LOOKED_AT} objects of kind {resource.kind}",
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
