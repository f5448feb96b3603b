"""Annotations and labels that say which inventory or engine owns a live object."""

from __future__ import annotations

from tunnel.api import KubernetesObject

__all__ = [
    "CLAIMED_BY",
    "GIVEN_BY",
    "OWNER",
    "claimed_by",
    "engine_of",
    "given_by",
    "owner_of",
    "was_given",
]

#: Annotation of each object: the inventory that owns it. Source: cli-utils,
#: pkg/inventory.
OWNER = "config.k8s.io/owning-inventory"

#: Annotation of an object: the inventory of another agent that has the object in Git
#: and claims it.
CLAIMED_BY = "txkas/claimed-by"

#: Annotation of an object without an inventory: the inventory that released the object
#: for another agent, and takes the object back at once if the manifest returns.
#: Clients that may write this annotation may also write `OWNER`.
GIVEN_BY = "txkas/given-by"

#: Prefixes of the labels that Flux adds to objects, each with the kind of their source.
_FLUX = {
    "kustomize.toolkit.fluxcd.io": "Kustomization",
    "helm.toolkit.fluxcd.io": "HelmRelease",
}


def owner_of(live: KubernetesObject) -> str:
    """Return the inventory that owns an object; empty if the object has no owner."""
    annotations = live["metadata"].get("annotations") or {}
    owner: str = annotations.get(OWNER, "")
    return owner


def claimed_by(live: KubernetesObject) -> str:
    """
    Return the inventory that claims an object; empty if the object is not claimed.
    """
    annotations = live["metadata"].get("annotations") or {}
    claimed: str = annotations.get(CLAIMED_BY, "")
    return claimed


def given_by(live: KubernetesObject) -> str:
    """
    Return the inventory that released an object for another agent; empty if none did.
    """
    annotations = live["metadata"].get("annotations") or {}
    given: str = annotations.get(GIVEN_BY, "")
    return given


def was_given(
    live: KubernetesObject, claimed: str, uid: str, inventory_id: str
) -> bool:
    """
    Return whether another inventory released an object for this one.

    No inventory owns the object until this inventory takes it, so this inventory must
    delete the object if Git does not contain the object any more.

    :param claimed: the inventory that owned the object when this inventory claimed it;
        empty if this inventory owned it, so that any other inventory may have given it
        back.
    :param uid: the uid of the object in this inventory.
    """
    former = given_by(live)
    if not former or owner_of(live) or claimed_by(live) != inventory_id:
        return False
    is_same: bool = uid == live["metadata"].get("uid", "")
    return former == claimed if claimed else is_same


def engine_of(live: KubernetesObject) -> str:
    """
    Return the name of the other engine that applies an object, with the source of the
    object there; empty if none is known.

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
