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
    """The peer that dialled sent HELLO; call `Session.welcome`, or end."""

    hello: Hello


@attrs.define
class WelcomeReceived:
    """The listener accepted us; streams may be opened."""

    welcome: Welcome


@attrs.define
class StreamOpened:
    """The peer opened a stream."""

    stream_id: int
    open: Open
    fin: bool = False


@attrs.define
class ResumeReceived:
    """The peer wants to continue a stream; call `Session.resumed`, or reset it."""

    stream_id: int
    resume: Resume


@attrs.define
class ResumedReceived:
    """
    The response to RESUME: the number of bytes of this stream that the peer has
    consumed.
    """

    stream_id: int
    received: int


@attrs.define
class AckReceived:
    """
    The peer has consumed this number of bytes of the stream since it was first opened.
    """

    stream_id: int
    received: int


@attrs.define
class HeadersReceived:
    """One header block; call `Session.consumed` with its length after using it."""

    stream_id: int
    block: bytes = attrs.field(repr=lambda block: f"<{len(block)} bytes>")
    fin: bool = False


@attrs.define
class DataReceived:
    """Bytes; call `Session.consumed` with their number after using them."""

    stream_id: int
    data: bytes = attrs.field(repr=lambda data: f"<{len(data)} bytes>")
    fin: bool = False


@attrs.define
class StreamEnded:
    """
    The stream was reset, by the peer or because the peer broke a rule on it.

    Streams that end by FIN of both sides get no event: the owner knows both.
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
    """The peer accepts no new streams, and will close the connection."""

    go_away: GoAway


@attrs.define
class SessionEnded:
    """The session has ended; close the connection."""

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
