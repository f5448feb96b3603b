"""One request over HTTP/2, and what waits to be sent as its answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from h2.errors import ErrorCodes
from twisted.internet.interfaces import IPushProducer

from kas.api.limits import Limits
from tunnel.errors import TunnelError

__all__ = ["Call", "Connection", "Http2Stream", "RawHeaders"]

RawHeaders = list[tuple[bytes, bytes]]


class Call(Protocol):
    """Who gets what arrives on a stream; `Codec` is one."""

    def body(self, data: bytes) -> None: ...

    def body_ended(self) -> None: ...

    def gone(self, reason: TunnelError) -> None: ...


class Connection(Protocol):
    """What a stream asks of its connection."""

    limits: Limits

    def send_headers(
        self, stream: Http2Stream, headers: RawHeaders, end: bool
    ) -> None: ...

    def reset(self, stream: Http2Stream, code: ErrorCodes) -> None: ...

    def consumed(self, stream: Http2Stream, count: int) -> None: ...


class Http2Stream:
    """
    One request; an `kas.api.calls.Exchange`.

    :param ready: told that something waits to be sent.
    """

    def __init__(
        self,
        connection: Connection,
        ready: Callable[[Http2Stream], None],
        stream_id: int,
    ) -> None:
        self.stream_id = stream_id
        self.call: Call | None = None
        #: The client may send more.
        self.receiving = True
        #: Consumed by nobody yet, because the call paused.
        self.unread = 0
        self.paused = False
        #: The connection knows it no longer.
        self.over = False
        self._connection = connection
        self._ready = ready
        self._out = bytearray()
        self._trailers: RawHeaders | None = None
        self._producer: IPushProducer | None = None
        self._producer_paused = False

    # For the call.

    def start(self, status: int, headers: Any, end: bool = False) -> None:
        """Send the head of the answer."""
        head = [(b":status", str(status).encode()), *headers]
        self._connection.send_headers(self, head, end)

    def write(self, data: bytes) -> None:
        """Send a part of the body, when there is room."""
        self._out += data
        self._ready(self)
        if (
            len(self._out) > self._connection.limits.outgoing
            and self._producer is not None
            and not self._producer_paused
        ):
            self._producer_paused = True
            self._producer.pauseProducing()

    def end(self, trailers: Any = ()) -> None:
        """The answer is complete."""
        self._trailers = list(trailers)
        self._ready(self)

    def reset(self) -> None:
        """Abort."""
        self._connection.reset(self, ErrorCodes.CANCEL)

    def pauseProducing(self) -> None:
        """What has arrived is delivered; no more may be sent than the window."""
        self.paused = True

    def resumeProducing(self) -> None:
        """Give the window back."""
        self.paused = False
        unread, self.unread = self.unread, 0
        self._connection.consumed(self, unread)

    def registerProducer(self, producer: Any, streaming: bool) -> None:
        """Who is told to wait."""
        self._producer = producer

    def unregisterProducer(self) -> None:
        """Nobody is told to wait."""
        self._producer = None

    # For the connection.

    @property
    def waiting(self) -> int:
        """Bytes that wait to be sent."""
        return len(self._out)

    @property
    def complete(self) -> bool:
        """All that is left to send are the trailers."""
        return self._trailers is not None and not self._out

    def take_trailers(self) -> RawHeaders:
        """What ends the answer."""
        return self._trailers or []

    def take(self, count: int) -> bytes:
        """The next bytes to send; the producer goes on once half of them are gone."""
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
        """The stream is over; with a *reason*, before the answer was complete."""
        self.over = True
        self._out.clear()
        producer, self._producer = self._producer, None
        call, self.call = self.call, None
        if reason is not None:
            if call is not None:
                call.gone(reason)
            if producer is not None:
                producer.stopProducing()
