"""
Events that a `Session` returns to its owner, oldest first.

Events are values: compare them, print them, keep them.  (They are not frozen, because
creating a frozen instance costs three times as much and each request creates several.)
"""

from __future__ import annotations

import attrs

from tunnel.errors import ErrorCode
from tunnel.pb.tunnel_pb2 import GoAway, Hello, Open, Resume, Welcome


@attrs.define
class HelloReceived:
    """HELLO from a peer that dialled; call `Session.welcome` or `Session.end`."""

    hello: Hello


@attrs.define
class WelcomeReceived:
    """WELCOME from the listener, which accepted us; streams may be opened."""

    welcome: Welcome


@attrs.define
class StreamOpened:
    """OPEN from the peer: a new stream."""

    stream_id: int
    open: Open
    fin: bool = False


@attrs.define
class ResumeReceived:
    """
    RESUME from the peer, to continue a stream; call `Session.resumed`, or reset the
    stream.
    """

    stream_id: int
    resume: Resume


@attrs.define
class ResumedReceived:
    """
    RESUMED from the peer, with the number of bytes of this stream that it has consumed.
    """

    stream_id: int
    received: int


@attrs.define
class AckReceived:
    """
    ACK from the peer, with the number of bytes that it has consumed since the stream
    was first opened.
    """

    stream_id: int
    received: int


@attrs.define
class HeadersReceived:
    """
    One header block of a stream; after using it, call `Session.consumed` with its
    length.
    """

    stream_id: int
    block: bytes = attrs.field(repr=lambda block: f"<{len(block)} bytes>")
    fin: bool = False


@attrs.define
class DataReceived:
    """
    Bytes of a stream; after using them, call `Session.consumed` with their number.
    """

    stream_id: int
    data: bytes = attrs.field(repr=lambda data: f"<{len(data)} bytes>")
    fin: bool = False


@attrs.define
class StreamEnded:
    """
    The end of a stream that was reset, by the peer or because the peer broke a rule.

    A stream that ends by FIN of both sides has no such event, because the owner knows
    of both.
    """

    stream_id: int
    code: ErrorCode
    message: str = ""
    by_peer: bool = True
    #: See `tunnel.errors.StreamReset`.
    peer_closed: bool = False


@attrs.define
class Ponged:
    """The response to the `Session.ping` with this token."""

    token: int


@attrs.define
class GoAwayReceived:
    """GO_AWAY: the peer accepts no new streams, and will close the connection."""

    go_away: GoAway


@attrs.define
class SessionEnded:
    """The end of the session; close the connection."""

    code: ErrorCode
    message: str = ""
    by_peer: bool = False


Event = (
    HelloReceived
    | WelcomeReceived
    | StreamOpened
    | ResumeReceived
    | ResumedReceived
    | AckReceived
    | HeadersReceived
    | DataReceived
    | StreamEnded
    | Ponged
    | GoAwayReceived
    | SessionEnded
)
