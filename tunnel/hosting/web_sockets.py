"""
WebSockets of modules: from the request for an upgrade to the last message.

A `WebSocketPage` is the resource that accepts or refuses requests.  A
`WebSocketConnection` takes a connection over from twisted.web after the response 101.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from typing import Any, Final, Protocol
from urllib.parse import parse_qsl

import attrs
from twisted.internet.defer import CancelledError, TimeoutError, maybeDeferred
from twisted.internet.interfaces import IAddress, IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET
from websockets.datastructures import Headers
from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Request as WebSocketHead
from websockets.http11 import Response
from websockets.protocol import SEND_EOF, Side, State
from websockets.protocol import Protocol as WebSocketCore
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol
from zope.interface import implementer

from tunnel.api import (
    AcceptedWebSocket,
    IWebSocket,
    WebSocketReceiver,
    WebSocketRequest,
)
from tunnel.errors import CallError, Status
from tunnel.grpc.memory import RequestShare
from tunnel.toolkit.for_each import for_each
from tunnel.toolkit.time_limit import within
from tunnel.toolkit.timers import cancel_call
from tunnel.transport import eager
from tunnel.transport.negotiation import abort
from tunnel.transport.websocket_core import SILENT, PongLimit

__all__ = [
    "ACCEPT_TIMEOUT",
    "CLOSE_SECONDS",
    "MISSED_PINGS",
    "SocketCounters",
    "UpgradedChannel",
    "UpgradingRequest",
    "WebSocketConnection",
    "WebSocketPage",
]

#: Maximum seconds for a module's decision about a request.
ACCEPT_TIMEOUT: Final = 20.0

#: Maximum seconds between our close frame and the client's, unless the client still
#: reads the messages before our close frame.
CLOSE_SECONDS: Final = 5.0

#: Number of periods without a sign of life after which a connection is cut.
MISSED_PINGS: Final = 3

#: Maximum bytes of the reason in a close frame (RFC 6455, section 5.5).
MAX_REASON_BYTES: Final = 123

#: Codes that the metrics name; a client may send any of 4,000 others.
_KNOWN_CODES: Final = frozenset((*map(int, CloseCode), CloseCode.NO_STATUS_RCVD))

_STATUSES: Final = {
    Status.INVALID_ARGUMENT: 400,
    Status.UNAUTHENTICATED: 401,
    Status.PERMISSION_DENIED: 403,
    Status.NOT_FOUND: 404,
    Status.RESOURCE_EXHAUSTED: 429,
    Status.UNAVAILABLE: 503,
}


class UpgradedChannel(Protocol):
    """Connection that twisted.web has given up after an upgrade."""

    @property
    def transport(self) -> Any:
        """The underlying transport."""

    def write(self, data: bytes) -> None:
        """Write *data* after the data of all earlier calls."""

    def loseConnection(self) -> None:
        """Close the connection after the written data has been sent."""


class UpgradingRequest(Protocol):
    """Request of a listener whose connections can be upgraded."""

    @property
    def own_origin(self) -> str:
        """Origin of kas, as the client reaches it."""

    def getClientAddress(self) -> IAddress:
        """Return the address of the client."""

    @property
    def clock(self) -> IReactorTime:
        """Clock of the listener."""

    def await_upgrade(self) -> bool:
        """
        Keep the bytes that follow the request until `upgrade`; return False if the
        listener drains.
        """

    def upgrade(self, head: bytes, connection: WebSocketConnection) -> None:
        """Write the response *head*, and give the connection to *connection*."""


@attrs.define(eq=False)
class SocketCounters:
    """Counters for metrics, by module."""

    #: Open WebSockets.
    open: Counter[str] = attrs.Factory(Counter)
    #: Complete messages, by module and direction: ``received``, ``sent``.
    messages: Counter[tuple[str, str]] = attrs.Factory(Counter)
    #: Bytes of the content of these messages.
    content: Counter[tuple[str, str]] = attrs.Factory(Counter)
    #: Ended WebSockets, by module and close code.
    closed: Counter[tuple[str, str]] = attrs.Factory(Counter)

    def count(self, module: str, direction: str, size: int) -> None:
        """Count one message."""
        self.messages[module, direction] += 1
        self.content[module, direction] += size

    def ended(self, module: str, code: int) -> None:
        """Count the end of a WebSocket."""
        self.open[module] -= 1
        self.closed[module, str(code) if code in _KNOWN_CODES else "other"] += 1


@implementer(IWebSocket)
class WebSocketConnection:
    """
    One open WebSocket: messages for the receiver, frames for the client.

    :param owner: the module.
    :param over: called at the end.
    """

    _log = Logger()

    def __init__(
        self,
        owner: str,
        accepted: AcceptedWebSocket,
        counters: SocketCounters,
        over: Callable[[WebSocketConnection], object],
    ) -> None:
        self.subprotocol = accepted.subprotocol
        self._owner = owner
        self._accepted = accepted
        self._receiver: WebSocketReceiver | None = accepted.receiver
        self._counters = counters
        self._over = over
        self._core = WebSocketCore(
            Side.SERVER, max_size=accepted.max_message_bytes, logger=SILENT
        )
        self._pongs = PongLimit()
        self._channel: Any = None
        self._share: RequestShare
        self._clock: IReactorTime
        self._text = False
        self._parts: list[bytes] = []
        self._incomplete = 0
        self._held: deque[str | bytes] = deque()
        self._reading = True
        self._delivering = False
        self._closing = False
        self._lost = False
        self._code = 0
        self._reason = ""
        self._written = 0
        self._taken = 0
        self._heard_at = 0.0
        self._timer: IDelayedCall | None = None
        self._release_call: IDelayedCall | None = None

    # Towards the module: IWebSocket

    @property
    def unsent(self) -> int:
        """Number of bytes that the kernel has not accepted yet."""
        return eager.unsent(self._channel.transport) or 0

    def send(self, message: str | bytes) -> None:
        """Send one message."""
        if self._over_or_closing():
            return
        if isinstance(message, str):
            content = message.encode()
            self._core.send_text(content)
        else:
            content = message
            self._core.send_binary(content)
        self._counters.count(self._owner, "sent", len(content))
        self._flush()
        if self.unsent > self._accepted.max_unsent_bytes:
            self._log.info(
                "cutting a WebSocket of module {module}, because its client does not "
                "read {count} bytes",
                module=self._owner,
                count=self.unsent,
            )
            self.abort()

    def pause_reading(self) -> None:
        """Deliver no messages until `resume_reading`."""
        if self._reading and not self._closing and not self._lost:
            self._reading = False
            self._channel.transport.pauseProducing()

    def resume_reading(self) -> None:
        """Deliver messages again, from the next turn of the reactor on."""
        if not self._reading and not self._lost and self._release_call is None:
            self._release_call = self._clock.callLater(0, self._release)

    def close(self, code: int = CloseCode.NORMAL_CLOSURE, reason: str = "") -> None:
        """Close the WebSocket after the messages that were sent."""
        if self._over_or_closing():
            return
        self._closing = True
        self._held.clear()
        self._core.send_close(code, _fitting(reason))
        self._flush()
        self._await_end()
        if not self._reading:
            # The client's close frame has to be read.
            self._reading = True
            self._channel.transport.resumeProducing()

    def abort(self) -> None:
        """Cut the connection."""
        if not self._lost:
            self._closing = True
            self._held.clear()
            abort(self._channel.transport)

    # Towards the listener

    def begin(
        self, channel: UpgradedChannel, clock: IReactorTime, share: RequestShare
    ) -> None:
        """
        Take over the connection.

        :param share: the memory for incomplete messages.
        """
        self._channel = channel
        self._clock = clock
        self._share = share
        self._heard_at = clock.seconds()
        self._timer = clock.callLater(self._accepted.ping_seconds, self._look)
        self._counters.open[self._owner] += 1
        receiver = self._accepted.receiver
        receiver.socket = self
        self._tell("opened")

    def data_received(self, data: bytes) -> None:
        """Parse bytes of the client, and deliver complete messages."""
        if self._lost:
            return
        self._heard_at = self._clock.seconds()
        self._core.receive_data(data)
        self._incomplete += len(data)
        pongs = 0
        for event in self._core.events_received():
            assert isinstance(event, Frame)
            if event.opcode is Opcode.PING:
                pongs += len(event.data) + 2
            elif event.opcode in (Opcode.TEXT, Opcode.BINARY, Opcode.CONT):
                self._take(event)
            # An event shows that the bytes before it belong to complete frames.
            self._incomplete = sum(map(len, self._parts))
        self._hold()
        self._flush()
        if pongs and not self._pongs.allows(pongs, self.unsent):
            self.abort()
            return
        self._deliver()
        self._follow_core()

    def pauseProducing(self) -> None:
        """Stop the receiver, because the transport holds much data."""
        self._tell("paused")

    def resumeProducing(self) -> None:
        """Let the receiver send again."""
        self._tell("resumed")

    def stopProducing(self) -> None:
        """Do nothing, because `connection_lost` follows."""

    def drain(self, seconds: float) -> None:
        """Let the receiver say goodbye, because kas stops."""
        if not self._closing:
            self._tell("draining", seconds)

    def go_away(self) -> None:
        """Close the WebSocket, because kas stops."""
        self.close(CloseCode.GOING_AWAY, "kas stops")

    def withdraw(self) -> None:
        """Close the WebSocket and forget its receiver, because the module stops."""
        self.close(CloseCode.SERVICE_RESTART, "the module stops")
        self._say_closed(CloseCode.SERVICE_RESTART, "the module stops")

    def connection_lost(self) -> None:
        """Handle the end of the connection."""
        self._lost = True
        cancel_call(self._timer)
        cancel_call(self._release_call)
        self._timer = self._release_call = None
        self._held.clear()
        self._parts.clear()
        self._share.release()
        self._over(self)
        core = self._core
        close = core.close_rcvd
        if core.parser_exc is not None or (close is None and core.eof_sent):
            # Our side has failed the connection.
            close = core.close_sent
        code = CloseCode.ABNORMAL_CLOSURE if close is None else close.code
        reason = "" if close is None else close.reason
        self._counters.ended(self._owner, code)
        self._say_closed(code, reason)

    # Details

    def _over_or_closing(self) -> bool:
        """Return whether nothing more can be sent."""
        return self._closing or self._lost or self._core.state is not State.OPEN

    def _take(self, frame: Frame) -> None:
        """Add a frame to its message, and keep the message if it is complete."""
        if frame.opcode is not Opcode.CONT:
            self._text = frame.opcode is Opcode.TEXT
        if frame.data:
            self._parts.append(bytes(frame.data))
        if not frame.fin:
            return
        content = b"".join(self._parts)
        self._parts.clear()
        if self._closing:
            return
        message: str | bytes = content
        if self._text:
            try:
                message = content.decode()
            except UnicodeDecodeError:
                self._fail(CloseCode.INVALID_DATA, "the text is not UTF-8")
                return
        self._counters.count(self._owner, "received", len(content))
        self._held.append(message)

    def _hold(self) -> None:
        try:
            self._share.hold(self._incomplete)
        except CallError:
            self._parts.clear()
            self._fail(CloseCode.TRY_AGAIN_LATER, "too many incomplete messages")

    def _deliver(self) -> None:
        """Deliver kept messages, unless the receiver has paused."""
        if self._delivering:
            return
        self._delivering = True
        try:
            while self._held and self._reading and not self._closing:
                self._tell("message_received", self._held.popleft())
        finally:
            self._delivering = False

    def _release(self) -> None:
        self._release_call = None
        if self._lost or self._reading:
            return
        self._reading = True
        self._deliver()
        if self._reading and not self._closing:
            self._channel.transport.resumeProducing()

    def _follow_core(self) -> None:
        """Stop if the client, or the protocol core, has closed the WebSocket."""
        if self._core.state is not State.OPEN and not self._closing:
            self._closing = True
            self._await_end()

    def _fail(self, code: int, reason: str) -> None:
        """Close the WebSocket because the client does not follow the rules."""
        self._closing = True
        self._held.clear()
        if self._core.state is State.OPEN:
            self._core.fail(code, reason)
            # The core must not parse anything after that.
            self._core.parser_exc = ValueError(reason)
        self._flush()
        self._await_end()

    def _flush(self) -> None:
        """Write the frames of the core; an empty one means the end."""
        parts = self._core.data_to_send()
        data = b"".join(parts)
        if data:
            self._written += len(data)
            self._channel.write(data)
        if SEND_EOF in parts:
            self._channel.loseConnection()

    def _await_end(self) -> None:
        cancel_call(self._timer)
        self._taken = self._written - self.unsent
        self._timer = self._clock.callLater(CLOSE_SECONDS, self._end)

    def _end(self) -> None:
        self._timer = None
        if self._reads():
            self._timer = self._clock.callLater(CLOSE_SECONDS, self._end)
        else:
            self.abort()

    def _look(self) -> None:
        """Cut the connection if the client is gone; otherwise, send a ping."""
        self._timer = None
        now = self._clock.seconds()
        period = self._accepted.ping_seconds
        if self._reads() or not (self._reading or self.unsent):
            # A client that kas does not read cannot be heard.
            self._heard_at = now
        # Times are sums of periods, so the comparison must not depend on rounding.
        if now - self._heard_at > (MISSED_PINGS - 0.5) * period:
            self.abort()
            return
        self._core.send_ping(b"")
        self._flush()
        self._timer = self._clock.callLater(period, self._look)

    def _reads(self) -> bool:
        """
        Return whether data waits for the client, which has read some since the last
        call.
        """
        unsent = self.unsent
        before, self._taken = self._taken, self._written - unsent
        return bool(unsent) and self._taken > before

    def _say_closed(self, code: int, reason: str) -> None:
        if self._receiver is not None:
            self._tell("closed", code, reason)
            self._receiver = None

    def _tell(self, method: str, *arguments: object) -> None:
        """Call a method of the receiver, whose failure closes only this WebSocket."""
        if self._receiver is None:
            return
        try:
            getattr(self._receiver, method)(*arguments)
        except Exception:
            self._log.failure(
                "a WebSocket of module {module} failed", module=self._owner
            )
            self.close(CloseCode.INTERNAL_ERROR, "an internal error")


class WebSocketPage(Resource):
    """
    Resource that opens WebSockets.

    :param accept: see `tunnel.api.IWeb.web_socket`.
    """

    isLeaf = True
    _log = Logger()

    def __init__(
        self,
        owner: str,
        accept: Callable[[WebSocketRequest], Any],
        counters: SocketCounters,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._owner = owner
        self.accept = accept
        self._counters = counters
        self._withdrawn = False
        self.open: set[WebSocketConnection] = set()

    def withdraw(self) -> None:
        """Close all WebSockets, and open no more, because the module stops."""
        self._withdrawn = True
        for_each(tuple(self.open), lambda one: one.withdraw(), "closing a WebSocket")

    def render(self, request: Any) -> int:
        """Respond to a request, now or when the module has decided."""
        response = _handshake(request)
        if response.status_code != 101:
            _respond(request, response)
        elif not request.await_upgrade():
            _refuse(request, 503, "kas stops")
        else:
            asked = _read(request)
            accepting = maybeDeferred(self.accept, asked)
            answer = within(accepting, ACCEPT_TIMEOUT, request.clock)
            request.notifyFinish().addErrback(lambda _: answer.cancel())
            answer.addCallback(self._accepted, request, asked, response)
            answer.addErrback(self._refused, request)
        return NOT_DONE_YET

    def _accepted(
        self,
        accepted: AcceptedWebSocket,
        request: Any,
        asked: WebSocketRequest,
        response: Response,
    ) -> None:
        if request.channel is None:
            return
        if self._withdrawn:
            raise CallError(Status.UNAVAILABLE, "the module stops")
        if not isinstance(accepted, AcceptedWebSocket):
            raise TypeError(f"{accepted!r} is not an AcceptedWebSocket")
        if accepted.subprotocol:
            if accepted.subprotocol not in asked.subprotocols:
                raise ValueError("the client did not offer the selected subprotocol")
            response.headers["Sec-WebSocket-Protocol"] = accepted.subprotocol
        connection = WebSocketConnection(
            self._owner, accepted, self._counters, self.open.discard
        )
        self.open.add(connection)
        request.upgrade(response.serialize(), connection)

    def _refused(self, reason: Failure, request: Any) -> None:
        if request.channel is None:
            # The client has left, so the decision was cancelled.
            if reason.check(CancelledError, CallError) is None:
                self._failed(reason)
        elif reason.check(TimeoutError):
            _refuse(request, 503, "kas did not decide in time; try again")
        elif isinstance(error := reason.value, CallError) and error.status in _STATUSES:
            _refuse(request, _STATUSES[error.status], str(error))
        else:
            self._failed(reason)
            _refuse(request, 500, "an internal error")

    def _failed(self, reason: Failure) -> None:
        self._log.failure(
            "module {module} failed to decide about a WebSocket",
            reason,
            module=self._owner,
        )


def _handshake(request: Any) -> Response:
    """Return the response to a request for an upgrade, before the module decides."""
    headers = Headers()
    for name, values in request.requestHeaders.getAllRawHeaders():
        for value in values:
            headers[name.decode("latin-1")] = value.decode("latin-1")

    def select(_core: ServerProtocol, _offered: object) -> Subprotocol | None:
        # The module selects the subprotocol later.
        return None

    core = ServerProtocol(select_subprotocol=select, logger=SILENT)
    if request.method != b"GET":
        response = core.reject(405, "Use GET to open a WebSocket.\n")
        response.headers["Allow"] = "GET"
        return response
    if request.clientproto != b"HTTP/1.1":
        response = core.reject(426, "A WebSocket needs HTTP/1.1.\n")
        response.headers["Upgrade"] = "websocket"
        return response
    if request.content.read(1):
        return core.reject(400, "The request for a WebSocket has a body.\n")
    # The core needs the headers only, and must not log the path.
    return core.accept(WebSocketHead("/", headers))


def _read(request: Any) -> WebSocketRequest:
    """Return a request as the module sees it."""
    headers = {
        name.decode("latin-1").lower(): tuple(one.decode("latin-1") for one in values)
        for name, values in request.requestHeaders.getAllRawHeaders()
    }
    query: dict[str, tuple[str, ...]] = {}
    text = request.uri.partition(b"?")[2].decode("latin-1")
    for name, value in parse_qsl(text, keep_blank_values=True):
        query[name] = (*query.get(name, ()), value)
    offered = ",".join(headers.get("sec-websocket-protocol", ()))
    return WebSocketRequest(
        path=tuple(one.decode("utf-8", "replace") for one in request.postpath),
        query=query,
        headers=headers,
        subprotocols=tuple(filter(None, (one.strip() for one in offered.split(",")))),
        origin=",".join(headers.get("origin", ())),
        own_origin=request.own_origin,
        peer_address=request.getClientAddress(),
    )


def _respond(request: Any, response: Response) -> None:
    """Refuse a request with the response of the protocol core."""
    for name, value in response.headers.raw_items():
        if name.lower() not in ("connection", "content-length", "date"):
            request.setHeader(name.encode(), value.encode())
    _finish(request, response.status_code, bytes(response.body or b""))


def _refuse(request: Any, status: int, text: str) -> None:
    request.setHeader(b"content-type", b"text/plain; charset=utf-8")
    if status == 401:
        request.setHeader(b"www-authenticate", b"Bearer")
    if status in (429, 503):
        request.setHeader(b"retry-after", b"5")
    _finish(request, status, f"{text}\n".encode())


def _finish(request: Any, status: int, body: bytes) -> None:
    request.setResponseCode(status)
    # A client that was refused may already have sent frames.
    request.channel.persistent = False
    request.setHeader(b"connection", b"close")
    request.setHeader(b"content-length", b"%d" % len(body))
    request.write(b"" if request.method == b"HEAD" else body)
    request.finish()


def _fitting(reason: str) -> str:
    return reason.encode()[:MAX_REASON_BYTES].decode(errors="ignore")
