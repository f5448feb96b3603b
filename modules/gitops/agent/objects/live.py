"""Objects as they are in the cluster now."""

from __future__ import annotations

from modules.gitops.agent.objects.manifests import ObjectKey
from tunnel.api import IKubernetesClient, KubernetesObject, KubernetesResource
from tunnel.errors import CallError, Status

__all__ = ["live_object"]


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
