"""
What leaves an HTTP/2 connection, and when.

What a call writes waits in its stream until the client's windows and the transport have
room; streams take turns, a frame each.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Protocol

from h2.connection import H2Connection
from h2.exceptions import ProtocolError
from twisted.internet.interfaces import IPushProducer
from twisted.logger import Logger
from zope.interface import implementer

from kas.api.limits import Limits
from kas.api.machine import attempt
from kas.api.meter import Meter
from kas.api.stream import Http2Stream
from tunnel.errors import ErrorCode, StreamReset, TunnelError

__all__ = ["Sender"]


class Connection(Protocol):
    """What is asked of the connection."""

    def flush_soon(self) -> None: ...

    def finished(self, stream: Http2Stream) -> None: ...

    def forget(self, stream: Http2Stream, reason: TunnelError | None) -> None: ...

    def abort(self) -> None: ...


@implementer(IPushProducer)
class Sender:
    """Sends for the streams of one connection, as long as its transport takes more."""

    _log = Logger()
    _transport: Any = None

    def __init__(
        self,
        connection: Connection,
        machine: H2Connection,
        meter: Meter,
        limits: Limits,
    ) -> None:
        self._connection = connection
        self._h2 = machine
        self._meter = meter
        self._limits = limits
        #: Those with something to send, whose turn comes in this order.
        self._ready: OrderedDict[int, Http2Stream] = OrderedDict()
        #: Those whose window is used up.
        self._blocked: dict[int, Http2Stream] = {}
        self._paused = False
        #: Bytes written since the transport asked us to wait.
        self._unread = 0

    def begin(self, transport: Any) -> None:
        """Send to *transport*."""
        self._transport = transport
        transport.registerProducer(self, True)

    # Streams.

    def ready(self, stream: Http2Stream) -> None:
        """A stream has something to send."""
        if not stream.over:
            self._blocked.pop(stream.stream_id, None)
            self._ready.setdefault(stream.stream_id, stream)
            self._connection.flush_soon()

    def unblock(self, stream_id: int | None) -> None:
        """There is more room in the window of a stream; none: in those of all."""
        if stream_id:
            stream = self._blocked.pop(stream_id, None)
            if stream is not None:
                self._ready[stream_id] = stream
        else:
            blocked, self._blocked = self._blocked, {}
            self._ready.update(blocked)

    def forget(self, stream_id: int) -> None:
        """A stream is over."""
        self._ready.pop(stream_id, None)
        self._blocked.pop(stream_id, None)

    # Bytes.

    def send(self) -> None:
        """Let the streams take turns, as long as there is room."""
        collected = 0
        while self._ready and not self._paused:
            stream_id, stream = self._ready.popitem(last=False)
            if stream.waiting:
                collected += self._send_piece(stream)
            if stream.complete:
                trailers = stream.take_trailers()
                if trailers:
                    attempt(self._h2.send_headers, stream_id, trailers, True)
                else:
                    attempt(self._h2.end_stream, stream_id)
                self._connection.finished(stream)
            if collected >= self._limits.outgoing:
                # The transport says whether it takes more.
                collected = 0
                self.flush()

    def _send_piece(self, stream: Http2Stream) -> int:
        stream_id = stream.stream_id
        try:
            window = self._h2.local_flow_control_window(stream_id)
        except ProtocolError:
            self._connection.forget(stream, StreamReset(ErrorCode.CANCELLED))
            return 0
        count = min(window, self._h2.max_outbound_frame_size, self._limits.frame)
        if count <= 0:
            self._blocked[stream_id] = stream
            return 0
        data = stream.take(count)
        attempt(self._h2.send_data, stream_id, data)
        self._meter.data_sent()
        if stream.waiting:
            self._ready[stream_id] = stream
        return count

    def flush(self) -> None:
        """Write what h2 has for the client."""
        data = self._h2.data_to_send()
        if not data:
            return
        if self._paused:
            # Answers to PINGs and the like, which nobody reads.
            self._unread += len(data)
            if self._unread > self._limits.unread:
                self._log.info("a client reads nothing and goes on asking: cut off")
                self._connection.abort()
                return
        self._transport.write(data)

    # IPushProducer, for the transport.

    def pauseProducing(self) -> None:
        """The transport holds enough."""
        self._paused = True

    def resumeProducing(self) -> None:
        """It takes more."""
        self._paused = False
        self._unread = 0
        self._connection.flush_soon()

    def stopProducing(self) -> None:
        """The connection is lost; `connectionLost` does the rest."""
        self._paused = True
