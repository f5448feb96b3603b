"""Reviews of a right by the API server."""

from __future__ import annotations

from typing import NamedTuple

from tunnel.api import IKubernetesClient
from tunnel.errors import CallError, Status

__all__ = ["Right", "is_allowed", "is_permitted"]

_PATH = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


class Right(NamedTuple):
    """
    A right, as in `is_allowed`.

    :ivar namespace: empty for all namespaces.
    :ivar name: empty for all objects.
    """

    verb: str
    resource: str
    group: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""


def is_permitted(client: IKubernetesClient, right: Right) -> bool:
    """Return whether the policy of the cluster's owner permits a right."""
    try:
        client.check_right(**right._asdict())
    except CallError as error:
        if error.status is not Status.PERMISSION_DENIED:
            raise
        return False
    return True


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
    if not is_permitted(
        client, Right(verb, resource, group, subresource, namespace, name)
    ):
        return False
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
