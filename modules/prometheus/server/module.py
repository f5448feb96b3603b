"""The server half: where users ask, and where operators look."""

from __future__ import annotations

import time
from collections.abc import Callable

import attrs
from zope.interface import implementer, provider

from modules.prometheus.server.agent_path import NAME, PrometheusPath
from modules.prometheus.server.fleet import FleetQuestions
from modules.prometheus.server.fleet_page import PREFIX, FleetPage
from modules.prometheus.server.metrics import RequestMetrics
from modules.prometheus.server.trails import TRAILS, PrometheusTrails
from tunnel.api import (
    AgentPathsStarted,
    CredentialRevoked,
    IAgentPaths,
    IServerModule,
    IServerModuleApi,
    IServerModuleFactory,
)

__all__ = ["PrometheusServer", "PrometheusSettings"]


@attrs.frozen(kw_only=True)
class PrometheusSettings:
    """Section ``modules.prometheus`` of kas' configuration, which has no keys."""


@provider(IServerModuleFactory)
@implementer(IServerModule)
class PrometheusServer:
    """The server half of the module ``prometheus``."""

    configuration = PrometheusSettings

    def __init__(self, api: IServerModuleApi) -> None:
        self.name = api.name
        self.api = api
        self._metrics = RequestMetrics()
        self._counting = False
        self._path = PrometheusPath(api, self._metrics)
        self._withdraw: Callable[[], object] = lambda: None
        api.events.subscribe(AgentPathsStarted, lambda _: self._serve())
        self.questions = FleetQuestions(api, self._metrics, api.clock, time.time)
        api.events.subscribe(CredentialRevoked, self.questions.revoked)
        page = FleetPage(api.users, self.questions, self._metrics)
        api.web.mount(PREFIX, page)
        api.calls.handle_external(TRAILS, PrometheusTrails(api))

    async def start(self) -> None:
        """Serve the path of each agent if ``kubernetes_api`` runs."""
        self.api.metrics.register(self._metrics)
        self._counting = True
        self._serve()

    async def stop(self) -> None:
        """Withdraw the path."""
        self._withdraw()
        if self._counting:
            self._counting = False
            self.api.metrics.unregister(self._metrics)

    def _serve(self) -> None:
        paths = self.api.capabilities.get(IAgentPaths)
        if paths is not None:
            self._withdraw()
            self._withdraw = paths.serve(NAME, self._path)
