"""The half in kas: an HTTP API, and reports from agents."""

from __future__ import annotations

import json
from collections import deque
from typing import Any

import attrs
from klein import Klein
from tunnel.api import (
    Access,
    IServerModule,
    IServerModuleApi,
    IServerModuleFactory,
)
from tunnel.config import Duration, Listen, field
from tunnel.errors import CallError, Status
from twisted.internet.defer import maybeDeferred
from twisted.web.iweb import IRequest
from twisted.web.server import Site
from zope.interface import implementer, provider

from acme_kas.rpc_pb2 import (
    DESCRIPTOR,
    GreetRequest,
    ListPodsRequest,
    ReportResponse,
    Sighting,
)

GREETER = DESCRIPTOR.services_by_name["Greeter"]
SIGHTINGS = DESCRIPTOR.services_by_name["Sightings"]

#: Maximum number of characters of a stored name, because agents may send any text.
MAX_NAME = 200

_HTTP = {
    Status.INVALID_ARGUMENT: 400,
    Status.UNAUTHENTICATED: 401,
    Status.PERMISSION_DENIED: 403,
    Status.UNIMPLEMENTED: 404,
    Status.UNAVAILABLE: 503,
    Status.DEADLINE_EXCEEDED: 504,
}


@attrs.frozen(kw_only=True)
class GreeterListen(Listen):
    """Schema of ``modules.greeter.listen``."""

    address: str = field(default="127.0.0.1:8160", doc="host:port of the HTTP API")


@attrs.frozen(kw_only=True)
class GreeterServerConfiguration:
    """``modules.greeter`` in kas' configuration file."""

    listen: GreeterListen = field(factory=GreeterListen, doc="where the HTTP API is")
    timeout: Duration = field(default=5.0, doc="how long an agent has to answer")
    keep: int = field(
        default=100,
        doc="how many sightings to remember",
        validator=attrs.validators.gt(0),
    )


@implementer(IServerModule)
@provider(IServerModuleFactory)
class GreeterServer:
    """Module that lets agents greet, and remembers the users that they greeted."""

    name = "greeter"
    configuration = GreeterServerConfiguration
    app = Klein()

    def __init__(self, api: IServerModuleApi) -> None:
        self.api = api
        #: Agent ids and greeted names, the latest last.
        self.sightings: deque[tuple[str, str]] = deque(maxlen=api.configuration.keep)
        #: Number of greetings by agent id, in all kas together; the numbers outlive the
        #: process.
        self.greeted = api.stores.open("greeted")
        api.calls.handle(SIGHTINGS, self)

    async def start(self) -> None:
        """Listen; kas closes the port when the module stops."""
        site = Site(self.app.resource(), reactor=self.api.reactor)
        await self.api.network.listen(self.api.configuration.listen, site)

    async def stop(self) -> None:
        """Do nothing: no resources have to be released."""

    async def report(self, request: Sighting, call: Any) -> ReportResponse:
        """Handle ``Sightings.Report``, which agents call."""
        self.sightings.append((call.agent.agent_id, request.name[:MAX_NAME]))
        await self._count(call.agent.agent_id)
        return ReportResponse()

    async def _count(self, agent_id: str) -> None:
        """
        Increment the count of an agent; try again if another kas does so at the same
        time.
        """
        while True:
            found = await self.greeted.get(agent_id)
            count, version = (int(found.value), found.version) if found else (0, 0)
            try:
                await self.greeted.set(agent_id, b"%d" % (count + 1), version=version)
            except CallError as error:
                if error.status != Status.ABORTED:
                    raise
            else:
                return

    @app.route("/greet/<agent>", methods=["GET"])
    async def greet(self, request: IRequest, agent: str) -> bytes:
        """Let an agent greet the user in ``?name=``."""
        access = await self._authorized(request, agent)
        name = request.args.get(b"name", [b""])[0].decode("utf-8", "replace")
        client = self.api.calls.client(GREETER, access.agent_id)
        timeout = self.api.configuration.timeout
        answer = await client.call("Greet", GreetRequest(name=name), timeout=timeout)
        return _json(request, {"text": answer.text})

    @app.route("/pods/<agent>/<namespace>", methods=["GET"])
    async def pods(self, request: IRequest, agent: str, namespace: str) -> bytes:
        """Return the pods that the user may read; agentk impersonates the user."""
        access = await self._authorized(request, agent)
        client = self.api.calls.client(GREETER, access.agent_id, access=access)
        asked = ListPodsRequest(namespace=namespace)
        timeout = self.api.configuration.timeout
        answer = await client.call("ListPods", asked, timeout=timeout)
        return _json(request, {"names": list(answer.names)})

    @app.route("/sightings/<agent>", methods=["GET"])
    async def seen(self, request: IRequest, agent: str) -> bytes:
        """Return the names that an agent has greeted, the latest last."""
        access = await self._authorized(request, agent)
        names = [name for who, name in self.sightings if who == access.agent_id]
        return _json(request, {"names": names})

    @app.route("/greeted/<agent>", methods=["GET"])
    async def counted(self, request: IRequest, agent: str) -> bytes:
        """Return the number of greetings by an agent."""
        access = await self._authorized(request, agent)
        found = await self.greeted.get(access.agent_id)
        return _json(request, {"count": int(found.value) if found else 0})

    @app.handle_errors(CallError)
    def failed(self, request: IRequest, failure: Any) -> bytes:
        """Return the HTTP response for a failed call."""
        request.setResponseCode(_HTTP.get(failure.value.status, 500))
        return _json(request, {"error": str(failure.value)})

    async def _authorized(self, request: IRequest, agent: str) -> Access:
        header = request.getHeader(b"authorization") or b""
        token = header.removeprefix(b"Bearer ").decode("ascii", "replace")
        return await maybeDeferred(self.api.users.authorize, "", agent, token)


def _json(request: IRequest, value: object) -> bytes:
    request.setHeader(b"content-type", b"application/json")
    return json.dumps(value).encode() + b"\n"
