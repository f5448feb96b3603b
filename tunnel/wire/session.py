"""All streams that share one connection (specification sections 3 to 8)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from google.protobuf.message import DecodeError

from tunnel.errors import ErrorCode, ProtocolError, SessionClosed, StreamReset
from tunnel.pb import tunnel_pb2 as pb
from tunnel.toolkit.texts import clean, clean_message
from tunnel.wire import events
from tunnel.wire.framing import FIN, IGNORABLE, FrameDecoder, FrameType
from tunnel.wire.limits import (
    DEFAULT_LIMITS,
    MAX_CREDIT,
    MAX_HEADERS,
    MAX_HELLO,
    MAX_PAYLOAD,
    MAX_PING,
    MAX_REASON,
    MAX_STREAM_ID,
    NOT_SAID,
    Limits,
    PeerLimits,
)
from tunnel.wire.outbox import FLUSH, Outbox
from tunnel.wire.stream import (
    CLOSED,
    DATA,
    HALF_CLOSED_LOCAL,
    HALF_CLOSED_REMOTE,
    HEADERS,
    OPEN,
    RECEIVE_FIN,
    Stream,
    StreamInput,
    StreamTable,
)

__all__ = ["NOT_READ", "FrameBudget", "Session"]

#: Protocol versions that this code supports, the best first.
VERSIONS: Final = (1,)

#: Reason of the reset of a stream whose bytes the peer does not read.
NOT_READ: Final = "too many bytes waited to be sent"

Events = list[events.Event]


class Session:
    """
    All streams that share one connection, without any I/O.

    Bytes from the network go into `receive_bytes`, which returns events; our own calls
    (`open_stream`, `send_data`, `consumed`, `ping`) queue frames; `bytes_to_send`
    drains the queue: control frames first, and then a slice of each stream in turn.  A
    Session reads no clock and touches no transport, so all of its behaviour can be
    replayed from a list of calls.

    If the peer breaks the protocol, methods do not raise exceptions: GO_AWAY with the
    reason is queued, and one `SessionEnded` is returned.  If our own side misuses the
    session, methods raise exceptions.

    :param dialler: True on the side that opened the connection; its streams are odd.
    """

    def __init__(self, *, dialler: bool, limits: Limits = DEFAULT_LIMITS) -> None:
        self.dialler = dialler
        self.limits = limits
        self.peer = NOT_SAID
        self.budget = FrameBudget(limits)
        #: Whether both sides have sent their greetings, so that streams may be opened.
        self.ready = False
        #: Event of the session's end; set once.
        self.ended: events.SessionEnded | None = None
        #: Target size of the windows of streams; see
        #: `tunnel.wire.window.WindowEstimator`.
        self.window_target = limits.initial_window
        #: Whether the peer accepts no new streams; our own GO_AWAY does not keep us
        #: from opening streams.
        self.going = False
        self._decoder = FrameDecoder(MAX_PAYLOAD if dialler else MAX_HELLO)
        self._expected = FrameType.WELCOME if dialler else FrameType.HELLO
        self._streams = StreamTable(dialler)
        # The table of streams is stored as an attribute, because each frame and each
        # write uses it, and access through `StreamTable` takes longer.
        self._by_id = self._streams.by_id
        self._outbox = Outbox(limits)
        #: Numbers of streams whose owner had to wait and can continue, until
        #: `take_drained`.
        self.drained = self._outbox.drained
        #: Numbers of streams that were reset because the peer did not read them, until
        #: `take_shed`.
        self.shed: list[int] = []
        #: Whether we accept no new streams.
        self._going = False
        #: Number of our PINGs that the peer has not answered.
        self._unanswered = 0

    # The greeting.

    def hello(self, hello: pb.Hello) -> None:
        """Send HELLO; the dialling side's first call."""
        hello.versions[:] = VERSIONS
        self._announce(hello.limits)
        self._outbox.message(FrameType.HELLO, 0, hello)

    def welcome(self, welcome: pb.Welcome) -> None:
        """Accept the peer after its `HelloReceived`."""
        welcome.version = VERSIONS[0]
        self._announce(welcome.limits)
        self._outbox.message(FrameType.WELCOME, 0, welcome)
        self._decoder.max_payload = self.limits.max_payload
        self.ready = True

    def _announce(self, message: pb.Limits) -> None:
        message.max_streams = self.limits.max_streams
        message.initial_window = self.limits.initial_window
        message.max_payload = self.limits.max_payload

    # Streams.

    def open_stream(self, message: pb.Open | pb.Resume, *, fin: bool = False) -> int:
        """
        Open a stream, or resume a stream that lost its path, and return its number.

        After RESUME, send nothing on the stream before `ResumedReceived`.

        :raises SessionClosed: the session has ended, or the peer is going away.
        :raises StreamReset: the peer accepts no more streams now.
        """
        if self.going or not self.ready:
            raise SessionClosed(ErrorCode.SHUTDOWN, "the peer accepts no new streams")
        streams = self._streams
        if streams.ours >= self.peer.max_streams or streams.next_ours > MAX_STREAM_ID:
            raise StreamReset(ErrorCode.REFUSED, "too many streams", by_peer=False)
        resuming = isinstance(message, pb.Resume)
        kind = FrameType.RESUME if resuming else FrameType.OPEN
        payload = message.SerializeToString()
        if len(payload) > self.peer.max_payload:
            raise ValueError(f"{kind.name} of {len(payload)} bytes")
        stream = streams.open(
            self.peer.initial_window,
            self.limits.initial_window,
            HALF_CLOSED_LOCAL if fin else OPEN,
        )
        stream.finishing = fin
        stream.resuming = resuming
        self._outbox.frame(kind, FIN if fin else 0, stream.id, payload)
        return stream.id

    def resumed(self, stream_id: int, received: int) -> None:
        """Continue a stream after its `ResumeReceived`."""
        self._outbox.message(
            FrameType.RESUMED, stream_id, pb.Resumed(received=received)
        )

    def ack(self, stream_id: int, received: int) -> None:
        """
        Acknowledge bytes of a resumable stream, which the peer need not keep any
        longer.
        """
        if stream_id in self._by_id:
            self._outbox.message(FrameType.ACK, stream_id, pb.Ack(received=received))

    def send_headers(self, stream_id: int, block: bytes) -> bool:
        """Queue one header block; the rules of `send_data` apply."""
        if len(block) > MAX_HEADERS:
            raise ValueError(f"a header block of {len(block)} bytes")
        stream = self._sending(stream_id)
        if stream is None:
            return False
        full = self._outbox.data(stream, HEADERS, block)
        if full and self._outbox.queued > self.limits.queued_bytes:
            self._shed_queued()
        return full

    def send_data(self, stream_id: int, data: bytes) -> bool:
        """
        Queue bytes of a stream; return True if its owner should wait for
        `take_drained`.

        If all streams together have too many bytes, this or other streams are reset;
        `take_shed` returns their numbers.

        Bytes for a stream that the peer has reset in the meantime are dropped.
        """
        stream = self._sending(stream_id)
        if stream is None or not data:
            return False
        if len(data) <= MAX_PAYLOAD:
            full = self._outbox.data(stream, DATA, data)
            # Only a stream that is full can exceed the limit of the session.
            if full and self._outbox.queued > self.limits.queued_bytes:
                self._shed_queued()
            return full
        # The data is split once here: cutting slices off the front of a large chunk
        # would copy its rest each time.
        for start in range(0, len(data), MAX_PAYLOAD):
            self._outbox.data(stream, DATA, data[start : start + MAX_PAYLOAD])
        full = stream.full
        if full and self._outbox.queued > self.limits.queued_bytes:
            self._shed_queued()
        return full

    def finish(self, stream_id: int) -> None:
        """Half-close the stream: no data follows the queued data."""
        stream = self._by_id.get(stream_id)
        if stream is None or stream.finishing:
            return
        stream.finishing = True
        self._outbox.schedule(stream)

    def reset(
        self,
        stream_id: int,
        code: ErrorCode,
        message: str = "",
        *,
        peer_closed: bool = False,
    ) -> None:
        """Abort both directions of a stream; its queued data is dropped."""
        stream = self._by_id.get(stream_id)
        if stream is None:
            return
        if stream.move(StreamInput.SEND_RESET):
            self._outbox.reset(stream_id, code, message, peer_closed)
        # In all other cases both sides have finished, and only unconsumed data is
        # dropped.
        self._drop(stream)

    def consumed(
        self,
        stream_id: int,
        count: int,
        seconds: Callable[[], float] | None = None,
    ) -> None:
        """
        Record that the application consumed *count* bytes of a stream.

        :param seconds: as for `tunnel.wire.stream.ReceiveWindow.consumed`.
        """
        streams = self._streams
        stream = self._by_id.get(stream_id)
        if stream is None:
            return  # it was reset in the meantime, and its bytes were subtracted then
        window = stream.window
        if stream.receiving:
            grant = window.consumed(count, self.window_target, seconds)
            streams.buffered -= count
            if grant:
                self._outbox.credit(stream, grant)
        else:
            window.emptied(count)
            streams.buffered -= count
            if not window.buffered:
                streams.retire(stream)

    def charge(self, stream_id: int, holder: str) -> None:
        """Count the bytes of a stream for *holder*: see `Limits.session_bytes`."""
        stream = self._by_id.get(stream_id)
        if stream is not None:
            stream.holder = holder

    def _sending(self, stream_id: int) -> Stream | None:
        stream = self._by_id.get(stream_id)
        if stream is None:
            return None
        if stream.finishing:
            raise ValueError(f"stream {stream_id} was finished by this side")
        return stream

    # The connection.

    def ping(self, token: int) -> None:
        """Send a PING; the response is a `Ponged` with this token."""
        self._unanswered += 1
        self._outbox.message(FrameType.PING, 0, pb.Ping(token=token))

    def go_away(self, go_away: pb.GoAway) -> None:
        """Refuse new streams from now on; the owner closes at the deadline."""
        self._going = True
        go_away.last_stream = self._streams.last_theirs
        self._outbox.message(FrameType.GO_AWAY, 0, go_away)

    def end(self, code: ErrorCode, message: str = "") -> None:
        """End the session: only a last GO_AWAY can still be sent."""
        if self.ended is None:
            self._end(code, message, [])

    # Output, and memory that the session holds.

    @property
    def has_output(self) -> bool:
        """Whether `bytes_to_send` would return bytes."""
        # The parts are read directly, because this is called several times for each
        # frame.
        outbox = self._outbox
        return bool(outbox.control or outbox.ready or outbox.credits)

    @property
    def open_streams(self) -> int:
        """The number of streams of both sides that are not closed."""
        return self._streams.ours + self._streams.theirs

    @property
    def buffered(self) -> int:
        """The number of bytes that arrived on all streams and were not consumed."""
        return self._streams.buffered

    def queued(self, stream_id: int) -> int:
        """Return the number of bytes of a stream that wait to be sent."""
        stream = self._by_id.get(stream_id)
        return 0 if stream is None else stream.queued

    def bytes_to_send(self, wanted: int = FLUSH) -> bytes:
        """
        Return about *wanted* bytes for the peer; empty if there is nothing to send.
        """
        data, finished = self._outbox.take(wanted)
        for stream in finished:
            self._streams.retire(stream)
        return data

    def take_drained(self) -> list[int]:
        """Return and clear the numbers in `drained`."""
        drained = self.drained.copy()
        self.drained.clear()
        return drained

    def take_shed(self) -> list[int]:
        """Return and clear the numbers in `shed`."""
        shed = self.shed.copy()
        self.shed.clear()
        return shed

    @property
    def all_queued(self) -> int:
        """The number of bytes of all streams that wait to be sent."""
        return self._outbox.queued

    def streams(self) -> Iterator[int]:
        """Yield the numbers of all known streams."""
        return iter(tuple(self._by_id))

    # Handlers of received frames.

    def receive_bytes(self, data: bytes) -> Events:
        """Add *data* from the network and return its events."""
        happened: Events = []
        if self.ended is not None:
            return happened
        try:
            self._handle_frames(data, happened)
        except ProtocolError as error:
            self._end(error.code, str(error), happened)
        except DecodeError:
            self._end(ErrorCode.PROTOCOL, "a malformed message", happened)
        return happened

    def _handle_frames(self, data: bytes, out: Events) -> None:
        for kind, flags, stream_id, payload in self._decoder.feed(data):
            if not self.ready:
                self._check_greeting(kind)
            handler = _HANDLERS.get(kind)
            if handler is not None:
                handler(self, flags, stream_id, payload, out)
            elif flags & IGNORABLE:
                self._spend_small()
            else:
                raise ProtocolError(ErrorCode.PROTOCOL, f"frame type {kind}")
            if self.ended is not None:
                return
        if self._decoder.error is not None:
            raise self._decoder.error
        if len(self._outbox.control) > self.limits.max_queued_control:
            raise ProtocolError(ErrorCode.FLOOD, "responses are not being read")

    # Frames of the connection.

    def _check_greeting(self, kind: int) -> None:
        if kind not in (self._expected, FrameType.GO_AWAY):
            raise ProtocolError(
                ErrorCode.PROTOCOL, f"{self._expected.name} must come first"
            )

    def _on_hello(self, flags: int, sid: int, payload: bytes, out: Events) -> None:
        if self.dialler or self._expected is not FrameType.HELLO or sid:
            raise ProtocolError(ErrorCode.PROTOCOL, "HELLO out of place")
        hello = pb.Hello.FromString(payload)
        clean_message(hello, MAX_REASON)
        if not set(hello.versions) & set(VERSIONS):
            raise ProtocolError(
                ErrorCode.VERSION,
                (
                    f"no common version: the peer has {list(hello.versions)[:8]}, we "
                    f"have {VERSIONS}"
                ),
            )
        self._learn(hello.limits)
        # Before WELCOME is sent, the peer must not send other frames.
        self._expected = FrameType.GO_AWAY
        out.append(events.HelloReceived(hello))

    def _on_welcome(self, flags: int, sid: int, payload: bytes, out: Events) -> None:
        if not self.dialler or self.ready or sid:
            raise ProtocolError(ErrorCode.PROTOCOL, "WELCOME out of place")
        welcome = pb.Welcome.FromString(payload)
        clean_message(welcome, MAX_REASON)
        if welcome.version not in VERSIONS:
            raise ProtocolError(ErrorCode.VERSION, f"version {welcome.version}")
        self._learn(welcome.limits)
        self._decoder.max_payload = self.limits.max_payload
        self.ready = True
        out.append(events.WelcomeReceived(welcome))

    def _on_ping(self, flags: int, sid: int, payload: bytes, out: Events) -> None:
        self._connection_frame(sid)
        self.budget.pings -= 1
        if self.budget.pings < 0:
            raise ProtocolError(ErrorCode.FLOOD, "too many PINGs")
        if len(payload) > MAX_PING:
            # A PING is returned unchanged, and kept if the peer does not read PONGs.
            raise ProtocolError(ErrorCode.FRAME_SIZE, "a PING that is too long")
        pb.Ping.FromString(payload)
        self._outbox.frame(FrameType.PONG, 0, 0, payload)

    def _on_pong(self, flags: int, sid: int, payload: bytes, out: Events) -> None:
        self._connection_frame(sid)
        self._unanswered -= 1
        if self._unanswered < 0:
            raise ProtocolError(ErrorCode.PROTOCOL, "PONG without PING")
        out.append(events.Ponged(pb.Ping.FromString(payload).token))

    def _on_go_away(self, flags: int, sid: int, payload: bytes, out: Events) -> None:
        self._connection_frame(sid)
        self._spend_small()
        go_away = pb.GoAway.FromString(payload)
        clean_message(go_away, MAX_REASON)
        first, self.going = not self.going, True
        out.append(events.GoAwayReceived(go_away))
        # We have opened no streams since the first GO_AWAY, so only the first and the
        # last one need this.
        if first or not go_away.deadline_ms:
            for stream in list(self._by_id.values()):
                if self._streams.is_ours(stream.id) and stream.id > go_away.last_stream:
                    self._drop(stream)
                    reason = events.StreamEnded(
                        stream.id, ErrorCode.REFUSED, go_away.message
                    )
                    out.append(reason)
        if not go_away.deadline_ms:
            code = _code(go_away.code)
            self.ended = events.SessionEnded(code, go_away.message, True)
            self._clear()
            out.append(self.ended)

    # Frames of streams.

    def _on_open(self, flags: int, sid: int, payload: bytes, out: Events) -> None:
        if not self._admit(sid):
            return
        open_ = pb.Open.FromString(payload)
        fin = bool(flags & FIN)
        self._streams.accept(
            sid,
            self.peer.initial_window,
            self.limits.initial_window,
            HALF_CLOSED_REMOTE if fin else OPEN,
        )
        out.append(events.StreamOpened(sid, open_, fin))

    def _on_resume(self, flags: int, sid: int, payload: bytes, out: Events) -> None:
        if not self._admit(sid):
            return
        resume = pb.Resume.FromString(payload)
        self._streams.accept(sid, self.peer.initial_window, self.limits.initial_window)
        out.append(events.ResumeReceived(sid, resume))

    def _on_resumed(self, flags: int, sid: int, payload: bytes, out: Events) -> None:
        self._spend_small()
        received = pb.Resumed.FromString(payload).received
        stream = self._streams.known(sid)
        if stream is None:
            return
        if not stream.resuming:
            raise ProtocolError(ErrorCode.PROTOCOL, "RESUMED without RESUME")
        stream.resuming = False
        out.append(events.ResumedReceived(sid, received))

    def _on_ack(self, flags: int, sid: int, payload: bytes, out: Events) -> None:
        self._spend_small()
        received = pb.Ack.FromString(payload).received
        if self._streams.known(sid) is not None:
            out.append(events.AckReceived(sid, received))

    def _on_headers(self, flags: int, sid: int, payload: bytes, out: Events) -> None:
        fin = bool(flags & FIN)
        if not payload:
            self._spend_small()
        if self._arrived(sid, payload, fin, out):
            out.append(events.HeadersReceived(sid, payload, fin))
            if self._streams.buffered > self.limits.session_bytes:
                self._shed(out)

    def _on_data(self, flags: int, sid: int, payload: bytes, out: Events) -> None:
        fin = bool(flags & FIN)
        if not payload and not fin:
            # Such a frame would cost the sender ten bytes without credit, and the
            # receiver an event.
            raise ProtocolError(ErrorCode.PROTOCOL, "DATA with neither bytes nor FIN")
        if self._arrived(sid, payload, fin, out):
            out.append(events.DataReceived(sid, payload, fin))
            if self._streams.buffered > self.limits.session_bytes:
                self._shed(out)

    def _on_credit(self, flags: int, sid: int, payload: bytes, out: Events) -> None:
        self._spend_small()
        stream = self._streams.known(sid)
        count = pb.Credit.FromString(payload).bytes
        if not count:
            raise ProtocolError(ErrorCode.PROTOCOL, "CREDIT of nothing")
        if stream is None:
            return
        if stream.send_credit + count > MAX_CREDIT:
            self._fault(stream, ErrorCode.FLOW_CONTROL, "credit beyond 2**31 - 1", out)
            return
        stream.send_credit += count
        self._outbox.schedule(stream)

    def _on_reset(self, flags: int, sid: int, payload: bytes, out: Events) -> None:
        self.budget.resets -= 1
        if self.budget.resets < 0:
            raise ProtocolError(ErrorCode.FLOOD, "too many RESETs")
        stream = self._streams.known(sid)
        reset = pb.Reset.FromString(payload)
        if stream is None or not stream.move(StreamInput.RECEIVE_RESET):
            return
        self._drop(stream)
        code, message = _code(reset.code), clean(reset.message, MAX_REASON)
        out.append(
            events.StreamEnded(sid, code, message, peer_closed=reset.peer_closed)
        )

    # Common parts of the handlers.

    def _connection_frame(self, stream_id: int) -> None:
        if stream_id:
            raise ProtocolError(ErrorCode.PROTOCOL, "a connection's frame on a stream")

    def _spend_small(self) -> None:
        self.budget.small -= 1
        if self.budget.small < 0:
            raise ProtocolError(ErrorCode.FLOOD, "too many small frames")

    def _admit(self, stream_id: int) -> bool:
        """Tell whether the peer may open a stream now; otherwise refuse the stream."""
        streams = self._streams
        streams.admit(stream_id)
        # Opening costs no credit, but the response may cost us a frame.
        self._spend_small()
        if self._going or streams.theirs >= self.limits.max_streams:
            text = "going away" if self._going else "too many streams"
            self._outbox.reset(stream_id, ErrorCode.REFUSED, text)
            return False
        return True

    def _arrived(self, sid: int, payload: bytes, fin: bool, out: Events) -> bool:
        """Account for bytes of a stream; return False if they must be ignored."""
        streams = self._streams
        stream = self._by_id.get(sid)
        if stream is None:
            streams.known(sid)  # raises if it was never opened
            return False
        if not stream.receiving:
            if stream.state is CLOSED:
                return False
            self._fault(stream, ErrorCode.PROTOCOL, "bytes after FIN", out)
            return False
        if not stream.window.received(len(payload)):
            self._fault(stream, ErrorCode.FLOW_CONTROL, "more than credit", out)
            return False
        streams.buffered += len(payload)
        if fin:
            stream.move(RECEIVE_FIN)
            streams.retire(stream)
        return True

    def _shed(self, out: Events) -> None:
        """Reset streams until the session holds fewer bytes than its limit."""
        streams = self._streams
        excess = streams.buffered - self.limits.session_bytes
        for stream in streams.greediest(excess, _received):
            text = "its bytes were not consumed"
            if stream.state is CLOSED:
                # Both sides have finished, so only our own side must be notified.
                self._drop(stream)
                out.append(events.StreamEnded(stream.id, ErrorCode.MEMORY, text, False))
            else:
                self._fault(stream, ErrorCode.MEMORY, text, out)

    def _shed_queued(self) -> None:
        """
        Reset streams until an eighth of the room for bytes that wait to be sent is free
        again, so that a peer with many streams does not cause a search for each write.
        """
        most = self.limits.queued_bytes
        excess = self._outbox.queued - most + most // 8
        for stream in self._streams.greediest(excess, _queued):
            self._outbox.reset(stream.id, ErrorCode.MEMORY, NOT_READ)
            self._drop(stream)
            self.shed.append(stream.id)

    def _drop(self, stream: Stream) -> None:
        self._outbox.drop(stream)
        self._streams.drop(stream)

    def _fault(
        self, stream: Stream, code: ErrorCode, message: str, out: Events
    ) -> None:
        self._outbox.reset(stream.id, code, message)
        self._drop(stream)
        out.append(events.StreamEnded(stream.id, code, message, False))

    def _learn(self, message: pb.Limits) -> None:
        self.peer = PeerLimits.from_message(message)
        self._outbox.max_payload = self.peer.max_payload

    def _end(self, code: ErrorCode, message: str, out: Events) -> None:
        self._clear()
        self.going = True
        go_away = pb.GoAway(code=code, message=message[:MAX_REASON])
        go_away.last_stream = self._streams.last_theirs
        self._outbox.message(FrameType.GO_AWAY, 0, go_away)
        self.ended = events.SessionEnded(code, message, False)
        out.append(self.ended)

    def _clear(self) -> None:
        self._streams.clear()
        self._outbox.clear()


#: One table for all sessions: bound methods in each session would cost an idle agent
#: 1.5 KiB.
_HANDLERS: dict[int, Callable[[Session, int, int, bytes, Events], None]] = {
    FrameType.HELLO: Session._on_hello,
    FrameType.WELCOME: Session._on_welcome,
    FrameType.OPEN: Session._on_open,
    FrameType.HEADERS: Session._on_headers,
    FrameType.DATA: Session._on_data,
    FrameType.CREDIT: Session._on_credit,
    FrameType.RESET: Session._on_reset,
    FrameType.PING: Session._on_ping,
    FrameType.PONG: Session._on_pong,
    FrameType.GO_AWAY: Session._on_go_away,
    FrameType.RESUME: Session._on_resume,
    FrameType.RESUMED: Session._on_resumed,
    FrameType.ACK: Session._on_ack,
}


class FrameBudget:
    """
    Counts of frames that need no credit, and so could be sent without limit.

    The session has no clock: its owner calls `renew` every ten seconds.
    """

    __slots__ = ("_limits", "pings", "resets", "small")

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.renew()

    def renew(self) -> None:
        """Start a new interval."""
        self.resets = self._limits.resets_per_interval
        self.pings = self._limits.pings_per_interval
        self.small = self._limits.small_frames_per_interval


def _received(stream: Stream) -> int:
    return stream.window.buffered


def _queued(stream: Stream) -> int:
    return stream.queued


def _code(number: int) -> ErrorCode:
    """Return an error code; an unknown code of a newer peer counts as INTERNAL."""
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.INTERNAL
