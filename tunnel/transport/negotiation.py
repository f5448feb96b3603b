"""
Negotiation on a new connection: the common part of all negotiations.

A connection that does not complete its negotiation (a port scanner, the wrong CA, a
health check) does not reach the protocol above: no such object is created, and none of
its writes have to be held back.

There are two kinds of negotiators.  A `tunnel.transport.layer.Layer` stays between the
transport and the protocol above and translates.  A `Handover` reads the first bytes,
gives the transport itself to the protocol above, and is not used any more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import (
    IAddress,
    IDelayedCall,
    IFileDescriptor,
    IHalfCloseableProtocol,
    IProtocol,
    IProtocolFactory,
    IReactorTime,
    IStreamClientEndpoint,
    ITransport,
)
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from tunnel.errors import TunnelError
from tunnel.toolkit.texts import clean
from tunnel.transport.sockets import address_text
from tunnel.util.poller import Poller

__all__ = [
    "HANDSHAKE_TIMEOUT",
    "MAX_NEGOTIATING",
    "Handover",
    "LayerFactory",
    "NegotiationError",
    "Negotiator",
    "abort",
    "connect_through",
    "half_closeable",
]

#: Maximum number of seconds of one negotiation.  A full TLS handshake over a bad mobile
#: link takes two or three seconds; a slower peer would waste memory.
HANDSHAKE_TIMEOUT = 10.0

#: Maximum number of concurrent negotiations on one port.  A TLS handshake costs 1.5 ms,
#: so with more negotiations some would time out; each takes a file descriptor and 40
#: KiB.
MAX_NEGOTIATING = 5000


#: Maximum number of characters of a message about a failed negotiation.
MAX_TEXT = 2048


class NegotiationError(TunnelError):
    """
    Raised if the other side accepted the connection, but does not use the expected
    protocol.

    :ivar layer: the failed negotiation: ``TLS``, ``WebSocket``, ``proxy``, ``sniff``.
    :ivar label: the kind of failure as one word from a small fixed set, for counters.
    :ivar peer: the address of the other side, if known.
    """

    layer = ""
    peer = ""

    def __init__(self, label: str, message: str) -> None:
        # Parts of the message may come from the other side, such as names in
        # certificates, or headers.
        super().__init__(clean(message, MAX_TEXT, " "))
        self.label = label


@implementer(IProtocolFactory)
@attrs.define(eq=False)
class LayerFactory:
    """
    A factory that puts a layer under each protocol of the factory *above*.

    :param build: creates the layer for one connection.
    :param opened: called with each protocol above, after it has its transport.
    :param failed: called with the `NegotiationError` of each connection whose
        negotiation failed.
    :param room: returns how many connections may negotiate now; other connections are
        closed at once.
    """

    above: IProtocolFactory
    clock: IReactorTime
    timeout: float
    build: Callable[[LayerFactory, IAddress], Negotiator]
    opened: Callable[[IProtocol], object] | None = None
    failed: Callable[[NegotiationError], object] | None = None
    room: Callable[[], int] = lambda: MAX_NEGOTIATING
    #: Number of connections that negotiate now.
    negotiating: int = attrs.field(default=0, init=False)
    _complained: bool = attrs.field(default=False, init=False)
    _log = Logger()

    def doStart(self) -> None:
        self.above.doStart()

    def doStop(self) -> None:
        self.above.doStop()

    def buildProtocol(self, address: IAddress) -> IProtocol | None:
        if self.negotiating >= self.room():
            if not self._complained:
                self._log.warn(
                    (
                        "too many connections: {count} are negotiating, and new ones "
                        "are closed"
                    ),
                    count=self.negotiating,
                )
            self._complained = True
            return None
        self._complained = False
        return self.build(self, address)


@implementer(IProtocol, IHalfCloseableProtocol)
class Negotiator:
    """The negotiation of a layer, which has one deadline and one outcome."""

    _log = Logger()
    error_type: ClassVar[type[NegotiationError]] = NegotiationError

    def __init__(self, factory: LayerFactory, address: IAddress) -> None:
        self._factory = factory
        self._address = address
        self._lower: Any = None
        self._above: IProtocol | None = None
        self._refusal: NegotiationError | None = None
        self._lost = False
        self._timer: IDelayedCall | None = None
        self._negotiating = False

    def begin(self) -> None:
        """
        Start the negotiation; if our side sends first, its first bytes are sent in this
        method.
        """

    def makeConnection(self, transport: ITransport) -> None:
        self._lower = transport
        Poller.take(transport, self._factory.clock)
        self._negotiating = True
        self._factory.negotiating += 1
        self._timer = self._factory.clock.callLater(
            self._factory.timeout, self._timed_out
        )
        self.begin()

    def connectionMade(self) -> None:
        """Do nothing, as a part of `IProtocol`; `makeConnection` does all work."""

    def dataReceived(self, data: bytes) -> None:
        raise NotImplementedError

    def connectionLost(self, reason: Failure) -> None:
        raise NotImplementedError

    def readConnectionLost(self) -> None:
        raise NotImplementedError

    def writeConnectionLost(self) -> None:
        """Do nothing: we never half-close the transport below."""

    def refuse(self, label: str, message: str) -> None:
        """
        End the negotiation without success, after the written data was sent.

        The deadline of the negotiation stays, so that it also limits the time for
        closing the connection.
        """
        if self._refusal is not None or self._above is not None:
            return
        error = self.error_type(label, message)
        error.peer = address_text(self._lower.getPeer())
        self._refusal = error
        self._log.debug(
            "{layer} with {peer} failed ({label}): {reason}",
            layer=error.layer,
            peer=self._lower.getPeer(),
            label=label,
            reason=message,
        )
        if not self._lost:
            self._lower.loseConnection()
        if self._factory.failed is not None:
            self._factory.failed(error)

    def give_up(self) -> None:
        """Cut the connection, because its caller has cancelled."""
        if not self._lost and self._lower is not None:
            abort(self._lower)

    def describe_timeout(self) -> str:
        """Describe the step that the peer did not complete in time."""
        return f"no response within {self._factory.timeout:g} s"

    def _timed_out(self) -> None:
        self._timer = None
        self.refuse("timeout", self.describe_timeout())
        abort(self._lower)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _negotiated(self) -> None:
        """
        Stop counting this connection as negotiating, whether it succeeded or failed.
        """
        self._stop_timer()
        if self._negotiating:
            self._negotiating = False
            self._factory.negotiating -= 1

    def _connect_above(
        self, transport: ITransport, factory: IProtocolFactory
    ) -> IProtocol | None:
        """
        Give *transport* to a new protocol above; return None if it cannot be created.
        """
        self._negotiated()
        above = factory.buildProtocol(self._address)
        if above is None:
            # By Twisted's convention, a factory that returns no protocol refuses the
            # connection.
            abort(self._lower)
            return None
        self._above = above
        try:
            above.makeConnection(transport)
        except Exception:
            if self._factory.failed is not None:
                text = "the protocol above could not start; see the log"
                self._factory.failed(self.error_type("internal", text))
            raise
        if self._factory.opened is not None:
            self._factory.opened(above)
        return above

    def _lost_while_negotiating(self, reason: Failure) -> None:
        self._lost = True
        self._negotiated()
        text = reason.getErrorMessage()
        self.refuse("closed", f"the connection ended during the negotiation: {text}")


class Handover(Negotiator):
    """
    A reader of the first bytes of a connection, which then gives its transport to a
    protocol.

    After `hand_over`, the protocol above writes to the transport directly.  If the
    transport is a layer, it also delivers received bytes directly to the protocol
    above; if it is a socket, received bytes pass through this object.
    """

    #: Whether received bytes pass through this object even if the transport is a layer.
    stays: ClassVar[bool] = False

    @property
    def above(self) -> IProtocol | None:
        """The protocol that has the transport now."""
        return self._above

    def negotiate(self, data: bytes) -> None:
        """Handle data that arrives before `hand_over`."""
        raise NotImplementedError

    def hand_over(self, rest: bytes, to: IProtocolFactory | None = None) -> None:
        """
        End the negotiation, and pass on the bytes that follow it.

        :param rest: the bytes that arrived after the end of the negotiation.
        :param to: creates the protocol above; None to use the factory's ``above``.
        """
        lower = self._lower
        above = self._connect_above(lower, to or self._factory.above)
        if above is None:
            return
        if isinstance(lower, Negotiator) and not self.stays:
            lower._above = above
        if rest:
            above.dataReceived(rest)

    def dataReceived(self, data: bytes) -> None:
        if self._above is not None:
            self._above.dataReceived(data)
        elif self._refusal is None:
            self.negotiate(data)

    def connectionLost(self, reason: Failure) -> None:
        if self._lost:
            return
        if self._above is None:
            self._lost_while_negotiating(reason)
            return
        self._lost = True
        self._above.connectionLost(reason)

    def readConnectionLost(self) -> None:
        if self._above is None:
            self.connectionLost(Failure(ConnectionDone()))
            abort(self._lower)
            return
        above = half_closeable(self._above)
        if above is not None:
            above.readConnectionLost()
        elif IFileDescriptor.providedBy(self._lower):
            # Do what a socket does when its protocol does not support half-close.  This
            # socket did not do so by itself, because *our* class supports it.
            self._lower.connectionLost(Failure(ConnectionDone()))
        else:
            self._lower.loseConnection()

    def writeConnectionLost(self) -> None:
        above = half_closeable(self._above)
        if above is not None:
            above.writeConnectionLost()


def connect_through(
    endpoint: IStreamClientEndpoint, factory: LayerFactory
) -> Deferred[IProtocol]:
    """
    Connect, and wait until the layer of *factory* has negotiated.

    The Deferred fires with the protocol above.  Cancelling the Deferred cuts the
    connection in any state.
    """
    layers: list[Negotiator] = []
    build = factory.build

    def remember(factory: LayerFactory, address: IAddress) -> Negotiator:
        layers.append(build(factory, address))
        return layers[-1]

    def cancel(_: Deferred[IProtocol]) -> None:
        connecting.cancel()
        for layer in layers:
            layer.give_up()

    def opened(above: IProtocol) -> None:
        if not done.called:
            done.callback(above)

    def failed(reason: Failure | NegotiationError) -> None:
        if not done.called:
            done.errback(reason)

    factory.build = remember
    factory.opened = opened
    factory.failed = failed
    done: Deferred[IProtocol] = Deferred(cancel)
    connecting = endpoint.connect(factory)
    connecting.addErrback(failed)
    return done


def abort(transport: Any) -> None:
    """Cut *transport* without waiting for anything."""
    cut = getattr(transport, "abortConnection", None)
    if cut is None:
        cut = transport.loseConnection
    cut()


def half_closeable(protocol: object) -> IHalfCloseableProtocol | None:
    """Return *protocol* if it supports half-close, otherwise None."""
    if isinstance(protocol, Handover) and half_closeable(protocol.above) is None:
        return None
    return IHalfCloseableProtocol(protocol, None)
