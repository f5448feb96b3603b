"""One port for two protocols: the plain tunnel, and the tunnel inside a WebSocket."""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.interfaces import (
    IAddress,
    IProtocol,
    IProtocolFactory,
    IReactorTime,
)
from zope.interface import implementer

from tunnel.transport.negotiation import (
    HANDSHAKE_TIMEOUT,
    Handover,
    LayerFactory,
    NegotiationError,
)

__all__ = ["SniffError", "TunnelOrWebSocketFactory"]


class SniffError(NegotiationError):
    """
    Raised if a connection sent nothing. Labels: ``timeout``, ``closed``, ``internal``.
    """

    layer = "sniff"


class _Sniffer(Handover):
    """
    Reader of the first bytes of a connection, which distinguish HTTP from the tunnel.
    """

    error_type = SniffError
    _GET = b"GET "

    def __init__(
        self, factory: LayerFactory, address: IAddress, websocket: IProtocolFactory
    ) -> None:
        super().__init__(factory, address)
        self._websocket = websocket
        self._seen = b""

    def describe_timeout(self) -> str:
        return f"the peer sent nothing within {self._factory.timeout:g} s"

    def negotiate(self, data: bytes) -> None:
        self._seen += data
        if self._seen.startswith(self._GET):
            self.hand_over(self._seen, self._websocket)
        elif not self._GET.startswith(self._seen):
            # A frame of the tunnel begins with a length whose first byte is 0.
            self.hand_over(self._seen)


@implementer(IProtocolFactory)
class TunnelOrWebSocketFactory:
    """
    Factory of one listener for two protocols: the plain tunnel, and the tunnel inside a
    WebSocket.

    :param tunnel_factory: for connections that do not begin with ``GET``.
    :param websocket_factory: created by `wrap_websocket_server`.
    """

    def __init__(
        self,
        tunnel_factory: IProtocolFactory,
        websocket_factory: IProtocolFactory,
        clock: IReactorTime,
        *,
        timeout: float = HANDSHAKE_TIMEOUT,
        failed: Callable[[NegotiationError], object] | None = None,
    ) -> None:
        def build(factory: LayerFactory, address: IAddress) -> Handover:
            return _Sniffer(factory, address, websocket_factory)

        self._websocket_factory = websocket_factory
        self._layers = LayerFactory(
            tunnel_factory, clock, timeout, build, failed=failed
        )

    def doStart(self) -> None:
        self._layers.doStart()
        self._websocket_factory.doStart()

    def doStop(self) -> None:
        self._layers.doStop()
        self._websocket_factory.doStop()

    def buildProtocol(self, address: IAddress) -> IProtocol | None:
        return self._layers.buildProtocol(address)
