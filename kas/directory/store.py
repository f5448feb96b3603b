"""What a directory needs of the place in which every kas writes down its own agents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from kas.directory.records import AgentRecord, KasRecord
from tunnel.errors import TunnelError

__all__ = ["Store", "StoreDown", "StoreListener"]


class StoreDown(TunnelError):
    """The store does not answer now; the message says why and holds no secret."""


class StoreListener(Protocol):
    """The directory, as its store calls it."""

    def events(
        self, connected: Sequence[AgentRecord], disconnected: Sequence[AgentRecord]
    ) -> None:
        """
        Another kas gained or lost connections.

        They come in the order in which that kas made them, and may come twice.  Of
        what is gone only agent, instance, generation and kas are known.
        """

    def found(self, records: Sequence[AgentRecord]) -> None:
        """A part of what a `find` that runs will give, or not if it fails."""

    def listening(self, on: bool) -> None:
        """
        Whether events come in from now on.

        Each change means that some may have been missed.
        """

    def leases(self, alive: Sequence[KasRecord]) -> None:
        """All other kas that live, as the store has them now."""

    def lease(self, alive: KasRecord) -> None:
        """One that lives and was met on the way."""

    def left(self, kas_id: bytes) -> None:
        """Another kas stopped, and said so."""

    def rewrote(self, kas_id: bytes) -> None:
        """
        Another kas wrote everything again.

        What it had before may be gone without an event.
        """


class Store(Protocol):
    """
    Where every kas writes its own agents, and reads those of the others.

    It keeps what is ours there by itself: whatever happened to the store, it writes it
    again without the directory's doing.
    """

    def start(self, listener: StoreListener) -> None:
        """Begin; never waits and never fails."""

    async def stop(self) -> None:
        """Remove everything that is ours, within a short time, and let go."""

    def put(self, record: AgentRecord) -> None:
        """Write a connection of ours down and tell everyone; returns at once."""

    def remove(self, record: AgentRecord) -> None:
        """It is gone; what a newer connection wrote stays.  Returns at once."""

    def announce(self, record: AgentRecord) -> None:
        """Tell everyone once more, because another kas seems not to know."""

    def update(self, me: KasRecord) -> None:
        """What others know of this kas; written with the next lease."""

    async def find(self, agent_id: str) -> list[AgentRecord]:
        """
        Connections of an agent at kas that live.

        :raises StoreDown: at once, where that is known.
        """

    async def listed(self, project_id: int = 0) -> list[AgentRecord]:
        """
        Connections of a project, or all, at kas that live.

        :raises StoreDown: at once, where that is known.
        """

    async def last_seen(self, agent_ids: Sequence[str]) -> dict[str, float]:
        """
        When each was last connected, in seconds since 1970, where that is known.

        :raises StoreDown: at once, where that is known.
        """
