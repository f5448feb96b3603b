"""The half in agentk: responds with greetings, and reports the greeted users."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import attrs
from tunnel.api import (
    ClusterViewsStarted,
    IAgentModule,
    IAgentModuleApi,
    IAgentModuleFactory,
    IClusterViews,
)
from tunnel.config import Duration, field
from tunnel.errors import CallError, Status
from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer, provider

from acme_kas.hosts import HOSTS
from acme_kas.rpc_pb2 import (
    DESCRIPTOR,
    GreetRequest,
    GreetResponse,
    ListPodsRequest,
    ListPodsResponse,
    Sighting,
)

GREETER = DESCRIPTOR.services_by_name["Greeter"]
SIGHTINGS = DESCRIPTOR.services_by_name["Sightings"]

#: Maximum number of concurrent reports.  Callers determine the number of greetings, so
#: the number of reports needs a limit; at the limit, further greetings are not
#: reported.
MAX_REPORTS = 100


@attrs.frozen(kw_only=True)
class GreeterAgentConfiguration:
    """``modules.greeter`` in agentk's configuration file."""

    greeting: str = field(default="Hello", doc="what every answer begins with")
    report_timeout: Duration = field(
        default=10.0, doc="how long one report to kas may take"
    )


@implementer(IAgentModule)
@provider(IAgentModuleFactory)
class GreeterAgent:
    """Module that greets on behalf of its cluster."""

    name = "greeter"
    configuration = GreeterAgentConfiguration
    _log = Logger()

    def __init__(self, api: IAgentModuleApi) -> None:
        self.api = api
        self._reports: set[Deferred[None]] = set()
        self._withdraw: Callable[[], object] = lambda: None
        api.calls.handle(GREETER, self)

    async def start(self) -> None:
        """Publish the view ``hosts``, also after a restart of ``cluster_data``."""
        self.api.events.subscribe(ClusterViewsStarted, lambda _: self._publish())
        self._publish()

    def _publish(self) -> None:
        views = self.api.capabilities.get(IClusterViews)
        if views is not None:
            self._withdraw = views.add(HOSTS)

    async def stop(self) -> None:
        """Withdraw the view, and cancel the reports in progress."""
        self._withdraw()
        for report in tuple(self._reports):
            report.cancel()

    async def greet(self, request: GreetRequest, call: Any) -> GreetResponse:
        """Handle ``Greeter.Greet``."""
        if not request.name:
            raise CallError(Status.INVALID_ARGUMENT, "whom shall I greet?")
        self._report(request.name)
        return GreetResponse(text=f"{self.api.configuration.greeting}, {request.name}!")

    async def list_pods(self, request: ListPodsRequest, call: Any) -> ListPodsResponse:
        """
        Handle ``Greeter.ListPods``: return only pods that the calling user may read.
        """
        kubernetes = self.api.kubernetes.acting_for(call.access)
        namespace = quote(request.namespace, safe="")
        pods = await kubernetes.json("GET", f"/api/v1/namespaces/{namespace}/pods")
        return ListPodsResponse(
            names=[pod["metadata"]["name"] for pod in pods["items"]]
        )

    def _report(self, name: str) -> None:
        # `greet` does not wait for the report, because its caller need not.
        if len(self._reports) >= MAX_REPORTS:
            return
        report = Deferred.fromCoroutine(self._send(name))
        self._reports.add(report)
        report.addErrback(self._failed)
        report.addCallback(lambda result: self._reports.discard(report))

    async def _send(self, name: str) -> None:
        sighting = Sighting(name=name)
        timeout = self.api.configuration.report_timeout
        await self.api.calls.client(SIGHTINGS).call("Report", sighting, timeout=timeout)

    def _failed(self, failure: Failure) -> None:
        if failure.check(CancelledError) is None:
            self._log.warn(
                "kas did not accept a report: {reason}", reason=failure.value
            )
