"""
Membership in the fleet as a part of kas: when kas stops, its agents move to other kas.
"""

from __future__ import annotations

from twisted.logger import Logger

from kas.config.schema import AgentListen
from kas.fleet.balance import PER_SECOND, Balance
from kas.fleet.fleet import Fleet
from tunnel.program.listening import Listening
from tunnel.program.parts import Part, Phase
from tunnel.toolkit.until import rest_of, until

__all__ = ["FleetPart"]

#: Seconds during which agents may connect to other kas before this kas continues to
#: stop.
LEAVE_PATIENCE = 15.0


class FleetPart(Part):
    """
    Membership in the fleet as a part of kas.

    :param settings: settings of the listener for agents; their periods apply when
        agents leave.
    """

    _log = Logger()
    name = "the other kas"

    def __init__(
        self,
        fleet: Fleet,
        settings: AgentListen,
        listening: Listening,
    ) -> None:
        self._fleet = fleet
        self._settings = settings
        self._listening = listening
        self.balance = Balance(fleet.registry, fleet.directory, fleet.runtime)

    async def start(self) -> None:
        """Join the fleet."""
        fleet = self._fleet
        await fleet.start(self._listening)
        alone = fleet.redis is None and not fleet.sibling_urls
        if fleet.gateway is not None and alone:
            self._log.warn(
                "'private_api' is configured without 'redis': this kas does not know "
                "other kas, and is alone"
            )
        redis = fleet.configuration.redis
        if redis is not None and redis.tls.certificate_file is not None:
            self._listening.follow("redis", redis.tls.certificate_file)
        self.balance.start()

    async def drain(self, phase: Phase) -> None:
        """Send all agents to other kas, and wait until they have left."""
        if phase is Phase.READINESS:
            self.balance.stop()
        if phase is Phase.AGENTS:
            await self._send_away()

    async def _send_away(self) -> None:
        # Continue to accept requests at first, because load balancers must notice that
        # this kas is not ready.
        fleet, registry = self._fleet, self._fleet.registry
        fleet.leave()
        # Many agents leave over a longer time, so wait for longer.
        patience = LEAVE_PATIENCE + len(registry) / PER_SECOND
        deadline = patience + self._settings.shutdown_grace_period
        self.balance.send_away(
            registry.tunnels(), "kas is shutting down", deadline=deadline
        )
        if not fleet.others():
            return
        clock = fleet.runtime.reactor
        since = clock.seconds()
        await until(lambda: not registry.agents, clock, patience)
        # Wait, because load balancers check readiness only every few seconds.
        await rest_of(self._settings.listen_grace_period, since, clock)

    async def stop(self) -> None:
        """Leave the fleet."""
        self.balance.stop()
        await self._fleet.stop()
