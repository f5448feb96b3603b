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

    #: Streams at the same time, as with most gRPC servers; announced. Our client does
    #: not open more either, even if its server would permit it.
    streams: int = 100

    #: Bytes of one header list, counted as in RFC 9113; announced. A token has 300, all
    #: other fields together are below 1 KiB.
    header_list: int = 16 * 1024

    #: Bytes of one header block as it arrives, including CONTINUATION frames:
    #: compressed, it is smaller than the list.
    header_block: int = 16 * 1024

    #: Bytes of one frame: the smallest that a receiver may announce.
    frame: int = 16 * 1024

    #: Bytes in transit to us on one stream.
    stream_window: int = 64 * 1024

    @property
    def connection_window(self) -> int:
        """
        Bytes in transit on all streams of one connection.

        As much as all streams together need, and one more, so that streams that are not
        read do not stop the others.
        """
        return self.stream_window * (self.streams + 1)

    #: Bytes that wait on one stream for the peer before the producer is paused.
    outgoing: int = 64 * 1024

    #: PING, SETTINGS, PRIORITY, frames without content and unknown ones: a gRPC client
    #: sends at most ten a second, and a few at the beginning.
    control: Rate = Rate(200, 20)

    #: Additional control frames for each DATA frame that we sent.
    control_per_data: float = 0

    #: WINDOW_UPDATE frames, in addition to four for each DATA frame that we sent.
    window_updates: Rate = Rate(1000, 50)

    #: Streams that the peer reset. When a server is slow, all calls of a client may
    #: reach their deadline at the same time, and so may the next ones.
    resets: Rate = Rate(300, 20)

    #: Streams that a server refused: no valid token, no such method, too many at the
    #: same time. A client with an old secret retries forever.
    refusals: Rate = Rate(300, 20)

    #: Of these, as many before the first call with a good token: a stranger can connect
    #: again and again, and each refused call takes half a millisecond.
    refusals_unproven: Rate = Rate(5, 1)

    #: Seconds in which a client may finish a request that already has its response. A
    #: client that sends more than a last frame is stopped earlier.
    linger: float = 1.0

    #: Bytes of responses to control frames that wait while the peer does not read.
    unread: int = 64 * 1024

    #: Seconds until the first call with a valid token. A connection without one
    #: occupies a place that another client may need.
    unproven: float = 60.0

    #: Seconds of silence after which we send a PING, and within which a response has to
    #: arrive: load balancers forget connections after 60 s.
    ping_after: float = 50.0
    ping_timeout: float = 20.0

    #: Fraction of a connection's age by which ages vary up and down, so that
    #: connections that were opened together do not end together.
    age_jitter: float = 0.1

    #: Extra time for running calls when a connection is too old, as a part of its age.
    age_grace: float = 0.5

    #: Seconds from the first GOAWAY, after which calls are still accepted, to the
    #: second: streams that the client opened before it read the first arrive in
    #: between.
    goaway: float = 1.0
