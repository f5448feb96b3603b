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

#: Bytes before each payload: length, stream, type, flags.
FRAME_HEADER: Final = 10

#: Largest payload of a frame, unless HELLO and WELCOME announce another one. A stream
#: occupies the connection for at most this many bytes.
MAX_PAYLOAD: Final = 64 * KIB

#: A header block has to fit into one frame, because it is never split.
MAX_HEADERS: Final = MAX_PAYLOAD

#: Bytes that one stream may send before other streams get their turn.
SLICE: Final = 16 * KIB

#: The smallest window. Credit is announced when half of it was consumed, so up to half
#: may be missing, and a whole header block still has to fit into the rest.
MIN_WINDOW: Final = 2 * MAX_HEADERS

#: Seconds' worth of bytes in transit that a stream may have for a slow reader: further
#: data waits that long.
AHEAD: Final = 1.0

#: The maximum of a stream's credit; it has to fit a signed 32-bit number.
MAX_CREDIT: Final = 2**31 - 1

#: The last stream number; a connection that reaches it has to be replaced.
MAX_STREAM_ID: Final = 2**31 - 1

#: Bytes of texts in RESET and GO_AWAY, which are for users; longer ones are truncated.
MAX_REASON: Final = 1 * KIB

#: HELLO carries the credential and the names of services, and comes from strangers.
MAX_HELLO: Final = 16 * KIB

#: PING is returned as PONG, so its size is the cost of an unread response.
MAX_PING: Final = 64


@attrs.frozen
class Limits:
    """The limits that can be set for each connection."""

    #: Streams that the peer may have open at the same time. One watch is one stream,
    #: and a busy cluster has thousands; an open stream costs a few KiB.
    max_streams: int = 20_000

    #: Credit of a new stream: one round trip of 20 ms at 100 Mbit/s.
    initial_window: int = 256 * KIB

    #: How far the window of one stream may grow: 300 ms at 400 Mbit/s.
    max_window: int = 16 * MIB

    #: Largest payload that we accept.
    max_payload: int = MAX_PAYLOAD

    #: Bytes that arrived on all streams together and were not consumed. If there are
    #: more, the stream with most is reset, or the largest stream of the holder with
    #: most (`Session.charge`): memory stays limited, and no stream has to wait for the
    #: reader of another.
    session_bytes: int = 64 * MIB

    #: Bytes that one stream may hold for a slow path before its producer is paused.
    send_high: int = 128 * KIB

    #: ... and the number of bytes at which the producer may resume.
    send_low: int = 32 * KIB

    #: ... also the number of pieces: an empty block costs no credit, but memory.
    send_pieces: int = 1_024

    #: Control frames that wait to be sent. They need no credit, so a peer that never
    #: reads the responses must reach a limit.
    max_queued_control: int = 50_000

    #: Frames in an interval of ten seconds; a peer that sends more is abusive, not
    #: busy. A kas whose clients all cancel at the same time sends one RESET for each.
    resets_per_interval: int = 100_000
    pings_per_interval: int = 1_000
    #: CREDIT, and frames that are ignored.
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
