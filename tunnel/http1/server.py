"""
The server side: requests that are forwarded, not rendered.

A `HttpServerFactory` creates one connection object per client; each request becomes one
`Exchange` for the factory's handler. Nothing blocks, and only heads are buffered.
Requests are served one after the other: pipelined requests wait unread, so responses
stay in order.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Hashable
from http import HTTPStatus
from typing import Any, ClassVar, Final, Protocol

import attrs
from mypy_extensions import mypyc_attr
from twisted.internet.interfaces import IAddress, IPushProducer, IReactorTime
from twisted.internet.protocol import ServerFactory, connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import classImplements

from tunnel.errors import TunnelError
from tunnel.http1.chunked import ChunkedDecoder, encode_chunk, encode_last_chunk
from tunnel.http1.connection import HttpConnection, Turn, Writer
from tunnel.http1.head import CHUNKED, HeadError, RequestHead, RequestParser
from tunnel.toolkit.for_each import for_each
from tunnel.transport.eager import unsent

__all__ = [
    "ClientGone",
    "Exchange",
    "HttpServerFactory",
    "HttpServerLimits",
    "RequestHandler",
    "RequestReceiver",
]

_DRAIN_BYTES: Final = 1024 * 1024  # read and dropped so that an early response arrives
_UNREAD_BYTES: Final = 64 * 1024  # responses that a pipelining client has not read
_PIPELINED: Final = 2  # per connection and turn; others wait for them
_KNOWN_SECONDS: Final = 10.0  # without a request, after which cached heads are dropped

# Framing of the remaining body of a response without a length.
_CHUNKS: Final = -1
_TO_THE_END: Final = -2

# Truncated, because a client may send 64 KiB.
_USER_AGENT: Final = re.compile(rb"\r\nUser-Agent:([^\r\n]{0,256})", re.IGNORECASE)

_NO_HEAD: Final = RequestHead(b"GET", b"/", 1, b"", keep_alive=False)

# States of a connection.
_HEAD: Final = 0  # between requests, or inside a head
_SIZED: Final = 1  # inside a body with a length
_CHUNKED: Final = 2
_WAIT: Final = 3  # the request is complete, its response is not
_RAW: Final = 4  # after 101
_DRAIN: Final = 5  # response sent; reads only until the client has read it
_CLOSED: Final = 6


@mypyc_attr(native_class=False)
class RequestHandler(Protocol):
    """A handler of the requests of a `HttpServerFactory`."""

    def request_received(self, exchange: Exchange) -> RequestReceiver | None:
        """
        Handle the head of a request.

        The returned receiver gets the body, if ``exchange.head.length`` is not 0; a
        handler that responded at once may return None.
        """


@mypyc_attr(native_class=False)
class RequestReceiver(Protocol):
    """
    Callbacks of a handler after the head of a request.

    Return values are ignored.
    """

    def body_received(self, data: bytes) -> object:
        """Handle bytes of the body, or raw bytes after an upgrade."""

    def body_finished(self, trailers: bytes) -> object:
        """
        Handle the end of the body; after an upgrade, the end of the client's half.

        Not called for a request without a body.
        """

    def client_gone(self, reason: Exception) -> object:
        """
        Handle a client that left: before `Exchange.finish` or `Exchange.abort`, or
        after an upgrade before both halves were closed.

        Called once; no other method is called after it.
        """


class Exchange:
    """
    One request, and the methods to respond to it.

    Blocks are sent unchecked: parse blocks from other programs first.  The exchange
    chooses the framing of the body.  After the response is finished or aborted, or the
    client has left, every method does nothing.
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

    def __init__(
        self, connection: HttpServerConnection, head: RequestHead | None
    ) -> None:
        self._connection = connection
        self.head = _NO_HEAD if head is None else head
        self.receiver: RequestReceiver | None = None
        #: Whether the whole request has arrived; after an upgrade, whether the client's
        #: half is closed.
        self.complete = False
        self.head_sent = False
        #: Whether nothing more can be written.
        self.finished = False
        self.upgraded = False
        self._keep = False
        self._silent = False
        self._chunked = False
        self._left = _TO_THE_END

    @property
    def peer_address(self) -> IAddress:
        """Return the address of the client."""
        transport = self._connection.transport
        assert transport is not None
        return transport.getPeer()

    @property
    def program(self) -> str:
        """
        Return the client's ``User-Agent``, at most 256 bytes of it: see
        `tunnel.api.program_of`.
        """
        found = _USER_AGENT.search(b"\r\n" + self.head.fields)
        return "" if found is None else found[1].strip().decode("latin-1")

    def limit_turns(self, owner: Hashable) -> None:
        """
        Handle events of this client's connection only within *owner*'s share of each
        turn of the reactor.
        """
        self._connection.limit_turns(owner)

    @property
    def answer_paused(self) -> bool:
        """Whether the client accepts no more of the response for now."""
        return self._connection.write_paused

    @property
    def answer_resumed_at(self) -> float:
        """
        Return when the client last resumed reading the response; 0 if it never paused.
        """
        return self._connection.write_resumed_at

    def informational(self, block: bytes) -> None:
        """Send a 1xx response other than 101; HTTP/1.0 clients do not receive it."""
        if self.finished or self.head_sent or not self.head.minor:
            return
        self._connection.send(block + b"\r\n")

    def send_head(self, block: bytes, length: int, close: bool = False) -> None:
        """
        Begin the response.

        :param block: status line and fields, without fields about length or connection.
        :param length: bytes of the body; negative if the length is unknown.
        :param close: whether to close the connection after this response.
        """
        if self.finished or self.head_sent:
            return
        self.head_sent = True
        head = self.head
        code = block[9:12]
        # If the response is sent before the end of the request, the rest of the request
        # would be treated as the next request; the same applies to a client that did
        # not wait for 101.
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
        """Send bytes of the body, or raw bytes after `upgrade`."""
        if self.finished or self._silent or not data:
            return
        if self._left >= 0:
            self._left -= len(data)
            if self._left < 0:
                # Bytes beyond the announced length would be read as the next response.
                self.abort()
                return
        elif self._chunked:
            data = encode_chunk(data)
        elif self.upgraded:
            self._connection.touched()
        self._connection.send(data)

    def finish(self, trailers: bytes = b"") -> None:
        """
        End the response; after `upgrade`, close our half of the connection.

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
            # The receiver is not called again and refers to this object: drop the cycle
            # now instead of leaving it to the garbage collector.
            self.receiver = None
        self._connection.exchange_finished(self, self._keep)

    def respond(self, status: int, fields: bytes, body: bytes) -> None:
        """Send a complete response at once."""
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
        Send the head of a 101 response, and pass raw bytes in both directions.

        :param block: the head, without the empty line at its end.
        :raises ValueError: if the client did not request an upgrade.
        """
        if self.finished or self.head_sent:
            return
        if not self.head.upgrade:
            raise ValueError("the request did not ask for an upgrade")
        self.head_sent = True
        self.upgraded = True
        # From now on, `complete` means that the client has closed its half.
        self.complete = False
        self._connection.send(block + b"\r\n")
        self._connection.upgrade()

    def abort(self) -> None:
        """Drop the connection, so that the client detects an incomplete response."""
        if not self.finished or (self.upgraded and not self.complete):
            self.finished = True
            self.receiver = None
            self._connection.abort()

    def registerProducer(self, producer: Any, streaming: bool) -> None:
        """Register *producer*, which is paused while the client does not read."""
        if not self.finished:
            self._connection.set_producer(producer)

    def unregisterProducer(self) -> None:
        if not self.finished:
            self._connection.clear_producer()

    def pauseProducing(self) -> None:
        """Pause delivery of the request."""
        if not self.finished or self.upgraded:
            self._connection.pause_reading()

    def resumeProducing(self) -> None:
        if not self.finished or self.upgraded:
            self._connection.resume_reading()

    def stopProducing(self) -> None:
        """
        Drop the rest of the body, whose consumer is gone; the handler still responds.
        """


classImplements(Exchange, IPushProducer)


class ClientGone(TunnelError):
    """
    Raised if the client left, or violated the protocol, before the end of its response.

    :ivar status: the status that the client received instead; None if it received none.
    """

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


@attrs.frozen
class HttpServerLimits:
    """Limits on the resources that a client can use."""

    max_header_bytes: int = 64 * 1024  # tokens and cookies are long
    max_header_count: int = 200  # kubectl sends ten, a chain of proxies forty
    header_seconds: float = 10.0  # from the first to the last byte of a head
    idle_seconds: float = 60.0  # a kept-alive connection between two requests
    body_seconds: float = 60.0  # without progress of a body or response
    drain_seconds: float = 5.0  # for the client to notice an early response
    half_closed_seconds: float = 60.0  # a raw connection with one end, without traffic
    max_connections: int = (
        20_000  # 2 KiB each when idle; a new one replaces the longest idle
    )


def _plain(status: int, message: str) -> tuple[bytes, bytes]:
    body = json.dumps({"code": status, "message": message}).encode()
    return b"\r\nContent-Type: application/json", body


@mypyc_attr(allow_interpreted_subclasses=True)
class HttpServerFactory(ServerFactory):
    """
    A factory that accepts connections and passes requests to *handler*.

    :param parser: selects the lines to cut out of heads; see `RequestParser`.
    :param write: writes to a transport; used instead of the transport's ``write``.
    :param render_error: returns fields and body of the response to a request that is
        rejected before it reaches a handler.
    """

    noisy = False

    def __init__(
        self,
        handler: RequestHandler,
        clock: IReactorTime,
        *,
        parser: RequestParser | None = None,
        limits: HttpServerLimits | None = None,
        write: Writer | None = None,
        render_error: Callable[[int, str], tuple[bytes, bytes]] = _plain,
    ) -> None:
        self.handler = handler
        self.limits = limits or HttpServerLimits()
        self.parser = parser or RequestParser(max_count=self.limits.max_header_count)
        self.render_error = render_error
        #: All connections.
        self.connections: set[HttpServerConnection] = set()
        #: Connections without a request in progress, the longest idle first.
        self.idle: dict[HttpServerConnection, None] = {}
        #: Whether connections close after their response; set by `drain`.
        self.draining = False
        self.turn = Turn(clock, self.connections, write)

    def buildProtocol(  # type: ignore[override]
        self, addr: IAddress | None
    ) -> HttpServerConnection:
        return HttpServerConnection(self)

    def make_room(self) -> bool:
        """
        Close the connection that has been idle longest; return False if all are busy.
        """
        for longest in self.idle:
            longest.give_way()
            return True
        return False

    def drain(self) -> None:
        """
        Close idle connections now, and each other connection after its current
        response.
        """
        self.draining = True
        for_each(
            list(self.connections),
            lambda connection: connection.close_if_idle(),
            "ending a connection",
        )

    def abort_all(self) -> None:
        """Drop every connection immediately."""
        for_each(
            list(self.connections),
            lambda connection: connection.abort(),
            "ending a connection",
        )


class HttpServerConnection(HttpConnection):
    """One connection of a client."""

    _log: ClassVar = Logger()
    factory: HttpServerFactory

    def __init__(self, factory: HttpServerFactory) -> None:
        # The buffer must hold a whole head, or kas would treat an incomplete head as
        # one that arrived too early.
        super().__init__(factory.turn, factory.limits.max_header_bytes)
        self.factory = factory
        self._state = _HEAD
        #: Number of bytes of an incomplete head that were searched for its end; None
        #: between heads.
        self._scanned: int | None = None
        #: Cached heads of this connection, which are not shared with other connections,
        #: because they contain secrets.
        self._known: dict[bytes, RequestHead] = {}
        self._left = 0
        self._decoder = ChunkedDecoder()
        self._exchange: Exchange | None = None
        self._fresh = True
        #: Whether the client pipelines requests without reading responses.
        self._clogged = False
        #: Number of bytes that the transport held at the last check.
        self._held: int | None = None

    def connectionMade(self) -> None:
        super().connectionMade()
        factory = self.factory
        full = len(factory.connections) >= factory.limits.max_connections
        if full and not factory.make_room():
            factory.connections.add(self)
            self._refuse(503, "too many connections; try again", b"\r\nRetry-After: 1")
        else:
            factory.connections.add(self)
            factory.idle[self] = None

    # Reading.

    def feed(self, data: bytes) -> bytes:
        # The time limit for a head starts with the head's first byte, every other limit
        # with the last received byte.  Bytes after the response do not extend the
        # limit, because they are dropped.
        taken = 0
        try:
            while data and not self._paused:
                state = self._state
                if state == _HEAD:
                    if taken == _PIPELINED:
                        # One read may contain thousands of requests that are rejected
                        # at once, and each takes as long as a frame of a tunnel.
                        self.pause_reading()
                        self._turn.later(self)
                        return data
                    taken += 1
                    # There cannot be more unread bytes than were written since the last
                    # check.
                    if self._written > _UNREAD_BYTES:
                        self._written = unsent(self._tcp) or 0
                        if self._written > _UNREAD_BYTES:
                            # Send no more responses until the client has read these.
                            self._clogged = True
                            self.touched()
                            self.pause_reading()
                            return data
                    rest = self._take_head(data)
                    if rest is None:
                        return data
                    data = rest
                elif state == _WAIT:
                    return data
                elif state == _SIZED:
                    self.touched()
                    body, data = data[: self._left], data[self._left :]
                    self._left -= len(body)
                    self._body(body, self._left == 0)
                elif state == _CHUNKED:
                    self.touched()
                    decoder = self._decoder
                    body, left = decoder.feed(data)
                    data = left or b""
                    self._body(body, left is not None, decoder.trailers)
                elif state == _RAW:
                    # After the response, the server waits for the client, but only for
                    # a limited time.
                    if self._exchange is None or not self._exchange.finished:
                        self.touched()
                    self._body(data, False)
                    return b""
                else:
                    self._discard(data)
                    return b""
        except HeadError as error:
            self._refuse(error.status, str(error))
            return b""
        return data

    def _take_head(self, data: bytes) -> bytes | None:
        """
        Begin an exchange; return the bytes after the head, or None if the head is
        incomplete.
        """
        limits = self.factory.limits
        end = data.find(b"\r\n\r\n", self._scanned)
        if end < 0:
            if len(data) > limits.max_header_bytes:
                raise HeadError(431, f"a head beyond {limits.max_header_bytes} bytes")
            if data.startswith(b"\x16\x03"):
                raise HeadError(400, "TLS was sent to a port without TLS")
            if self._scanned is None:
                self.touched()
            self._scanned = max(0, len(data) - 3)
            return None
        self._scanned = None
        if end > limits.max_header_bytes:
            raise HeadError(431, f"a head beyond {limits.max_header_bytes} bytes")
        # RFC 9112, 2.2: accept one empty line before a request.
        start = 2 if data.startswith(b"\r\n") else 0
        head = self.factory.parser.parse(data[start : end + 2], self._known)
        self._fresh = False
        self.factory.idle.pop(self, None)
        exchange = self._exchange = Exchange(self, head)
        length = head.length
        if length == 0:
            self._state = _WAIT
            exchange.complete = True
        elif length == CHUNKED:
            self._state = _CHUNKED
            self._decoder = ChunkedDecoder()
            self.touched()
        else:
            self._state = _SIZED
            self._left = length
            self.touched()
        try:
            receiver = self.factory.handler.request_received(exchange)
        except Exception:
            self._log.failure("a handler failed to handle a request")
            self._fail()
        else:
            # After an upgrade, possibly only our half of the connection is finished.
            if not exchange.finished or self._state == _RAW:
                exchange.receiver = receiver
        return data[end + 4 :]

    def _body(self, body: bytes, last: bool, trailers: bytes = b"") -> None:
        exchange = self._exchange
        if exchange is None:
            return
        if last:
            self._state = _WAIT
            exchange.complete = True
        receiver = exchange.receiver
        if receiver is None:
            return
        try:
            if body:
                receiver.body_received(body)
            if last and not exchange.finished:
                receiver.body_finished(trailers)
        except Exception:
            self._log.failure("a handler failed to handle a body")
            self._fail()

    def _discard(self, data: bytes) -> None:
        self._left -= len(data)
        if self._state == _DRAIN and self._left < 0:
            self._state = _CLOSED
            self.abort()

    def peer_finished(self) -> None:
        exchange = self._exchange
        if self._state == _RAW and exchange is not None:
            # All earlier data has been delivered, even to a receiver that requested a
            # pause.
            self._paused = False
            self.refill()
            exchange.complete = True
            self._since = self._turn.now
            if exchange.receiver is not None:
                try:
                    exchange.receiver.body_finished(b"")
                except Exception:
                    self._log.failure("a handler failed at the end of a body")
                    self._fail()
                    return
            if exchange.finished:
                self.close()
        elif exchange is not None:
            # A client that closes its half after the request cannot be distinguished
            # from a client that left; common servers stop working for it, too.
            self._leave(ClientGone("the client closed the connection"))
            self.abort()
        else:
            self.close()

    # Methods for `Exchange`.

    @property
    def holds_bytes(self) -> bool:
        """Whether more bytes follow the request in progress."""
        return bool(self._buffer)

    def upgrade(self) -> None:
        """Treat all further bytes as raw."""
        self._state = _RAW
        self._since = self._turn.now
        self._known.clear()
        self.refill()

    def exchange_finished(self, exchange: Exchange, keep: bool) -> None:
        """Continue with the next request after a response, or close."""
        if self._state == _RAW:
            self._since = self._turn.now
            if exchange.complete:
                self.close()
            else:
                self.close_write()
            return
        if self._producer is not None:
            self.clear_producer()
        self.end_turns()
        self.flush()
        self._exchange = None
        self._since = self._turn.now
        self.factory.idle[self] = None
        if keep and not self.factory.draining:
            self._state = _HEAD
            self._paused = False
            if self._buffer or self._stopped:
                self.refill()
        elif exchange.complete and not self._buffer:
            self._state = _CLOSED
            self.close()
        else:
            self._drain()

    # Ends of connections.

    def _drain(self) -> None:
        """
        Close so that the client still receives the response.

        Closing a socket with unread bytes makes the kernel send RST, which may overtake
        the response.  So close only our half, and drop the bytes that still arrive.
        """
        self._state = _DRAIN
        self._left = _DRAIN_BYTES
        self._since = self._turn.now
        self._buffer = b""
        self._paused = False
        self.close_write()
        self.refill()

    def _refuse(self, status: int, message: str, extra: bytes = b"") -> None:
        """Respond to an invalid request."""
        exchange = self._exchange
        if exchange is None:
            exchange = Exchange(self, None)
            self._exchange = exchange
        else:
            self._tell(exchange, ClientGone(message, status))
        if exchange.head_sent:
            exchange.abort()
            return
        fields, body = self.factory.render_error(status, message)
        exchange.complete = False
        exchange.respond(status, fields + extra, body)

    def _fail(self) -> None:
        """Respond with an error, because a handler failed."""
        exchange = self._exchange
        if exchange is None or exchange.finished:
            return
        self._tell(exchange, ClientGone("an internal error", 500))
        if exchange.head_sent:
            exchange.abort()
        else:
            fields, body = self.factory.render_error(500, "an internal error")
            exchange.respond(500, fields, body)

    def _tell(self, exchange: Exchange, reason: Exception) -> None:
        receiver, exchange.receiver = exchange.receiver, None
        if receiver is not None and not (
            exchange.finished and (exchange.complete or not exchange.upgraded)
        ):
            try:
                receiver.client_gone(reason)
            except Exception:
                self._log.failure("a handler failed when its client left")

    def _leave(self, reason: Exception) -> None:
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            self._tell(exchange, reason)
            exchange.finished = True

    def close_if_idle(self) -> None:
        """Close if no request is in progress."""
        if self._state == _HEAD and not self._buffer:
            self._state = _CLOSED
            self.close()

    def give_way(self) -> None:
        """
        Close at once to make room for a new connection.

        A graceful end would let a client that does not read keep its descriptor.
        """
        self._forget()
        self.abort()

    def abort(self) -> None:
        self._state = _CLOSED
        super().abort()

    def _forget(self) -> None:
        self.factory.connections.discard(self)
        self.factory.idle.pop(self, None)
        self._known.clear()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        super().connectionLost(reason)
        self._state = _CLOSED
        self._forget()
        self._leave(ClientGone("the client closed the connection"))

    def sweep(self, now: float) -> None:
        limits = self.factory.limits
        state = self._state
        waited = now - self._since
        if waited >= _KNOWN_SECONDS:
            self._known.clear()
        if self._clogged or state == _CLOSED:
            self._wait_for_reader(now, waited)
        elif state == _HEAD:
            if self._buffer:
                if waited >= limits.header_seconds:
                    self._refuse(408, "the head of the request did not arrive in time")
            elif waited >= (
                limits.header_seconds if self._fresh else limits.idle_seconds
            ):
                self._state = _CLOSED
                self._since = now
                self.close()
        elif state in (_SIZED, _CHUNKED):
            if self._stopped:
                # The server has paused reading, so the client is not too slow.
                self._since = now
            elif waited >= limits.body_seconds:
                self._refuse(408, "the body of the request did not arrive in time")
        elif state == _DRAIN:
            if waited >= limits.drain_seconds:
                self.abort()
        elif state == _RAW and not self._stopped:
            exchange = self._exchange
            if (
                exchange is not None
                and (exchange.complete or exchange.finished)
                and waited >= limits.half_closed_seconds
            ):
                answered = exchange.finished
                self._leave(ClientGone("one half of the connection stayed open"))
                if answered:
                    # The client may still be reading data in transit.
                    self._state = _CLOSED
                    self.close()
                else:
                    self.abort()

    def _wait_for_reader(self, now: float, waited: float) -> None:
        held = unsent(self._tcp)
        if self._clogged and (held or 0) <= _UNREAD_BYTES:
            self._clogged = False
            self._since = now
            self.resume_reading()
        elif held != self._held:
            self._held = held
            self._since = now
        elif held and waited >= self.factory.limits.body_seconds:
            self.abort()
