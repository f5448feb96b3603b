"""
A module that makes kas hostile: it sends agents whatever it is told to.

It has everything that kas has: it speaks the protocol, and claims any user.
"""

from __future__ import annotations

import json
from typing import Any

import attrs
from klein import Klein
from twisted.internet.defer import Deferred
from twisted.web.iweb import IRequest
from twisted.web.server import Site
from zope.interface import implementer, provider

from modules.cluster_data.wire import objects_pb2
from modules.kubernetes_api.fields import METHOD
from tunnel.api import Access, Impersonation, IServerModule, IServerModuleFactory
from tunnel.config import Listen, field
from tunnel.errors import CallError

#: The dropin that makes it known.
DROPIN = """\
from tunnel.plugin import ServerModule

hostile = ServerModule("hostile", "tests.integration.hostile_module.HostileModule")
"""

#: Bytes of a response that are shown.
SHOWN = 4096


@attrs.frozen(kw_only=True)
class HostileListen(Listen):
    """Where it takes orders."""

    address: str = field(default="127.0.0.1:0", doc="host:port")


@attrs.frozen(kw_only=True)
class HostileConfiguration:
    """Its section."""

    listen: HostileListen = field(factory=HostileListen, doc="where it takes orders")


class _Response:
    """Receiver of what an agent sends back."""

    def __init__(self) -> None:
        self.head = self.body = b""
        self.done: Deferred[None] = Deferred()

    def headers_received(self, block: bytes) -> None:
        self.head = self.head or block
        if b" 101 " in block:
            self._end()

    def data_received(self, data: bytes) -> None:
        self.body += data

    def fin_received(self) -> None:
        self._end()

    def stream_closed(self, reason: Exception | None) -> None:
        self._end()

    def _end(self) -> None:
        if not self.done.called:
            self.done.callback(None)


@provider(IServerModuleFactory)
@implementer(IServerModule)
class HostileModule:
    """Sends heads to agents."""

    configuration = HostileConfiguration
    app = Klein()

    def __init__(self, api: Any) -> None:
        self.name = api.name
        self.api = api

    async def start(self) -> None:
        """Listen for orders."""
        site = Site(self.app.resource(), reactor=self.api.reactor)
        await self.api.network.listen(self.api.configuration.listen, site)

    async def stop(self) -> None:
        """Nothing is held."""

    @app.route("/proxy/<agent>", methods=["POST"])
    async def proxy(self, request: IRequest, agent: str) -> bytes:
        """Send a head as the Kubernetes API proxy would."""
        found = _Response()
        block = request.content.read()
        stream = self.api.calls.open_stream(agent, METHOD, found, block)
        stream.finish()
        found.done.addTimeout(20, self.api.clock, lambda *_: None)
        await found.done
        stream.reset()
        return _said(found.head, found.body)

    @app.route("/cache/<agent>", methods=["POST"])
    async def cache(self, request: IRequest, agent: str) -> bytes:
        """Read the cache as a user of its choice."""
        order = json.loads(request.content.read())
        user = order["user"]
        access = Access(
            "user:x",
            agent,
            "main",
            impersonation=Impersonation(user) if user else None,
        )
        services = objects_pb2.DESCRIPTOR.services_by_name
        client = self.api.calls.client(services["ClusterObjects"], agent, access=access)
        head, body = b"", b""
        try:
            asked = objects_pb2.ReadRequest(target=order["target"])
            async for part in client.stream("Read", asked):
                if part.HasField("head"):
                    head = b"%d" % part.head.status
                body += part.data
        except CallError as error:
            body = str(error).encode()
        return _said(head, body)


def _said(head: bytes, body: bytes) -> bytes:
    found = {"head": head.decode("latin-1"), "body": body[:SHOWN].decode("latin-1")}
    return json.dumps(found).encode()
