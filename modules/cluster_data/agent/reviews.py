"""Access reviews for kas: which objects a user may list."""

from __future__ import annotations

from functools import partial
from typing import Any

from modules.cluster_data.wire import cluster_data_pb2 as wire
from tunnel.api import IAgentModuleApi, IKubernetesClient
from tunnel.errors import CallError, Status
from tunnel.toolkit.parallel import in_parallel

__all__ = ["MAX_LISTS", "Reviews"]

#: Maximum number of reviews of one call.
MAX_LISTS = 100

#: Maximum number of reviews of one call that the API server answers at the same time.
AT_ONCE = 10

_PATH = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


class Reviews:
    """
    Implementation of `ClusterReviews`.

    A request as the user, and not the user's roles, decides, because webhooks of the
    API server may decide as well.
    """

    def __init__(self, api: IAgentModuleApi) -> None:
        self._api = api

    async def review(self, request: wire.ReviewRequest, call: Any) -> Any:
        """
        Return which lists of the request the caller may read.

        :raises CallError: the API server did not answer.
        """
        if len(request.lists) > MAX_LISTS:
            raise CallError(
                Status.INVALID_ARGUMENT, f"at most {MAX_LISTS} lists in one call"
            )
        client = self._api.kubernetes.acting_for(call.access)
        asked = [partial(_may_list, client, one) for one in request.lists]
        return wire.ReviewResponse(allowed=await in_parallel(asked, AT_ONCE))


async def _may_list(client: IKubernetesClient, asked: wire.ReviewedList) -> bool:
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {
            "resourceAttributes": {
                "group": asked.group,
                "resource": asked.resource,
                "namespace": asked.namespace,
                "verb": "list",
            }
        },
    }
    answer = await client.json("POST", _PATH, review)
    return (answer.get("status") or {}).get("allowed") is True
