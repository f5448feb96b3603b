"""One request and its answer, as a handler sees them."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, Protocol

from twisted.internet.interfaces import IPushProducer
from zope.interface import implementer

from tunnel.http1.chunked import encode_chunk, encode_last_chunk
from tunnel.http1.head import RequestHead

if TYPE_CHECKING:
    from tunnel.http1.server import FrontProtocol

__all__ = ["Exchange", "RequestReceiver"]

_CHUNKS: Final = -1
_TO_THE_END: Final = -2

_NO_HEAD: Final = RequestHead(b"GET", b"/", 1, b"", keep_alive=False)


class RequestReceiver(Protocol):
    """What happens to a request after its head, told to whoever handles it."""

    def body_received(self, data: bytes) -> None:
        """Bytes of the body, or raw ones after an upgrade."""

    def body_finished(self, trailers: bytes) -> None:
        """
        The body is complete; after an upgrade, the client closed its half.

        Not told of a request without a body.
        """

    def client_gone(self, reason: Exception) -> None:
        """
        The client left before `Exchange.finish` or `Exchange.abort`, or after an
        upgrade before both halves were closed.  Told once, and nothing after it.
        """


@implementer(IPushProducer)
class Exchange:
    """
    One request, and the only way to answer it.

    Blocks are taken as they are; whoever did not make them parses them first.  How the
    body is delimited is decided here.  Once the answer is finished or aborted, or the
    client has gone, every method does nothing.
    """

    __slots__ = (
        "_chunked",
        "_connection",
        "_keep",
        "_left",
        "_silent",
        "complete",
        "finished",
        "head",
        "head_sent",
        "receiver",
        "upgraded",
    )

    def __init__(self, connection: FrontProtocol, head: RequestHead | None) -> None:
        self._connection = connection
        self.head = _NO_HEAD if head is None else head
        self.receiver: RequestReceiver | None = None
        #: The whole request is here; after an upgrade, the client's half is closed.
        self.complete = False
        self.head_sent = False
        #: Nothing more can be written.
        self.finished = False
        self.upgraded = False
        self._keep = False
        self._silent = False
        self._chunked = False
        self._left = _TO_THE_END

    @property
    def peer(self) -> Any:
        """The address of the client."""
        return self._connection.transport.getPeer()  # type: ignore[union-attr]

    def informational(self, block: bytes) -> None:
        """Pass a 1xx answer on, other than 101; an HTTP/1.0 client gets none."""
        if self.finished or self.head_sent or not self.head.minor:
            return
        self._connection.send(block + b"\r\n")

    def send_head(self, block: bytes, length: int, close: bool = False) -> None:
        """
        Begin the answer.

        :param block: status line and fields, none of them about length or connection.
        :param length: bytes of the body, or below 0 if only its end will tell.
        :param close: the connection ends with this answer.
        """
        if self.finished or self.head_sent:
            return
        self.head_sent = True
        head = self.head
        code = block[9:12]
        # An answer before the end of the request leaves bytes behind that would be
        # taken for the next request, and so does a client that did not wait for 101.
        keep = (
            head.keep_alive
            and self.complete
            and not close
            and not (head.upgrade and self._connection.holds_bytes)
            and not self._connection.factory.draining
        )
        framing = b""
        self._silent = silent = (
            head.method == b"HEAD" or code == b"204" or code == b"304"
        )
        if length >= 0:
            if code != b"204":
                framing = b"Content-Length: %d\r\n" % length
            self._left = length
        elif silent:
            pass
        elif head.minor:
            self._chunked = True
            self._left = _CHUNKS
            framing = b"Transfer-Encoding: chunked\r\n"
        else:
            keep = False
        if not keep:
            framing += b"Connection: close\r\n"
        elif not head.minor:
            framing += b"Connection: keep-alive\r\n"
        self._keep = keep
        self._connection.send(b"%b%b\r\n" % (block, framing))

    def write(self, data: bytes) -> None:
        """Bytes of the body; raw ones after `upgrade`."""
        if self.finished or self._silent or not data:
            return
        if self._left >= 0:
            self._left -= len(data)
            if self._left < 0:
                # More than was promised would be read as the next answer.
                self.abort()
                return
        elif self._chunked:
            data = encode_chunk(data)
        elif self.upgraded:
            self._connection.touched()
        self._connection.send(data)

    def finish(self, trailers: bytes = b"") -> None:
        """
        End the answer; after `upgrade`, close this half.

        :param trailers: fields; they are lost unless the body is chunked.
        """
        if self.finished:
            return
        if not self._silent:
            if self._left > 0 or not self.head_sent:
                self.abort()
                return
            if self._chunked:
                self._connection.send(encode_last_chunk(trailers))
        self.finished = True
        if not self.upgraded:
            # It is told nothing more, and it holds us: the two would wait for the
            # garbage collector, with all that the request brought.
            self.receiver = None
        self._connection.exchange_finished(self, self._keep)

    def respond(self, status: int, fields: bytes, body: bytes) -> None:
        """A whole answer at once."""
        try:
            phrase = HTTPStatus(status).phrase
        except ValueError:
            phrase = "Error"
        block = b"HTTP/1.1 %d %b%b\r\n" % (status, phrase.encode(), fields)
        self.send_head(block, len(body))
        self.write(body)
        self.finish()

    def upgrade(self, block: bytes) -> None:
        """
        Send *block*, a 101 answer, and let raw bytes flow both ways.

        Only for a request whose ``head.upgrade`` is not empty.
        """
        if self.finished or self.head_sent:
            return
        if not self.head.upgrade:
            raise ValueError("the request did not ask for an upgrade")
        self.head_sent = True
        self.upgraded = True
        # From here on it means that the client has closed its half.
        self.complete = False
        self._connection.send(block + b"\r\n")
        self._connection.upgrade()

    def abort(self) -> None:
        """Drop the connection: the client sees that the answer is not whole."""
        if not self.finished or (self.upgraded and not self.complete):
            self.finished = True
            self.receiver = None
            self._connection.abort()

    def registerProducer(self, producer: Any, streaming: bool) -> None:
        """Pause *producer* while the client does not read."""
        if not self.finished:
            self._connection.set_producer(producer)

    def unregisterProducer(self) -> None:
        """See `twisted.internet.interfaces.IConsumer`."""
        if not self.finished:
            self._connection.clear_producer()

    def pauseProducing(self) -> None:
        """Deliver nothing more of the request for now."""
        if not self.finished or self.upgraded:
            self._connection.pause_reading()

    def resumeProducing(self) -> None:
        """Go on."""
        if not self.finished or self.upgraded:
            self._connection.resume_reading()

    def stopProducing(self) -> None:
        """Nobody wants the request any more."""
        self.abort()
