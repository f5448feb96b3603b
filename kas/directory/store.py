"""The interface of the store in which every kas records its own agents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from kas.directory.records import AgentRecord, KasRecord
from tunnel.errors import TunnelError

__all__ = ["Store", "StoreDown", "StoreListener"]


class StoreDown(TunnelError):
    """
    Raised if the store does not respond now; the message says why, without secrets.
    """


class StoreListener(Protocol):
    """The directory, as its store uses it."""

    def events(
        self, connected: Sequence[AgentRecord], disconnected: Sequence[AgentRecord]
    ) -> None:
        """
        Handle connects and disconnects at another kas.

        They arrive in the order in which that kas made them, and may arrive twice.  Of
        a lost connection, only agent, instance, generation and kas are known.
        """

    def found(self, records: Sequence[AgentRecord]) -> None:
        """
        Take a part of the result of a running `find`; the rest is missing if it fails.
        """

    def listening(self, on: bool) -> None:
        """
        Note whether events arrive from now on.

        Each change means that some may have been missed.
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
    Store in which every kas writes its own agents and reads those of the others.

    It maintains our records by itself: after any fault of the store, it writes them
    again without the directory's help.
    """

    def start(self, listener: StoreListener) -> None:
        """Begin; never blocks and never fails."""

    async def stop(self) -> None:
        """Remove our records within a short time, and disconnect."""

    def put(self, record: AgentRecord) -> None:
        """Store a connection of ours, and notify all kas; returns at once."""

    def remove(self, record: AgentRecord) -> None:
        """Remove a connection; the record of a newer one stays.  Returns at once."""

    def announce(self, record: AgentRecord) -> None:
        """
        Notify all kas once more of a connection, because another kas seems not to know
        it.
        """

    def update(self, me: KasRecord) -> None:
        """Set this kas' own record, which is written with the next lease."""

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
        Return when each agent was last connected, in seconds since 1970, if known.

        :raises StoreDown: at once, if the failure is known.
        """
