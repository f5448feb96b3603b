"""
Objects that can only be changed by deleting them and making them anew.

What an API server refuses as a change, and would take as a new object, has immutable
fields that differ.  Its words are not looked at: they are different for each kind, and
a plain error reads like them.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from modules.gitops.brakes import AWAY
from modules.gitops.manifests import Manifest
from tunnel.errors import CallError, Status
from tunnel.interfaces import IKubernetesClient, KubernetesObject

__all__ = ["RECREATE", "restorable", "why_not_anew"]

#: Ours: lets an object be deleted and made anew where its fields are immutable.
RECREATE = "txkas/recreate"

#: The same as Flux and Argo CD call it.
_FLUX = "kustomize.toolkit.fluxcd.io/force"
_ARGO_CD, _ARGO_CD_OPTIONS = (
    "argocd.argoproj.io/sync-options",
    frozenset({"Force=true", "Replace=true"}),
)

#: What holds other objects or data that would be gone: a person has to do it.
_NEVER = frozenset(
    {
        ("", "Namespace"),
        ("", "PersistentVolume"),
        ("", "PersistentVolumeClaim"),
        ("apiextensions.k8s.io", "CustomResourceDefinition"),
    }
)

#: How the name ends under which an object is tried as a new one; nothing is made.
_TRIAL = "-dry-run"

#: Characters of a name of any kind.
_MAX_NAME = 63

#: What an admission webhook or policy says when it refuses, whatever the fields are.
_BY_ADMISSION = "denied"


def is_allowed(manifest: Manifest) -> bool:
    """Whether Git says that the object may be made anew."""
    said = manifest.annotations
    options = {one.strip() for one in said.get(_ARGO_CD, "").split(",")}
    return (
        said.get(RECREATE) == "true"
        or said.get(_FLUX, "").lower() == "enabled"
        or options >= _ARGO_CD_OPTIONS
    )


async def why_not_anew(
    client: IKubernetesClient,
    manifest: Manifest,
    wanted: KubernetesObject,
    refused: CallError,
    field_manager: str,
) -> str | None:
    """
    Why an object that cannot be changed is not made anew; empty: it may be.

    :param wanted: what was sent of it.
    :param refused: how the change was.
    :return: None: there is no reason to, what is wanted is wrong.
    :raises CallError: the cluster cannot be asked now.
    """
    if refused.status is not Status.INVALID_ARGUMENT or _BY_ADMISSION in str(refused):
        return None
    trial = deepcopy(wanted)
    metadata = trial["metadata"]
    name = metadata["name"][: _MAX_NAME - len(_TRIAL)].rstrip("-.")
    trial["metadata"] = {**metadata, "name": name + _TRIAL}
    trial["metadata"].pop("uid", None)
    try:
        await client.apply(trial, field_manager=field_manager, dry_run=True)
    except CallError as error:
        if error.status in AWAY:
            raise
        return None
    if (manifest.key.group, manifest.key.kind) in _NEVER:
        return (
            "it would have to be deleted and recreated, which agentk does not do for "
            "this kind: delete it with kubectl if its content may be lost"
        )
    if not is_allowed(manifest):
        return (
            "to have agentk delete and recreate it, annotate it with "
            f'{RECREATE}: "true" in Git'
        )
    return ""


def restorable(live: KubernetesObject) -> KubernetesObject:
    """A live object as it can be made again."""
    found: dict[str, Any] = deepcopy(live)
    found.pop("status", None)
    metadata = found["metadata"]
    for name in (
        *("creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp"),
        *("generation", "managedFields", "resourceVersion", "selfLink", "uid"),
    ):
        metadata.pop(name, None)
    if found.get("kind") == "Job" and not found.get("spec", {}).get("manualSelector"):
        # They name the uid of before, and are made with the new one.
        found["spec"].pop("selector", None)
        template = found["spec"].get("template", {}).get("metadata", {})
        for labels in (metadata.get("labels"), template.get("labels")):
            for label in [one for one in labels or () if "controller-uid" in one]:
                del labels[label]
    return found
