"""
Events that a `Session` returns to its owner, in the order in which they happened.

Events are values: compare them, print them, keep them.  (They are not frozen, because
creating a frozen instance costs three times as much and each request creates several.)
"""

from __future__ import annotations

import attrs

from tunnel.errors import ErrorCode
from tunnel.pb.tunnel_pb2 import GoAway, Hello, Open, Resume, Welcome


@attrs.define
class HelloReceived:
    """The peer that dialled said who it is; answer with `Session.welcome` or end."""

    hello: Hello


@attrs.define
class WelcomeReceived:
    """The listener took us; streams may be opened."""

    welcome: Welcome


@attrs.define
class StreamOpened:
    """The peer opened a stream."""

    stream_id: int
    open: Open
    fin: bool = False


@attrs.define
class ResumeReceived:
    """The peer wants to go on with a stream; answer `Session.resumed`, or reset it."""

    stream_id: int
    resume: Resume


@attrs.define
class ResumedReceived:
    """The answer: how much of this stream the peer had consumed."""

    stream_id: int
    received: int


@attrs.define
class AckReceived:
    """The peer consumed so much of this stream, since it was first opened."""

    stream_id: int
    received: int


@attrs.define
class HeadersReceived:
    """One header block; call `Session.consumed` with its length once it was used."""

    stream_id: int
    block: bytes = attrs.field(repr=lambda block: f"<{len(block)} bytes>")
    fin: bool = False


@attrs.define
class DataReceived:
    """Bytes; call `Session.consumed` with their number once they were used."""

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
    """The answer to the `Session.ping` with this token."""

    token: int


@attrs.define
class GoAwayReceived:
    """The peer takes no new streams and will close the connection."""

    go_away: GoAway


@attrs.define
class SessionEnded:
    """Nothing can be sent or received any more; close the connection."""

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
