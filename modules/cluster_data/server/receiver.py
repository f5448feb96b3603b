"""Receives the rows that agents publish."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection
from typing import Any

from twisted.internet.defer import Deferred

from modules.cluster_data.server.row_feed import RowFeed
from modules.cluster_data.server.store.row_store import Publication, RowStore
from modules.cluster_data.wire import cluster_data_pb2 as wire
from modules.cluster_data.wire.view_names import MAX_VIEWS, is_view_name
from tunnel.errors import CallError, Status

__all__ = ["RowReceiver"]


class RowReceiver:
    """
    Implementation of `ClusterData`.

    :param changed: called after rows or the state of a cluster have changed.
    :param followed: returns the views of an agent that somebody follows now.
    :param feed: notified of each message after the store has it.
    :param rights_changed: called with the id of an agent after rights in its cluster
        have changed.
    """

    def __init__(
        self,
        store: RowStore,
        changed: Callable[[Publication], None],
        followed: Callable[[Publication], frozenset[str]],
        feed: RowFeed,
        rights_changed: Callable[[str], None],
    ) -> None:
        self._store = store
        self._changed = changed
        self._followed = followed
        self._feed = feed
        self._rights_changed = rights_changed
        #: Number of messages by their type.
        self.messages: Counter[str] = Counter()
        #: Number of views that were asked for again because of a difference.
        self.repeated = 0
        #: Calls that publish now.
        self.publishing: set[Publication] = set()

    async def publish(
        self, requests: AsyncIterator[wire.AgentMessage], call: Any
    ) -> AsyncGenerator[wire.ServerMessage, None]:
        """Store what an agent publishes, until its call ends."""
        publication = Publication(
            call.agent.agent_id, call.agent.agent_name, os.urandom(16)
        )
        first = await anext(requests, None)
        if first is None or not first.HasField("hello"):
            raise CallError(Status.INVALID_ARGUMENT, "the first message is not a hello")
        views = list(filter(is_view_name, first.hello.views))[:MAX_VIEWS]
        sequences = await self._store.welcome(publication, first.hello)
        self.publishing.add(publication)
        self._feed.began(publication, views)
        try:
            welcome = wire.Welcome(sequences=sequences, views=views)
            yield wire.ServerMessage(welcome=welcome)
            sent: frozenset[str] = frozenset()
            async for message in requests:
                followed = self._followed(publication)
                if followed != sent:
                    sent = followed
                    names = wire.Followed(views=sorted(followed))
                    yield wire.ServerMessage(followed=names)
                for view in await self._take(publication, message, views):
                    self.repeated += 1
                    wanted = wire.SnapshotWanted(view=view)
                    yield wire.ServerMessage(snapshot_wanted=wanted)
        finally:
            self.publishing.discard(publication)
            self._feed.ended(publication)
            # The call may have been cancelled, and the store still has to know its end.
            ended = Deferred.fromCoroutine(self._store.ended(publication))
            ended.addErrback(lambda failure: failure.trap(CallError))
            ended.addCallback(lambda _: self._changed(publication))

    async def _take(
        self,
        publication: Publication,
        message: wire.AgentMessage,
        views: Collection[str],
    ) -> list[str]:
        """Store a message; return the views that agentk must send completely."""
        kind = message.WhichOneof("message") or ""
        self.messages[kind] += 1
        if kind == "beat":
            beat = message.beat
            for unknown in [one for one in beat.sums if one not in views]:
                del beat.sums[unknown]
            return await self._store.beat(publication, beat)
        if kind == "rights_changed":
            self._rights_changed(publication.agent_id)
            return []
        if kind not in ("snapshot", "delta"):
            # A newer agentk may send other messages.
            return []
        change = getattr(message, kind)
        if change.view not in views:
            return []
        if kind == "snapshot":
            await self._store.snapshot(publication, change)
        else:
            await self._store.delta(publication, change)
        self._changed(publication)
        self._feed.stored(publication, change)
        return []
