"""Interface of the store where all kas record their agents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from kas.directory.records import AgentRecord, KasRecord
from tunnel.errors import TunnelError

__all__ = ["Store", "StoreDown", "StoreListener"]


class StoreDown(TunnelError):
    """
    Error for an operation while the store does not respond; the message contains the
    reason, without secrets.
    """


class StoreListener(Protocol):
    """Interface of the directory that its store calls."""

    def events(
        self, connected: Sequence[AgentRecord], disconnected: Sequence[AgentRecord]
    ) -> None:
        """
        Handle connects and disconnects at another kas.

        The events arrive in the order in which that kas made them, and may arrive
        twice.  The record of a connection that ended contains only agent, instance,
        generation and kas.
        """

    def found(self, records: Sequence[AgentRecord]) -> None:
        """
        Apply a part of the result of a running `find`; the rest is missing if `find`
        fails.
        """

    def listening(self, on: bool) -> None:
        """
        Record whether events arrive from now on.

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

        Earlier connections of that kas may have ended without an event.
        """


class Store(Protocol):
    """
    Interface of a store: every kas writes its own agents to it, and reads the agents of
    other kas from it.

    The store maintains the records of this kas by itself: after any fault, it writes
    the records again without the directory's help.
    """

    def start(self, listener: StoreListener) -> None:
        """Start to work in the background; this method never blocks and never fails."""

    async def stop(self) -> None:
        """Remove the records of this kas within a short time, and disconnect."""

    def put(self, record: AgentRecord) -> None:
        """Store a connection of this kas, and notify all kas; return at once."""

    def remove(self, record: AgentRecord) -> None:
        """
        Remove a connection, and return at once; the record of a newer connection stays.
        """

    def announce(self, record: AgentRecord) -> None:
        """
        Notify all kas once more of a connection that another kas does not seem to know.
        """

    def update(self, me: KasRecord) -> None:
        """Set this kas' own record, which is written with the next lease."""

    async def find(self, agent_id: str) -> list[AgentRecord]:
        """
        Return the connections of an agent at living kas.

        :raises StoreDown: if the store does not respond; at once if the failure is
            already known.
        """

    async def listed(self, project_id: int = 0) -> list[AgentRecord]:
        """
        Return the connections of a project's agents, or of all agents, at living kas.

        :raises StoreDown: if the store does not respond; at once if the failure is
            already known.
        """

    async def last_seen(self, agent_ids: Sequence[str]) -> dict[str, float]:
        """
        Return when each agent was last connected, in seconds since 1970; agents whose
        time is unknown are left out.

        :raises StoreDown: if the store does not respond; at once if the failure is
            already known.
        """
