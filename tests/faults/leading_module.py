"""A module that writes down, again and again, that its agentk leads."""

from __future__ import annotations

import os
import time

import attrs
from twisted.internet.task import deferLater
from zope.interface import implementer, provider

from tunnel.api import IAgentModule, IAgentModuleApi, IAgentModuleFactory

#: The dropin that makes it known.
DROPIN = """\
from tunnel.plugin import AgentModule

leading = AgentModule(
    "leading", "tests.faults.leading_module.LeadingModule", default=True
)
"""

#: Seconds between two lines.
INTERVAL = 0.05


@attrs.frozen(kw_only=True)
class LeadingConfiguration:
    """It has no settings; the environment names the file, ``LEADING_FILE``."""


@provider(IAgentModuleFactory)
@implementer(IAgentModule)
class LeadingModule:
    """A line of ``POD SECONDS`` while it leads."""

    name = "leading"
    configuration = LeadingConfiguration

    def __init__(self, api: IAgentModuleApi) -> None:
        self._api = api

    async def start(self) -> None:
        """Whenever this agentk leads."""
        self._api.lead(self._run)

    async def _run(self) -> None:
        pod = os.environ["POD_NAME"]
        with open(os.environ["LEADING_FILE"], "a", buffering=1) as file:
            while True:
                if self._api.leads:
                    file.write(f"{pod} {time.time():.6f}\n")
                await deferLater(self._api.clock, INTERVAL)

    async def stop(self) -> None:
        """There is nothing else."""
