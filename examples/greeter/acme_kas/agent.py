"""The half in agentk: answers greetings, and reports whom it greeted."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import attrs
from tunnel.api import IAgentModule, IAgentModuleApi, IAgentModuleFactory
from tunnel.config import Duration, field
from tunnel.errors import CallError, Status
from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer, provider

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

#: Reports under way at once.  Whoever greets decides how many there are, so there has
#: to be a bound; what comes on top is not reported.
MAX_REPORTS = 100


@attrs.frozen(kw_only=True)
class GreeterAgentConfiguration:
    """``modules.greeter`` in agentk's file."""

    greeting: str = field(default="Hello", doc="what every answer begins with")
    report_timeout: Duration = field(
        default=10.0, doc="how long one report to kas may take"
    )


@implementer(IAgentModule)
@provider(IAgentModuleFactory)
class GreeterAgent:
    """Greets in the name of its cluster."""

    name = "greeter"
    configuration = GreeterAgentConfiguration
    _log = Logger()

    def __init__(self, api: IAgentModuleApi) -> None:
        self.api = api
        self._reports: set[Deferred[None]] = set()
        api.calls.handle(GREETER, self)

    async def start(self) -> None:
        """Nothing to begin with: `greet` is called as soon as kas asks."""

    async def stop(self) -> None:
        """Give up the reports that are under way."""
        for report in tuple(self._reports):
            report.cancel()

    async def greet(self, request: GreetRequest, call: Any) -> GreetResponse:
        """``Greeter.Greet``."""
        if not request.name:
            raise CallError(Status.INVALID_ARGUMENT, "whom shall I greet?")
        self._report(request.name)
        return GreetResponse(text=f"{self.api.configuration.greeting}, {request.name}!")

    async def list_pods(self, request: ListPodsRequest, call: Any) -> ListPodsResponse:
        """``Greeter.ListPods``: what the user who asks may see, and no more."""
        kubernetes = self.api.kubernetes.acting_for(call.access)
        namespace = quote(request.namespace, safe="")
        pods = await kubernetes.json("GET", f"/api/v1/namespaces/{namespace}/pods")
        return ListPodsResponse(
            names=[pod["metadata"]["name"] for pod in pods["items"]]
        )

    def _report(self, name: str) -> None:
        # Not awaited by `greet`: its caller need not wait for this.
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
