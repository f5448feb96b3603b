"""Interface of the store in which every kas records its own agents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from kas.directory.records import AgentRecord, KasRecord
from tunnel.errors import TunnelError

__all__ = ["Store", "StoreDown", "StoreListener"]


class StoreDown(TunnelError):
    """
    Error if the store does not respond now; the message contains the reason, without
    secrets.
    """


class StoreListener(Protocol):
    """Directory, as its store uses it."""

    def events(
        self, connected: Sequence[AgentRecord], disconnected: Sequence[AgentRecord]
    ) -> None:
        """
        Handle connects and disconnects at another kas.

        They arrive in the order in which that kas made them, and may arrive twice.  A
        lost connection is described only by agent, instance, generation and kas.
        """

    def found(self, records: Sequence[AgentRecord]) -> None:
        """
        Apply a part of the result of a running `find`; the rest is missing if it fails.
        """

    def listening(self, on: bool) -> None:
        """
        Note whether events arrive from now on.

        Each change of this state means that some events may have been missed.
        """

    def leases(self, alive: Sequence[KasRecord]) -> None:
        """Apply the complete list of the other living kas."""

    def lease(self, alive: KasRecord) -> None:
        """Record the lease of a kas that a read of the store found."""

    def left(self, kas_id: bytes) -> None:
        """Handle another kas that announced its end."""

    def rewrote(self, kas_id: bytes) -> None:
        """
        Handle another kas that wrote all its records again.

        Its earlier connections may have ended without an event.
        """


class Store(Protocol):
    """
    Store in which every kas writes its own agents and reads the agents of the others.

    It maintains the records of this kas by itself: after any fault of the store, it
    writes them again without the directory's help.
    """

    def start(self, listener: StoreListener) -> None:
        """Begin; never blocks and never fails."""

    async def stop(self) -> None:
        """Remove the records of this kas within a short time, and disconnect."""

    def put(self, record: AgentRecord) -> None:
        """Store a connection of this kas, and notify all kas; return at once."""

    def remove(self, record: AgentRecord) -> None:
        """Remove a connection; the record of a newer one stays.  Return at once."""

    def announce(self, record: AgentRecord) -> None:
        """
        Notify all kas once more of a connection that another kas seems not to know.
        """

    def update(self, me: KasRecord) -> None:
        """Set this kas' own record, which is written with the next lease."""

    async def find(self, agent_id: str) -> list[AgentRecord]:
        """
        Return the connections of an agent at living kas.

        :raises StoreDown: at once if the failure is known.
        """

    async def listed(self, project_id: int = 0) -> list[AgentRecord]:
        """
        Return the connections of a project, or all, at living kas.

        :raises StoreDown: at once if the failure is known.
        """

    async def last_seen(self, agent_ids: Sequence[str]) -> dict[str, float]:
        """
        Return when each agent was last connected, in seconds since 1970, if known.

        :raises StoreDown: at once if the failure is known.
        """
