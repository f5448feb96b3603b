"""All streams that share one connection (specification sections 3 to 8)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tunnel.errors import ErrorCode, SessionClosed, StreamReset
from tunnel.pb import tunnel_pb2 as pb
from tunnel.wire.framing import FIN, FrameType
from tunnel.wire.inbound import VERSIONS, Inbound
from tunnel.wire.limits import MAX_HEADERS, MAX_PAYLOAD, MAX_STREAM_ID
from tunnel.wire.outbox import FLUSH
from tunnel.wire.stream import DATA, HEADERS, SEND_FIN, Stream, StreamInput


class Session(Inbound):
    """
    All streams that share one connection, without any I/O.

    Bytes from the network go into `receive_bytes`, which returns events; what we want
    done (`open_stream`, `send_data`, `consumed`, `ping`) queues frames; `bytes_to_send`
    drains the queue, control frames first and then the streams in turn, a slice each.
    A Session reads no clock and touches no transport, so anything it did can be
    replayed from a list of calls.

    A peer that breaks the protocol does not make a method raise: GO_AWAY with the
    reason is queued and one `SessionEnded` comes out.  Misuse by our own side raises.

    :param dialler: True on the side that opened the connection; its streams are odd.
    """

    # What we want done.

    def hello(self, hello: pb.Hello) -> None:
        """Say who we are; the dialling side's first call."""
        hello.versions[:] = VERSIONS
        self._announce(hello.limits)
        self._outbox.message(FrameType.HELLO, 0, hello)

    def welcome(self, welcome: pb.Welcome) -> None:
        """Take the peer whose `HelloReceived` came."""
        welcome.version = VERSIONS[0]
        self._announce(welcome.limits)
        self._outbox.message(FrameType.WELCOME, 0, welcome)
        self._decoder.max_payload = self.limits.max_payload
        self.ready = True

    def open_stream(self, open_: pb.Open, *, fin: bool = False) -> int:
        """
        Open a stream and return its number.

        :raises SessionClosed: the session ended, or the peer is going away.
        :raises StreamReset: the peer takes no more streams now.
        """
        stream = self._begin(FrameType.OPEN, open_.SerializeToString(), fin)
        if fin:
            stream.finishing = True
            stream.move(SEND_FIN)
        return stream.id

    def resume_stream(self, resume: pb.Resume) -> int:
        """
        Ask to go on with a stream that lost its path; returns its new number.

        Nothing may be sent on it before `ResumedReceived`.  Raises as `open_stream`.
        """
        stream = self._begin(FrameType.RESUME, resume.SerializeToString(), False)
        stream.resuming = True
        return stream.id

    def resumed(self, stream_id: int, received: int) -> None:
        """Go on with a stream whose `ResumeReceived` came."""
        self._outbox.message(
            FrameType.RESUMED, stream_id, pb.Resumed(received=received)
        )

    def ack(self, stream_id: int, received: int) -> None:
        """Tell the peer of a resumable stream what it need not keep any longer."""
        if stream_id in self._streams:
            self._outbox.message(FrameType.ACK, stream_id, pb.Ack(received=received))

    def _begin(self, kind: FrameType, payload: bytes, fin: bool) -> Stream:
        if self.ended is not None or self._peer_going or not self.ready:
            raise SessionClosed(ErrorCode.SHUTDOWN, "the peer takes no new streams")
        streams = self._streams
        if streams.ours >= self.peer.max_streams or streams.next_ours > MAX_STREAM_ID:
            raise StreamReset(ErrorCode.REFUSED, "too many streams", by_peer=False)
        if len(payload) > self.peer.max_payload:
            raise ValueError(f"{kind.name} of {len(payload)} bytes")
        stream = streams.open(self.peer.initial_window, self.limits.initial_window)
        self._outbox.frame(kind, FIN if fin else 0, stream.id, payload)
        return stream

    def send_headers(self, stream_id: int, block: bytes) -> bool:
        """Queue one header block; as `send_data` otherwise."""
        if len(block) > MAX_HEADERS:
            raise ValueError(f"a header block of {len(block)} bytes")
        stream = self._sending(stream_id)
        return stream is not None and self._outbox.data(stream, HEADERS, block)

    def send_data(self, stream_id: int, data: bytes) -> bool:
        """
        Queue bytes of a stream; True when its owner should wait for `take_drained`.

        What is sent on a stream that the peer has reset meanwhile is dropped.
        """
        stream = self._sending(stream_id)
        if stream is None or not data:
            return False
        if len(data) <= MAX_PAYLOAD:
            return self._outbox.data(stream, DATA, data)
        # Cut once here: cutting slices off the front of a large chunk would copy
        # its rest each time.
        for start in range(0, len(data), MAX_PAYLOAD):
            self._outbox.data(stream, DATA, data[start : start + MAX_PAYLOAD])
        return stream.full

    def finish(self, stream_id: int) -> None:
        """Half-close: nothing follows what was queued."""
        stream = self._streams.get(stream_id)
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
        """Abort both directions of a stream; what was queued for it is dropped."""
        stream = self._streams.get(stream_id)
        if stream is None:
            return
        if stream.move(StreamInput.SEND_RESET):
            self._outbox.reset(stream_id, code, message, peer_closed)
        # Otherwise both sides finished, and only what was not consumed is given up.
        self._streams.drop(stream)

    def consumed(
        self,
        stream_id: int,
        count: int,
        seconds: Callable[[], float] | None = None,
    ) -> None:
        """
        The application is done with *count* bytes of a stream.

        :param seconds: as for `tunnel.wire.window.ReceiveWindow.consumed`.
        """
        streams = self._streams
        stream = streams.get(stream_id)
        if stream is None:
            return  # it was reset meanwhile, and its bytes were written off then
        grant = stream.window.consumed(count, self.window_target, seconds)
        streams.buffered -= count
        if stream.receiving:
            if grant:
                self._outbox.credit(stream, grant)
        else:
            streams.retire(stream)

    def charge(self, stream_id: int, holder: str) -> None:
        """Say whose the bytes of a stream are: see `Limits.session_bytes`."""
        stream = self._streams.get(stream_id)
        if stream is not None:
            stream.holder = holder

    def ping(self, token: int) -> None:
        """Ask for a `Ponged` with this token."""
        self._outbox.message(FrameType.PING, 0, pb.Ping(token=token))

    def go_away(self, go_away: pb.GoAway) -> None:
        """Refuse new streams from now on; the owner closes at the deadline."""
        self._going = True
        go_away.last_stream = self._streams.last_theirs
        self._outbox.message(FrameType.GO_AWAY, 0, go_away)

    def end(self, code: ErrorCode, message: str = "") -> None:
        """Say goodbye now: only a last GO_AWAY can still be sent."""
        if self.ended is None:
            self._end(code, message, [])

    # What there is to send, and what happened meanwhile.

    @property
    def has_output(self) -> bool:
        """`bytes_to_send` would return something."""
        return bool(self._outbox)

    @property
    def open_streams(self) -> int:
        """Streams of both sides that are not closed."""
        return self._streams.ours + self._streams.theirs

    @property
    def buffered(self) -> int:
        """Bytes that arrived on all streams and were not consumed."""
        return self._streams.buffered

    def queued(self, stream_id: int) -> int:
        """Bytes of a stream that wait to be sent."""
        stream = self._streams.get(stream_id)
        return 0 if stream is None else stream.queued

    @property
    def going(self) -> bool:
        """The peer takes no new streams; ours alone does not keep us from opening."""
        return self._peer_going or self.ended is not None

    def bytes_to_send(self, wanted: int = FLUSH) -> bytes:
        """About *wanted* bytes for the peer; empty when there is nothing to send."""
        data, finished = self._outbox.take(wanted)
        for stream in finished:
            self._streams.retire(stream)
        return data

    def streams(self) -> Iterator[int]:
        """The numbers of all streams that are known."""
        return iter(tuple(self._streams))

    def take_drained(self) -> list[int]:
        """Streams whose owner was told to wait and may go on."""
        return self._outbox.take_drained()

    def _sending(self, stream_id: int) -> Stream | None:
        stream = self._streams.get(stream_id)
        if stream is None:
            return None
        if stream.finishing:
            raise ValueError(f"stream {stream_id} was finished by this side")
        return stream

    def _announce(self, message: pb.Limits) -> None:
        message.max_streams = self.limits.max_streams
        message.initial_window = self.limits.initial_window
        message.max_payload = self.limits.max_payload
