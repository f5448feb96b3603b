"""Objects as they are in the cluster now."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from modules.gitops.agent.objects.manifests import ObjectKey
from tunnel.api import IKubernetesClient, KubernetesObject, KubernetesResource
from tunnel.errors import CallError, Status

__all__ = ["live_object", "patch_unchanged"]


async def live_object(
    client: IKubernetesClient, resource: KubernetesResource | None, key: ObjectKey
) -> KubernetesObject | None:
    """Return the live object; None if the object or its kind does not exist."""
    if resource is None:
        return None
    try:
        return await client.get(resource, key.name, key.namespace)
    except CallError as error:
        if error.status is Status.NOT_FOUND:
            return None
        raise
    except ValueError as error:
        # The kind has changed between namespaced and cluster-wide.
        raise CallError(Status.INVALID_ARGUMENT, str(error)) from None


async def patch_unchanged(
    client: IKubernetesClient,
    resource: KubernetesResource,
    live: KubernetesObject,
    change: Mapping[str, Any],
    field_manager: str = "",
) -> None:
    """
    Change the metadata of an object that is unchanged since it was read.

    :param live: the object as it was read.
    :param change: fields of ``metadata``, as in a merge patch.
    :raises CallError: ABORTED if another client has changed the object since then; as
        `IKubernetesClient.patch`.
    """
    metadata = live["metadata"]
    as_read = {name: metadata.get(name, "") for name in ("uid", "resourceVersion")}
    await client.patch(
        resource,
        metadata["name"],
        {"metadata": {**as_read, **change}},
        metadata.get("namespace", ""),
        field_manager=field_manager,
    )
