"""
The common base of TLS and WebSocket: a protocol downwards, a transport upwards.

::

    protocol above      created when the negotiation has succeeded, not earlier
         |  ITransport
    Layer               negotiates, then translates
         |  IProtocol
    transport below     a socket, or another layer
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from mypy_extensions import mypyc_attr
from twisted.internet.error import ConnectionDone, ConnectionLost
from twisted.internet.interfaces import (
    IAddress,
    IConsumer,
    IPushProducer,
    ITransport,
)
from twisted.python.failure import Failure
from zope.interface import classImplements

from tunnel.transport import eager
from tunnel.transport.negotiation import LayerFactory, Negotiator, abort

__all__ = ["CLOSE_TIMEOUT", "Layer"]

#: Seconds that a closing connection may stay open while the peer accepts no byte of the
#: remaining data.  A slow peer makes progress, and so has more time.
CLOSE_TIMEOUT: Final = 15.0


@mypyc_attr(allow_interpreted_subclasses=True)
class Layer(Negotiator):
    """
    A protocol downwards and a transport upwards; see the drawing above.

    A subclass negotiates in `begin` and `dataReceived`, then calls `open_above`, passes
    decoded data to `hand_up`, and implements `write` and `say_goodbye`.

    As with Twisted's TCP, no data is delivered above after ``loseConnection``, and a
    registered producer may finish first.
    """

    #: Attribute of the informal interface of Twisted's transports.
    disconnecting = False

    def __init__(self, factory: LayerFactory, address: IAddress) -> None:
        super().__init__(factory, address)
        self._writable = False
        self._ended = False
        self._reason: Failure | None = None
        self._producer: Any = None
        self._paused = False
        self._held: list[bytes] = []
        self._end_held = False

    # Methods of subclasses

    def write(self, data: bytes) -> None:
        """
        Translate and send *data*; data is dropped after the connection began to close.
        """
        raise NotImplementedError

    def say_goodbye(self) -> None:
        """
        Announce to the peer that nothing follows, and close the transport below as soon
        as possible.
        """
        raise NotImplementedError

    def peer_finished(self) -> None:
        """Handle the peer's announcement of its end."""
        self.close_in_answer()

    def explain_loss(self, reason: Failure) -> Failure:
        """
        Return the reason for the protocol above if the connection ended without an
        announcement from either side.
        """
        return reason

    # Methods for subclasses

    def open_above(self) -> bool:
        """Create and connect the protocol above after the negotiation."""
        self._writable = True
        above = self._connect_above(self, self._factory.above)
        if above is None:
            self._writable = False
            return False
        return True

    def hand_up(self, data: bytes, ended: bool = False) -> None:
        """
        Pass decoded bytes to the protocol above.

        :param ended: whether these are the last bytes.
        """
        if self._paused or self._held:
            # The transport below delivers data that it had already read when it was
            # paused.
            if data:
                self._held.append(data)
            self._end_held |= ended
            return
        if data and self._above is not None and not self.disconnecting:
            self._above.dataReceived(data)
        if ended:
            self._end_reached()

    def _end_reached(self) -> None:
        if self._paused:
            self._end_held = True
        elif not self._ended and not self._lost:
            self._ended = True
            self.peer_finished()

    def fail(self, error: Exception) -> None:
        """Cut an open connection, and notify the protocol above of the reason."""
        if self._reason is None:
            self._reason = Failure(error)
        self.abortConnection()

    def close_in_answer(self, error: Exception | None = None) -> None:
        """
        Close because the peer is leaving; a producer's unsent data is not needed any
        more.

        :param error: passed to the protocol above; without it, the end of the
            connection counts as clean.
        """
        self.disconnecting = True
        # The peer's socket may be gone before our response arrives, which does not
        # matter.
        self._reason = Failure(error or ConnectionDone())
        if self._producer is not None:
            producer = self._producer
            self.unregisterProducer()
            producer.stopProducing()
        elif self._writable:
            self._watch_close()
            self.say_goodbye()

    # IProtocol, towards the transport below

    def connectionLost(self, reason: Failure) -> None:
        if self._lost:
            return
        if self._above is None:
            self._lost_while_negotiating(reason)
            return
        above, self._above = self._above, None
        self._lost = True
        self._writable = False
        self._stop_timer()
        # the transport below has stopped it
        self._producer = None
        self._held.clear()
        if self._reason is not None:
            reason = self._reason
        elif not self._ended and not self.disconnecting:
            reason = self.explain_loss(reason)
        above.connectionLost(reason)

    def readConnectionLost(self) -> None:
        """Handle the end of the peer's side of the connection below."""
        if self._above is None:
            self.connectionLost(Failure(ConnectionDone()))
            abort(self._lower)
        elif self.disconnecting:
            self._lower.loseConnection()
        elif not self._ended and not self._end_held:
            self._reason = self.explain_loss(Failure(ConnectionDone()))
            self.abortConnection()

    # ITransport and IConsumer, towards the protocol above

    def writeSequence(self, iovec: Iterable[bytes]) -> None:
        self.write(b"".join(iovec))

    def loseConnection(self) -> None:
        if self.disconnecting or self._lost:
            return
        self.disconnecting = True
        self._watch_close()
        if self._producer is None:
            if self._writable:
                self.say_goodbye()
            else:
                self._lower.loseConnection()

    def abortConnection(self) -> None:
        self.disconnecting = True
        self._writable = False
        if not self._lost:
            abort(self._lower)

    # Any, because the interfaces of subclasses disagree about the type of address.
    def getPeer(self) -> Any:
        return self._lower.getPeer()

    def getHost(self) -> Any:
        return self._lower.getHost()

    def getTcpNoDelay(self) -> bool:
        return bool(_ask(self._lower, "getTcpNoDelay"))

    def setTcpNoDelay(self, enabled: bool) -> None:
        _ask(self._lower, "setTcpNoDelay", enabled)

    def getTcpKeepAlive(self) -> bool:
        return bool(_ask(self._lower, "getTcpKeepAlive"))

    def setTcpKeepAlive(self, enabled: bool) -> None:
        _ask(self._lower, "setTcpKeepAlive", enabled)

    def getHandle(self) -> Any:
        """Return the underlying socket, if there is one."""
        return _ask(self._lower, "getHandle")

    def unsent(self) -> int | None:
        """See `tunnel.transport.eager.unsent`."""
        return eager.unsent(self._lower)

    def registerProducer(self, producer: Any, streaming: bool) -> None:
        if self._producer is not None:
            raise RuntimeError(
                f"cannot register {producer!r}: {self._producer!r} is registered"
            )
        if not self._writable:
            producer.stopProducing()
            return
        self._producer = producer
        self._lower.registerProducer(producer, streaming)

    def unregisterProducer(self) -> None:
        if self._producer is None:
            return
        self._producer = None
        self._lower.unregisterProducer()
        if self.disconnecting and self._writable:
            if self._timer is None:
                self._watch_close()
            self.say_goodbye()

    # IPushProducer, towards the protocol above

    def pauseProducing(self) -> None:
        self._paused = True
        self._lower.pauseProducing()

    def resumeProducing(self) -> None:
        self._paused = False
        if self._held or self._end_held:
            # The producer is resumed in a later turn, because the protocol above may be
            # in the middle of a call.
            self._factory.clock.callLater(0, self._release)
        else:
            self._resume_below()

    def stopProducing(self) -> None:
        self.loseConnection()

    def _release(self) -> None:
        if self._paused or self._lost:
            return
        data, ended = b"".join(self._held), self._end_held
        self._held.clear()
        self._end_held = False
        try:
            self.hand_up(data, ended)
        except Exception as error:
            self._log.failure("delivering held data failed")
            self.fail(error)
            return
        self._resume_below()

    def _resume_below(self) -> None:
        # Some transports refuse to be resumed while they close.
        if not self._paused and not self._lost and not self._lower.disconnecting:
            self._lower.resumeProducing()

    def _watch_close(self) -> None:
        self._stop_timer()
        self._timer = self._factory.clock.callLater(
            CLOSE_TIMEOUT, self._check_close, self.unsent()
        )

    def _check_close(self, before: int | None) -> None:
        self._timer = None
        now = self.unsent()
        # A producer that may continue but has no data yet must not delay the end of the
        # connection.
        waits_for_producer = self._producer is not None and not now
        if waits_for_producer or (now is not None and now != before):
            self._watch_close()
        else:
            self.fail(
                ConnectionLost(
                    f"the peer accepted no data for {CLOSE_TIMEOUT:g} s while we closed"
                )
            )


classImplements(Layer, ITransport, IConsumer, IPushProducer)


def _ask(transport: Any, name: str, *arguments: bool) -> Any:
    """
    Set a TCP option by a method of the underlying transport, if it has this method.
    """
    option = getattr(transport, name, None)
    return None if option is None else option(*arguments)
