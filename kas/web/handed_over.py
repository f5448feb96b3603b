"""Connections of the listener for pages whose next request another protocol handles."""

from __future__ import annotations

from typing import Any

from twisted.internet.interfaces import IProtocolFactory, IReactorTime
from twisted.internet.protocol import connectionDone

from tunnel.grpc.memory import RequestShare

__all__ = ["HandedOver"]

#: Makes the connection end after the response: otherwise, the browser would send
#: requests for other pages to the protocol.
_LAST = b"Connection: close\r\n"


class HandedOver:
    """
    A connection that belongs to a protocol: see `tunnel.api.IWeb.hand_over`.

    :param factory: makes the protocol.
    """

    def __init__(self, factory: IProtocolFactory) -> None:
        self._factory = factory
        self._protocol: Any = None

    def begin(self, channel: Any, clock: IReactorTime, share: RequestShare) -> None:
        """See `kas.web.requests.UpgradedConnection`."""
        share.release()
        transport = channel.transport
        self._protocol = self._factory.buildProtocol(transport.getPeer())
        self._protocol.makeConnection(transport)

    def request_received(self, line: bytes, rest: bytes) -> None:
        """Handle the first line of the request, and the bytes after it."""
        self.data_received(b"%b\r\n%b%b" % (line, _LAST, rest))

    def data_received(self, data: bytes) -> None:
        """See `kas.web.requests.UpgradedConnection`."""
        self._protocol.dataReceived(data)

    def connection_lost(self) -> None:
        """See `kas.web.requests.UpgradedConnection`."""
        self._protocol.connectionLost(connectionDone)

    def drain(self, seconds: float) -> None:
        """Do nothing: the owner of the factory drains its connections."""

    def go_away(self) -> None:
        """Do nothing, for the same reason."""
