"""Limits on the peer of an HTTP/2 connection, each with its reason."""

from __future__ import annotations

import attrs

__all__ = ["Http2Limits", "Rate"]


@attrs.frozen
class Rate:
    """A rate: a burst, and the number per second in the long run."""

    burst: float
    per_second: float


@attrs.frozen(kw_only=True)
class Http2Limits:
    """Limits of one connection; the defaults are for a server of calls."""

    #: Maximum number of concurrent streams, as with most gRPC servers; announced to the
    #: peer.  Our client does not open more streams either, even if its server would
    #: permit it.
    streams: int = 100

    #: Maximum number of bytes of one header list, counted as in RFC 9113; announced to
    #: the peer.  A token has 300 bytes, and all other fields together have less than 1
    #: KiB.
    header_list: int = 16 * 1024

    #: Maximum number of bytes of one header block as it arrives, including CONTINUATION
    #: frames: compressed, it is smaller than the list.
    header_block: int = 16 * 1024

    #: Maximum number of bytes of one frame: the smallest limit that a receiver may
    #: announce.
    frame: int = 16 * 1024

    #: Maximum number of bytes in transit to us on one stream.
    stream_window: int = 64 * 1024

    @property
    def connection_window(self) -> int:
        """
        Return the maximum number of bytes in transit on all streams of one connection.

        It is large enough for all streams and one more, so that streams that are not
        read do not stop the others.
        """
        return self.stream_window * (self.streams + 1)

    #: Maximum number of bytes that wait on one stream for the peer; above it, the
    #: producer is paused.
    outgoing: int = 64 * 1024

    #: Rate of PING, SETTINGS, PRIORITY, unknown frames and frames without content: a
    #: gRPC client sends at most ten a second, and a few at the beginning.
    control: Rate = Rate(200, 20)

    #: Number of additional control frames for each DATA frame that we sent.
    control_per_data: float = 0

    #: Rate of WINDOW_UPDATE frames, in addition to four for each DATA frame that we
    #: sent.
    window_updates: Rate = Rate(1000, 50)

    #: Rate of streams that the peer resets.  When a server is slow, all calls of a
    #: client may reach their deadline at the same time, and so may the calls that
    #: follow.
    resets: Rate = Rate(300, 20)

    #: Rate of streams that a server refuses, because the token or the method is
    #: invalid, or too many streams are open.  A client with an old secret retries
    #: forever.
    refusals: Rate = Rate(300, 20)

    #: Rate of refused streams before the first call with a valid token: a stranger can
    #: connect again and again, and each refused call takes half a millisecond.
    refusals_unproven: Rate = Rate(5, 1)

    #: Maximum number of seconds in which a client may finish a request that already has
    #: its response.  A client that sends more than a last frame is stopped earlier.
    linger: float = 1.0

    #: Maximum number of bytes of responses to control frames that wait while the peer
    #: does not read.
    unread: int = 64 * 1024

    #: Maximum number of seconds until the first call with a valid token.  A connection
    #: without one occupies a place that another client may need.
    unproven: float = 60.0

    #: Seconds of silence after which we send a PING, and also the maximum number of
    #: seconds until its response: load balancers forget connections after 60 s.
    ping_after: float = 50.0
    ping_timeout: float = 20.0

    #: Maximum variation of a connection's age, as a fraction of the age, so that
    #: connections that were opened together do not end together.
    age_jitter: float = 0.1

    #: Extra time for running calls when a connection is too old, as a fraction of its
    #: age.
    age_grace: float = 0.5

    #: Seconds between the first GOAWAY, after which calls are still accepted, and the
    #: second GOAWAY.  Streams that the client opened before it read the first GOAWAY
    #: arrive in this time.
    goaway: float = 1.0
