"""HTTP/1.1 requests, for clients that use Connect."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

from twisted.internet.interfaces import IProtocolFactory, IReactorTime

from kas.api.front import Front
from kas.api.limits import ExternalLimits
from kas.web.draining import DrainingFactory
from kas.web.requests import BoundedRequest, BoundedSite, Bounds, RequestLimits
from tunnel.errors import CallError, ErrorCode, StreamReset
from tunnel.grpc.fields import Headers
from tunnel.grpc.server import Codec

__all__ = ["make_site"]

# Any other path is not a method of a service.
_PATH = re.compile(rb"/[A-Za-z0-9_.]+/[A-Za-z0-9_]+")


class Http1Exchange:
    """One HTTP/1.1 request, as a `tunnel.grpc.server.CallTransport`."""

    def __init__(self, request: Any) -> None:
        self._request = request
        self.call: Codec | None = None
        self._over = False
        self._producing = False

    def start(self, status: int, headers: Headers, end: bool = False) -> None:
        """Send the head of the response."""
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
        """Complete the response."""
        if not self._over:
            self._over = True
            self.unregisterProducer()
            self._request.finish()

    def reset(self) -> None:
        """
        Abort the response by closing the connection, because HTTP/1.1 has no other way.
        """
        if not self._over:
            self._over = True
            self.unregisterProducer()
            self._request.transport.abortConnection()

    def pauseProducing(self) -> None:
        """Do nothing: the whole request has arrived."""

    def resumeProducing(self) -> None:
        """Do nothing: the whole request has arrived."""

    def registerProducer(self, producer: Any, streaming: bool) -> None:
        """
        Register *producer*, which is paused while the client does not read its
        response.
        """
        if not self._over:
            self._producing = True
            self._request.registerProducer(producer, streaming)

    def unregisterProducer(self) -> None:
        """Forget the producer."""
        if self._producing:
            self._producing = False
            self._request.unregisterProducer()

    def gone(self) -> None:
        """Record that the client has disconnected."""
        if not self._over:
            self._over = True
            self._producing = False
            if self.call is not None:
                self.call.gone(StreamReset(ErrorCode.CANCELLED))


class ApiRequest(BoundedRequest):
    """Request for a call; its body is read only if the token is valid."""

    _exchange: Http1Exchange | None = None

    def __init__(self, front: Front, bounds: Bounds, *rest: Any) -> None:
        super().__init__(bounds, *rest)
        self._front = front

    def begun(self) -> None:
        authorization = self.requestHeaders.getRawHeaders(b"authorization", [b""])
        try:
            self._front.authenticator.check(b",".join(authorization).decode("latin-1"))
        except CallError:
            self.discard = True

    def answer(self) -> None:
        # From now on, the call holds the body.
        self.share.release()
        if self.method != b"POST" or _PATH.fullmatch(self.path) is None:
            found = self.method != b"POST"
            self.setResponseCode(405 if found else 404)
            if found:
                self.setHeader(b"allow", b"POST")
            self.setHeader(b"content-length", b"0")
            self.finish()
            return
        exchange = self._exchange = Http1Exchange(self)
        headers = [
            (name, value)
            for name, values in self.requestHeaders.getAllRawHeaders()
            for value in values
        ]
        path = self.path.decode("ascii")
        client = getattr(self.getClientAddress(), "host", "")
        begun = self._front.begin(exchange, "POST", path, headers, False, client)
        if begun.call is not None:
            exchange.call = begun.call
            begun.call.body(self.content.read())
            begun.call.body_ended()

    def gone(self) -> None:
        if self._exchange is not None:
            self._exchange.gone()


def make_site(
    front: Front, clock: IReactorTime, limits: ExternalLimits, factory: DrainingFactory
) -> IProtocolFactory:
    """Return the factory for connections that do not begin with HTTP/2's preface."""
    of_request = RequestLimits(limits.request, limits.idle, limits.body)
    bounds = Bounds(of_request, clock, front.memory, factory)
    site: Any = BoundedSite(partial(ApiRequest, front), bounds)
    return site  # type: ignore[no-any-return]
