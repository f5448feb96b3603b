"""An API server in memory, for tests of agent halves; the test sets its responses."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import attrs
from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.error import ConnectionRefusedError
from twisted.internet.interfaces import (
    IAddress,
    IConsumer,
    IProtocolFactory,
    IPushProducer,
    IStreamClientEndpoint,
    ITransport,
)
from twisted.internet.protocol import connectionDone
from twisted.internet.task import Clock
from zope.interface import implementer

from tunnel.api import ICluster
from tunnel.testing.objects import FakeObjects, Refusal, Watcher
from tunnel.testing.services import FakeService

__all__ = ["FakeCluster", "FakeRequest"]

#: Response to a request if the test set no response for it.
_NOT_FOUND = Refusal(404, "NotFound", "the test has no answer to this")


@attrs.frozen
class FakeRequest:
    """A request that a `FakeCluster` received."""

    method: str
    #: The path and query.
    path: str
    #: The header fields by name in lower case, each with all its values.
    fields: dict[str, list[str]]
    body: bytes = b""

    @property
    def user(self) -> str:
        """The impersonated user of the request; empty for agentk itself."""
        return self.fields.get("impersonate-user", [""])[0]


@implementer(ICluster)
class FakeCluster:
    """
    A fake cluster that responds as `answer` sets, and otherwise from `objects`.

    It does not support chunked bodies.

    :ivar requests: all requests in order.
    :ivar objects: the objects of the cluster.
    :ivar refuses: whether connections are refused, as without an API server.
    :ivar silent: whether requests get no response.
    :ivar services: the servers behind Services, by ClusterIP and port.
    """

    fields: Mapping[str, str] = {}
    host, port = "kubernetes.test", 6443
    path_prefix = ""
    host_header = b"kubernetes.test:6443"

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.requests: list[FakeRequest] = []
        self.refuses = False
        self.silent = False
        self.objects = FakeObjects(clock.seconds)
        self.services: dict[tuple[str, int], FakeService] = {}
        self._answers: dict[tuple[str, str], tuple[int, bytes]] = {}
        self._open: set[_Connection] = set()

    def answer(self, method: str, path: str, body: Any, status: int = 200) -> None:
        """
        Respond with *body* to matching requests from now on.

        :param path: the path, including the query of the request if it has one.
        :param body: bytes, or an object to be sent as JSON.
        """
        if not isinstance(body, bytes):
            body = json.dumps(body).encode()
        self._answers[method, path] = (status, body)

    def cut(self) -> None:
        """End every connection, like an API server that stops."""
        for one in tuple(self._open):
            one.loseConnection()

    def take(self, request: FakeRequest) -> tuple[int, bytes] | Watcher:
        """Return the response to a request: status and body, or a watcher."""
        self.requests.append(request)
        answer = self._answers.get((request.method, request.path))
        if answer is not None:
            return answer
        kind = request.fields.get("content-type", [""])[0]
        partial = "as=PartialObjectMetadata" in request.fields.get("accept", [""])[0]
        try:
            found = self.objects.respond(
                request.method, request.path, kind, request.body, partial
            )
        except Refusal as refusal:
            found = refusal.code, refusal.status
        if isinstance(found, Watcher):
            return found
        status, said = found or (404, _NOT_FOUND.status)
        return status, json.dumps(said).encode()

    # ICluster

    def tls_context(self) -> None:
        pass

    def tls_server_name(self) -> str:
        return self.host

    def endpoint(self) -> IStreamClientEndpoint:
        return _Endpoint(self, self._clock, self._open)

    def reach(self, address: str, port: int) -> IStreamClientEndpoint:
        """Return an endpoint for the Service with an address."""
        found = self.services.get((address, port), FakeService(refuses=True))
        return _Endpoint(found, self._clock, self._open)

    def rejected(self) -> None:
        pass

    def authorization(self) -> bytes:
        return b"Bearer of-agentk"


@implementer(IStreamClientEndpoint)
@attrs.frozen
class _Endpoint:
    server: FakeCluster | FakeService
    clock: Clock
    open: set[_Connection]

    def connect(self, factory: IProtocolFactory) -> Deferred[Any]:
        if self.server.refuses:
            return fail(ConnectionRefusedError())
        protocol: Any = factory.buildProtocol(IPv4Address("TCP", "127.0.0.1", 6443))
        connection = _Connection(self.server, self.clock, protocol, self.open)
        self.open.add(connection)
        protocol.makeConnection(connection)
        return succeed(protocol)


@implementer(ITransport, IConsumer, IPushProducer)
class _Connection:
    """
    The client's transport for a connection to the fake, which parses the written data
    and responds.
    """

    disconnecting = False

    def __init__(
        self,
        server: FakeCluster | FakeService,
        clock: Clock,
        client: Any,
        opened: set[_Connection],
    ) -> None:
        self._server = server
        self._opened = opened
        self._clock = clock
        self._client = client
        self._received = b""
        self._lost = False
        # Only an API server has watchers.
        self._watchers: set[Watcher] = (
            server.objects.watchers if isinstance(server, FakeCluster) else set()
        )
        self._watcher: Watcher | None = None
        self._watching: Any = None

    def write(self, data: bytes) -> None:
        if self._server.silent:
            return
        self._received += data
        while (request := self._read()) is not None:
            answer = self._server.take(request)
            if isinstance(answer, Watcher):
                self._follow(answer)
            else:
                status, body = answer
                head = _head(status, b"Content-Length", self._server.fields)
                missing = getattr(self._server, "missing", 0)
                self._send(b"%b: %d" % (head, len(body) + missing))
                self._send(b"\r\n\r\n" + body)

    def _follow(self, watcher: Watcher) -> None:
        self._send(_head(200, b"Transfer-Encoding") + b": chunked\r\n\r\n")
        watcher.begin(lambda line: self._send(b"%x\r\n%b\r\n" % (len(line), line)))
        self._watchers.add(watcher)
        self._watcher = watcher
        self._watching = self._clock.callLater(watcher.seconds, self._watched)

    def _watched(self) -> None:
        if self._watcher is not None:
            self._watchers.discard(self._watcher)
            self._watcher = None
            self._send(b"0\r\n\r\n")

    def _send(self, data: bytes) -> None:
        self._clock.callLater(0, self._deliver, data)

    def _read(self) -> FakeRequest | None:
        head, end, rest = self._received.partition(b"\r\n\r\n")
        if not end:
            return None
        start, *lines = head.decode("latin-1").split("\r\n")
        method, path, _ = start.split(" ")
        fields: dict[str, list[str]] = {}
        for line in lines:
            name, _, value = line.partition(":")
            fields.setdefault(name.lower(), []).append(value.strip())
        if "transfer-encoding" in fields:
            raise ValueError("FakeCluster only accepts bodies with a Content-Length")
        length = int(fields.get("content-length", ["0"])[0])
        if len(rest) < length:
            return None
        self._received = rest[length:]
        return FakeRequest(method, path, fields, rest[:length])

    def _deliver(self, answer: bytes) -> None:
        if not self._lost:
            self._client.dataReceived(answer)

    def writeSequence(self, data: Any) -> None:
        self.write(b"".join(data))

    def loseConnection(self) -> None:
        self.disconnecting = True
        self._clock.callLater(0, self._lose)

    abortConnection = stopProducing = loseConnection

    def _lose(self) -> None:
        if not self._lost:
            self._lost = True
            self._opened.discard(self)
            if self._watcher is not None:
                self._watchers.discard(self._watcher)
                self._watching.cancel()
            self._client.connectionLost(connectionDone)

    def registerProducer(self, producer: Any, streaming: bool) -> None:
        pass

    def unregisterProducer(self) -> None:
        pass

    def pauseProducing(self) -> None:
        pass

    def resumeProducing(self) -> None:
        pass

    def getPeer(self) -> IAddress:
        return IPv4Address("TCP", "127.0.0.1", 6443)

    getHost = getPeer


def _head(
    status: int, framing: bytes, fields: Mapping[str, str] | None = None
) -> bytes:
    more = "".join(f"{name}: {text}\r\n" for name, text in (fields or {}).items())
    return b"HTTP/1.1 %d Fake\r\nContent-Type: application/json\r\n%b%b" % (
        status,
        more.encode(),
        framing,
    )
