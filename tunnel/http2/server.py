"""The server side: starts a call for each stream, and asks clients to leave."""

from __future__ import annotations

from collections.abc import Callable

from h2.errors import ErrorCodes
from h2.events import (
    ConnectionTerminated,
    Event,
    RequestReceived,
    StreamEnded,
    StreamReset,
)
from twisted.internet.interfaces import IReactorTime
from twisted.python.failure import Failure

from tunnel.http2.connection import Http2Connection, attempt
from tunnel.http2.flood import Allowed
from tunnel.http2.limits import Http2Limits, Rate
from tunnel.http2.stream import Http2Stream, RawHeaders, StreamReader
from tunnel.toolkit.addresses import peer_network
from tunnel.util.poller import Poller

__all__ = ["Begin", "Http2ServerConnection"]

#: Id of the last stream in a GOAWAY that still accepts all streams in transit.
_EVERY_STREAM = 2**31 - 1

#: Maximum number of new streams of a client without a valid token that h2 reads at
#: once.
STRANGERS_STREAMS = 4

#: Function that starts a call for a new stream; it returns None if it has already
#: responded.  It never raises CallError: errors are part of the response.
Begin = Callable[
    ["Http2ServerConnection", Http2Stream, RawHeaders], StreamReader | None
]


class Http2ServerConnection(Http2Connection[Http2Stream]):
    """
    One connection of a client.

    :param begin: starts the call of each stream.
    :param age: seconds after which the client is asked to reconnect.
    :param lost: called at the end.
    """

    peer_is = "client"

    def __init__(
        self,
        begin: Begin,
        clock: IReactorTime,
        limits: Http2Limits,
        *,
        age: float,
        jitter: Callable[[], float],
        lost: Callable[[Http2ServerConnection], None],
    ) -> None:
        super().__init__(clock, limits, client_side=False)
        self._begin = begin
        self._lost = lost
        self._age = age * (1 + limits.age_jitter * (2 * jitter() - 1))
        self._age_grace = age * limits.age_grace
        self._refusals = self._allowed_refusals(limits.refusals_unproven)
        self._proven = False
        #: Id of the last stream that is served; None until it was announced to the
        #: client.
        self._last_stream: int | None = None
        #: Streams that were completed or ended again by the data that has just arrived.
        self._whole: set[int | None] = set()
        self._dead: set[int | None] = set()

    def connectionMade(self) -> None:
        """Send our settings, and start the timers."""
        self._timers.later("unproven", self.limits.unproven, self._not_proven)
        self._timers.later("age", self._age, lambda: self.drain(self._age_grace))
        super().connectionMade()

    def _allowed_refusals(self, rate: Rate) -> Allowed:
        return Allowed(rate, "refused calls", self._clock.seconds)

    def proven(self) -> None:
        """Note a call with a valid token."""
        if not self._proven:
            self._proven = True
            self.log_budget = None
            self._refusals = self._allowed_refusals(self.limits.refusals)
            self._timers.cancel("unproven")
            owner = "external API", peer_network(self.transport.getPeer())
            Poller.limit(self.transport, self._clock, owner, "users")

    def _not_proven(self) -> None:
        self.fail(ErrorCodes.NO_ERROR, "no call with a valid token arrived")

    def _new_at_once(self) -> int | None:
        # Hundreds of HEADERS fit into a small read: end the connection before h2 reads
        # many more of them than a stranger's budget of refusals.
        return None if self._proven else STRANGERS_STREAMS

    # Streams.

    def _look_ahead(self, events: list[Event]) -> None:
        self._dead = {one.stream_id for one in events if isinstance(one, StreamReset)}
        self._whole = {one.stream_id for one in events if isinstance(one, StreamEnded)}
        for stream_id, stream in self._streams.items():
            if stream_id in self._whole:
                stream.receiving = False

    def _event(self, event: Event) -> None:
        if isinstance(event, RequestReceived):
            stream_id = event.stream_id or 0
            if stream_id in self._dead:
                # The stream has already ended, and need not start.
                self._guard.ended(stream_id)
            else:
                self._request(stream_id, event.headers)
            return
        if isinstance(event, StreamEnded | StreamReset):
            self._timers.cancel(f"linger {event.stream_id}")
        super()._event(event)

    def _request(self, stream_id: int, headers: RawHeaders) -> None:
        stream = Http2Stream(self, stream_id)
        stream.receiving = stream_id not in self._whole
        self._streams[stream_id] = stream
        if self._last_stream is not None and stream_id > self._last_stream:
            self.reset(stream, ErrorCodes.REFUSED_STREAM)
            self._refusals.spend()
            return
        reader = self._begin(self, stream, headers)
        if reader is None:
            self._refusals.spend()
        elif stream_id in self._streams:
            stream.reader = reader

    def _sent_all(self, stream: Http2Stream) -> None:
        """
        End a complete response; a client that still sends its request can stop (RFC
        9113, 8.1).
        """
        self.forget(stream, None)
        if stream.receiving:
            # The reset is delayed: curl treats a reset as a failure although the
            # response is complete, and most clients have sent everything by then.
            stream_id = stream.stream_id
            self._timers.later(
                f"linger {stream_id}",
                self.limits.linger,
                lambda: self._stop_sending(stream_id),
            )

    def _unclaimed(self, stream_id: int, ended: bool) -> None:
        if not ended:
            self._stop_sending(stream_id)

    def _stop_sending(self, stream_id: int) -> None:
        if self._timers.cancel(f"linger {stream_id}"):
            attempt(self._h2.reset_stream, stream_id, ErrorCodes.NO_ERROR)
            self.flush_soon()

    # End of the connection.

    def drain(self, grace: float) -> None:
        """
        Ask the client to use another connection; running calls get *grace* seconds.
        """
        if self._closing:
            return
        if self._last_stream is None:
            self._last_stream = _EVERY_STREAM
            self.go_away(_EVERY_STREAM, ErrorCodes.NO_ERROR)
            self._timers.later("goaway", self.limits.goaway, self._last_goaway)
        self._timers.later("grace", grace, self.close)

    def _last_goaway(self) -> None:
        self._last_stream = self._h2.highest_inbound_stream_id
        self.go_away(self._last_stream, ErrorCodes.NO_ERROR)
        self._end_if_done()

    def _end_if_done(self) -> None:
        if self._last_stream not in (None, _EVERY_STREAM) and not self._streams:
            self.close()

    def _peer_leaves(self, event: ConnectionTerminated) -> None:
        if event.error_code == ErrorCodes.NO_ERROR:
            # The client still accepts the responses to earlier requests; the end of
            # this turn checks whether any are left.
            self._last_stream = self._h2.highest_inbound_stream_id
        else:
            self.close()

    def connectionLost(self, reason: Failure | None = None) -> None:
        super().connectionLost(reason)
        self._lost(self)
