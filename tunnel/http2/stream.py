"""One stream, and data that waits to be sent on it."""

from __future__ import annotations

from typing import Any, ClassVar, Protocol

from h2.errors import ErrorCodes
from twisted.internet.interfaces import IPushProducer
from twisted.logger import Logger

from tunnel.errors import TunnelError
from tunnel.http2.limits import Http2Limits

__all__ = ["Http2Stream", "RawHeaders", "StreamOwner", "StreamReader"]

RawHeaders = list[tuple[bytes, bytes]]


class StreamReader(Protocol):
    """A reader of the data that arrives on a stream after the head."""

    def body(self, data: bytes) -> None: ...

    def body_ended(self) -> None: ...

    def gone(self, reason: TunnelError) -> None:
        """Handle a stream that ended before both sides were complete."""


class StreamOwner(Protocol):
    """Methods of the connection that a stream uses."""

    limits: Http2Limits

    def ready(self, stream: Any) -> None:
        """Record that data waits to be sent."""

    def reset(self, stream: Any, code: ErrorCodes) -> None: ...

    def consumed(self, stream: Any, count: int) -> None: ...

    def send_headers(self, stream: Any, headers: RawHeaders, end: bool) -> None: ...


class Http2Stream:
    """One request and its response, from either side."""

    _log: ClassVar = Logger()

    def __init__(self, connection: StreamOwner, stream_id: int) -> None:
        self.stream_id = stream_id
        self.reader: StreamReader | None = None
        #: Whether the peer may send more data.
        self.receiving = True
        #: Whether our side is complete.
        self.sent = False
        #: Bytes that arrived while the reader was paused; they reduce the window.
        self.unread = 0
        self.paused = False
        #: Whether the connection has forgotten the stream.
        self.over = False
        self._connection = connection
        self._out = bytearray()
        self._trailers: RawHeaders | None = None
        self._producer: IPushProducer | None = None
        self._producer_paused = False

    # Methods for the user.

    def start(self, status: int, headers: Any, end: bool = False) -> None:
        """Send the head of a response; with *end*, nothing follows."""
        head = [(b":status", str(status).encode()), *headers]
        self._connection.send_headers(self, head, end)

    def write(self, data: bytes) -> None:
        """Send a part of the body as soon as there is room."""
        self._out += data
        self._connection.ready(self)
        if (
            len(self._out) > self._connection.limits.outgoing
            and self._producer is not None
            and not self._producer_paused
        ):
            self._producer_paused = True
            self._producer.pauseProducing()

    def end(self, trailers: Any = ()) -> None:
        """Complete the body."""
        self._trailers = list(trailers)
        self._connection.ready(self)

    def reset(self, code: ErrorCodes = ErrorCodes.CANCEL) -> None:
        self._connection.reset(self, code)

    def pauseProducing(self) -> None:
        """
        Pause: received data is still delivered, but the peer may send at most one
        window of further data.
        """
        self.paused = True

    def resumeProducing(self) -> None:
        """Open the window again."""
        self.paused = False
        unread, self.unread = self.unread, 0
        self._connection.consumed(self, unread)

    def registerProducer(self, producer: Any, streaming: bool) -> None:
        """Register *producer*, which is paused while much data waits to be sent."""
        self._producer = producer

    def unregisterProducer(self) -> None:
        self._producer = None

    # Methods for the connection.

    @property
    def waiting(self) -> int:
        """The number of bytes that wait to be sent."""
        return len(self._out)

    @property
    def complete(self) -> bool:
        """Whether only the trailers are left to send."""
        return self._trailers is not None and not self._out

    def take_trailers(self) -> RawHeaders:
        """Return the trailers, which end the body."""
        return self._trailers or []

    def take(self, count: int) -> bytes:
        """
        Return the next bytes to send; the producer resumes when half of the waiting
        bytes are gone.
        """
        data = bytes(self._out[:count])
        del self._out[:count]
        if (
            self._producer_paused
            and self.waiting <= self._connection.limits.outgoing // 2
        ):
            self._producer_paused = False
            if self._producer is not None:
                self._producer.resumeProducing()
        return data

    def closed(self, reason: TunnelError | None) -> None:
        """
        End the stream.

        :param reason: why the stream ended before it was complete; None if it was
            complete.
        """
        self.over = True
        self._out.clear()
        reader, self.reader = self.reader, None
        try:
            if reason is not None and reader is not None:
                # The reader may unregister the producer, and continue with another
                # stream.
                reader.gone(reason)
        except Exception:
            # Other streams of the connection may end in the same turn.
            self._log.failure("the reader of a stream failed when the stream ended")
        producer, self._producer = self._producer, None
        try:
            if reason is not None and producer is not None:
                producer.stopProducing()
        except Exception:
            self._log.failure("the producer of a stream failed when the stream ended")
