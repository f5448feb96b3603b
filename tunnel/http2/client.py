"""The client side: opens streams, as many at the same time as the server permits."""

from __future__ import annotations

from typing import Protocol

from h2.errors import ErrorCodes
from h2.events import (
    ConnectionTerminated,
    Event,
    InformationalResponseReceived,
    RemoteSettingsChanged,
    ResponseReceived,
    TrailersReceived,
)
from twisted.internet.interfaces import INegotiated, IReactorTime
from twisted.python.failure import Failure

from tunnel.errors import ErrorCode, StreamReset, TunnelError
from tunnel.http2.connection import Http2Connection, attempt
from tunnel.http2.limits import Http2Limits, Rate
from tunnel.http2.stream import Http2Stream, RawHeaders, StreamReader
from tunnel.toolkit.texts import clean

__all__ = ["CLIENT_LIMITS", "ClientOwner", "Http2ClientConnection", "ResponseReader"]

#: Limits on a server.  A server may send a PING for each of our DATA frames, to measure
#: throughput.  Windows are large, because responses are large.  Servers close
#: connections of clients that send PINGs often, so our PINGs are five minutes apart.
CLIENT_LIMITS = Http2Limits(
    stream_window=256 * 1024,
    control=Rate(200, 20),
    control_per_data=1,
    ping_after=300.0,
)

#: RST_STREAM codes as codes of the tunnel; all others are INTERNAL.
_RESETS = {
    ErrorCodes.REFUSED_STREAM: ErrorCode.REFUSED,
    ErrorCodes.CANCEL: ErrorCode.CANCELLED,
    ErrorCodes.ENHANCE_YOUR_CALM: ErrorCode.FLOOD,
}


class ResponseReader(StreamReader, Protocol):
    """A reader of the response on a stream that we opened."""

    def response_started(self, headers: RawHeaders) -> None: ...

    def trailers_received(self, headers: RawHeaders) -> None: ...


class ClientOwner(Protocol):
    """The user of a connection, which is notified when it changes."""

    def established(self, connection: Http2ClientConnection) -> None:
        """Start streams, because the server's settings have arrived."""

    def has_room(self, connection: Http2ClientConnection) -> None:
        """
        Start waiting streams, because a stream has ended, or the server permits more
        streams.
        """

    def leaving(self, connection: Http2ClientConnection) -> None:
        """Handle a server that accepts no new streams; running ones continue."""

    def lost(self, connection: Http2ClientConnection, reason: Exception) -> None:
        """Forget a closed connection, whether or not it was established."""


class _ClientStream(Http2Stream):
    reader: ResponseReader | None


class Http2ClientConnection(Http2Connection[_ClientStream]):
    """One connection to a server."""

    peer_is = "server"

    def __init__(
        self, owner: ClientOwner, clock: IReactorTime, limits: Http2Limits
    ) -> None:
        super().__init__(clock, limits, client_side=True)
        self._owner = owner
        #: Whether the server's settings have arrived.
        self.established = False
        self._leaving = False
        #: The number of streams that were opened.
        self.opened = 0

    def connectionMade(self) -> None:
        """Send our settings, if the server uses HTTP/2."""
        # Without TLS, nothing is negotiated: the server is known to support it.
        if self.is_tls and self.transport.negotiatedProtocol != b"h2":
            self._why_closed = "the server does not support HTTP/2"
            self._closing = True
            self.transport.abortConnection()
            return
        super().connectionMade()

    @property
    def room(self) -> bool:
        """Whether another stream can be opened."""
        most = min(self.limits.streams, self._h2.remote_settings.max_concurrent_streams)
        return (
            self.established
            and not self._leaving
            and not self._closing
            and len(self._streams) < most
        )

    @property
    def is_tls(self) -> bool:
        """Whether the transport is encrypted."""
        return bool(INegotiated.providedBy(self.transport))

    def open(
        self, headers: RawHeaders, reader: ResponseReader, end: bool = False
    ) -> Http2Stream:
        """
        Send a request; call this method only while `room` is True.

        :param end: whether the request has no body.
        """
        if not self.room:
            raise RuntimeError("this connection accepts no more streams")
        stream = _ClientStream(self, self._h2.get_next_available_stream_id())
        stream.reader = reader
        self._streams[stream.stream_id] = stream
        self._guard.opened(stream.stream_id)
        self.opened += 1
        self.send_headers(stream, headers, end)
        return stream

    def _event(self, event: Event) -> None:
        if isinstance(event, ResponseReceived | TrailersReceived):
            stream = self._streams.get(event.stream_id or 0)
            if stream is None or stream.reader is None:
                return
            headers: RawHeaders = event.headers
            if isinstance(event, ResponseReceived):
                stream.reader.response_started(headers)
            else:
                stream.reader.trailers_received(headers)
        elif isinstance(event, InformationalResponseReceived):
            self._guard.informational()
        else:
            super()._event(event)
            if isinstance(event, RemoteSettingsChanged):
                if not self.established:
                    self.established = True
                    self._owner.established(self)
                else:
                    self._owner.has_room(self)

    def _ended(self, stream_id: int) -> None:
        super()._ended(stream_id)
        stream = self._streams.get(stream_id)
        if stream is not None:
            if not stream.sent:
                # The response is complete, so the rest of the request is not needed.
                attempt(self._h2.reset_stream, stream_id, ErrorCodes.NO_ERROR)
            self.forget(stream, None)

    def _sent_all(self, stream: _ClientStream) -> None:
        """Record that the request is complete; the response is still to come."""

    def forget(self, stream: _ClientStream, reason: TunnelError | None) -> None:
        """
        Forget a stream that has ended.

        :param reason: why the stream ended before it was complete; None if it was
            complete.
        """
        super().forget(stream, reason)
        if self.room:
            self._owner.has_room(self)

    def _why_reset(self, code: ErrorCodes | int | None) -> TunnelError:
        known = _RESETS.get(code) if isinstance(code, ErrorCodes) else None
        name = getattr(code, "name", str(code))
        return StreamReset(
            known or ErrorCode.INTERNAL, f"the server reset the stream: {name}"
        )

    # End of the connection.

    def _wants_ping(self) -> bool:
        """
        Return False: the next stream will show whether an idle connection is dead.
        """
        return bool(self._streams)

    def _peer_leaves(self, event: ConnectionTerminated) -> None:
        first = not self._leaving
        self._leaving = True
        said = (event.additional_data or b"").decode("utf-8", "replace")
        self._log.debug(
            "the server sent GOAWAY: {code} {said}",
            code=event.error_code,
            said=clean(said, 200),
        )
        last = event.last_stream_id or 0
        error = StreamReset(ErrorCode.REFUSED, "the server accepts no more calls")
        for stream_id in [one for one in self._streams if one > last]:
            # The server has not processed these streams.
            self.forget(self._streams[stream_id], error)
        if first:
            self._owner.leaving(self)

    def _end_if_done(self) -> None:
        if self._leaving and not self._streams:
            self.close()

    def leave(self, why: str) -> None:
        """End every stream, and close."""
        if not self._closing:
            self._why_closed = why
            self.go_away(0, ErrorCodes.NO_ERROR)
            self.close()

    def connectionLost(self, reason: Failure | None = None) -> None:
        super().connectionLost(reason)
        said = self._why_closed
        if reason is not None:
            said = f"{said} ({reason.getErrorMessage()})"
        self._owner.lost(self, TunnelError(said))
