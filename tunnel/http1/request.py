"""One request to an origin, as the one who sends it sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from twisted.internet.interfaces import IPushProducer
from zope.interface import implementer

from tunnel.errors import TunnelError
from tunnel.http1.chunked import encode_chunk, encode_last_chunk
from tunnel.http1.head import CHUNKED, ResponseHead

if TYPE_CHECKING:
    from tunnel.http1.client import UpstreamConnection
    from tunnel.http1.upstream import UpstreamPool

__all__ = ["ResponseReceiver", "UpstreamError", "UpstreamRequest"]


class UpstreamError(TunnelError):
    """The origin did not answer; *status* is what its client should be told."""

    def __init__(self, message: str, status: int = 502) -> None:
        super().__init__(message)
        self.status = status


class ResponseReceiver(Protocol):
    """
    What happens to a request at an origin.

    The last call is either `response_failed` or `response_finished`; after a 101 the
    latter means that the origin closed its half, and `response_failed` may still come
    if the connection breaks before ours is closed.
    """

    def response_informational(self, head: ResponseHead) -> None:
        """A 1xx answer other than 101; the real one is still to come."""

    def response_started(self, head: ResponseHead) -> None:
        """The answer; with status 101 everything after it is raw bytes."""

    def response_data(self, data: bytes) -> None:
        """Bytes of the body, or raw ones."""

    def response_finished(self, trailers: bytes) -> None:
        """The body is complete; *trailers* are fields."""

    def response_failed(self, reason: Exception) -> None:
        """The origin did not answer, or not to the end."""


@implementer(IPushProducer)
class UpstreamRequest:
    """
    A request on its way, and the only way to write its body.

    Once it is over or aborted every method does nothing.
    """

    __slots__ = (
        "_closed",
        "_connection",
        "_early",
        "_early_finish",
        "_left",
        "_paused",
        "_pool",
        "_producer",
        "expect_continue",
        "fields",
        "length",
        "method",
        "queued_at",
        "receiver",
        "retries",
        "sent",
        "target",
        "upgrade",
    )

    def __init__(
        self,
        pool: UpstreamPool,
        method: bytes,
        target: bytes,
        fields: bytes,
        receiver: ResponseReceiver,
        length: int,
        upgrade: bytes,
        expect_continue: bool,
    ) -> None:
        self._pool = pool
        self.method = method
        self.target = target
        self.fields = fields
        self.receiver = receiver
        self.length = length
        self.upgrade = upgrade
        self.expect_continue = expect_continue
        self.queued_at = 0.0
        self.retries = 0
        #: The request, with its body, is written.
        self.sent = length == 0
        self._left = length
        self._closed = False
        self._paused = False
        self._connection: UpstreamConnection | None = None
        self._early: list[bytes] = []
        self._early_finish: bytes | None = None
        self._producer: Any = None

    def write(self, data: bytes) -> None:
        """Bytes of the body; raw ones after 101."""
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
                # The origin would take the rest for the next request.
                self._give_up("the request's body is longer than its length")
            else:
                connection.send(data)

    def finish(self, trailers: bytes = b"") -> None:
        """The body is complete; after 101, close our half."""
        connection = self._connection
        if self._closed:
            return
        if connection is None:
            self._early_finish = trailers
        elif connection.is_raw:
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
        Nobody wants the answer: stop at once, wherever it is.

        The receiver is told nothing more.
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
        """Pause *producer* while the origin takes no more, or is not reached yet."""
        if self._closed:
            return
        self._producer = producer
        if self._connection is None:
            producer.pauseProducing()
        else:
            self._connection.set_producer(producer)

    def unregisterProducer(self) -> None:
        """See `twisted.internet.interfaces.IConsumer`."""
        self._producer = None
        if self._connection is not None:
            self._connection.clear_producer()

    def pauseProducing(self) -> None:
        """Deliver nothing more of the answer for now."""
        self._paused = True
        if self._connection is not None:
            self._connection.pause_reading()

    def resumeProducing(self) -> None:
        """Go on."""
        self._paused = False
        if self._connection is not None:
            self._connection.resume_reading()

    def stopProducing(self) -> None:
        """Nobody wants the answer any more."""
        self.abort()

    # For the pool and the connection.

    def attached(self, connection: UpstreamConnection) -> None:
        """The head was written to *connection*; what came early follows."""
        self._connection = connection
        if self._paused:
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
        """The connection was dead, and the request may go on another one."""
        self._connection = None

    def over(self) -> None:
        """The connection has nothing more to do with this request."""
        self._connection = None
        self._closed = True
        producer, self._producer = self._producer, None
        if producer is not None:
            # It may have been paused for the origin; what it still has is dropped.
            producer.resumeProducing()

    def fail(self, reason: Exception) -> None:
        """Tell the receiver the end."""
        if not self._closed:
            self.over()
            self.receiver.response_failed(reason)

    def _give_up(self, message: str) -> None:
        connection = self._connection
        self.fail(UpstreamError(message))
        if connection is not None:
            connection.drop()
