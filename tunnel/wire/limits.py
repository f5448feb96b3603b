"""
Limits of one connection, each with its reason.

A side announces its limits for *receiving* in HELLO or WELCOME (`Limits.initial_window`
and the next two), and enforces the others by itself.
"""

from __future__ import annotations

import functools
from typing import Final

import attrs

from tunnel.errors import ErrorCode, ProtocolError
from tunnel.pb import tunnel_pb2 as pb

KIB: Final = 1024
MIB: Final = 1024 * KIB

#: Number of bytes before each payload: length, stream, type, flags.
FRAME_HEADER: Final = 10

#: Maximum size of a frame's payload in bytes, unless HELLO and WELCOME announce another
#: one.  A stream occupies the connection for at most this many bytes.
MAX_PAYLOAD: Final = 64 * KIB

#: Maximum size of a header block in bytes: it has to fit into one frame, because it is
#: never split.
MAX_HEADERS: Final = MAX_PAYLOAD

#: Maximum number of bytes that one stream sends before other streams get their turn.
SLICE: Final = 16 * KIB

#: Minimum size of a window in bytes.  Credit is announced when half of it was consumed,
#: so up to half may be missing, and a whole header block still has to fit into the
#: rest.
MIN_WINDOW: Final = 2 * MAX_HEADERS

#: Maximum amount of data in transit on a stream with a slow reader, in seconds of
#: reading, because further data has to wait for that time.
AHEAD: Final = 1.0

#: Maximum credit of a stream in bytes; it has to fit a signed 32-bit number.
MAX_CREDIT: Final = 2**31 - 1

#: The last stream number; a connection that reaches it has to be replaced.
MAX_STREAM_ID: Final = 2**31 - 1

#: Maximum number of bytes of the texts in RESET and GO_AWAY.  The texts are only for
#: users, so longer texts are truncated.
MAX_REASON: Final = 1 * KIB

#: Maximum number of bytes of HELLO, which carries the credential and the names of
#: services, and comes from strangers.
MAX_HELLO: Final = 16 * KIB

#: Maximum number of bytes of PING.  A PING is returned as PONG, so this is also the
#: size of a response that the peer does not read.
MAX_PING: Final = 64


@attrs.frozen
class Limits:
    """The limits that can be set for each connection."""

    #: Maximum number of streams that the peer may have open at the same time.  One
    #: watch is one stream, and a busy cluster has thousands; an open stream costs a few
    #: KiB.
    max_streams: int = 20_000

    #: Credit of a new stream in bytes: one round trip of 20 ms at 100 Mbit/s.
    initial_window: int = 256 * KIB

    #: Maximum window of one stream in bytes: 300 ms at 400 Mbit/s.
    max_window: int = 16 * MIB

    #: Maximum size of a payload that we accept, in bytes.
    max_payload: int = MAX_PAYLOAD

    #: Maximum number of bytes that arrived on all streams together and were not
    #: consumed. Beyond it, the stream with most bytes is reset, or the largest stream
    #: of the holder with most bytes (`Session.charge`): memory stays limited, and no
    #: stream has to wait for the reader of another.
    session_bytes: int = 64 * MIB

    #: Maximum number of bytes that one stream holds for a slow path; above it, the
    #: stream's producer is paused.
    send_high: int = 128 * KIB

    #: Number of held bytes at which the producer resumes.
    send_low: int = 32 * KIB

    #: Maximum number of bytes that wait to be sent on all streams together.  Beyond it,
    #: streams are reset as for `session_bytes`: a peer that does not read, or grants no
    #: credit, must not fill our memory with one message for each of its streams.
    queued_bytes: int = 64 * MIB

    #: Number of bytes that wait on all streams together, above which each producer is
    #: paused after its next piece, so that slow paths rarely cost a stream.
    queued_high: int = 32 * MIB

    #: Maximum number of pieces that one stream holds: an empty block needs no credit,
    #: but it needs memory.
    send_pieces: int = 1_024

    #: Maximum number of control frames that wait to be sent.  Control frames need no
    #: credit, so without a limit a peer that never reads the responses could fill our
    #: memory.
    max_queued_control: int = 50_000

    #: Maximum number of RESET frames in an interval of ten seconds; a peer that sends
    #: more is abusive, not busy.  A kas whose clients all cancel at the same time sends
    #: one RESET for each.
    resets_per_interval: int = 100_000
    pings_per_interval: int = 1_000
    #: Maximum number of CREDIT and ignored frames in an interval of ten seconds.
    small_frames_per_interval: int = 500_000


DEFAULT_LIMITS: Final = Limits()


@attrs.frozen
class PeerLimits:
    """The limits that the peer announced for receiving."""

    max_streams: int = DEFAULT_LIMITS.max_streams
    initial_window: int = MIN_WINDOW
    max_payload: int = MAX_PAYLOAD

    @classmethod
    def from_message(cls, message: pb.Limits) -> PeerLimits:
        """
        Parse *message*.

        :raises ProtocolError: a value is invalid.
        """
        window = message.initial_window or MIN_WINDOW
        payload = message.max_payload or MAX_PAYLOAD
        if not MIN_WINDOW <= window <= MAX_CREDIT or payload < MAX_HEADERS:
            raise ProtocolError(
                ErrorCode.PROTOCOL, "limits below the permitted minimum"
            )
        streams = message.max_streams or DEFAULT_LIMITS.max_streams
        return _peer_limits(streams, window, min(payload, MAX_PAYLOAD))


#: Nearly all peers announce the same limits, which then share one object.
_peer_limits = functools.lru_cache(maxsize=16)(PeerLimits)

#: Limits that apply before the peer has announced its own.
NOT_SAID: Final = PeerLimits()
