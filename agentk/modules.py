"""What agentk lends to the agent half of a module."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
from zope.interface import implementer

from agentk.dialer import Dialer
from tunnel import lending
from tunnel.hosting import Prepared
from tunnel.interfaces import IAgentModuleApi, ICluster
from tunnel.rpc.client import ServiceClient


@attrs.define(eq=False)
class Lent(lending.Lent):
    """What all modules share; one for the process."""

    cluster: ICluster
    dialer: Dialer


@implementer(IAgentModuleApi)
class AgentModuleApi(lending.ModuleApi):
    """See `tunnel.interfaces.IAgentModuleApi`."""

    def __init__(
        self, lent: Lent, module: Prepared, fail: Callable[[str, Exception], None]
    ) -> None:
        super().__init__(lent, module, fail)
        self.cluster = lent.cluster
        self._dialer = lent.dialer

    @property
    def agent_id(self) -> str:
        """Our id, as kas said it."""
        return self._dialer.agent_id

    def client(self, service: Any) -> ServiceClient:
        """Calls *service* at kas."""
        return ServiceClient(service, self._dialer.open_stream, self.clock)
