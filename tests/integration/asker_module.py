"""A module in agentk that asks GitLab, once, and logs the answer."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import attrs
from twisted.internet.defer import Deferred
from twisted.logger import Logger
from zope.interface import implementer, provider

from tunnel.api import (
    IAgentModule,
    IAgentModuleFactory,
    TunnelConnected,
)

#: The dropin that makes it known.
DROPIN = """\
from tunnel.plugin import AgentModule

asker = AgentModule("asker", "tests.integration.asker_module.AskerModule")
"""


@attrs.frozen(kw_only=True)
class AskerConfiguration:
    """Nothing."""


async def _body() -> AsyncIterator[bytes]:
    for _ in range(3):
        yield b"x" * 100_000


@provider(IAgentModuleFactory)
@implementer(IAgentModule)
class AskerModule:
    """Asks when the tunnel is there."""

    configuration = AskerConfiguration
    _log = Logger()

    def __init__(self, api: Any) -> None:
        self.name = api.name
        self._api = api
        api.events.subscribe(TunnelConnected, lambda _: self._begin())

    async def start(self) -> None:
        """It begins with the tunnel."""

    async def stop(self) -> None:
        """Nothing is held."""

    def _begin(self) -> None:
        asking = Deferred.fromCoroutine(self._ask())
        asking.addErrback(lambda failure: self._log.failure("asking failed", failure))

    async def _ask(self) -> None:
        response = await self._api.gitlab.request("POST", "/things", body=_body())
        said = json.loads(await response.read())
        self._log.info(
            "GitLab responded with {status} to {agent} at {uri}: {size}",
            status=response.status,
            agent=said["agent"],
            uri=said["uri"],
            size=len(said["body"]),
        )
