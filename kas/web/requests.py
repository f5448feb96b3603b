"""Requests of twisted.web with limits on size and time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from io import BytesIO
from typing import Any, Protocol
from urllib.parse import parse_qs

import attrs
from twisted.internet.interfaces import (
    IDelayedCall,
    IProtocolFactory,
    IReactorTime,
)
from twisted.internet.protocol import connectionDone
from twisted.web.http import HTTPChannel
from twisted.web.resource import Resource
from twisted.web.server import Request, Site

from kas.web.draining import DrainingFactory
from kas.web.handed_over import HandedOver
from tunnel.errors import CallError
from tunnel.grpc.memory import RequestMemory, RequestShare
from tunnel.toolkit.timers import cancel_call
from tunnel.transport.eager import unsent
from tunnel.transport.sockets import bound_unsent

__all__ = [
    "MAX_EARLY_BYTES",
    "MAX_FIELDS",
    "MAX_FORM_BYTES",
    "BoundedChannel",
    "BoundedRequest",
    "BoundedSite",
    "Bounds",
    "RequestLimits",
    "UpgradedConnection",
]

#: Maximum bytes that a client may send after a request for an upgrade and before the
#: response; kas reads no more than that, and one read.
MAX_EARLY_BYTES = 16 * 1024

#: Maximum bytes of a form that is parsed into ``request.args``, and maximum number of
#: fields in it and in a query: parsing blocks kas.  Pages get the body of a larger one,
#: and of a form with files, only as ``request.content``.
MAX_FORM_BYTES = 64 * 1024
MAX_FIELDS = 1000

_FORM = b"application/x-www-form-urlencoded"

# Twisted does not declare the types of this class.
_Channel: Any = HTTPChannel
_Request: Any = Request
_Site: Any = Site


@attrs.frozen
class RequestLimits:
    """Limits on one request of a client."""

    #: Maximum seconds until the head and the body of a request have arrived.
    request: float

    #: Maximum seconds between two requests, and between two pieces of one request; also
    #: the maximum time that a client may pause reading a response.
    idle: float

    #: Maximum bytes of the body, which is read into memory as a whole.
    body: int


class UpgradedConnection(Protocol):
    """Connection after an upgrade; a producer for the transport, too."""

    def begin(self, channel: Any, clock: IReactorTime, share: RequestShare) -> None:
        """
        Take over the connection.

        :param share: the memory for incomplete messages.
        """

    def data_received(self, data: bytes) -> None:
        """Handle bytes of the client."""

    def connection_lost(self) -> None:
        """Handle the end of the connection."""

    def drain(self, seconds: float) -> None:
        """Close the connection within *seconds*."""

    def go_away(self) -> None:
        """Begin to close the connection."""


@attrs.frozen
class Bounds:
    """
    Resources that all requests of one listener share.

    :ivar memory: the memory for bodies.
    :ivar factory: the factory of the connections.
    """

    limits: RequestLimits
    clock: IReactorTime
    memory: RequestMemory
    factory: DrainingFactory


class BoundedRequest(_Request):  # type: ignore[misc]
    """
    Request with limits on the time until its head and body have arrived, and on the
    memory of its body.

    twisted.web limits a head to 500 fields and 16 KiB.
    """

    _late_call: IDelayedCall | None = None
    #: Whether kas sent a response before the request was complete.
    _refused = False

    def __init__(self, bounds: Bounds, *arguments: Any, **rest: Any) -> None:
        super().__init__(*arguments, **rest)
        self._bounds = bounds
        self._kept = 0
        #: Whether kas discards the body of the request.
        self.discard = False
        #: Memory that the body of the request uses.
        self.share = RequestShare(bounds.memory)
        # Connection of the request, kept here because the channel forgets it when the
        # client disconnects.
        self._connection: BoundedChannel = self.channel
        self._late_call = bounds.clock.callLater(bounds.limits.request, self._late)

    def begun(self) -> None:
        """Handle the head of a request before its body; may set `discard`."""

    def answer(self) -> None:
        """Respond to the request; called after all of it has arrived."""
        raise NotImplementedError

    def refused(self, status: int) -> None:
        """Record that kas itself refused the request before it was complete."""

    def gone(self) -> None:
        """Record that the connection ended before the response was complete."""

    def gotLength(self, length: int | None) -> None:
        self.content = BytesIO()
        self.begun()
        if length is not None and length > self._bounds.limits.body:
            self._too_large()

    def handleContentChunk(self, data: bytes) -> None:
        self._kept += len(data)
        if self._kept > self._bounds.limits.body:
            self._too_large()
        elif not self.discard:
            try:
                self.share.hold(self._kept)
            except CallError:
                self._refuse(503, b"Service Unavailable\r\nRetry-After: 1")
            else:
                self.content.write(data)

    def requestReceived(self, command: bytes, path: bytes, version: bytes) -> None:
        """
        Handle a complete request, and parse its query and its form.

        twisted.web parses forms of any size, also for paths without a page: 4 MiB of
        ``a&a&…`` would block kas for seconds.
        """
        self.content.seek(0)
        self.method, self.uri, self.clientproto = command, path, version
        self.path, _, query = path.partition(b"?")
        self.args = _parsed(query)
        kind = self.requestHeaders.getRawHeaders(b"content-type", [b""])[0]
        is_form = kind.partition(b";")[0].strip().lower() == _FORM
        if command == b"POST" and is_form and self._kept <= MAX_FORM_BYTES:
            self.args.update(_parsed(self.content.read()))
            self.content.seek(0)
        self.process()

    def process(self) -> None:
        if self._refused:
            # The last bytes of the request arrived together with bytes beyond the
            # limit.
            return
        self._in_time()
        self._bounds.factory.busy.add(self._connection)
        if self.discard:
            self._close()
        self._close_when_due()
        self.answer()

    def finish(self) -> None:
        self._over()
        self._close_when_due()
        super().finish()

    def _close_when_due(self) -> None:
        if self.channel is not None and self._bounds.factory.leaves(self._connection):
            self._close()

    def _close(self) -> None:
        self.channel.persistent = False
        if not self.startedWriting:
            self.setHeader(b"connection", b"close")

    def connectionLost(self, reason: Any) -> None:
        self._in_time()
        self._over()
        # Release the memory now, instead of at the next garbage collection.
        self.content = BytesIO()
        self.gone()
        super().connectionLost(reason)

    def await_upgrade(self) -> bool:
        """
        Keep the bytes that follow this request until `upgrade`; return False if the
        listener drains.
        """
        if self._bounds.factory.leaves(self._connection):
            return False
        self._connection.await_upgrade()
        return True

    def upgrade(self, head: bytes, connection: UpgradedConnection) -> None:
        """Write the response *head*, and give the connection to *connection*."""
        self._over()
        self._connection.upgrade(self, head, connection)

    @property
    def clock(self) -> IReactorTime:
        """Clock of the listener."""
        return self._bounds.clock

    def _over(self) -> None:
        self.share.release()
        self._bounds.factory.busy.discard(self._connection)

    def _in_time(self) -> None:
        call, self._late_call = self._late_call, None
        cancel_call(call)

    def _late(self) -> None:
        self.channel.forceAbortClient()

    def _too_large(self) -> None:
        self._refuse(413, b"Content Too Large")

    def _refuse(self, status: int, rest: bytes) -> None:
        if not self._refused:
            self._refused = self.discard = True
            self._in_time()
            self.share.release()
            self.content = BytesIO()
            self.channel.transport.write(
                b"HTTP/1.1 %d %b\r\n"
                b"Connection: close\r\nContent-Length: 0\r\n\r\n" % (status, rest)
            )
            self.refused(status)
            self.channel.loseConnection()


def _parsed(text: bytes) -> dict[bytes, list[bytes]]:
    """Return the values of a query or a form; nothing if there are too many."""
    if text.count(b"&") >= MAX_FIELDS:
        return {}
    found: dict[bytes, list[bytes]] = parse_qs(text, keep_blank_values=True)
    return found


class BoundedChannel(_Channel):  # type: ignore[misc]
    """
    HTTP/1.1 connection that is registered at its factory.

    A client that reads none of the waiting data during the idle timeout is
    disconnected, because its response occupies memory, and often keeps a producer
    waiting.
    """

    #: Time at which the connection began.
    born = 0.0
    #: Whether kas ends the connection, and not the client.
    closing = False
    _stalled_call: IDelayedCall | None = None
    _written = 0
    #: Number of bytes that had been sent at the last check.
    _taken = 0
    #: Bytes that arrived while a request for an upgrade waits for its response.
    _early: bytearray | None = None
    #: Protocol that has taken the connection over.
    upgraded: UpgradedConnection | None = None

    def connectionMade(self) -> None:
        self.born = self.site.reactor.seconds()
        # Without this limit, the kernel would buffer megabytes, and kas could not
        # detect whether the client reads them.
        bound_unsent(self.transport)
        super().connectionMade()

    def write(self, data: bytes) -> None:
        self._written += len(data)
        super().write(data)

    def writeSequence(self, iovec: Iterable[bytes]) -> None:
        self.write(b"".join(iovec))

    def pauseProducing(self) -> None:
        """
        Stop writing, because the transport holds much data that the client has not
        read.
        """
        super().pauseProducing()
        self._watch()

    def resumeProducing(self) -> None:
        """Resume writing, because the client has read all data."""
        super().resumeProducing()
        if not self.closing:
            self._unwatch()

    def await_upgrade(self) -> None:
        """Keep the bytes that follow the current request until `upgrade`."""
        self._early = bytearray()

    def upgrade(
        self, request: BoundedRequest, head: bytes, connection: UpgradedConnection
    ) -> None:
        """
        Write the response *head*, and give the connection to *connection*.

        The connection still counts for its factory, and a client that reads nothing is
        still disconnected.  twisted.web's own idle timeout is off during a request.
        """
        self.requests.remove(request)
        early, self._early = self._early or b"", None
        if len(early) > MAX_EARLY_BYTES:
            self.transport.resumeProducing()
        self.upgraded = connection
        self.write(head)
        self.registerProducer(connection, True)
        bounds = self.site.bounds
        connection.begin(self, bounds.clock, RequestShare(bounds.memory))
        if early:
            connection.data_received(bytes(early))
        if bounds.factory.leaves(self):
            connection.go_away()

    def lineReceived(self, line: bytes) -> None:
        """Handle a line of a head, or hand the connection over."""
        # twisted.web has no public name for the state between two requests.
        begins = self._HTTPChannel__first_line and line and not self.requests
        factory = self.site.protocol_for(line) if begins else None
        if factory is None or not self.persistent:
            super().lineReceived(line)
            return
        rest = self.clearLineBuffer()
        self.setRawMode()
        self.setTimeout(None)
        self._networkProducer.unregisterProducer()
        bounds = self.site.bounds
        self.upgraded = handed = HandedOver(factory)
        handed.begin(self, bounds.clock, RequestShare(bounds.memory))
        handed.request_received(line, rest)

    def rawDataReceived(self, data: bytes) -> None:
        """Handle bytes that follow the head of a request."""
        if self.upgraded is not None:
            self.upgraded.data_received(data)
        elif self._early is not None:
            self._early += data
            if len(self._early) > MAX_EARLY_BYTES:
                self.transport.pauseProducing()
        else:
            super().rawDataReceived(data)

    def timeoutConnection(self) -> None:
        """
        End an idle connection, unless the client is still reading the last response.
        """
        if unsent(self.transport) and self._takes():
            self.setTimeout(self.timeOut)
        else:
            super().timeoutConnection()

    def loseConnection(self) -> None:
        """Close the connection after all written data has been sent."""
        if not self.closing:
            self.closing = True
            super().loseConnection()
            # Watch the connection, because the transport would wait for the client
            # without a limit.
            self._watch()

    def close(self) -> None:
        """Close the connection after all written data has been sent."""
        if self.upgraded is None:
            self.loseConnection()
        else:
            self.upgraded.go_away()

    def forceAbortClient(self) -> None:
        self.closing = True
        super().forceAbortClient()

    def connectionLost(self, reason: Any = connectionDone) -> None:
        self._unwatch()
        self.site.bounds.factory.lost(self)
        if self.upgraded is not None:
            self.upgraded.connection_lost()
        super().connectionLost(reason)

    def _watch(self) -> None:
        if self._stalled_call is None:
            self._takes()
            idle = self.site.bounds.limits.idle
            self._stalled_call = self.callLater(idle, self._look)

    def _unwatch(self) -> None:
        call, self._stalled_call = self._stalled_call, None
        if call is not None:
            call.cancel()

    def _look(self) -> None:
        self._stalled_call = None
        if self._takes():
            self._watch()
        else:
            # Handle this as if the client had disconnected.
            super().forceAbortClient()

    def _takes(self) -> bool:
        """Return whether the client has read data since the last call."""
        before = self._taken
        self._taken = self._written - (unsent(self.transport) or 0)
        return self._taken > before


class BoundedSite(_Site):  # type: ignore[misc]
    """
    Site for requests of the class `BoundedRequest`, without HTTP/2, which
    `tunnel.http2` handles.

    :param request: the class of requests, called with *bounds* and twisted.web's
        arguments.
    """

    noisy = False
    protocol = BoundedChannel

    def __init__(self, request: Callable[..., BoundedRequest], bounds: Bounds) -> None:
        self.bounds = bounds
        super().__init__(
            Resource(),
            partial(request, bounds),
            timeout=bounds.limits.idle,
            reactor=bounds.clock,
        )

    def protocol_for(self, line: bytes) -> IProtocolFactory | None:
        """
        Return the factory of the protocol that handles a request; None if this site
        does.

        :param line: the first line of the request.
        """
        return None

    def acceptableProtocols(self) -> list[bytes]:
        return [b"http/1.1"]

    def log(self, request: Any) -> None:
        """Do nothing but count the request."""
