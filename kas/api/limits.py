"""Everything that a client of the external API can come up against."""

from __future__ import annotations

import attrs

from tunnel.rpc.messages import MAX_MESSAGE

__all__ = ["DEFAULT_LIMITS", "Budget", "Limits"]


@attrs.frozen
class Budget:
    """So many at once, and so many a second in the long run."""

    burst: float
    per_second: float


@attrs.frozen(kw_only=True)
class Limits:
    """Bounds of one connection, unless it says otherwise."""

    #: Connections at once.  GitLab has one or a few for each of its processes.
    connections: int = 1000

    #: Seconds until the first bytes, which tell HTTP/1.1 from HTTP/2.
    greeting: float = 10.0

    #: Seconds until the first call with a good token.  A connection without one holds
    #: a place that somebody else may need.
    unproven: float = 60.0

    #: Seconds for the head and the body of one HTTP/1.1 request.  4 MiB in that time
    #: are 1.1 Mbit/s.
    request: float = 30.0

    #: Seconds between two HTTP/1.1 requests, and between two pieces of one.
    idle: float = 60.0

    #: Bytes of one message: what `tunnel.rpc` takes.
    message: int = MAX_MESSAGE

    #: Bytes of a body over HTTP/1.1, which is whole in memory before it is looked at:
    #: a message, and in JSON a third more, as bytes are base64 there.
    body: int = MAX_MESSAGE // 3 * 4 + 64 * 1024

    #: Bytes of requests that are not whole, of all connections together; and what each
    #: may hold even when that is used up, so that small ones are always taken.
    held: int = 256 * 1024 * 1024
    held_each: int = 64 * 1024

    #: Calls at once, as with most gRPC servers; told to the client.
    streams: int = 100

    #: Bytes of one header list, counted as RFC 9113 says; told to the client.  A token
    #: has 300, all other fields together are below 1 KiB.
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

        As much as all of them together and one more, so that calls which do not read
        stop nobody but themselves.
        """
        return self.stream_window * (self.streams + 1)

    #: Bytes of answers that wait for one client before the handler has to wait.
    outgoing: int = 64 * 1024

    #: PING, SETTINGS, PRIORITY, frames without content and unknown ones: a client of
    #: gRPC sends ten a second at most, and a few in the beginning.
    control: Budget = Budget(200, 20)

    #: WINDOW_UPDATE: besides these, four for each DATA frame that we sent.
    window_updates: Budget = Budget(1000, 50)

    #: Calls that the client reset.  When kas is slow, all of them may run into their
    #: deadline at the same time, and those that follow, too.
    resets: Budget = Budget(300, 20)

    #: Calls that we refused: no good token, no such method, too many at once.  A client
    #: with an old secret calls on and on.
    refusals: Budget = Budget(300, 20)

    #: Seconds that a client gets to finish a request which is answered already.  One
    #: that sends more than a last frame is stopped before.
    linger: float = 1.0

    #: Bytes of answers to control frames that wait because the client does not read.
    unread: int = 64 * 1024

    #: Seconds of silence after which we PING, and within which something has to come:
    #: load balancers forget connections after 60 s.
    ping_after: float = 50.0
    ping_timeout: float = 20.0

    #: Part of ``max_connection_age`` by which connections differ, up and down, lest all
    #: that came together leave together.
    age_jitter: float = 0.1

    #: Part of ``max_connection_age`` that calls get which run at that time.
    age_grace: float = 0.5

    #: Seconds from the first GOAWAY, after which calls are still taken, to the second:
    #: what was sent before the client saw the first arrives in between.
    goaway: float = 1.0


DEFAULT_LIMITS = Limits()
