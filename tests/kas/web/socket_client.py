"""A client of WebSockets on the listener of pages, without a socket."""

from __future__ import annotations

from typing import Any

from twisted.internet.address import IPv4Address
from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import IAddress
from twisted.internet.testing import MemoryReactorClock, StringTransport
from twisted.python.failure import Failure
from websockets.client import ClientProtocol
from websockets.frames import Close, Frame, Opcode
from websockets.uri import parse_uri

from kas.config.schema import Web, WebListen
from kas.web.listener import WebFactory
from tunnel.api import AcceptedWebSocket, WebSocketReceiver, WebSocketRequest
from tunnel.hosting.pages import ModuleWeb, Pages
from tunnel.hosting.scope import ModuleScope

__all__ = ["PEER", "Listener", "Receiver", "SocketClient"]

PEER = IPv4Address("TCP", "192.0.2.1", 40000)


class Receiver(WebSocketReceiver):
    """A receiver that records everything."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def opened(self) -> None:
        self.seen.append("opened")

    def message_received(self, message: str | bytes) -> None:
        self.seen.append(message)
        if message == "fail":
            raise ZeroDivisionError("secret")

    def paused(self) -> None:
        self.seen.append("paused")

    def resumed(self) -> None:
        self.seen.append("resumed")

    def closed(self, code: int, reason: str) -> None:
        self.seen.append((code, reason))


class Listener:
    """A listener with one module ``m``, whose WebSockets are at ``/m/socket``."""

    def __init__(self, **settings: Any) -> None:
        self.reactor = MemoryReactorClock()
        self.pages = Pages()
        web = Web(listen=WebListen(), max_connections=3, **settings)
        self.factory = WebFactory(web, self.pages, self.reactor)
        self.scope = ModuleScope("m", None, self._failed)
        self.web = ModuleWeb(self.scope, self.pages)
        self.requests: list[WebSocketRequest] = []
        #: The decision about the next request: a value, an exception, or a Deferred.
        self.decision: Any = None
        self.options: dict[str, Any] = {}
        self.receivers: list[Any] = []
        self.make: Any = Receiver
        self.web.web_socket("/m/socket", self.accept)

    def _failed(self, error: Exception) -> None:
        raise error

    def accept(self, request: WebSocketRequest) -> Any:
        self.requests.append(request)
        if isinstance(self.decision, Exception):
            raise self.decision
        return self.decision or self.accepted()

    def accepted(self) -> AcceptedWebSocket:
        self.receivers.append(self.make())
        return AcceptedWebSocket(self.receivers[-1], **self.options)

    @property
    def receiver(self) -> Any:
        return self.receivers[-1]


class SocketClient:
    """One connection, with the frames of ``websockets``' own client."""

    def __init__(
        self,
        listener: Any,
        path: str = "/m/socket",
        peer: IAddress = PEER,
        subprotocols: list[Any] | None = None,
        **fields: str,
    ) -> None:
        self.transport = StringTransport(peerAddress=peer)
        self.transport.abortConnection = self.abort  # type: ignore[method-assign]
        #: Bytes that the client has not read.
        self.unread = 0
        self.transport.unsent = lambda: self.unread  # type: ignore[attr-defined]
        self._aborted = False
        self.protocol: Any = listener.factory.buildProtocol(peer)
        self.core = ClientProtocol(
            parse_uri("ws://kas" + path), subprotocols=subprotocols, max_size=None
        )
        if self.protocol is not None:
            self.protocol.makeConnection(self.transport)
        self.head = self.core.connect()
        for name, value in fields.items():
            self.head.headers[name.replace("_", "-")] = value
        self.received: list[Any] = []
        self.text = b""

    def abort(self) -> None:
        self._aborted = True
        self.lose()

    def cut(self) -> bool:
        """Return whether kas has cut the connection."""
        return self._aborted

    def closing(self) -> bool:
        """Return whether kas closes the connection."""
        return bool(self.transport.disconnecting)

    def lose(self) -> None:
        protocol, self.protocol = self.protocol, None
        if protocol is not None:
            protocol.connectionLost(Failure(ConnectionDone()))

    def open(self) -> Any:
        """Send the request, and return the status."""
        self.core.send_request(self.head)
        self.flush()
        return self.status

    @property
    def status(self) -> int:
        """The status of the response; 0 without one."""
        self._collect()
        return int(self.text.split()[1]) if self.text else 0

    def flush(self) -> None:
        data = b"".join(self.core.data_to_send())
        if data and self.protocol is not None:
            self.protocol.dataReceived(data)

    def raw(self, data: bytes) -> None:
        if self.protocol is not None:
            self.protocol.dataReceived(data)

    def send(self, message: str | bytes) -> None:
        if isinstance(message, str):
            self.core.send_text(message.encode())
        else:
            self.core.send_binary(message)
        self.flush()

    def read(self) -> list[Any]:
        """Return what arrived: texts, bytes, closes, pings and pongs."""
        self._collect()
        found, self.received = self.received, []
        return found

    def _collect(self) -> None:
        data = self.transport.value()
        self.transport.clear()
        self.text += data[: 4096 if not self.text else 0]
        self.core.receive_data(data)
        for event in self.core.events_received():
            if isinstance(event, Frame):
                self.received.append(_content(event))


def _content(frame: Frame) -> Any:
    if frame.opcode is Opcode.TEXT:
        return bytes(frame.data).decode()
    if frame.opcode is Opcode.BINARY:
        return bytes(frame.data)
    if frame.opcode is Opcode.CLOSE:
        close = Close.parse(bytes(frame.data))
        return (close.code, close.reason)
    return frame.opcode.name.lower()
