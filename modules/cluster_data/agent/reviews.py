"""Access reviews for kas: which objects a user may list."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from modules.cluster_data.agent.cluster_uid import ClusterUid
from modules.cluster_data.wire import cluster_data_pb2 as wire
from tunnel.api import IAgentModuleApi, IKubernetesClient
from tunnel.errors import CallError, NoApiServer, Status
from tunnel.kubernetes import is_allowed
from tunnel.toolkit.parallel import in_parallel
from tunnel.toolkit.peer_turns import PeerTurns, TooManyTurns

__all__ = ["MAX_LISTS", "Reviews"]

#: Maximum number of reviews of one call.
MAX_LISTS = 100

#: Maximum number of reviews of one call that the API server answers at the same time.
AT_ONCE = 5

#: Maximum number of calls that run at the same time, one of each user: agentk has other
#: work at the API server, such as its Lease.
CALLS = 2

#: Maximum number of calls of one user that wait, and the seconds that each waits: kas
#: gives up then.
MAX_WAITING, WAIT_SECONDS = 5, 10.0


class Reviews:
    """
    Implementation of `ClusterReviews`.

    :param epoch: returns the epoch of this agentk's cache; empty without a cache.
    """

    def __init__(
        self,
        api: IAgentModuleApi,
        cluster_uid: ClusterUid,
        epoch: Callable[[], bytes] = bytes,
    ) -> None:
        self._epoch = epoch
        self._api = api
        self._cluster_uid = cluster_uid
        self._turns: PeerTurns[str] = PeerTurns(
            api.clock,
            of_peer=1,
            of_all=CALLS,
            most_waiting=MAX_WAITING,
            seconds=WAIT_SECONDS,
        )

    async def review(self, request: wire.ReviewRequest, call: Any) -> Any:
        """
        Return which lists of the request the caller may read.

        :raises CallError: the API server is connected, and gave no answer.
        """
        if len(request.lists) > MAX_LISTS:
            raise CallError(
                Status.INVALID_ARGUMENT, f"at most {MAX_LISTS} lists in one call"
            )
        client = self._api.kubernetes.acting_for(call.access)
        asked = [partial(_may_list, client, one) for one in request.lists]
        try:
            async with self._turns.turn(call.access.owner):
                uid = await self._cluster_uid.read()
                allowed = await in_parallel(asked, AT_ONCE)
        except NoApiServer as error:
            # The rows do not change either, so earlier rights count for a day.
            return wire.ReviewResponse(unreachable=error.message)
        except TooManyTurns as error:
            text = f"too many access reviews: {error}"
            raise CallError(Status.RESOURCE_EXHAUSTED, text) from None
        return wire.ReviewResponse(
            allowed=allowed, cluster_uid=uid, epoch=self._epoch()
        )


async def _may_list(client: IKubernetesClient, asked: wire.ReviewedList) -> bool:
    return await is_allowed(
        client,
        "list",
        asked.resource,
        group=asked.group,
        namespace=asked.namespace,
    )
