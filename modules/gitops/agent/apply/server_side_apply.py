"""Requests that apply a manifest with a server-side apply."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

from twisted.internet.task import deferLater

from modules.gitops.agent.apply.execution import (
    BUSY_FIRST,
    BUSY_MOST,
    BUSY_TIMES,
    Execution,
)
from modules.gitops.agent.objects.field_takeover import FIELD_MANAGER
from modules.gitops.agent.objects.manifests import Manifest
from modules.gitops.agent.objects.owner_annotations import OWNER
from tunnel.api import KubernetesObject
from tunnel.errors import CallError, Status
from tunnel.toolkit.backoff import Backoff

__all__ = ["apply_manifest", "marked"]

#: Maximum seconds that a kind may stay unknown after its definition was established:
#: API servers learn of the kind one after the other.
KIND_SECONDS = 30.0

#: Resource version that no object has, because etcd's first version precedes all
#: objects. Applying with it creates an object, or fails with 409 if the object exists.
NEVER = "1"


async def apply_manifest(
    execution: Execution,
    manifest: Manifest,
    uid: str,
    force: bool,
    *,
    is_new: bool = False,
) -> KubernetesObject:
    """
    Apply a manifest, with retries while the API server is overloaded.

    :param uid: see `marked`.
    :param force: whether to take fields from other field managers.
    :param is_new: whether to fail with ABORTED if an object of this name exists.
    :raises Superseded: if another agentk leads.
    :raises CallError: if the API server rejects the manifest, or is unavailable.
    """
    wanted = marked(manifest, execution.inventory_id, uid)
    if is_new:
        wanted["metadata"]["resourceVersion"] = NEVER
    until = execution.clock.seconds() + KIND_SECONDS
    backoff = Backoff(lambda: 1.0, BUSY_FIRST, BUSY_MOST)
    tries = 0
    while True:
        execution.ledger.check_leads()
        try:
            return await execution.client.apply(
                wanted, field_manager=FIELD_MANAGER, force=force
            )
        except CallError as error:
            tries += 1
            busy = error.status is Status.RESOURCE_EXHAUSTED and tries < BUSY_TIMES
            # The kind is missing only for a moment, because the source itself defines
            # it.
            missing = error.status is Status.NOT_FOUND and bool(
                execution.plan.order.needs[manifest.key]
            )
            if not busy and not (missing and execution.clock.seconds() < until):
                raise
        await execution.ledger.save()
        await deferLater(execution.clock, backoff.failed())


def marked(manifest: Manifest, inventory_id: str, uid: str) -> KubernetesObject:
    """
    Return the object to send to the API server.

    :param uid: the uid of the object to change, so that another object of this name is
        not overwritten; empty if any object may be changed or created.
    """
    annotations = {**manifest.annotations, OWNER: inventory_id}
    metadata = {**manifest.object["metadata"], "annotations": annotations}
    if uid:
        metadata["uid"] = uid
    return {**_with_data(manifest.object), "metadata": metadata}


def _with_data(found: dict[str, Any]) -> dict[str, Any]:
    """
    Move the ``stringData`` of a Secret to ``data``, as the API server would store it.

    The API server does not record field managers for ``stringData``: changes by other
    clients would be undetected, and keys that were removed from Git would stay.
    """
    texts = found.get("stringData")
    data = found.get("data") or {}
    if (found.get("apiVersion"), found.get("kind")) != ("v1", "Secret"):
        return found
    if not isinstance(texts, dict) or not isinstance(data, dict):
        return found
    if not all(isinstance(one, str) for one in texts.values()):
        # Let the API server report the mistake.
        return found
    coded = {key: b64encode(one.encode()).decode() for key, one in texts.items()}
    rest = {key: one for key, one in found.items() if key != "stringData"}
    return {**rest, "data": {**data, **coded}}
