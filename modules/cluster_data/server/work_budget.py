"""
Budget of each user for the work that kas does for live data.

Everything that a user can repeat counts: first runs and repeated runs of live queries,
snapshots, and requests of the query API.
"""

from __future__ import annotations

from typing import Final

from twisted.internet.interfaces import IReactorTime

from tunnel.errors import CallError, Status
from tunnel.toolkit.peer_budgets import OverBudget, PeerBudgets

__all__ = ["BURST_SECONDS", "SECONDS_EACH", "WAIT_SECONDS", "WorkBudget"]

#: Seconds of processor time that a user may use at once: a page with the maximum of
#: rows of live queries needs less than one.
BURST_SECONDS: Final = 2.0

#: Seconds of processor time that a user may use per second in the long run.
SECONDS_EACH: Final = 0.1

#: Maximum number of pieces of work of one user that wait, and the seconds that each
#: waits: the call of a channel may take ten.
MAX_WAITING, WAIT_SECONDS = 30, 8.0

#: Number of units of the budget for a second of processor time.  So each piece of work
#: costs at least a millisecond.
_UNITS: Final = 1000.0

#: Seconds until which a kas lets the query of another kas wait, which gives up after
#: five.
PEER_WAIT_SECONDS: Final = 2.0

#: Processor time in seconds for each scope of a query, which kas compares with the
#: rights of the user, for each row of an answer, and for each KiB of rows: kas parses
#: them, compares them with earlier ones, and writes them as JSON.
SCOPE_SECONDS, ROW_SECONDS, KIB_SECONDS = 5e-6, 5e-6, 10e-6


class WorkBudget:
    """
    Processor time of users, by `Access.budget_owner`.

    The owner with the empty name is kas itself, and has no limit.

    :ivar refused: number of refused pieces of work.
    """

    def __init__(self, clock: IReactorTime) -> None:
        self.refused = 0
        self._budgets: PeerBudgets[str] = PeerBudgets(
            clock,
            burst=BURST_SECONDS * _UNITS,
            per_second=SECONDS_EACH * _UNITS,
            most_waiting=MAX_WAITING,
            seconds=WAIT_SECONDS,
        )

    async def admit(self, owner: str) -> None:
        """
        Wait until work of a user may begin.

        :raises CallError: RESOURCE_EXHAUSTED if the user has used too much.
        """
        if not owner:
            return
        try:
            await self._budgets.admit(owner)
        except OverBudget as error:
            raise self._refusal(error) from None

    def charge(self, owner: str, seconds: float) -> None:
        """Count processor time that a user has used."""
        if owner:
            self._budgets.charge(owner, seconds * _UNITS)

    def charge_rows(self, owner: str, count: int, size: int) -> None:
        """
        Count the work on rows that a user gets.

        :param size: bytes of all rows.
        """
        self.charge(owner, count * ROW_SECONDS + size / 1024 * KIB_SECONDS)

    async def admit_peer(self, owner: str) -> None:
        """
        Wait until work for a user of another kas may begin.

        :raises CallError: as of `admit`, if that would not be soon.
        """
        seconds = self._budgets.due(owner) if owner else 0.0
        if seconds > PEER_WAIT_SECONDS:
            raise self._refusal(OverBudget(seconds))
        await self.admit(owner)

    def _refusal(self, error: OverBudget) -> CallError:
        self.refused += 1
        return CallError(
            Status.RESOURCE_EXHAUSTED,
            f"the live data of one user may take {SECONDS_EACH:.0%} of a processor: "
            f"{error}",
        )
