"""External API as a part of kas: its services, and the listener for them."""

from __future__ import annotations

from kas.api.listener import ExternalApi
from kas.api.own_services import HEALTH, SERVER_INFO, ApiHealth, ServerInfo
from kas.api.services import ExternalServices
from kas.config.schema import Api
from kas.identity.sign_ins import SignIns
from tunnel.program.listening import Listening
from tunnel.program.parts import Part, Phase
from tunnel.program.runtime import Runtime

__all__ = ["ApiPart"]


class ApiPart(Part):
    """
    External API as a part of kas.

    :param settings: None if the API has no listener; `kasctl` calls the same services
        in any case.
    :param sign_ins: records the callers; None if kas has no audit log.
    """

    name = "the external API"

    def __init__(
        self,
        settings: Api | None,
        listening: Listening,
        runtime: Runtime,
        sign_ins: SignIns | None,
    ) -> None:
        self.services = services = ExternalServices(runtime.reactor, runtime.tracer)
        self._health = ApiHealth(lambda: services.names)
        services.handle("kas", HEALTH, self._health)
        services.handle("kas", SERVER_INFO, ServerInfo())
        self._listener: ExternalApi | None = None
        if settings is not None:
            self._listener = ExternalApi(
                settings.listen, services, listening, runtime, sign_ins
            )

    async def start(self) -> None:
        """Listen for clients of the external API."""
        if self._listener is not None:
            await self._listener.start()

    async def drain(self, phase: Phase) -> None:
        """Report that kas does not serve calls any more, and end the running calls."""
        if phase is Phase.REQUESTS:
            self._health.drain()
        if self._listener is not None:
            await self._listener.drain(phase)

    async def stop(self) -> None:
        """Abort the remaining calls."""
        if self._listener is not None:
            await self._listener.stop()
