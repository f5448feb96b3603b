"""
Limits of one connection, each with its reason.

A side announces its limits for *receiving* in HELLO or WELCOME (`Limits.initial_window`
and the two beside it), and enforces the others by itself.
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

#: Largest payload of a frame before HELLO and WELCOME said otherwise.
#: No stream holds the connection for longer than this many bytes.
MAX_PAYLOAD: Final = 64 * KIB

#: A header block has to fit into one frame, because it is never cut.
MAX_HEADERS: Final = MAX_PAYLOAD

#: Bytes one stream may send before its neighbours get their turn.
SLICE: Final = 16 * KIB

#: The smallest window.  Credit is announced once half of it was consumed, so up to half
#: may be missing, and a whole header block still has to fit into the rest.
MIN_WINDOW: Final = 2 * MAX_HEADERS

#: Seconds' worth of bytes that a stream may keep under way to a reader who is behind:
#: what comes after them waits that long.
AHEAD: Final = 1.0

#: Credit of a stream can never pass this; it has to fit a signed 32-bit number.
MAX_CREDIT: Final = 2**31 - 1

#: The last stream number; a connection that gets there has to be replaced.
MAX_STREAM_ID: Final = 2**31 - 1

#: Texts in RESET and GO_AWAY are for users; longer ones are cut.
MAX_REASON: Final = 1 * KIB

#: HELLO carries the credential and the names of services, and comes from strangers.
MAX_HELLO: Final = 16 * KIB

#: PING comes back as PONG, so its size is what an unread answer costs.
MAX_PING: Final = 64


@attrs.frozen
class Limits:
    """The bounds that can be set per connection."""

    #: Streams that the peer may have open at once.  One watch is one stream, and a busy
    #: cluster has thousands; an open stream costs a few KiB.
    max_streams: int = 20_000

    #: Credit of a new stream: one round trip of 20 ms at 100 Mbit/s.
    initial_window: int = 256 * KIB

    #: How far the window of one stream may grow: 300 ms at 400 Mbit/s.
    max_window: int = 16 * MIB

    #: Largest payload that we take.
    max_payload: int = MAX_PAYLOAD

    #: Bytes that arrived on all streams together and were not consumed.  When it is
    #: passed, the stream that holds most is reset, or the largest of the holder that
    #: has most (`Session.charge`): memory stays bounded, and no stream has to wait for
    #: the reader of another.
    session_bytes: int = 64 * MIB

    #: Bytes that one stream may hold for a slow path before its producer is paused.
    send_high: int = 128 * KIB

    #: ... and where the producer may go on.
    send_low: int = 32 * KIB

    #: ... also when that is in so many pieces: a block without a byte costs no credit,
    #: and yet memory.
    send_pieces: int = 1_024

    #: Control frames that wait to be sent.  They need no credit, so a peer that asks
    #: and never reads the answers must hit something.
    max_queued_control: int = 50_000

    #: Frames per interval of ten seconds; beyond it the peer is abusive, not busy.
    #: A kas whose clients all give up at once sends one RESET for each.
    resets_per_interval: int = 100_000
    pings_per_interval: int = 1_000
    #: CREDIT, and frames that are ignored.
    small_frames_per_interval: int = 500_000


DEFAULT_LIMITS: Final = Limits()


@attrs.frozen
class PeerLimits:
    """Limits that the peer announced for receiving."""

    max_streams: int = DEFAULT_LIMITS.max_streams
    initial_window: int = MIN_WINDOW
    max_payload: int = MAX_PAYLOAD

    @classmethod
    def from_message(cls, message: pb.Limits) -> PeerLimits:
        """Read *message*; :raises ProtocolError: for values that cannot work."""
        window = message.initial_window or MIN_WINDOW
        payload = message.max_payload or MAX_PAYLOAD
        if not MIN_WINDOW <= window <= MAX_CREDIT or payload < MAX_HEADERS:
            raise ProtocolError(ErrorCode.PROTOCOL, "limits below the smallest legal")
        streams = message.max_streams or DEFAULT_LIMITS.max_streams
        return _peer_limits(streams, window, min(payload, MAX_PAYLOAD))


#: Nearly all peers say the same, which then is one object for all of them.
_peer_limits = functools.lru_cache(maxsize=16)(PeerLimits)

#: Limits that apply before the peer has announced its own.
NOT_SAID: Final = PeerLimits()
