"""
Common parts of both sides of a connection; the h2 library implements the protocol.

Data written to a stream waits until the windows of the peer and the transport have
room; streams take turns, a frame each.  Received bytes are returned to the peer's
window once the reader of the stream has consumed them: a reader that pauses holds back
only its own stream, and the connection's window has room for all streams, so that slow
streams do not stop the others.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    RemoteSettingsChanged,
    StreamEnded,
    StreamReset,
    WindowUpdated,
)
from h2.exceptions import DenialOfServiceError, ProtocolError
from h2.settings import SettingCodes, Settings
from hyperframe.frame import Frame, GoAwayFrame
from twisted.internet.interfaces import IDelayedCall, IPushProducer, IReactorTime
from twisted.internet.protocol import Protocol
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from tunnel.errors import ErrorCode, SessionClosed, TunnelError
from tunnel.errors import StreamReset as StreamWasReset
from tunnel.http2.flood import Flood, FloodGuard
from tunnel.http2.limits import Http2Limits
from tunnel.http2.stream import Http2Stream, RawHeaders
from tunnel.toolkit.log_budget import LogBudget
from tunnel.toolkit.timers import Timers, cancel_call

__all__ = ["Http2Connection", "attempt"]

_log = Logger()

_PING = b"kas is 8"

_Stream = TypeVar("_Stream", bound=Http2Stream)


@implementer(IPushProducer)
class Http2Connection(Protocol, Generic[_Stream]):
    """
    One connection, from either side.

    It is the producer of its transport; subclasses handle the events.
    """

    _log = Logger()
    transport: Any = None

    #: Name of the other side, for log lines.
    peer_is = "peer"

    def __init__(
        self, clock: IReactorTime, limits: Http2Limits, *, client_side: bool
    ) -> None:
        self.limits = limits
        self._clock = clock
        self._h2 = _make_machine(limits, client_side)
        #: Budget of log lines that all unauthenticated peers share; None after
        #: authentication.
        self.log_budget: LogBudget | None = None
        self._guard = FloodGuard(limits, clock.seconds, client_side)
        self._timers = Timers(clock)
        self._streams: dict[int, _Stream] = {}
        #: Streams with data to send, in the order of their turns.
        self._ready: OrderedDict[int, _Stream] = OrderedDict()
        #: Streams whose window is exhausted.
        self._blocked: dict[int, _Stream] = {}
        #: Whether the transport is full.
        self._paused = False
        #: Number of bytes that were written while the transport was full.
        self._unread = 0
        self._closing = False
        self._flushing: IDelayedCall | None = None
        self._last_seen = clock.seconds()
        #: Reason for the end of streams that are still open when the connection ends.
        self._why_closed = f"the connection with the {self.peer_is} was closed"

    def connectionMade(self) -> None:
        """Send our settings."""
        self.transport.registerProducer(self, True)
        self._h2.initiate_connection()
        room = self.limits.connection_window - self._h2.inbound_flow_control_window
        if room > 0:
            self._h2.increment_flow_control_window(room)
        self._timers.later("ping", self.limits.ping_after, self._silent)
        self._flush()

    @property
    def closing(self) -> bool:
        """Whether the connection is closing, so that nothing more is read or sent."""
        return self._closing

    @property
    def calls(self) -> int:
        """The number of streams that have not ended."""
        return len(self._streams)

    # Received frames.

    def dataReceived(self, data: bytes) -> None:
        """Handle received bytes, unless their frames are a flood."""
        self._last_seen = self._clock.seconds()
        while data and not self._closing:
            try:
                size = self._guard.feed(data, self._new_at_once())
            except Flood as flood:
                self.fail(flood.code, str(flood))
                return
            self._received(data[:size])
            data = data[size:]
        if not self._closing:
            self._turn()

    def _new_at_once(self) -> int | None:
        """
        Return the maximum number of new streams that h2 may read before their events
        are handled; None for no limit.
        """
        return None

    def _received(self, data: bytes) -> None:
        try:
            events = self._h2.receive_data(data)
        except DenialOfServiceError:
            self.fail(ErrorCodes.ENHANCE_YOUR_CALM, "too much")
            return
        except ProtocolError as error:
            # h2 has already queued its GOAWAY.
            self._log.debug("a peer violated HTTP/2: {error}", error=str(error))
            self._h2.clear_outbound_data_buffer()
            self.fail(error.error_code, "")
            return
        self._look_ahead(events)
        try:
            for event in events:
                if self.closing:
                    return
                self._event(event)
        except Flood as flood:
            self.fail(flood.code, str(flood))

    def _look_ahead(self, events: list[Event]) -> None:
        """Examine all events of one read before any of them is handled."""

    def _event(self, event: Event) -> None:
        if isinstance(event, DataReceived):
            self._data(event)
        elif isinstance(event, StreamEnded):
            self._ended(event.stream_id or 0)
        elif isinstance(event, StreamReset):
            stream = self._streams.get(event.stream_id or 0)
            if stream is not None:
                self.forget(stream, self._why_reset(event.error_code))
        elif isinstance(event, WindowUpdated):
            self._unblock(event.stream_id)
        elif isinstance(event, RemoteSettingsChanged):
            # Windows may have become larger.
            self._unblock(None)
        elif isinstance(event, ConnectionTerminated):
            self._peer_leaves(event)

    def _data(self, event: DataReceived) -> None:
        count = event.flow_controlled_length or 0
        stream_id = event.stream_id or 0
        stream = self._streams.get(stream_id)
        if stream is None or stream.reader is None:
            # The connection's window must not shrink because of dropped data.
            self._unclaimed(stream_id, event.stream_ended is not None)
            self._acknowledge(stream_id, count)
            return
        if event.data:
            stream.reader.body(event.data)
        if stream.paused and stream_id in self._streams:
            stream.unread += count
            return
        self._acknowledge(stream_id, count)

    def _unclaimed(self, stream_id: int, ended: bool) -> None:
        """Handle data for a stream without a reader."""

    def _ended(self, stream_id: int) -> None:
        stream = self._streams.get(stream_id)
        if stream is not None and stream.reader is not None:
            stream.receiving = False
            stream.reader.body_ended()

    def _why_reset(self, code: ErrorCodes | int | None) -> TunnelError:
        return StreamWasReset(ErrorCode.CANCELLED)

    def _peer_leaves(self, event: ConnectionTerminated) -> None:
        """Handle a GOAWAY."""
        raise NotImplementedError

    def consumed(self, stream: _Stream, count: int) -> None:
        """Record that a reader consumed *count* bytes."""
        if count and not self._closing:
            self._acknowledge(stream.stream_id, count)
            self.flush_soon()

    def _acknowledge(self, stream_id: int, count: int) -> None:
        if count and not self._closing:
            attempt(self._h2.acknowledge_received_data, count, stream_id)

    # Sent frames.

    def send_headers(self, stream: _Stream, headers: RawHeaders, end: bool) -> None:
        """Send a head at once, because it is small."""
        if stream.stream_id in self._streams:
            attempt(self._h2.send_headers, stream.stream_id, headers, end)
            if end:
                stream.sent = True
                self._sent_all(stream)
            self.flush_soon()

    def ready(self, stream: _Stream) -> None:
        """Record that a stream has data to send."""
        if not stream.over:
            self._blocked.pop(stream.stream_id, None)
            self._ready.setdefault(stream.stream_id, stream)
            self.flush_soon()

    def reset(self, stream: _Stream, code: ErrorCodes) -> None:
        if stream.stream_id in self._streams:
            attempt(self._h2.reset_stream, stream.stream_id, code)
            self.forget(stream, None)
            self.flush_soon()

    def forget(self, stream: _Stream, reason: TunnelError | None) -> None:
        """
        Forget a stream that has ended.

        :param reason: why the stream ended before it was complete; None if it was
            complete.
        """
        stream_id = stream.stream_id
        self._streams.pop(stream_id, None)
        self._ready.pop(stream_id, None)
        self._blocked.pop(stream_id, None)
        self._guard.ended(stream_id)
        unread, stream.unread = stream.unread, 0
        if unread:
            self._acknowledge(stream_id, unread)
        stream.closed(reason)

    def flush_soon(self) -> None:
        """Write at the end of this turn of the reactor."""
        if self._flushing is None and not self._closing:
            self._flushing = self._clock.callLater(0, self._flush_now)

    def _flush_now(self) -> None:
        self._flushing = None
        if not self._closing:
            self._turn()

    def _turn(self) -> None:
        self._send()
        self._flush()
        self._end_if_done()

    def _send(self) -> None:
        """Let the streams send in turn, as long as there is room."""
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
                stream.sent = True
                self._sent_all(stream)
            if collected >= self.limits.outgoing:
                # The transport calls `pauseProducing` when it is full.
                collected = 0
                self._flush()

    def _send_piece(self, stream: _Stream) -> int:
        stream_id = stream.stream_id
        try:
            window = self._h2.local_flow_control_window(stream_id)
        except ProtocolError:
            self.forget(stream, StreamWasReset(ErrorCode.CANCELLED))
            return 0
        count = min(window, self._h2.max_outbound_frame_size, self.limits.frame)
        if count <= 0:
            self._blocked[stream_id] = stream
            return 0
        data = stream.take(count)
        attempt(self._h2.send_data, stream_id, data)
        self._guard.data_sent()
        if stream.waiting:
            self._ready[stream_id] = stream
        return count

    def _sent_all(self, stream: _Stream) -> None:
        """Handle a stream on which our side is complete."""
        raise NotImplementedError

    def _unblock(self, stream_id: int | None) -> None:
        """
        Continue a stream whose window has room again.

        :param stream_id: the stream; None for all streams.
        """
        if stream_id:
            stream = self._blocked.pop(stream_id, None)
            if stream is not None:
                self._ready[stream_id] = stream
        else:
            blocked, self._blocked = self._blocked, {}
            self._ready.update(blocked)

    def _flush(self) -> None:
        """Write the output that h2 has prepared."""
        data = self._h2.data_to_send()
        if not data:
            return
        if self._paused:
            # The output contains responses to PINGs and similar frames, which the peer
            # has not read.
            self._unread += len(data)
            if self._unread > self.limits.unread:
                self._log.info(
                    (
                        "a {peer} sends requests without reading the responses: "
                        "connection cut"
                    ),
                    peer=self.peer_is,
                )
                self.abort()
                return
        self.transport.write(data)

    # Methods of IPushProducer, for the transport.

    def pauseProducing(self) -> None:
        """Stop writing: the transport is full."""
        self._paused = True

    def resumeProducing(self) -> None:
        self._paused = False
        self._unread = 0
        self.flush_soon()

    def stopProducing(self) -> None:
        """Stop writing: the connection is lost, and `connectionLost` does the rest."""
        self._paused = True

    # Keepalive.

    def _silent(self) -> None:
        quiet = self._clock.seconds() - self._last_seen
        wait = self.limits.ping_after
        if quiet < wait:
            self._timers.later("ping", wait - quiet, self._silent)
            return
        if not self._wants_ping():
            self._timers.later("ping", wait, self._silent)
            return
        attempt(self._h2.ping, _PING)
        self._flush()
        seen = self._last_seen
        timeout = self.limits.ping_timeout
        self._timers.later("ping", timeout, lambda: self._pinged(seen))

    def _wants_ping(self) -> bool:
        """Tell whether a dead peer should be detected now."""
        return True

    def _pinged(self, seen: float) -> None:
        if self._last_seen == seen:
            timeout = self.limits.ping_timeout
            self._why_closed = f"no response to a PING within {timeout:g} s"
            self.abort()
        else:
            self._silent()

    # End of the connection.

    def _end_if_done(self) -> None:
        """
        Close the connection if the last stream has ended and no new one may start.
        """
        raise NotImplementedError

    def go_away(self, last: int, code: ErrorCodes | int, why: str = "") -> None:
        """Send a GOAWAY with the last accepted stream of the peer."""
        # The frame is written directly, because h2 sends nothing after a GOAWAY.
        self._flush()
        frame = GoAwayFrame(0, last, int(code), why.encode("ascii", "replace"))
        self.transport.write(frame.serialize())

    def fail(self, code: ErrorCodes | int | None, why: str) -> None:
        """Close the connection with a GOAWAY that names the error and its reason."""
        more: str | None = ""
        if why and self.log_budget is not None:
            more = self.log_budget.spend(self._clock.seconds())
        if why and more is not None:
            peer = getattr(self.transport.getPeer(), "host", f"a local {self.peer_is}")
            text = "closed a connection with {peer}: {why}{more}"
            self._log.info(text, peer=peer, why=why, more=more)
        self._h2.clear_outbound_data_buffer()
        code = ErrorCodes.PROTOCOL_ERROR if code is None else code
        self.go_away(self._h2.highest_inbound_stream_id, code, why)
        self.close()

    def close(self) -> None:
        """Send the remaining data, and close."""
        if not self._closing:
            self._flush()
            self._end_streams()
            self._closing = True
            self._timers.cancel_all()
            self.transport.unregisterProducer()
            self.transport.loseConnection()
            # The timer prevents a peer that does not read from keeping the connection
            # open.
            self._timers.later("abort", self.limits.ping_timeout, self.abort)

    def abort(self) -> None:
        self._closing = True
        self.transport.abortConnection()

    def connectionLost(self, reason: Failure | None = None) -> None:
        self._closing = True
        self._end_streams()
        self._timers.cancel_all()
        cancel_call(self._flushing)
        self._flushing = None

    def _end_streams(self) -> None:
        for stream in tuple(self._streams.values()):
            self.forget(stream, SessionClosed(ErrorCode.NONE, self._why_closed))


class _Machine(H2Connection):
    """
    h2's state machine, changed to continue after a GOAWAY of the peer.

    h2 itself accepts and sends nothing after a GOAWAY.  But GOAWAY only means that the
    peer accepts and opens no new streams: running streams continue (RFC 9113, 6.8).
    """

    def _receive_goaway_frame(
        self, frame: GoAwayFrame
    ) -> tuple[list[Frame], list[Event]]:
        event = ConnectionTerminated()
        event.error_code = frame.error_code
        event.last_stream_id = frame.last_stream_id
        event.additional_data = frame.additional_data
        return [], [event]


def _make_machine(limits: Http2Limits, client_side: bool) -> H2Connection:
    """Return the state machine of one connection, which has sent nothing yet."""
    machine = _Machine(H2Configuration(client_side=client_side, header_encoding=None))
    values = {
        SettingCodes.MAX_CONCURRENT_STREAMS: limits.streams,
        SettingCodes.MAX_HEADER_LIST_SIZE: limits.header_list,
        SettingCodes.MAX_FRAME_SIZE: limits.frame,
        SettingCodes.INITIAL_WINDOW_SIZE: limits.stream_window,
    }
    if client_side:
        values[SettingCodes.ENABLE_PUSH] = 0
        del values[SettingCodes.MAX_CONCURRENT_STREAMS]
    machine.local_settings = Settings(client=client_side, initial_values=values)
    machine.decoder.max_header_list_size = limits.header_list
    return machine


def attempt(action: Callable[..., object], *arguments: object) -> None:
    """
    Call *action*, and ignore an error of h2, which means that the peer has closed the
    stream in the meantime.
    """
    try:
        action(*arguments)
    except ProtocolError as error:
        _log.debug("not sent: {error!r}", error=error)
