"""The modules as a part of kas: when kas stops, their requests finish first."""

from __future__ import annotations

from collections.abc import Sequence

from kas.modules.context import ServerContext
from tunnel.api import Draining, IServerModule
from tunnel.hosting.modules import ModuleHost, Prepared
from tunnel.program.parts import Part, Phase
from tunnel.toolkit.until import until

__all__ = ["ModulesPart"]


class ModulesPart(Part):
    """
    The modules as a part of kas, and the requests that they serve.

    :param grace: seconds for running requests to finish.
    """

    name = "modules"

    def __init__(
        self,
        modules: Sequence[Prepared],
        context: ServerContext,
        grace: float,
    ) -> None:
        self._context = context
        self._grace = grace
        self.host: ModuleHost = ModuleHost(
            modules,
            interface=IServerModule,
            make_api=context.make_api,
            clock=context.reactor,
            jitter=context.fleet.runtime.random,
        )

    async def start(self) -> None:
        """Start all modules."""
        await self.host.start()

    async def drain(self, phase: Phase) -> None:
        """Wait until the requests have finished, and stop the modules."""
        if phase is Phase.REQUESTS:
            await self._finish_requests()
        if phase is Phase.MODULES:
            await self.host.stop()

    async def stop(self) -> None:
        """Stop the modules that still run."""
        await self.host.stop()

    async def _finish_requests(self) -> None:
        """Close the modules' ports, and wait until running requests have finished."""
        await self._context.ports.close()
        self._context.bus.publish(Draining())
        await until(self._is_idle, self._context.reactor, self._grace)

    def _is_idle(self) -> bool:
        gateway = self._context.fleet.gateway
        return not (
            any(one.tunnel.load for one in self._context.registry.tunnels())
            or self._context.router.remote
            or (gateway is not None and gateway.load)
        )
