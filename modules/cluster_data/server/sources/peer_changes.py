"""Changes in the stores of other kas, and in the stores of this kas' other workers."""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger

from modules.cluster_data.server.sources.peer_rows import PEER_ROWS
from modules.cluster_data.wire import peers_pb2 as wire
from tunnel.api import IPeers, OtherKas
from tunnel.errors import CallError

__all__ = ["LOOK_INTERVAL", "PeerChanges"]

#: Seconds between two searches for kas that have joined, or have not answered.
LOOK_INTERVAL = 5.0


class PeerChanges:
    """
    Notifications of other kas about changed rows.

    :param rights_changed: called with the id of an agent after rights in its cluster
        have changed.
    """

    _log = Logger()

    def __init__(
        self,
        peers: IPeers,
        clock: IReactorTime,
        rights_changed: Callable[[str], object],
    ) -> None:
        self._peers = peers
        self._rights_changed = rights_changed
        self._clock = clock

    def follow(
        self,
        agents: frozenset[str],
        views: frozenset[str],
        changed: Callable[[], object],
    ) -> Callable[[], None]:
        """
        Call *changed* after each change of the rows of some agents at another kas.

        The agents send these views at once, as if a reader of that kas followed them.

        :param agents: ids; without any, there is nothing to follow.
        :return: function that ends this.
        """
        if not agents:
            return lambda: None
        following: dict[OtherKas, Deferred[None]] = {}

        async def listen(other: OtherKas) -> None:
            try:
                client = await self._peers.client(other, PEER_ROWS)
                request = wire.FollowRequest(agents=agents, views=views)
                async for change in client.stream("Follow", request):
                    if change.rights:
                        self._rights_changed(change.agent_id)
                    changed()
            except CallError as error:
                self._log.debug(
                    "{kas} sends no changes of rows: {reason}",
                    kas=other.address,
                    reason=error.message,
                )

        def ended(_: object, other: OtherKas) -> None:
            following.pop(other, None)

        async def look() -> None:
            while True:
                for other in self._peers.others():
                    if other in following:
                        continue
                    one = following[other] = Deferred.fromCoroutine(listen(other))
                    one.addErrback(lambda failure: failure.trap(CancelledError))
                    one.addBoth(ended, other)
                await deferLater(self._clock, LOOK_INTERVAL)

        looking = Deferred.fromCoroutine(look())
        looking.addErrback(lambda failure: failure.trap(CancelledError))

        def end() -> None:
            looking.cancel()
            for one in tuple(following.values()):
                one.cancel()

        return end
