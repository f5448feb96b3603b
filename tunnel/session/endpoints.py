"""
One stream as a client endpoint, one method as a server endpoint.

Any Twisted protocol then runs over the tunnel unchanged: connect a `StreamEndpoint` on
one side, `StreamPort.accept` the method on the other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet import defer
from twisted.internet.interfaces import (
    IHalfCloseableProtocol,
    IProtocol,
    IProtocolFactory,
    IStreamClientEndpoint,
)
from twisted.internet.protocol import connectionDone
from twisted.python.failure import Failure
from zope.interface import implementer

from tunnel.errors import ErrorCode, ProtocolError, TunnelError
from tunnel.interfaces import IStreamReceiver
from tunnel.pb import tunnel_pb2 as pb

#: Opens a stream for a receiver: what kas' routing and a tunnel both can.
Opener = Callable[[IStreamReceiver], Any]


@implementer(IStreamReceiver)
class ProtocolReceiver:
    """The receiver of a stream that is a protocol's transport."""

    def __init__(self, protocol: IProtocol) -> None:
        self.protocol = protocol
        self._transport: Any = None

    def connected(self, transport: Any) -> None:
        """The stream is open: the protocol's connection is made."""
        self._transport = transport
        self.protocol.makeConnection(transport)

    def headers_received(self, block: bytes) -> None:
        """A byte stream has none: whoever sends one talks about something else."""
        raise ProtocolError(ErrorCode.PROTOCOL, "headers on a byte stream")

    def data_received(self, data: bytes) -> None:
        """Bytes for the protocol."""
        self.protocol.dataReceived(data)

    def fin_received(self) -> None:
        """Half-close, for protocols that know it; the end for the others."""
        if IHalfCloseableProtocol.providedBy(self.protocol):
            self.protocol.readConnectionLost()
        else:
            self._transport.loseConnection()

    def stream_closed(self, reason: Exception | None) -> None:
        """The protocol's connection is lost."""
        failure = connectionDone if reason is None else Failure(reason)
        self.protocol.connectionLost(failure)


@implementer(IStreamClientEndpoint)
class StreamEndpoint:
    """
    Connects a protocol to whoever accepts a stream at the other end.

    :param opener: opens the stream for a receiver and returns its transport; it may
        raise `tunnel.errors.TunnelError`.
    """

    def __init__(self, opener: Opener) -> None:
        self._opener = opener

    def connect(self, protocolFactory: IProtocolFactory) -> defer.Deferred[IProtocol]:
        """As `IStreamClientEndpoint.connect`."""
        protocol = protocolFactory.buildProtocol(None)  # type: ignore[arg-type]
        if protocol is None:
            return defer.fail(ValueError("the factory refused to make a protocol"))
        receiver = ProtocolReceiver(protocol)
        try:
            transport = self._opener(receiver)
        except TunnelError:
            return defer.fail(Failure())
        receiver.connected(transport)
        return defer.succeed(protocol)


class StreamPort:
    """Accepts streams for a factory; give `accept` to a dispatcher."""

    def __init__(self, factory: IProtocolFactory) -> None:
        self._factory = factory

    def accept(self, stream: Any, open_: pb.Open) -> ProtocolReceiver:
        """One stream: one protocol."""
        protocol = self._factory.buildProtocol(stream.getPeer())
        if protocol is None:
            raise ProtocolError(ErrorCode.REFUSED, "not now")
        receiver = ProtocolReceiver(protocol)
        receiver.connected(stream)
        return receiver
