"""
Objects that can be changed only by deleting and creating them again.

An object has changed immutable fields if the API server refuses the change and would
accept the same object as a new one. agentk does not examine the text of the refusal,
because the text differs for each kind, and other errors have similar texts.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from modules.gitops.agent.objects.error_statuses import AWAY
from modules.gitops.agent.objects.manifests import Manifest
from tunnel.api import IKubernetesClient, KubernetesObject
from tunnel.errors import CallError, Status

__all__ = ["RECREATE", "restorable", "why_not_recreated"]

#: Annotation that allows agentk to delete and recreate the object if its immutable
#: fields change.
RECREATE = "txkas/recreate"

#: The corresponding annotations of Flux and Argo CD.
_FLUX = "kustomize.toolkit.fluxcd.io/force"
_ARGO_CD, _ARGO_CD_OPTIONS = (
    "argocd.argoproj.io/sync-options",
    frozenset({"Force=true", "Replace=true"}),
)

#: Kinds whose deletion would remove other objects or data: only an operator may delete
#: them.
_NEVER = frozenset(
    {
        ("", "Namespace"),
        ("", "PersistentVolume"),
        ("", "PersistentVolumeClaim"),
        ("apiextensions.k8s.io", "CustomResourceDefinition"),
    }
)

#: Suffix of the name under which a dry run creates the object; nothing is stored.
_TRIAL = "-dry-run"

#: Maximum characters of a name that is valid for every kind.
_MAX_NAME = 63

#: Word in the refusals of admission webhooks and policies, which are unrelated to
#: immutable fields.
_BY_ADMISSION = "denied"


def is_allowed(manifest: Manifest) -> bool:
    """Return whether Git allows agentk to create the object again."""
    said = manifest.annotations
    options = {one.strip() for one in said.get(_ARGO_CD, "").split(",")}
    return (
        said.get(RECREATE) == "true"
        or said.get(_FLUX, "").lower() == "enabled"
        or options >= _ARGO_CD_OPTIONS
    )


async def why_not_recreated(
    client: IKubernetesClient,
    manifest: Manifest,
    wanted: KubernetesObject,
    refused: CallError,
    field_manager: str,
) -> str | None:
    """
    Return why agentk does not recreate an object that it cannot change; an empty text
    if agentk may recreate it.

    :param wanted: the object that agentk sent.
    :param refused: the refusal of the change.
    :returns: None if recreating it would not help, because the object itself is
        invalid.
    :raises CallError: if the API server is unavailable.
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
    """Return a copy of a live object that can be created again."""
    found: dict[str, Any] = deepcopy(live)
    found.pop("status", None)
    metadata = found["metadata"]
    for name in (
        *("creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp"),
        *("generation", "managedFields", "resourceVersion", "selfLink", "uid"),
    ):
        metadata.pop(name, None)
    if found.get("kind") == "Job" and not found.get("spec", {}).get("manualSelector"):
        # The selector and labels contain the uid of the old object; the API server
        # generates them for the new object.
        found["spec"].pop("selector", None)
        template = found["spec"].get("template", {}).get("metadata", {})
        for labels in (metadata.get("labels"), template.get("labels")):
            for label in [one for one in labels or () if "controller-uid" in one]:
                del labels[label]
    return found
