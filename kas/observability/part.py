"""Observability listener as a part of kas; the listener stays open until kas ends."""

from __future__ import annotations

from twisted.internet.interfaces import IListeningPort

from kas.config.schema import Observability
from kas.observability.site import Health, make_site
from kas.state.running import OBSERVABILITY
from tunnel.program.listening import Listening
from tunnel.program.parts import Part, Phase
from tunnel.program.runtime import Runtime
from tunnel.program.site import Site
from tunnel.toolkit.until import rest_of, until

__all__ = ["ObservabilityPart"]


class ObservabilityPart(Part):
    """Listener for probes, metrics and status, as a part of kas."""

    name = "observability"

    def __init__(
        self,
        settings: Observability,
        health: Health,
        listening: Listening,
        runtime: Runtime,
    ) -> None:
        self._settings = settings
        self._health = health
        self._listening = listening
        self._runtime = runtime
        self.site: Site | None = None
        self._port: IListeningPort | None = None
        self._ending_since: float | None = None

    async def start(self) -> None:
        """Open the listener."""
        runtime = self._runtime
        self.site = make_site(
            self._settings, self._health, runtime.metrics, runtime.reactor
        )
        self._port = await self._listening.listen(
            self._settings.listen,
            self.site,
            what=OBSERVABILITY,
            setting="observability.listen.address",
        )

    async def drain(self, phase: Phase) -> None:
        """Record when draining began; the listener stays open, so that operators can
        observe the later phases."""
        if phase is Phase.READINESS:
            self._health.ready = False
            self._ending_since = self._runtime.reactor.seconds()

    async def stop(self) -> None:
        """
        Respond to probes for the configured periods, and finish the last responses.
        """
        site, port, clock = self.site, self._port, self._runtime.reactor
        if site is None or port is None:
            return
        listen = self._settings.listen
        if self._ending_since is not None:
            await rest_of(listen.listen_grace_period, self._ending_since, clock)
        await self._listening.close(port)
        await until(lambda: not site.making, clock, listen.shutdown_grace_period)
