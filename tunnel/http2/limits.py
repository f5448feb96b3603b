"""Limits on the peer of an HTTP/2 connection, each with its reason."""

from __future__ import annotations

import attrs

__all__ = ["Http2Limits", "Rate"]


@attrs.frozen
class Rate:
    """So many at once, and so many a second in the long run."""

    burst: float
    per_second: float


@attrs.frozen(kw_only=True)
class Http2Limits:
    """Limits of one connection; the defaults are for a server of calls."""

    #: Streams at once, as with most gRPC servers; announced.  A client opens no more
    #: either, even where its server would allow it.
    streams: int = 100

    #: Bytes of one header list, counted as RFC 9113 says; announced.  A
    #: token has 300, all other fields together are below 1 KiB.
    header_list: int = 16 * 1024

    #: Bytes of one header block as it arrives, CONTINUATION included: compressed it
    #: is smaller than the list.
    header_block: int = 16 * 1024

    #: Bytes of one frame: the smallest that a receiver may announce.
    frame: int = 16 * 1024

    #: Bytes that may be under way to us on one stream.
    stream_window: int = 64 * 1024

    @property
    def connection_window(self) -> int:
        """
        Bytes that may be under way on all streams of one connection.

        As much as all of them together and one more, so that streams which are not
        read stop only themselves.
        """
        return self.stream_window * (self.streams + 1)

    #: Bytes that wait on one stream for the other side before the producer is paused.
    outgoing: int = 64 * 1024

    #: PING, SETTINGS, PRIORITY, frames without content and unknown ones: a client of
    #: gRPC sends ten a second at most, and a few in the beginning.
    control: Rate = Rate(200, 20)

    #: Of these, how many more for each DATA frame that we sent.
    control_per_data: float = 0

    #: WINDOW_UPDATE: besides these, four for each DATA frame that we sent.
    window_updates: Rate = Rate(1000, 50)

    #: Streams that the other side reset.  When a server is slow, all calls of a client
    #: may reach their deadline at the same time, and so may the next ones.
    resets: Rate = Rate(300, 20)

    #: Streams that a server refused: no good token, no such method, too many at once.
    #: A client with an old secret calls on and on.
    refusals: Rate = Rate(300, 20)

    #: Of these, as many before the first call with a good token: a stranger can connect
    #: again and again, and each refused call takes half a millisecond.
    refusals_unproven: Rate = Rate(5, 1)

    #: Seconds that a client gets to finish a request that has its response already.  A
    #: client that sends more than a last frame is stopped earlier.
    linger: float = 1.0

    #: Bytes of answers to control frames that wait while the other side does not read.
    unread: int = 64 * 1024

    #: Seconds until the first call with a good token.  A connection without one holds
    #: a place that another client may need.
    unproven: float = 60.0

    #: Seconds of silence after which we PING, and within which something has to come:
    #: load balancers forget connections after 60 s.
    ping_after: float = 50.0
    ping_timeout: float = 20.0

    #: Fraction of a connection's age by which ages vary, up and down, so that
    #: connections that were opened together do not end together.
    age_jitter: float = 0.1

    #: Part of a connection's age that calls get which run at that time.
    age_grace: float = 0.5

    #: Seconds from the first GOAWAY, after which calls are still taken, to the second:
    #: what was sent before the client saw the first arrives in between.
    goaway: float = 1.0
