"""Reviews of a right by the API server."""

from __future__ import annotations

from tunnel.api import IKubernetesClient

__all__ = ["is_allowed"]

_PATH = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


async def is_allowed(
    client: IKubernetesClient,
    verb: str,
    resource: str,
    *,
    group: str = "",
    subresource: str = "",
    namespace: str = "",
    name: str = "",
) -> bool:
    """
    Return whether the user of *client* has a right, as ``kubectl auth can-i`` does.

    The API server decides, and not the user's roles, because its webhooks may decide as
    well.

    :param namespace: empty for all namespaces.
    :param name: empty for all objects.
    :raises CallError: the API server did not answer.
    """
    attributes = {
        "group": group,
        "resource": resource,
        "namespace": namespace,
        "verb": verb,
    }
    if subresource:
        attributes["subresource"] = subresource
    if name:
        attributes["name"] = name
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    answer = await client.json("POST", _PATH, review)
    return (answer.get("status") or {}).get("allowed") is True
