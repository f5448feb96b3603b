"""The agent half: settings, and the paths to Services."""

from __future__ import annotations

import os
from typing import Literal

import attrs
from zope.interface import implementer, provider

from modules.prometheus.agent.questions import Questions
from modules.prometheus.agent.service_client import (
    ClusterServiceClient,
    DirectServiceClient,
    ProxiedServiceClient,
)
from modules.prometheus.agent.services import ServiceTarget
from modules.prometheus.wire import prometheus_pb2
from modules.prometheus.wire.settings import PrometheusSection
from tunnel.api import (
    SCOPE,
    AgentScope,
    IAgentModule,
    IAgentModuleApi,
    IAgentModuleFactory,
)
from tunnel.config import field

__all__ = ["PrometheusAgent", "PrometheusOptions"]

_PROMETHEUS = prometheus_pb2.DESCRIPTOR.services_by_name["Prometheus"]


@attrs.frozen(kw_only=True)
class PrometheusOptions:
    """Section ``modules.prometheus`` of agentk's configuration."""

    reach: Literal["cluster-ip", "api-server"] | None = field(
        default=None,
        doc="path to Services: their ClusterIPs, which is the default in a pod, or "
        "the API server's proxy, for which agentk needs the right to services/proxy",
    )


@provider(IAgentModuleFactory)
@implementer(IAgentModule)
class PrometheusAgent:
    """The agent half of the module ``prometheus``."""

    configuration = PrometheusOptions

    def __init__(self, api: IAgentModuleApi) -> None:
        self.name = api.name
        self._api = api
        options: PrometheusOptions = api.configuration
        # Kubernetes sets this variable in each pod.
        in_pod = "KUBERNETES_SERVICE_HOST" in os.environ
        reach = options.reach or ("cluster-ip" if in_pod else "api-server")
        self._through_api_server = reach == "api-server"
        self._api_server = ProxiedServiceClient(api.kubernetes)
        self._direct = DirectServiceClient(api.kubernetes, api.clock)
        self._questions = Questions(api.kubernetes, api.clock, self._client_of)
        self._counting = False
        api.sections.follow(SCOPE, AgentScope, self._questions.limit)
        api.sections.follow("prometheus", PrometheusSection, self._questions.apply)
        api.calls.handle(_PROMETHEUS, self._questions)

    async def start(self) -> None:
        """Register metrics; the first question begins the search."""
        self._api.metrics.register(self._questions.metrics)
        self._counting = True

    async def stop(self) -> None:
        """End all questions."""
        if self._counting:
            self._counting = False
            self._api.metrics.unregister(self._questions.metrics)
        self._api_server.close()
        self._direct.close()

    def _client_of(self, target: ServiceTarget) -> ClusterServiceClient:
        """
        Return the client for a Service.

        agentk knows no CA for certificates of Services.  The API server connects to an
        https Service without one, and decides about Services without a ClusterIP or
        without a selector.
        """
        is_direct = target.scheme == "http" and target.selector and not target.headless
        if self._through_api_server or not is_direct:
            return self._api_server
        return self._direct
