"""The side of a WebSocket that is asked for it: which upgrades are accepted."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from twisted.internet.interfaces import IAddress, IProtocolFactory, IReactorTime
from websockets.exceptions import NegotiationError as WSNegotiationError
from websockets.http11 import Request, Response
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from tunnel.transport import eager
from tunnel.transport.httpconnect import excerpt
from tunnel.transport.layer import Layer
from tunnel.transport.negotiation import (
    HANDSHAKE_TIMEOUT,
    LayerFactory,
    NegotiationError,
)
from tunnel.transport.websocket import (
    MAX_MESSAGE_BYTES,
    SILENT,
    SUBPROTOCOL,
    WebSocketConnection,
)

__all__ = ["MAX_REQUEST_BYTES", "wrap_websocket_server"]

#: Request line and headers of an upgrade.  nginx and most others take 8 KiB a line and
#: 32 KiB in all; an upgrade with a few cookies and a long token stays below 16.
MAX_REQUEST_BYTES = 16 * 1024

_UPGRADE_TEXT = (
    "agentk connects here, by WebSocket with the subprotocol "
    f"{SUBPROTOCOL}. A proxy in front has to speak HTTP/1.1 and to pass on the headers "
    "Upgrade and Connection.\n"
)


class _ServerConnection(WebSocketConnection):
    """The side that is asked for an upgrade."""

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
        return f"no whole request within {self._factory.timeout:g} s"

    def dataReceived(self, data: bytes) -> None:
        if self._lost or self._refusal is not None:
            return
        if self._above is not None:
            self.receive(data)
            return
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
            self._negotiate(head, rest)

    def _negotiate(self, head: bytes, rest: bytes) -> None:
        # The core must not see frames before it has accepted.
        self._core.receive_data(head)
        events = self._core.events_received()
        if not events or not isinstance(events[0], Request):
            text = "This is no HTTP request.\n"
            self._decline(self._core.reject(400, text), "not-http")
            return
        request = events[0]
        if self._path is not None and request.path.partition("?")[0] != self._path:
            text = f"Nothing here. agentk connects to {self._path}.\n"
            self._decline(self._core.reject(404, text), "path")
            return
        response = self._core.accept(request)
        if response.status_code in (426, 505):
            # 505: HTTP/1.0, as nginx speaks it unless told otherwise
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
        self.refuse(label, f"answered {response.status_code}: {text}")


def _select_subprotocol(
    _core: ServerProtocol, offered: Sequence[Subprotocol]
) -> Subprotocol:
    if SUBPROTOCOL in offered:
        return SUBPROTOCOL
    heard = excerpt(", ".join(offered).encode()) or "none"
    raise WSNegotiationError(f"offer the subprotocol {SUBPROTOCOL} (offered: {heard})")


def wrap_websocket_server(
    factory: IProtocolFactory,
    clock: IReactorTime,
    path: str | None = None,
    *,
    timeout: float = HANDSHAKE_TIMEOUT,
    failed: Callable[[NegotiationError], object] | None = None,
) -> IProtocolFactory:
    """
    Make a factory that takes WebSockets and runs *factory* inside.

    :param path: the only path to be served; any, unless given, because proxies in front
        like to add or remove parts.
    :param failed: told about each connection that did not become a WebSocket.
    """

    def build(layer_factory: LayerFactory, address: IAddress) -> Layer:
        return _ServerConnection(layer_factory, address, path)

    return LayerFactory(factory, clock, timeout, build, failed=failed)
