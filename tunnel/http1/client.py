"""
The client side: one connection to an upstream, and the requests on it.

Bodies are not decoded, redirects are not followed, and nothing blocks: events of a
request are reported to its `ResponseReceiver`.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, ClassVar, Final, Protocol

import attrs
from mypy_extensions import mypyc_attr
from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import IPushProducer
from twisted.internet.protocol import connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import classImplements

from tunnel.errors import TunnelError
from tunnel.http1.chunked import ChunkedDecoder, encode_chunk, encode_last_chunk
from tunnel.http1.connection import HttpConnection, Turn
from tunnel.http1.head import (
    CHUNKED,
    UNTIL_CLOSE,
    HeadError,
    ResponseHead,
    ResponseParser,
    encode_request,
)
from tunnel.transport.sockets import bound_received

__all__ = [
    "ConnectionOwner",
    "NotConnected",
    "ResponseReceiver",
    "UpstreamConnection",
    "UpstreamError",
    "UpstreamLimits",
    "UpstreamRequest",
]

_IDLE: Final = 0
_HEAD: Final = 1
_SIZED: Final = 2
_CHUNKED: Final = 3
_TO_THE_END: Final = 4  # the body ends with the connection
_RAW: Final = 5  # after 101
_DEAD: Final = 6

# Methods that may be repeated without further effects (RFC 9110, 9.2.1).
_SAFE: Final = frozenset([b"GET", b"HEAD", b"OPTIONS"])


class UpstreamError(TunnelError):
    """
    Raised if the upstream did not respond; *status* is for the response to the client.
    """

    def __init__(self, message: str, status: int = 502) -> None:
        super().__init__(message)
        self.status = status


class NotConnected(UpstreamError):
    """Raised if there was no connection to the upstream, which got nothing."""


@mypyc_attr(native_class=False)
class ResponseReceiver(Protocol):
    """
    Callbacks for the response of an upstream.

    The last call is either `response_failed` or `response_finished`.  After a 101,
    `response_finished` means that the upstream closed its half, and `response_failed`
    may follow if the connection breaks before ours is closed.  Return values are
    ignored.
    """

    def response_informational(self, head: ResponseHead) -> object:
        """Handle a 1xx response other than 101; the final response is still to come."""

    def response_started(self, head: ResponseHead) -> object:
        """
        Handle the head of the response; with status 101, everything after the head is
        raw bytes.
        """

    def response_data(self, data: bytes) -> object:
        """Handle bytes of the body, or raw bytes after an upgrade."""

    def response_finished(self, trailers: bytes) -> object:
        """Handle the end of the body; *trailers* are fields."""

    def response_failed(self, reason: Exception) -> object:
        """Handle an upstream that sent no response, or an incomplete one."""


@attrs.frozen
class UpstreamLimits:
    """Limits on the resources that an upstream and its clients can use."""

    max_connections: int = 10_000  # each watch holds one; 2,000 must fit with room
    max_idle: int = 64  # kept for the next request, enough for a burst of kubectl get
    idle_seconds: float = 45.0  # well below the 90 seconds of the API server
    connect_seconds: float = 10.0  # the upstream is near
    max_waiting: int = 1_000  # requests beyond max_connections, one head each
    waiting_seconds: float = 30.0  # until a connection is free
    max_header_bytes: int = 64 * 1024  # the same limit as everywhere
    max_informational: int = 20  # 1xx heads; otherwise they could be sent forever
    max_retries: int = 3  # of a request on a kept connection that was closed
    half_closed_seconds: float = 60.0  # a raw connection with one end, without traffic


class ConnectionOwner(Protocol):
    """Methods of the pool that connections and requests use."""

    @property
    def limits(self) -> UpstreamLimits: ...

    @property
    def turn(self) -> Turn: ...

    def opened(self, connection: UpstreamConnection) -> None:
        """Record that *connection* is established."""

    def ready(self, connection: UpstreamConnection) -> None:
        """Record that *connection* can take a request."""

    def lost(self, connection: UpstreamConnection) -> None:
        """Forget *connection*, which is closed."""

    def retry(self, request: UpstreamRequest) -> None:
        """
        Send *request* again, because the upstream had already closed its connection.
        """

    def forget(self, request: UpstreamRequest) -> None:
        """Forget *request*, which was aborted before it got a connection."""


class UpstreamRequest:
    """
    One request: the consumer of the request's body, which can also abort the request.

    After the end of the request, every method does nothing.
    """

    _log: ClassVar = Logger()

    __slots__ = (
        "_closed",
        "_connection",
        "_early",
        "_early_finish",
        "_left",
        "_pool",
        "_producer",
        "answer_paused",
        "answer_resumed_at",
        "begun",
        "expect_continue",
        "fields",
        "length",
        "method",
        "origins",
        "parser",
        "queued_at",
        "receiver",
        "retries",
        "sent",
        "target",
        "upgrade",
    )

    def __init__(  # noqa: PLR0913 - made for each request
        self,
        pool: ConnectionOwner,
        method: bytes,
        target: bytes,
        fields: bytes,
        receiver: ResponseReceiver,
        parser: ResponseParser,
        length: int,
        upgrade: bytes,
        expect_continue: bool,
    ) -> None:
        self._pool = pool
        self.method = method
        self.target = target
        self.fields = fields
        self.receiver = receiver
        #: Parser of the response's head, which cuts out the lines that *receiver*
        #: reads.
        self.parser = parser
        self.length = length
        self.upgrade = upgrade
        self.expect_continue = expect_continue
        #: Who made the request, for checks of running requests; empty if nothing checks
        #: it.
        self.origins: Collection[Any] = ()
        self.queued_at = 0.0
        self.retries = 0
        #: Whether the head was written to a connection at least once.
        self.begun = False
        #: Whether the request and its body were written.
        self.sent = length == 0
        self._left = length
        self._closed = False
        #: Whether delivery of the response is paused; and the time at which it was last
        #: resumed.
        self.answer_paused = False
        self.answer_resumed_at = 0.0
        self._connection: UpstreamConnection | None = None
        self._early: list[bytes] = []
        self._early_finish: bytes | None = None
        self._producer: Any = None

    def write(self, data: bytes) -> None:
        """Send bytes of the body, or raw bytes after an upgrade."""
        connection = self._connection
        if self._closed or not data:
            return
        if connection is None:
            self._early.append(data)
        elif connection.is_raw:
            connection.touched()
            connection.send(data)
        elif self.sent:
            return
        elif self.length == CHUNKED:
            connection.send(encode_chunk(data))
        else:
            self._left -= len(data)
            if self._left < 0:
                # The upstream would treat the rest as the next request.
                self._give_up("the request's body is longer than its length")
            else:
                connection.send(data)

    def finish(self, trailers: bytes = b"") -> None:
        """Complete the body; after 101, close our half of the connection."""
        connection = self._connection
        if self._closed:
            return
        if connection is None:
            self._early_finish = trailers
        elif self.upgrade and connection.is_raw:
            connection.half_close()
        elif not self.sent:
            if self.length == CHUNKED:
                connection.send(encode_last_chunk(trailers))
            elif self._left:
                self._give_up("the request's body is shorter than its length")
                return
            self.sent = True
            self.unregisterProducer()
            connection.flush()

    def abort(self) -> None:
        """
        Stop at once, because the response is not needed any more.

        The receiver is not called again.
        """
        if self._closed:
            return
        self._closed = True
        connection = self._connection
        if connection is None:
            self._pool.forget(self)
        else:
            self._connection = None
            connection.drop()

    def registerProducer(self, producer: Any, streaming: bool) -> None:
        """
        Register *producer*, which is paused while the upstream accepts no data or is
        not connected yet.
        """
        if self._closed:
            return
        self._producer = producer
        if self._connection is None:
            producer.pauseProducing()
        else:
            self._connection.set_producer(producer)

    def unregisterProducer(self) -> None:
        self._producer = None
        if self._connection is not None:
            self._connection.clear_producer()

    def pauseProducing(self) -> None:
        """Pause delivery of the response."""
        self.answer_paused = True
        if self._connection is not None:
            self._connection.pause_reading()

    def resumeProducing(self) -> None:
        if self.answer_paused:
            self.answer_paused = False
            self.answer_resumed_at = self._pool.turn.seconds()
        if self._connection is not None:
            self._connection.resume_reading()

    def stopProducing(self) -> None:
        """Stop, because the consumer of the response is gone."""
        self.abort()

    @property
    def may_have_run(self) -> bool:
        """
        Whether the whole request was written, so that the upstream may have executed
        it.
        """
        return self.begun and self.sent

    # Methods for the pool and the connection.

    def attached(self, connection: UpstreamConnection) -> None:
        """Write the body received so far to *connection*, which has sent the head."""
        self._connection = connection
        self.begun = True
        if self.answer_paused:
            connection.pause_reading()
        early, self._early = self._early, []
        for data in early:
            self.write(data)
        producer = self._producer
        if self._early_finish is not None:
            self.finish(self._early_finish)
        elif producer is not None and not self._closed:
            connection.set_producer(producer)
        if producer is not None:
            producer.resumeProducing()

    def detached(self) -> None:
        """
        Detach from a dead connection; the request may continue on another connection.
        """
        self._connection = None

    def over(self) -> None:
        """Detach from the connection after the end of the response."""
        self._connection = None
        self._closed = True
        producer, self._producer = self._producer, None
        if producer is not None:
            # The upstream may have paused the producer; its remaining data is dropped.
            producer.resumeProducing()

    def fail(self, reason: Exception) -> None:
        """Report a failure to the receiver."""
        if not self._closed:
            try:
                try:
                    self.over()
                finally:
                    self.receiver.response_failed(reason)
            except Exception:
                # The pool may have called this method while it was handling other
                # requests.
                self._log.failure("a receiver failed while handling a failed request")

    def _give_up(self, message: str) -> None:
        connection = self._connection
        self.fail(UpstreamError(message))
        if connection is not None:
            connection.drop()


classImplements(UpstreamRequest, IPushProducer)


class UpstreamConnection(HttpConnection):
    """A connection to the upstream, which carries one request at a time."""

    _log: ClassVar = Logger()

    def __init__(self, pool: ConnectionOwner) -> None:
        super().__init__(pool.turn, pool.limits.max_header_bytes)
        self._pool = pool
        self._state = _IDLE
        self._scanned = 0
        self._left = 0
        self._decoder = ChunkedDecoder()
        self._request: UpstreamRequest | None = None
        self._answered = False
        self._keep = False
        self._informational = 0
        self._ended = False
        self._half_closed = False
        self._read_all = False
        #: Whether the connection has carried a request before.
        self.used = False

    @property
    def busy(self) -> bool:
        """Whether a request is in progress."""
        return self._request is not None

    @property
    def request(self) -> UpstreamRequest | None:
        """Return the current request."""
        return self._request

    @property
    def reusable(self) -> bool:
        """Whether another request can begin."""
        return self._state == _IDLE and self._open

    @property
    def is_raw(self) -> bool:
        """Whether the upstream responded with 101."""
        return self._state == _RAW

    def connectionMade(self) -> None:
        super().connectionMade()
        self._pool.opened(self)

    def begin(self, request: UpstreamRequest) -> None:
        self._request = request
        self._state = _HEAD
        self._answered = False
        self._informational = 0
        head = encode_request(
            request.method,
            request.target,
            request.fields,
            length=request.length,
            upgrade=request.upgrade,
            expect_continue=request.expect_continue,
        )
        if request.sent:
            self.send_now(head + b"\r\n")
        else:
            self.send(head + b"\r\n")
        request.attached(self)

    def half_close(self) -> None:
        """Close our half of a raw connection."""
        if self._half_closed:
            return
        self._half_closed = True
        self._since = self._turn.now
        if self._ended:
            self._finish_raw()
        else:
            self.close_write()

    def drop(self) -> None:
        """Close at once, without calling the receiver."""
        self._request = None
        self._state = _DEAD
        self.abort()

    # Reading.

    def feed(self, data: bytes) -> bytes:
        try:
            while data and not self._paused:
                state = self._state
                if state == _HEAD:
                    rest = self._take_head(data)
                    if rest is None:
                        return data
                    data = rest
                elif state == _SIZED:
                    body, data = data[: self._left], data[self._left :]
                    self._left -= len(body)
                    self._body(body, self._left == 0, b"", data)
                elif state == _CHUNKED:
                    decoder = self._decoder
                    body, left = decoder.feed(data)
                    data = left or b""
                    self._body(body, left is not None, decoder.trailers, data)
                elif state in (_TO_THE_END, _RAW):
                    self.touched()
                    self._body(data, False)
                    return b""
                elif state == _IDLE:
                    # The upstream sent a response without a request, or treated text in
                    # a body as a request.
                    self.drop()
                    return b""
                else:
                    return b""
        except HeadError as broken:
            self._break(
                UpstreamError(f"malformed response from the upstream: {broken}")
            )
            return b""
        except Exception as error:
            self._log.failure("a receiver failed to handle a response")
            self._break(error)
            return b""
        return data

    def _take_head(self, data: bytes) -> bytes | None:
        request = self._request
        assert request is not None
        limit = self._pool.limits.max_header_bytes
        self._answered = True
        end = data.find(b"\r\n\r\n", self._scanned)
        if end < 0:
            if len(data) > limit:
                raise HeadError(502, f"a head beyond {limit} bytes")
            self._scanned = max(0, len(data) - 3)
            return None
        self._scanned = 0
        if end > limit:
            raise HeadError(502, f"a head beyond {limit} bytes")
        head = request.parser.parse(data[: end + 2], request.method)
        rest = data[end + 4 :]
        status = head.status
        if status < 200 and status != 101:
            self._informational += 1
            if self._informational > self._pool.limits.max_informational:
                raise HeadError(502, "too many informational responses")
            request.receiver.response_informational(head)
            return rest
        if status == 101:
            if not request.upgrade or head.upgrade.lower() != request.upgrade.lower():
                raise HeadError(502, "an upgrade that the client did not request")
            self._state = _RAW
            bound_received(self._tcp)
            self._since = self._turn.now
            request.receiver.response_started(head)
            return rest
        self._keep = head.keep_alive and not request.upgrade
        if head.bodiless or head.length == 0:
            last = True
        elif head.length == CHUNKED:
            last = False
            self._state = _CHUNKED
            self._decoder = ChunkedDecoder()
        elif head.length == UNTIL_CLOSE:
            last = False
            self._state = _TO_THE_END
        else:
            last = False
            self._state = _SIZED
            self._left = head.length
        request.receiver.response_started(head)
        # The receiver may have aborted the request; then nothing is left to end.
        if last and self._request is request:
            self._end(b"", rest)
        return rest

    def _body(
        self, body: bytes, last: bool, trailers: bytes = b"", rest: bytes = b""
    ) -> None:
        request = self._request
        if request is None:
            return
        if body:
            request.receiver.response_data(body)
        if last and self._request is request:
            self._end(trailers, rest)

    def _end(self, trailers: bytes, rest: bytes) -> None:
        """
        Complete the response; the connection may be reused.

        :param rest: bytes after the response.  They must not be treated as the response
            to the next request.
        """
        request = self._request
        assert request is not None
        self._request = None
        receiver = request.receiver
        # The rest of a body that is still being sent would be treated as the next
        # request.
        keep = self._keep and request.sent and not rest and not self._read_all
        request.over()
        self.clear_producer()
        self._paused = False
        if keep:
            self._state = _IDLE
            self._since = self._turn.now
            self.used = True
            receiver.response_finished(trailers)
            self._pool.ready(self)
        else:
            self._state = _DEAD
            self.close()
            receiver.response_finished(trailers)

    def _break(self, reason: Exception) -> None:
        request = self._request
        self.drop()
        if request is not None:
            request.fail(reason)

    # Ends of connections.

    def peer_finished(self) -> None:
        if self._state == _RAW:
            self._paused = False
            self.refill()
            self._end_raw()
            if self._half_closed:
                self._finish_raw()
        else:
            # Reading has ended, so this connection is useless; the request is handled
            # as if it were lost.
            self._lose(None)
            self.close()

    def _end_raw(self) -> None:
        request = self._request
        if request is not None and not self._ended:
            self._ended = True
            self._since = self._turn.now
            try:
                request.receiver.response_finished(b"")
            except Exception as error:
                self._log.failure("a receiver failed at the end of a stream")
                self._break(error)

    def _finish_raw(self) -> None:
        request, self._request = self._request, None
        self._state = _DEAD
        if request is not None:
            request.over()
        self.close()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        clean = reason.check(ConnectionDone) is not None
        self._lose(None if clean else reason)
        super().connectionLost(reason)
        self._pool.lost(self)

    def _lose(self, broken: Failure | None) -> None:
        """Handle the end of reading: end the request, if one is in progress."""
        self._read_all = True
        if self._buffer and self._state not in (_IDLE, _DEAD):
            # This data was read before the end; even a paused receiver must take it
            # now.
            self._paused = False
            self.refill()
        request, state = self._request, self._state
        if state == _RAW and request is not None:
            if broken is None and not self._ended:
                self._end_raw()
            self._request = None
            self._state = _DEAD
            if self._ended:
                # The whole response was read, and may still be in delivery: only the
                # connection for further data of the request is lost.
                request.over()
            else:
                request.fail(UpstreamError(_why(broken)))
            return
        self._request = None
        self._state = _DEAD
        if request is None:
            return
        if state == _TO_THE_END and broken is None:
            request.over()
            try:
                request.receiver.response_finished(b"")
            except Exception:
                self._log.failure("a receiver failed at the end of a response")
        elif self._may_retry(request):
            request.retries += 1
            request.detached()
            self._pool.retry(request)
        else:
            request.fail(UpstreamError(_why(broken)))

    def _may_retry(self, request: UpstreamRequest) -> bool:
        """
        Tell whether *request* may be repeated, because the upstream had closed the
        connection before it could read the request.

        The result is True only if repeating the request is harmless, and the connection
        was used before.
        """
        return (
            self.used
            and not self._answered
            and request.length == 0
            and not request.upgrade
            and request.method in _SAFE
            and request.retries < self._pool.limits.max_retries
        )

    def sweep(self, now: float) -> None:
        limits = self._pool.limits
        waited = now - self._since
        if self._state == _IDLE:
            if waited >= limits.idle_seconds:
                self._state = _DEAD
                self.close()
        elif self._state == _RAW and (self._ended or self._half_closed):
            if waited < limits.half_closed_seconds or self._stopped:
                return
            if self._ended and self._request is not None:
                # As in `_lose`: the whole response was read.
                self._request.over()
                self.drop()
            else:
                self._break(UpstreamError("one half of the connection stayed open"))


def _why(broken: Failure | None) -> str:
    if broken is None:
        return "the upstream closed the connection before its response was complete"
    return f"the connection broke: {broken.getErrorMessage() or broken.value!r}"
