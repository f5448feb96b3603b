"""Interface of the store in which every kas records its own agents."""

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
        React to connections that another kas gained or lost.

        They arrive in the order in which that kas made them, and may arrive twice.  Of
        a lost connection, only agent, instance, generation and kas are known.
        """

    def found(self, records: Sequence[AgentRecord]) -> None:
        """
        Take a part of the result of a running `find`; the rest is missing if it fails.
        """

    def listening(self, on: bool) -> None:
        """
        Whether events come in from now on.

        Each change means that some may have been missed.
        """

    def leases(self, alive: Sequence[KasRecord]) -> None:
        """All other kas that live, as the store has them now."""

    def lease(self, alive: KasRecord) -> None:
        """Record the lease of a kas that a read of the store found."""

    def left(self, kas_id: bytes) -> None:
        """Another kas stopped, and said so."""

    def rewrote(self, kas_id: bytes) -> None:
        """
        React to another kas that wrote all its records again.

        Its earlier connections may have ended without an event.
        """


class Store(Protocol):
    """
    Store in which every kas writes its own agents and reads those of the others.

    It maintains our records by itself: after any fault of the store, it writes them
    again without the directory's help.
    """

    def start(self, listener: StoreListener) -> None:
        """Begin; never waits and never fails."""

    async def stop(self) -> None:
        """Remove everything that is ours, within a short time, and let go."""

    def put(self, record: AgentRecord) -> None:
        """Write a connection of ours down and tell everyone; returns at once."""

    def remove(self, record: AgentRecord) -> None:
        """Remove a connection; the record of a newer one stays.  Returns at once."""

    def announce(self, record: AgentRecord) -> None:
        """Tell everyone once more, because another kas seems not to know."""

    def update(self, me: KasRecord) -> None:
        """Set this kas's own record; written with the next lease."""

    async def find(self, agent_id: str) -> list[AgentRecord]:
        """
        Return the connections of an agent at living kas.

        :raises StoreDown: at once, if the failure is known.
        """

    async def listed(self, project_id: int = 0) -> list[AgentRecord]:
        """
        Return the connections of a project, or all, at living kas.

        :raises StoreDown: at once, if the failure is known.
        """

    async def last_seen(self, agent_ids: Sequence[str]) -> dict[str, float]:
        """
        When each was last connected, in seconds since 1970, where that is known.

        :raises StoreDown: at once, where that is known.
        """
