"""HTTP/1.1 requests: Connect for clients that know nothing else."""

from __future__ import annotations

import re
from collections.abc import Callable
from io import BytesIO
from typing import Any

from twisted.internet.interfaces import IDelayedCall, IProtocolFactory, IReactorTime
from twisted.web.resource import Resource
from twisted.web.server import Request, Site

from kas.api.front import Front
from kas.api.limits import ExternalLimits
from tunnel.errors import CallError, ErrorCode, StreamReset
from tunnel.grpc.fields import Headers
from tunnel.grpc.memory import RequestShare
from tunnel.grpc.server import Codec

__all__ = ["make_site"]

# They are untyped.
_Request: Any = Request
_Site: Any = Site

# Anything else is no method of a service.
_PATH = re.compile(rb"/[A-Za-z0-9_.]+/[A-Za-z0-9_]+")


class Http1Exchange:
    """One request; a `tunnel.grpc.server.CallTransport`."""

    def __init__(self, request: Any) -> None:
        self._request = request
        self.call: Codec | None = None
        self._over = False
        self._producing = False

    def start(self, status: int, headers: Headers, end: bool = False) -> None:
        """Send the head of the answer."""
        if self._over:
            return
        self._request.setResponseCode(status)
        for name, value in headers:
            self._request.responseHeaders.addRawHeader(name, value)
        if end:
            self._request.setHeader(b"content-length", b"0")
            self.end()

    def write(self, data: bytes) -> None:
        """Send a part of the body."""
        if not self._over:
            self._request.write(data)

    def end(self, trailers: Headers = ()) -> None:
        """The answer is complete."""
        if not self._over:
            self._over = True
            self.unregisterProducer()
            self._request.finish()

    def reset(self) -> None:
        """Abort: the connection is all that can be cut."""
        if not self._over:
            self._over = True
            self.unregisterProducer()
            self._request.transport.abortConnection()

    def pauseProducing(self) -> None:
        """The request is here as a whole."""

    def resumeProducing(self) -> None:
        """As above."""

    def registerProducer(self, producer: Any, streaming: bool) -> None:
        """Pause *producer* while the client does not read."""
        if not self._over:
            self._producing = True
            self._request.registerProducer(producer, streaming)

    def unregisterProducer(self) -> None:
        """Nothing more comes of it."""
        if self._producing:
            self._producing = False
            self._request.unregisterProducer()

    def gone(self) -> None:
        """The client left, and with it what one could unregister from."""
        if not self._over:
            self._over = True
            self._producing = False
            if self.call is not None:
                self.call.gone(StreamReset(ErrorCode.CANCELLED))


def make_site(
    front: Front,
    clock: IReactorTime,
    limits: ExternalLimits,
    *,
    closing: Callable[[object], bool],
    busy: set[object],
) -> IProtocolFactory:
    """
    The factory for connections that do not begin with HTTP/2's preface.

    :param closing: whether a connection, by its transport, ends after the answer.
    :param busy: holds the transports of those with a request under way.
    """

    class BoundedRequest(_Request):  # type: ignore[misc]
        """Bounds the time for head and body, and keeps no body without a token."""

        _late_call: IDelayedCall | None = None
        _exchange: Http1Exchange | None = None

        def __init__(self, *arguments: Any, **rest: Any) -> None:
            super().__init__(*arguments, **rest)
            self._kept = 0
            self._discard = False
            self._share = RequestShare(front.memory)
            self._transport: object = self.channel.transport
            self._late_call = clock.callLater(limits.request, self._late)

        def gotLength(self, length: int | None) -> None:
            """The head is here, and nothing of the body."""
            self.content = BytesIO()
            authorization = self.requestHeaders.getRawHeaders(b"authorization", [b""])
            try:
                front.authenticator.check(b",".join(authorization).decode("latin-1"))
            except CallError:
                self._discard = True
            if length is not None and length > limits.body:
                self._too_large()

        def handleContentChunk(self, data: bytes) -> None:
            """A part of the body."""
            self._kept += len(data)
            if self._kept > limits.body:
                self._too_large()
            elif not self._discard:
                try:
                    self._share.hold(self._kept)
                except CallError:
                    self._refuse(b"503 Service Unavailable\r\nRetry-After: 1")
                else:
                    self.content.write(data)

        def process(self) -> None:
            """Everything is here."""
            self._in_time()
            # From here on the call holds it.
            self._share.release()
            busy.add(self._transport)
            if self._discard or closing(self._transport):
                self.channel.persistent = False
                self.setHeader(b"connection", b"close")
            if self.method != b"POST" or _PATH.fullmatch(self.path) is None:
                found = self.method != b"POST"
                self.setResponseCode(405 if found else 404)
                if found:
                    self.setHeader(b"allow", b"POST")
                self.setHeader(b"content-length", b"0")
                self.finish()
                return
            self._call()

        def _call(self) -> None:
            exchange = self._exchange = Http1Exchange(self)
            headers = [
                (name, value)
                for name, values in self.requestHeaders.getAllRawHeaders()
                for value in values
            ]
            path = self.path.decode("ascii")
            begun = front.begin(exchange, "POST", path, headers, False)
            if begun.call is not None:
                exchange.call = begun.call
                begun.call.body(self.content.read())
                begun.call.body_ended()

        def finish(self) -> None:
            """The answer is complete."""
            busy.discard(self._transport)
            super().finish()

        def connectionLost(self, reason: Any) -> None:
            """The client is gone."""
            self._in_time()
            self._share.release()
            # Not when the garbage is collected next.
            self.content = BytesIO()
            busy.discard(self._transport)
            if self._exchange is not None:
                self._exchange.gone()
            super().connectionLost(reason)

        def _in_time(self) -> None:
            call, self._late_call = self._late_call, None
            if call is not None and call.active():
                call.cancel()

        def _late(self) -> None:
            self.channel.forceAbortClient()

        def _too_large(self) -> None:
            self._refuse(b"413 Content Too Large")

        def _refuse(self, status: bytes) -> None:
            if self._late_call is not None:
                self._in_time()
                self._share.release()
                self._discard = True
                self.content = BytesIO()
                self.channel.transport.write(
                    b"HTTP/1.1 " + status + b"\r\n"
                    b"Connection: close\r\nContent-Length: 0\r\n\r\n"
                )
                self.channel.loseConnection()

    class Http11Site(_Site):  # type: ignore[misc]
        """Without HTTP/2, which `tunnel.http2` does, and without a log of it."""

        def acceptableProtocols(self) -> list[bytes]:
            return [b"http/1.1"]

        def log(self, request: Any) -> None:
            """Calls are not worth a line each."""

    site = Http11Site(Resource(), BoundedRequest, timeout=limits.idle, reactor=clock)
    site.noisy = False
    return site
