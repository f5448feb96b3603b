"""The side of a WebSocket that asks for it, and says what answered instead."""

from __future__ import annotations

import re
from collections.abc import Sequence

import attrs
from twisted.internet.defer import Deferred
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
from websockets.http11 import Response
from websockets.uri import parse_uri
from zope.interface import implementer

from tunnel.transport.httpconnect import excerpt, join_host_port
from tunnel.transport.layer import Layer
from tunnel.transport.negotiation import (
    HANDSHAKE_TIMEOUT,
    LayerFactory,
    connect_through,
)
from tunnel.transport.websocket import (
    MAX_MESSAGE_BYTES,
    SILENT,
    SUBPROTOCOL,
    WebSocketConnection,
)

__all__ = ["MAX_ANSWER_BYTES", "WebSocketClientEndpoint"]

#: The answer to an upgrade, until it is clear what it is.
MAX_ANSWER_BYTES = 64 * 1024

#: How much of an error page is looked at.
_ENOUGH_OF_A_PAGE = 200

_STATUS_LINE = re.compile(rb"HTTP/1\.[01] ([0-9]{3})(?: ([^\r\n]*))?\r?\n")


class _ClientConnection(WebSocketConnection):
    """The side that asks for an upgrade."""

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
            return f"{self._describe_raw()} (and did not finish within {seconds:g} s)"
        return f"{self._where} did not answer the upgrade within {seconds:g} s"

    def dataReceived(self, data: bytes) -> None:
        if self._lost or self._refusal is not None:
            return
        if self._above is not None:
            self.receive(data)
            return
        self._raw += data
        self._core.receive_data(data)
        if self._judge():
            return
        body = self._raw.partition(b"\r\n\r\n")[2]
        if len(body) >= _ENOUGH_OF_A_PAGE and _STATUS_LINE.match(self._raw):
            # An error page, whose end need not be waited for.
            self.refuse("status", self._describe_raw())
        elif len(self._raw) > MAX_ANSWER_BYTES:
            text = f"{self._where} sent more than {MAX_ANSWER_BYTES} bytes of headers"
            self.refuse("too-large", text)

    def _judge(self) -> bool:
        """See whether the answer is complete, and what it says."""
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
            self.refuse("not-http", f"{self._where} does not answer with HTTP/1.1")
        return True

    def _opened(self, events: Sequence[object]) -> None:
        if self._core.subprotocol != SUBPROTOCOL:
            text = (
                f"{self._where} does not know the subprotocol {SUBPROTOCOL}: is it kas?"
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
        """The same, from an answer that is not complete."""
        line = _STATUS_LINE.match(self._raw)
        assert line is not None
        body = self._raw.partition(b"\r\n\r\n")[2]
        return self._describe(int(line[1]), line[2] or b"", body, "")

    def _describe(self, status: int, phrase: bytes, body: bytes, location: str) -> str:
        text = f"{self._where} answered {status} {excerpt(phrase)}".rstrip()
        text += " instead of opening a WebSocket"
        if location:
            text += f"; it points to {excerpt(location.encode())}"
        page = excerpt(body)
        return f"{text}: {page}" if page else text

    def _lost_while_negotiating(self, reason: Failure) -> None:
        # The end of the connection may be the end of an error page.
        self._lost = True
        if self._refusal is None:
            self._core.receive_eof()
            self._judge()
        super()._lost_while_negotiating(reason)


@implementer(IStreamClientEndpoint)
@attrs.frozen(eq=False)
class WebSocketClientEndpoint:
    """
    Connect by *endpoint* and open a WebSocket.

    ``connect`` fires when the WebSocket is open; it fails with `WebSocketError`, which
    tells what answered instead, or as *endpoint* fails.

    :param url: names host, port and path in the request; nothing is dialled by it.
    :param headers: more headers for the request.
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
