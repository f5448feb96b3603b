"""
HTTP/2 connections: the h2 library knows the protocol, and this the transport.

A stream is an `Exchange` for the call on it.  What the call writes leaves when there is
room (`kas.api.sender`).  What the client sends is given back to its window once
the call has consumed it; a call that pauses holds back its own, and the connection's
has room for all of them, so that slow calls do not stop the others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from h2.errors import ErrorCodes
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    RemoteSettingsChanged,
    RequestReceived,
    StreamEnded,
    StreamReset,
    WindowUpdated,
)
from h2.exceptions import DenialOfServiceError, ProtocolError
from hyperframe.frame import GoAwayFrame
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.internet.protocol import Protocol
from twisted.logger import Logger
from twisted.python.failure import Failure

from kas.api.life import Life, Timers
from kas.api.limits import Limits
from kas.api.machine import attempt, make_machine
from kas.api.meter import Flood, Meter, Purse
from kas.api.sender import Sender
from kas.api.stream import Call, Http2Stream, RawHeaders
from tunnel.errors import ErrorCode, SessionClosed, TunnelError
from tunnel.errors import StreamReset as CallReset

__all__ = ["Http2Connection"]

_PING = b"kas is 8"

#: Begins a call for a new stream, or answers at once; None: the answer is given.
#: :raises CallError: never; what is wrong goes into the answer.
Begin = Callable[["Http2Connection", Http2Stream, RawHeaders], Call | None]


class Http2Connection(Protocol):
    """
    One connection of a client.

    :param begin: begins the call of each stream.
    :param lost: told at the end.
    """

    _log = Logger()
    transport: Any = None

    def __init__(
        self,
        begin: Begin,
        clock: IReactorTime,
        limits: Limits,
        *,
        age: float,
        jitter: Callable[[], float],
        lost: Callable[[Http2Connection], None],
    ) -> None:
        self.limits = limits
        self._begin = begin
        self._clock = clock
        self._lost = lost
        self._meter = Meter(limits, clock.seconds)
        self._refusals = Purse(limits.refusals, "refused calls", clock.seconds)
        self._h2 = make_machine(limits)
        self._sender = Sender(self, self._h2, self._meter, limits)
        self._timers = Timers(clock)
        self._life = Life(self, self._timers, clock.seconds, limits, age, jitter())
        self._streams: dict[int, Http2Stream] = {}
        #: Streams whose request is complete with what arrived just now.
        self._whole: set[int] = set()
        self._closing = False
        self._flushing: IDelayedCall | None = None

    def connectionMade(self) -> None:
        """Send our settings, and begin to count."""
        self._sender.begin(self.transport)
        self._h2.initiate_connection()
        room = self.limits.connection_window - self._h2.inbound_flow_control_window
        if room > 0:
            self._h2.increment_flow_control_window(room)
        self._life.begin()
        self._sender.flush()

    # What arrives.

    def dataReceived(self, data: bytes) -> None:
        """Bytes of the client: count them, then do what they say."""
        if self._closing:
            return
        self._life.seen()
        try:
            self._meter.feed(data)
            events = self._h2.receive_data(data)
        except Flood as flood:
            self.fail(flood.code, str(flood))
            return
        except DenialOfServiceError:
            self.fail(ErrorCodes.ENHANCE_YOUR_CALM, "too much")
            return
        except ProtocolError as error:
            # h2 has put its GOAWAY into what is to be sent.
            self._log.debug("a client broke HTTP/2: {error}", error=str(error))
            self._h2.clear_outbound_data_buffer()
            self.fail(error.error_code, "")
            return
        # Streams that are over again need not begin.
        dead = {one.stream_id for one in events if isinstance(one, StreamReset)}
        self._whole = {one.stream_id for one in events if isinstance(one, StreamEnded)}
        for stream_id in self._whole & self._streams.keys():
            self._streams[stream_id].receiving = False
        try:
            for event in events:
                self._event(event, dead)
        except Flood as flood:
            self.fail(flood.code, str(flood))
            return
        if not self._closing:
            self._turn()

    def _event(self, event: Any, dead: set[int]) -> None:
        if self._closing:
            return
        if isinstance(event, DataReceived):
            self._data(event)
        elif isinstance(event, RequestReceived):
            if event.stream_id not in dead:
                self._request(event.stream_id, event.headers)
            else:
                self._meter.ended(event.stream_id)
        elif isinstance(event, StreamEnded):
            self._timers.cancel(f"linger {event.stream_id}")
            stream = self._streams.get(event.stream_id)
            if stream is not None and stream.call is not None:
                stream.call.body_ended()
        elif isinstance(event, StreamReset):
            self._timers.cancel(f"linger {event.stream_id}")
            stream = self._streams.get(event.stream_id)
            if stream is not None:
                self.forget(stream, CallReset(ErrorCode.CANCELLED))
        elif isinstance(event, WindowUpdated):
            self._sender.unblock(event.stream_id)
        elif isinstance(event, RemoteSettingsChanged):
            # Perhaps larger windows.
            self._sender.unblock(None)
        elif isinstance(event, ConnectionTerminated):
            self._client_leaves(event.error_code)

    def _request(self, stream_id: int, headers: RawHeaders) -> None:
        stream = Http2Stream(self, self._sender.ready, stream_id)
        stream.receiving = stream_id not in self._whole
        self._streams[stream_id] = stream
        if not self._life.serves(stream_id):
            self.reset(stream, ErrorCodes.REFUSED_STREAM)
            self._refusals.spend()
            return
        call = self._begin(self, stream, headers)
        if call is None:
            self._refusals.spend()
        elif stream_id in self._streams:
            stream.call = call

    def proven(self) -> None:
        """Somebody with a good token is at the other end."""
        self._life.proven()

    def _data(self, event: DataReceived) -> None:
        count = event.flow_controlled_length or 0
        stream = self._streams.get(event.stream_id or 0)
        if stream is None or stream.call is None:
            # Nobody reads it; the connection must not run dry for that.
            if event.stream_ended is None:
                self._stop_sending(event.stream_id or 0)
            self._acknowledge(event.stream_id or 0, count)
            return
        if event.data:
            stream.call.body(event.data)
        if stream.paused and event.stream_id in self._streams:
            stream.unread += count
            return
        self._acknowledge(event.stream_id or 0, count)

    def consumed(self, stream: Http2Stream, count: int) -> None:
        """A call went on reading."""
        if count and not self._closing:
            self._acknowledge(stream.stream_id, count)
            self.flush_soon()

    def _acknowledge(self, stream_id: int, count: int) -> None:
        if count and not self._closing:
            attempt(self._h2.acknowledge_received_data, count, stream_id)

    # What leaves.

    def send_headers(self, stream: Http2Stream, headers: RawHeaders, end: bool) -> None:
        """The head of an answer, at once: it is small."""
        if stream.stream_id in self._streams:
            attempt(self._h2.send_headers, stream.stream_id, headers, end)
            if end:
                self.finished(stream)
            self.flush_soon()

    def reset(self, stream: Http2Stream, code: ErrorCodes) -> None:
        """Abort a stream."""
        if stream.stream_id in self._streams:
            attempt(self._h2.reset_stream, stream.stream_id, code)
            self.forget(stream, None)
            self.flush_soon()

    def finished(self, stream: Http2Stream) -> None:
        """The answer is complete; who still sends can stop (RFC 9113, 8.1)."""
        self.forget(stream, None)
        if stream.receiving:
            # Not at once: curl takes a reset for a failure although the answer is
            # complete, and most clients have sent all they wanted to.
            stream_id = stream.stream_id
            self._timers.later(
                f"linger {stream_id}",
                self.limits.linger,
                lambda: self._stop_sending(stream_id),
            )

    def _stop_sending(self, stream_id: int) -> None:
        if self._timers.cancel(f"linger {stream_id}"):
            attempt(self._h2.reset_stream, stream_id, ErrorCodes.NO_ERROR)
            self.flush_soon()

    def forget(self, stream: Http2Stream, reason: TunnelError | None) -> None:
        """A stream is over; with a *reason*, before its answer was complete."""
        stream_id = stream.stream_id
        self._streams.pop(stream_id, None)
        self._sender.forget(stream_id)
        self._meter.ended(stream_id)
        unread, stream.unread = stream.unread, 0
        if unread:
            self._acknowledge(stream_id, unread)
        stream.closed(reason)

    def flush_soon(self) -> None:
        """Something is to be sent, at the end of this turn of the reactor."""
        if self._flushing is None and not self._closing:
            self._flushing = self._clock.callLater(0, self._woken)

    def _woken(self) -> None:
        self._flushing = None
        if not self._closing:
            self._turn()

    def _turn(self) -> None:
        self._sender.send()
        self._sender.flush()
        self._life.end_if_done()

    # The end.

    def drain(self, grace: float) -> None:
        """Ask the client to go elsewhere; what runs gets *grace* seconds."""
        if not self._closing:
            self._life.drain(grace)

    def _client_leaves(self, code: ErrorCodes | int | None) -> None:
        if code == ErrorCodes.NO_ERROR:
            # What it asked for it still wants; the turn ends with a look at that.
            self._life.no_more_streams()
        else:
            self.close()

    def go_away(self, last: int, code: ErrorCodes | int, why: str = "") -> None:
        """Say which stream is the last."""
        # Not by h2, which sends nothing after a GOAWAY.
        self._sender.flush()
        frame = GoAwayFrame(0, last, int(code), why.encode("ascii", "replace"))
        self.transport.write(frame.serialize())

    def ping(self) -> None:
        """Ask whether anybody is there."""
        attempt(self._h2.ping, _PING)
        self._sender.flush()

    def fail(self, code: ErrorCodes | int | None, why: str) -> None:
        """The peer did what it must not: say so, and close."""
        if why:
            peer = getattr(self.transport.getPeer(), "host", "a local client")
            self._log.info("closed a connection from {peer}: {why}", peer=peer, why=why)
        self._h2.clear_outbound_data_buffer()
        code = ErrorCodes.PROTOCOL_ERROR if code is None else code
        self.go_away(self.highest_stream, code, why)
        self.close()

    def close(self) -> None:
        """Send what is there to send, and close."""
        if not self._closing:
            self._sender.flush()
            self._end_streams()
            self._closing = True
            self._timers.cancel_all()
            self.transport.unregisterProducer()
            self.transport.loseConnection()
            # A client that reads nothing would keep it open.
            self._timers.later("abort", self.limits.ping_timeout, self.abort)

    def abort(self) -> None:
        """Cut the connection."""
        self._closing = True
        self.transport.abortConnection()

    @property
    def calls(self) -> int:
        """Streams whose answer is not complete."""
        return len(self._streams)

    @property
    def highest_stream(self) -> int:
        """The last one that the client began."""
        return self._h2.highest_inbound_stream_id

    def connectionLost(self, reason: Failure | None = None) -> None:
        """Everything on it is over."""
        self._closing = True
        self._end_streams()
        self._timers.cancel_all()
        if self._flushing is not None and self._flushing.active():
            self._flushing.cancel()
        self._flushing = None
        self._lost(self)

    def _end_streams(self) -> None:
        for stream in tuple(self._streams.values()):
            self.forget(stream, SessionClosed(ErrorCode.NONE, "the client is gone"))
