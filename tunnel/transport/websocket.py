"""
The tunnel's bytes inside a WebSocket, for proxies and networks that only permit HTTP.

Each write becomes a binary message; the receiver ignores the boundaries of messages.
Compression is off: the content is mostly compressed or encrypted already, and
compression would need more memory per connection than everything else.

The protocol core is the ``websockets`` package's, which does no I/O.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone, ConnectionLost
from twisted.internet.interfaces import (
    IAddress,
    IProtocol,
    IProtocolFactory,
    IReactorTime,
    IStreamClientEndpoint,
)
from twisted.python.failure import Failure
from websockets.client import ClientProtocol
from websockets.exceptions import InvalidStatus
from websockets.exceptions import NegotiationError as WSNegotiationError
from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Request, Response
from websockets.protocol import Protocol as WebSocketCore
from websockets.protocol import State
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol
from websockets.uri import parse_uri
from zope.interface import implementer

from tunnel.toolkit.texts import excerpt
from tunnel.transport import eager
from tunnel.transport.layer import Layer
from tunnel.transport.negotiation import (
    HANDSHAKE_TIMEOUT,
    LayerFactory,
    NegotiationError,
    connect_through,
)
from tunnel.transport.sockets import join_host_port
from tunnel.transport.websocket_core import GOOD_CLOSES, SILENT, PongLimit

__all__ = [
    "MAX_ANSWER_BYTES",
    "MAX_MESSAGE_BYTES",
    "MAX_REQUEST_BYTES",
    "SUBPROTOCOL",
    "WebSocketClientEndpoint",
    "WebSocketError",
    "wrap_websocket_server",
]

SUBPROTOCOL = Subprotocol("txkas-tunnel.v1")

#: Maximum number of bytes of an accepted message, which is in memory as a whole.  The
#: limit is four times the size of messages that we send, because a proxy may join
#: messages.
MAX_MESSAGE_BYTES = 1024 * 1024
#: Maximum number of bytes of a sent message; longer data is split.
_MAX_SENT_BYTES = 256 * 1024

#: Maximum number of bytes of an incomplete response to an upgrade.
MAX_ANSWER_BYTES = 64 * 1024

#: Number of bytes of an error page that are read.
_ENOUGH_OF_A_PAGE = 200

#: Maximum number of bytes of the request line and headers of an upgrade.  nginx and
#: most other servers accept 8 KiB per line and 32 KiB in total; an upgrade with a few
#: cookies and a long token stays below 16 KiB.
MAX_REQUEST_BYTES = 16 * 1024

_STATUS_LINE = re.compile(rb"HTTP/1\.[01] ([0-9]{3})(?: ([^\r\n]*))?\r?\n")

_UPGRADE_TEXT = (
    "This address is for agentk, which connects by WebSocket with the subprotocol "
    f"{SUBPROTOCOL}. A proxy in front must use HTTP/1.1 and forward the headers "
    "Upgrade and Connection.\n"
)


class WebSocketError(NegotiationError):
    """
    Raised if no WebSocket could be opened.

    Labels: ``status``, ``subprotocol``, ``upgrade``, ``path``, ``request``,
    ``not-http``, ``too-large``, ``timeout``, ``closed``, ``internal``.
    """

    layer = "WebSocket"


@implementer(IStreamClientEndpoint)
@attrs.frozen(eq=False)
class WebSocketClientEndpoint:
    """
    An endpoint that connects with *endpoint* and opens a WebSocket.

    ``connect`` fires when the WebSocket is open.  It fails with `WebSocketError`, which
    describes the response, or with an error from *endpoint*.

    :param url: host, port and path for the request; it is not used for connecting.
    :param headers: further headers for the request.
    """

    endpoint: IStreamClientEndpoint
    url: str
    headers: Sequence[tuple[str, str]] = attrs.field(repr=False)
    clock: IReactorTime
    timeout: float = HANDSHAKE_TIMEOUT

    def __attrs_post_init__(self) -> None:
        parse_uri(self.url)
        for name, value in self.headers:
            if re.search(r"[\r\n\0]", name + value):
                raise ValueError(f"line break in the header {name!r}")

    def connect(self, protocolFactory: IProtocolFactory) -> Deferred[IProtocol]:
        def build(factory: LayerFactory, address: IAddress) -> Layer:
            return _ClientConnection(factory, address, self.url, self.headers)

        factory = LayerFactory(protocolFactory, self.clock, self.timeout, build)
        return connect_through(self.endpoint, factory)


def wrap_websocket_server(
    factory: IProtocolFactory,
    clock: IReactorTime,
    path: str | None = None,
    *,
    timeout: float = HANDSHAKE_TIMEOUT,
    failed: Callable[[NegotiationError], object] | None = None,
) -> IProtocolFactory:
    """
    Return a factory that accepts WebSockets and runs *factory* inside.

    :param path: the only accepted path; any path by default, because proxies in front
        often add or remove parts.
    :param failed: called for each connection that did not become a WebSocket.
    """

    def build(layer_factory: LayerFactory, address: IAddress) -> Layer:
        return _ServerConnection(layer_factory, address, path)

    return LayerFactory(factory, clock, timeout, build, failed=failed)


class _WebSocket(Layer):
    """Common part of both ends, after the WebSocket is open."""

    error_type = WebSocketError

    def __init__(
        self, factory: LayerFactory, address: IAddress, core: WebSocketCore
    ) -> None:
        super().__init__(factory, address)
        self._core = core
        self._pongs = PongLimit()

    def negotiate(self, data: bytes) -> None:
        """Handle bytes that arrive before the WebSocket is open."""
        raise NotImplementedError

    def dataReceived(self, data: bytes) -> None:
        if self._lost or self._refusal is not None:
            return
        if self._above is not None:
            self.receive(data)
        else:
            self.negotiate(data)

    def receive(self, data: bytes) -> None:
        """Handle bytes that arrive while the WebSocket is open."""
        self._core.receive_data(data)
        self.take_frames(self._core.events_received())

    def take_frames(self, events: Sequence[object]) -> None:
        """Pass on the content of messages, and respond to control frames."""
        parts: list[bytes | bytearray | memoryview] = []
        ended = False
        pongs = 0
        for event in events:
            assert isinstance(event, Frame)
            if event.opcode is Opcode.BINARY or event.opcode is Opcode.CONT:
                parts.append(event.data)
            elif event.opcode is Opcode.PING:
                pongs += len(event.data) + 2
            elif event.opcode is Opcode.CLOSE:
                ended = True
            elif event.opcode is Opcode.TEXT:
                reason = "only binary messages are supported"
                self._core.fail(CloseCode.UNSUPPORTED_DATA, reason)
                self._core.parser_exc = ValueError(reason)
                break
        broken = self._core.parser_exc
        if ended or broken is not None:
            self._writable = False
        self._flush()
        if pongs and not self._may_answer(pongs):
            return
        if parts or ended:
            self.hand_up(b"".join(parts), ended)
        if broken is not None and not self._lost and not self._ended:
            self._ended = True
            self._leave(ConnectionLost(f"WebSocket: {broken}"))

    def _may_answer(self, count: int) -> bool:
        if self._pongs.allows(count, self.unsent()):
            return True
        self.fail(ConnectionLost("WebSocket: the peer sends pings without reading"))
        return False

    def _flush(self) -> None:
        data = b"".join(self._core.data_to_send())
        if data:
            eager.write(self._lower, data)

    def write(self, data: bytes) -> None:
        if not self._writable or not data:
            return
        if len(data) <= _MAX_SENT_BYTES:
            self._core.send_binary(data)
        else:
            whole = memoryview(data)
            for start in range(0, len(data), _MAX_SENT_BYTES):
                self._core.send_binary(whole[start : start + _MAX_SENT_BYTES])
        self._flush()

    def say_goodbye(self) -> None:
        # Wait for the response, which proves that all earlier data was read.
        self._writable = False
        if self._core.state is State.OPEN:
            self._core.send_close(CloseCode.NORMAL_CLOSURE)
        self._flush()

    def peer_finished(self) -> None:
        if self.disconnecting:
            # This is the response to our close frame, so the end of the connection
            # below does not matter now.
            self._reason = Failure(ConnectionDone())
            self._lower.loseConnection()
            return
        close = self._core.close_rcvd
        if close is None or close.code in GOOD_CLOSES:
            self._leave(ConnectionDone())
        else:
            self._leave(ConnectionLost(f"WebSocket closed by the peer: {close}"))

    def _leave(self, error: Exception) -> None:
        """
        Close after our close frame was queued: nothing follows in either direction.
        """
        self.close_in_answer(error)
        self._watch_close()
        self._lower.loseConnection()

    def explain_loss(self, reason: Failure) -> Failure:
        if reason.check(ConnectionDone):
            text = "the connection ended without a WebSocket close frame"
            return Failure(ConnectionLost(text))
        return reason


class _ClientConnection(_WebSocket):
    """The side that requests an upgrade."""

    _core: ClientProtocol

    def __init__(
        self,
        factory: LayerFactory,
        address: IAddress,
        url: str,
        headers: Sequence[tuple[str, str]],
    ) -> None:
        uri = parse_uri(url)
        core = ClientProtocol(
            uri,
            subprotocols=[SUBPROTOCOL],
            max_size=MAX_MESSAGE_BYTES,
            logger=SILENT,
        )
        super().__init__(factory, address, core)
        self._where = join_host_port(uri.host, uri.port)
        self._headers = headers
        self._raw = b""

    def begin(self) -> None:
        request = self._core.connect()
        request.headers["User-Agent"] = "txkas"
        for name, value in self._headers:
            if name in request.headers:
                del request.headers[name]
            request.headers[name] = value
        self._core.send_request(request)
        self._flush()

    def describe_timeout(self) -> str:
        seconds = self._factory.timeout
        if _STATUS_LINE.match(self._raw):
            return f"{self._describe_raw()} (incomplete after {seconds:g} s)"
        return f"{self._where} did not respond to the upgrade within {seconds:g} s"

    def negotiate(self, data: bytes) -> None:
        self._raw += data
        self._core.receive_data(data)
        if self._judge():
            return
        body = self._raw.partition(b"\r\n\r\n")[2]
        if len(body) >= _ENOUGH_OF_A_PAGE and _STATUS_LINE.match(self._raw):
            # The response is an error page, whose end is not needed.
            self.refuse("status", self._describe_raw())
        elif len(self._raw) > MAX_ANSWER_BYTES:
            text = f"{self._where} sent more than {MAX_ANSWER_BYTES} bytes of headers"
            self.refuse("too-large", text)

    def _judge(self) -> bool:
        """Parse the response if it is complete, and accept or refuse the WebSocket."""
        events = self._core.events_received()
        problem = self._core.handshake_exc
        if not events and problem is None:
            return False
        if problem is None:
            self._opened(events)
        elif isinstance(problem, InvalidStatus):
            self.refuse("status", self._describe_response(problem.response))
        elif isinstance(problem, WSNegotiationError):
            self.refuse("subprotocol", f"{self._where}: {problem}")
        elif events:
            self.refuse("upgrade", f"{self._where} did not upgrade: {problem}")
        elif not self._lost:
            self.refuse("not-http", f"{self._where} does not respond with HTTP/1.1")
        return True

    def _opened(self, events: Sequence[object]) -> None:
        if self._core.subprotocol != SUBPROTOCOL:
            text = (
                f"{self._where} does not support the subprotocol {SUBPROTOCOL}: is "
                "it kas?"
            )
            self.refuse("subprotocol", text)
            return
        self._raw = b""
        if self.open_above() and (len(events) > 1 or self._core.parser_exc):
            self.take_frames(events[1:])

    def _describe_response(self, response: Response) -> str:
        location = response.headers.get_all("Location")
        return self._describe(
            response.status_code,
            response.reason_phrase.encode(),
            bytes(response.body),
            location[0] if location else "",
        )

    def _describe_raw(self) -> str:
        """Describe an incomplete response."""
        line = _STATUS_LINE.match(self._raw)
        assert line is not None
        body = self._raw.partition(b"\r\n\r\n")[2]
        return self._describe(int(line[1]), line[2] or b"", body, "")

    def _describe(self, status: int, phrase: bytes, body: bytes, location: str) -> str:
        secrets = [value for _, value in self._headers]
        said = excerpt(phrase, secrets)
        text = f"{self._where} responded with {status} {said}".rstrip()
        text += " instead of opening a WebSocket"
        if location:
            text += f"; it redirects to {excerpt(location.encode(), secrets)}"
        page = excerpt(body, secrets)
        return f"{text}: {page}" if page else text

    def _lost_while_negotiating(self, reason: Failure) -> None:
        # The end of the connection may be the end of an error page.
        self._lost = True
        if self._refusal is None:
            self._core.receive_eof()
            self._judge()
        super()._lost_while_negotiating(reason)


class _ServerConnection(_WebSocket):
    """The side that accepts an upgrade."""

    _core: ServerProtocol

    def __init__(
        self, factory: LayerFactory, address: IAddress, path: str | None
    ) -> None:
        core = ServerProtocol(
            select_subprotocol=_select_subprotocol,
            max_size=MAX_MESSAGE_BYTES,
            logger=SILENT,
        )
        super().__init__(factory, address, core)
        self._path = path
        self._head = b""

    def describe_timeout(self) -> str:
        return f"no complete request within {self._factory.timeout:g} s"

    def negotiate(self, data: bytes) -> None:
        start = max(0, len(self._head) - 3)
        self._head += data
        end = self._head.find(b"\r\n\r\n", start) + 4
        if end - 4 > MAX_REQUEST_BYTES or (
            end < 4 and len(self._head) > MAX_REQUEST_BYTES
        ):
            text = f"The headers are longer than {MAX_REQUEST_BYTES} bytes.\n"
            self._decline(self._core.reject(431, text), "too-large")
        elif end >= 4:
            head, rest = self._head[:end], self._head[end:]
            self._head = b""
            self._respond(head, rest)

    def _respond(self, head: bytes, rest: bytes) -> None:
        # The core must not see frames before it has accepted.
        self._core.receive_data(head)
        events = self._core.events_received()
        if not events or not isinstance(events[0], Request):
            text = "This is not an HTTP request.\n"
            self._decline(self._core.reject(400, text), "not-http")
            return
        request = events[0]
        if self._path is not None and request.path.partition("?")[0] != self._path:
            text = f"Nothing here. agentk connects to {self._path}.\n"
            self._decline(self._core.reject(404, text), "path")
            return
        response = self._core.accept(request)
        if response.status_code in (426, 505):
            # 505: HTTP/1.0, which nginx uses by default
            response = self._core.reject(426, _UPGRADE_TEXT)
            response.headers["Upgrade"] = "websocket"
            self._decline(response, "upgrade")
        elif response.status_code != 101:
            wrong = isinstance(self._core.handshake_exc, WSNegotiationError)
            self._decline(response, "subprotocol" if wrong else "request")
        else:
            self._core.send_response(response)
            self._flush()
            if self.open_above() and rest:
                self.receive(rest)

    def _decline(self, response: Response, label: str) -> None:
        eager.write(self._lower, response.serialize())
        text = excerpt(bytes(response.body))
        self.refuse(label, f"responded with {response.status_code}: {text}")


def _select_subprotocol(
    _core: ServerProtocol, offered: Sequence[Subprotocol]
) -> Subprotocol:
    if SUBPROTOCOL in offered:
        return SUBPROTOCOL
    heard = excerpt(", ".join(offered).encode()) or "none"
    raise WSNegotiationError(f"offer the subprotocol {SUBPROTOCOL} (offered: {heard})")
