"""
Answers to PINGs of a client inside an upgraded connection.

The bytes of an exec pass a `Heartbeats` in kas and another one in agentk; a pause does
not: a `Heartbeats` checks whether the consumer of the response is paused.  From the
`HttpConnection` of a client that stops reading to the API server's, five objects pass a
pause on: in kas the `RoutedStream`, its `ResumableStream` and the latter's
`StreamTransport`, where credit ends; in agentk the `ResumableStream` and the
`UpstreamRequest`.  In the other direction they are agentk's `ResumableStream` and
`StreamTransport`, and in kas the `ResumableStream` and the `Exchange`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from twisted.internet.interfaces import IDelayedCall, IReactorTime

from tunnel.kubernetes import SPDY_HEADER, spdy_frame, web_socket_frame
from tunnel.toolkit.timers import cancel_call

__all__ = ["LOOK", "MAX_FRAMES", "MAX_UNREAD", "QUIET", "Heartbeats"]

#: Seconds without a byte from the server after which a PING is forwarded to it.
QUIET: Final = 1.0

#: Seconds that a PING waits if no output seems to flow.  If the process was paused, it
#: first reads the bytes that arrived during the pause.
LOOK: Final = 0.05

#: Maximum number of PONGs that are written while the client does not read: enough for
#: kubectl, which sends a PING every 5 s, and too few to fill memory.
MAX_UNREAD: Final = 8


#: Maximum number of frames in one piece of bytes (64 KiB, or the result of one read):
#: parsing a frame takes some microseconds, during which all other connections wait.  A
#: connection with more frames is no longer parsed: its PINGs are forwarded like other
#: data.
MAX_FRAMES: Final = 1_000


class AnswerPace(Protocol):
    """
    Interface that tells how fast the client reads the response.

    Provided by an `Exchange` in kas, and by an `UpstreamRequest` in agentk.
    """

    @property
    def answer_paused(self) -> bool:
        """Whether the client accepts no more of the response for now."""

    @property
    def answer_resumed_at(self) -> float:
        """Time at which the client last resumed reading."""


class Framing(Protocol):
    """
    Interface of a framing: it finds the frames of one protocol and responds to PINGs.
    """

    #: Length of the longest header, in bytes.
    longest: int

    def frame(self, header: bytes) -> tuple[int, bool] | None:
        """
        Return the size of the frame that begins with *header*, and whether it is a
        PING.

        None if more of the header is needed.
        """

    def may_be_ping(self, header: bytes) -> bool:
        """Return whether an incomplete header may become the header of a PING."""

    def pong(self, ping: bytes) -> bytes | None:
        """
        Return the response to a client's PING; None if the frame is itself a response.
        """


class WebSocketFraming:
    """Framing of WebSocket: RFC 6455, section 5."""

    longest = 14

    def frame(self, header: bytes) -> tuple[int, bool] | None:
        """See `Framing`."""
        found = web_socket_frame(header)
        if found is None:
            return None
        start, size = found
        # FIN and opcode 9, masked as required from clients, and of valid size.
        is_ping = header[0] == 0x89 and header[1] >= 0x80 and size <= 125
        return start + size, is_ping

    def may_be_ping(self, header: bytes) -> bool:
        """See `Framing`."""
        return header == b"\x89"

    def pong(self, ping: bytes) -> bytes | None:
        """See `Framing`."""
        mask, payload = ping[2:6], ping[6:]
        clear = bytes(byte ^ mask[at % 4] for at, byte in enumerate(payload))
        return bytes((0x8A, len(clear))) + clear


class SpdyFraming:
    """Framing of SPDY/3.1, section 2.2: eight bytes before each frame."""

    longest = SPDY_HEADER

    def frame(self, header: bytes) -> tuple[int, bool] | None:
        """See `Framing`."""
        size = spdy_frame(header)
        if size is None:
            return None
        return SPDY_HEADER + size, header[:4] == b"\x80\x03\x00\x06" and size == 4

    def may_be_ping(self, header: bytes) -> bool:
        """See `Framing`."""
        # The fifth byte contains flags, which may have any value.
        return b"\x80\x03\x00\x06".startswith(header[:4]) and (
            b"\x00\x00\x04".startswith(header[5:])
        )

    def pong(self, ping: bytes) -> bytes | None:
        """Return the same frame; None if it responds to a PING of the server."""
        return ping if ping[11] & 1 else None


_FRAMINGS: Final[dict[bytes, Framing]] = {
    b"websocket": WebSocketFraming(),
    b"spdy/3.1": SpdyFraming(),
}


class _Position:
    """Position in the bytes of one direction: how much remains of the current frame."""

    __slots__ = ("_framing", "_header", "_left")

    def __init__(self, framing: Framing) -> None:
        self._framing = framing
        self._header = b""
        self._left = 0

    @property
    def between(self) -> bool:
        """Whether the position is between two frames."""
        return not self._left and not self._header

    def advance(self, data: bytes, at: int = 0) -> int:
        """
        Follow *data* from *at*, at most to the next end of a frame.

        :returns: the new position in *data*.
        """
        size = len(data)
        if self._left:
            step = min(self._left, size - at)
            self._left -= step
            return at + step
        known = len(self._header)
        header = self._header + data[at : at + self._framing.longest]
        found = self._framing.frame(header)
        if found is None:
            self._header = header
            return size
        self._header = b""
        # The earlier part of the header was counted with the previous piece.
        step = min(found[0] - known, size - at)
        self._left = found[0] - known - step
        return at + step


class Heartbeats:
    """
    Filter of both directions of one upgraded connection; kas and agentk have one each.

    While a server sends, a PING would wait behind megabytes of output at each hop of a
    slow path, and kubectl gives up after 60 s.  A PING must also not reach an API
    server that has ended the connection: the server would respond with a reset, and the
    output in its kernel would be lost.  Therefore a `Heartbeats` answers a PING while
    output flows, with a PONG between two frames of the output.  If no output flows, it
    forwards the PING to the server, which keeps the connection alive at every hop and
    detects a dead server.  No data waits for longer than `LOOK`, and other frames are
    not changed.

    :param to_server: called with bytes of the client, without the PINGs that were
        answered.
    :param to_client: called with bytes of the server and with PONGs.
    :param pace: the pace at which the client reads.
    """

    __slots__ = (
        "_client",
        "_clock",
        "_framing",
        "_held",
        "_last",
        "_look",
        "_pace",
        "_ping",
        "_pongs",
        "_server",
        "_to_client",
        "_to_server",
        "_unread",
        "_unread_since",
    )

    def __init__(
        self,
        protocol: bytes,
        clock: IReactorTime,
        to_server: Callable[[bytes], None],
        to_client: Callable[[bytes], None],
        pace: AnswerPace,
    ) -> None:
        #: None if the protocol is unknown and the bytes are not parsed.
        self._framing = _FRAMINGS.get(protocol.lower())
        self._clock = clock
        self._to_server = to_server
        self._to_client = to_client
        self._pace = pace
        framing = self._framing or _FRAMINGS[b"websocket"]
        self._client = _Position(framing)
        self._server = _Position(framing)
        #: The beginning of a possible PING.
        self._held = b""
        #: The PING that waits for a last check before it is answered, and the scheduled
        #: call that makes this check.
        self._ping = b""
        self._look: IDelayedCall | None = None
        #: PONGs that wait for the end of a frame; only the newest is needed.
        self._pongs = b""
        self._last = clock.seconds()
        #: Number of PONGs written since the client stopped reading, and the time at
        #: which the client had last resumed reading before that.
        self._unread = 0
        self._unread_since = 0.0

    def from_server(self, data: bytes) -> None:
        """Forward *data* to the client."""
        self._last = self._clock.seconds()
        position = self._server
        at = frames = 0
        while at < len(data) and self._follows(frames):
            frames += 1
            at = position.advance(data, at)
            if self._pongs and position.between:
                pongs, self._pongs = self._pongs, b""
                self._to_client(data[:at] + pongs)
                data, at = data[at:], 0
        if data:
            self._to_client(data)

    def from_client(self, data: bytes) -> None:
        """Forward *data* to the server, or answer its PINGs."""
        self._decide()
        if self._held:
            data = self._held + data
            self._held = b""
        framing = self._framing
        if framing is None:
            self._to_server(data)
            return
        begin = at = frames = 0
        while at < len(data) and self._follows(frames):
            frames += 1
            if not self._client.between:
                at = self._client.advance(data, at)
                continue
            header = data[at : at + framing.longest]
            found = framing.frame(header)
            if found is not None and found[1]:
                size = found[0]
                if len(data) - at < size:
                    self._held = data[at:]
                    break
                if at > begin:
                    self._to_server(data[begin:at])
                self._decide()
                self._ping = data[at : at + size]
                at = begin = at + size
                if self._busy or at < len(data):
                    self._decide()
                else:
                    self._look = self._clock.callLater(LOOK, self._decide)
            elif found is None and framing.may_be_ping(header):
                self._held = data[at:]
                break
            else:
                at = self._client.advance(data, at)
        end = len(data) - len(self._held)
        if end > begin:
            self._to_server(data[begin:end])

    def _follows(self, frames: int) -> bool:
        """
        Return whether to continue parsing after this number of frames in one piece.
        """
        if frames == MAX_FRAMES:
            self._framing = None
        return self._framing is not None

    def client_finished(self) -> None:
        """Forward the held part of a frame, because the client sends no more."""
        self._decide()
        held, self._held = self._held, b""
        if held:
            self._to_server(held)

    def stop(self) -> None:
        """Stop forwarding in both directions."""
        self._ping = b""
        self._decide()

    @property
    def _busy(self) -> bool:
        """Return whether output flows, or waits for a slow client."""
        pace = self._pace
        if pace.answer_paused:
            return True
        # After a pause, buffered output may not have been sent yet, so this is not
        # silence.
        last = max(self._last, pace.answer_resumed_at)
        return self._clock.seconds() - last < QUIET

    def _decide(self) -> None:
        """Answer the waiting PING, or forward it."""
        look, self._look = self._look, None
        cancel_call(look)
        ping, self._ping = self._ping, b""
        if ping and not (self._busy and self._answered(ping)):
            self._to_server(ping)

    def _answered(self, ping: bytes) -> bool:
        """Answer *ping*; return False if the server has to answer it instead."""
        if self._framing is None:
            return False
        pong = self._framing.pong(ping)
        if pong is None:
            return False
        if self._pace.answer_paused:
            if self._unread_since != self._pace.answer_resumed_at:
                self._unread_since = self._pace.answer_resumed_at
                self._unread = 0
            self._unread += 1
            if self._unread > MAX_UNREAD:
                # The client has enough unread PONGs.
                return True
        if self._server.between:
            self._to_client(pong)
        else:
            # RFC 6455, 5.5.3: of several PINGs only the last need be answered.
            self._pongs = pong
        return True
