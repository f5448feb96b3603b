"""Watches from the caches of agents, for other modules of kas."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import aclosing

from zope.interface import implementer

from modules.cluster_data.server.cache_path import OBJECTS, SECONDS
from modules.cluster_data.wire import objects_pb2 as wire
from tunnel.api import Access, ICachedWatches, IServerModuleApi
from tunnel.errors import CallError, Status

__all__ = ["CachedWatches"]


@implementer(ICachedWatches)
class CachedWatches:
    """
    Implementation of `ICachedWatches`.

    :ivar outcomes: number of watches that agents have answered or refused.
    """

    def __init__(self, api: IServerModuleApi) -> None:
        self._api = api
        self.outcomes: Counter[str] = Counter()

    async def open(self, access: Access, target: str) -> AsyncGenerator[bytes, None]:
        """See `ICachedWatches`."""
        client = self._api.calls.client(OBJECTS, access.agent_id, access)
        asked = wire.ReadRequest(target=target, accept="application/json")
        async with aclosing(client.stream("Read", asked, timeout=SECONDS)) as parts:
            outcome = "refused"
            try:
                head = (await anext(parts, wire.ReadPart())).head
                if head.status != 200:
                    raise CallError(
                        Status.FAILED_PRECONDITION,
                        f"the cache of the agent responded with {head.status}",
                    )
                outcome = "answered"
            finally:
                self.outcomes[outcome] += 1
            yield b""
            async for part in parts:
                yield part.data
