"""Objects as the cluster has them now."""

from __future__ import annotations

from modules.gitops.agent.objects.manifests import ObjectKey
from tunnel.api import IKubernetesClient, KubernetesObject, KubernetesResource
from tunnel.errors import CallError, Status

__all__ = ["live_object"]


async def live_object(
    client: IKubernetesClient, resource: KubernetesResource | None, key: ObjectKey
) -> KubernetesObject | None:
    """Return the live object; None: it does not exist, or its kind does not."""
    if resource is None:
        return None
    try:
        return await client.get(resource, key.name, key.namespace)
    except CallError as error:
        if error.status is Status.NOT_FOUND:
            return None
        raise
    except ValueError as error:
        # Its kind was of the whole cluster once, or is now.
        raise CallError(Status.INVALID_ARGUMENT, str(error)) from None
