"""The other kas as a part of kas: agents go to them when this one stops."""

from __future__ import annotations

from twisted.logger import Logger

from kas.config.schema import AgentListen
from kas.fleet.balance import PER_SECOND, Balance
from kas.fleet.fleet import Fleet
from tunnel.program.listening import Listening
from tunnel.program.parts import Part, Phase
from tunnel.toolkit.until import rest_of, until

__all__ = ["FleetPart"]

#: Seconds that agents get to connect elsewhere before this kas goes on stopping.
LEAVE_PATIENCE = 15.0


class FleetPart(Part):
    """
    Membership in the fleet.

    :param settings: its periods apply to agents that leave.
    :param alone: kas knows of no other kas, and no supervisor started it.
    """

    _log = Logger()
    name = "the other kas"

    def __init__(
        self,
        fleet: Fleet,
        balance: Balance,
        settings: AgentListen,
        listening: Listening,
        alone: bool,
    ) -> None:
        self._fleet = fleet
        self._balance = balance
        self._settings = settings
        self._listening = listening
        self._alone = alone

    async def start(self) -> None:
        """Join the fleet."""
        await self._fleet.start(self._listening)
        if self._fleet.gateway is not None and self._alone:
            self._log.warn(
                "there is 'private_api' and no 'redis': this kas knows of no other, "
                "and is alone"
            )

    async def drain(self, phase: Phase) -> None:
        """Send all agents to other kas, and wait until they have left."""
        if phase is Phase.READINESS:
            self._balance.stop()
        if phase is Phase.AGENTS:
            await self._send_away()

    async def _send_away(self) -> None:
        # Agents leave first, and requests are accepted as long as they arrive, because
        # load balancers must first notice that this kas is not ready.
        fleet, registry = self._fleet, self._fleet.registry
        fleet.leave()
        # Many agents leave over a longer time, and may use all of it.
        patience = LEAVE_PATIENCE + len(registry) / PER_SECOND
        deadline = patience + self._settings.shutdown_grace_period
        self._balance.send_away(
            registry.tunnels(), "kas is shutting down", deadline=deadline
        )
        if not fleet.others():
            return
        clock = fleet.runtime.reactor
        since = clock.seconds()
        await until(lambda: not registry.agents, clock, patience)
        # Load balancers look at readiness every few seconds.
        await rest_of(self._settings.listen_grace_period, since, clock)

    async def stop(self) -> None:
        """Leave the fleet."""
        await self._fleet.stop()
