"""The state of deliveries in the store that all kas share."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator

import attrs
from google.protobuf.message import DecodeError

from modules.webhooks.wire.webhooks_pb2 import DeliveryState
from tunnel.api import IStore

__all__ = ["StoredDeliveries", "StoredDelivery", "delivery_id"]

#: Seconds after which the store forgets an agent that does not connect any more.  Each
#: connection of the agent renews the values.
KEPT = 366 * 86_400.0


def delivery_id(repository: str, ref: str, commit: str, noticed_at: int) -> str:
    """
    Return the id of a delivery, which is the same for each attempt.

    A ref may return to an earlier commit, and receivers ignore an id that they have
    seen.  Therefore the id depends on the time of the push as well.

    :param noticed_at: the time when kas noticed the push, in microseconds since 1970.
    """
    text = "\n".join((repository, ref, commit, str(noticed_at)))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


@attrs.define(eq=False)
class StoredDelivery:
    """
    State of the newest delivery of one ref to one target.

    :ivar version: version of the value in the store; 0 if the store has none.
    """

    key: str
    state: DeliveryState
    version: int = 0


@attrs.frozen
class StoredDeliveries:
    """The states of all agents' deliveries, each a value of the store."""

    store: IStore

    def key(self, agent_id: str, target: str, ref: str) -> str:
        """Return the key of a delivery; ``agent_of`` is its inverse for the agent."""
        names = hashlib.sha256(f"{target}\n{ref}".encode()).hexdigest()[:32]
        return f"{agent_id}/{names}"

    def agent_of(self, key: str) -> str:
        """Return the id of the agent that a key belongs to."""
        return key.rpartition("/")[0]

    async def read(self, key: str) -> StoredDelivery | None:
        """
        Return a state; None if the store has none, or if a newer kas wrote it in a form
        that this kas cannot read.
        """
        found = await self.store.get(key)
        if found is None:
            return None
        try:
            state = DeliveryState.FromString(found.value)
        except DecodeError:
            return None
        return StoredDelivery(key, state, found.version)

    async def write(self, delivery: StoredDelivery) -> None:
        """
        Write a state, unless another kas has changed it since it was read.

        :raises CallError: ABORTED if another kas has changed it.
        """
        delivery.version = await self.store.set(
            delivery.key,
            delivery.state.SerializeToString(),
            version=delivery.version,
            expires_after=KEPT,
        )

    async def keys(self, prefix: str = "") -> AsyncIterator[str]:
        """Iterate over the keys that begin with *prefix*."""
        async for page in self.store.keys(prefix):
            for key in page:
                yield key
