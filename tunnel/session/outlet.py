"""The writing half of a tunnel: what its session has, as far as the socket takes it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

import attrs
from twisted.internet.interfaces import (
    IAddress,
    IDelayedCall,
    IPushProducer,
    IReactorTime,
)
from zope.interface import implementer

from tunnel.transport.kernel_buffers import UNSENT, bound_unsent
from tunnel.util.flusher import Flusher
from tunnel.wire.limits import SLICE
from tunnel.wire.outbox import FLUSH
from tunnel.wire.session import Session

if TYPE_CHECKING:
    from tunnel.session.stream import StreamTransport

__all__ = ["CLOSE_TIMEOUT", "PORTION", "Connection", "Outlet"]

#: Seconds that a peer gets to read our last words before its connection is cut.
CLOSE_TIMEOUT = 5.0

#: Seconds that what is handed to a socket at once may take to leave: so long do answers
#: wait that come meanwhile.
PORTION = 0.004

#: Bytes that are written at once to a path that is not known yet; doubled each time.
FIRST = 2 * SLICE

#: Seconds for which the socket of a slow path takes no more: of such a path the kernel
#: holds the smallest portion only.
SLOW = 0.02

#: Times in turn that the socket has to take more sooner until a path counts as fast:
#: one that loses packets is so between two losses.
QUICK = 16


class Connection(Protocol):
    """What is used of a transport: TCP, unix, TLS and WebSocket have it in common."""

    def write(self, data: bytes) -> None: ...
    def loseConnection(self) -> None: ...
    def abortConnection(self) -> None: ...
    def registerProducer(self, producer: IPushProducer, streaming: bool) -> None: ...
    def unregisterProducer(self) -> None: ...
    def getPeer(self) -> IAddress: ...
    def getHost(self) -> IAddress: ...


@implementer(IPushProducer)
@attrs.define(eq=False)
class Outlet:
    """
    Writes once per turn, while the socket takes it, and has the last word.

    It is the streaming producer of its connection: while the socket takes no more, the
    session keeps what it has, control frames first, and reading goes on.

    :ivar marked: `flush` is called at the end of this turn.
    :ivar lost: the connection is gone.
    """

    _session: Session
    #: Told when what they wrote has left.
    _streams: Mapping[int, StreamTransport]
    _flusher: Flusher
    _clock: IReactorTime
    marked: bool = attrs.field(default=False, init=False)
    lost: bool = attrs.field(default=False, init=False)
    #: Streams whose producer gives one piece at a time, and may give one.
    _pulling: set[StreamTransport] = attrs.field(factory=set, init=False)
    _connection: Connection = attrs.field(init=False)
    #: How much is written at once, and since when the socket takes no more.
    _portion: int = attrs.field(default=FIRST, init=False)
    _blocked: bool = attrs.field(default=False, init=False)
    _blocked_at: float = attrs.field(default=0.0, init=False)
    #: The kernel was told to hold little, as it is until a path proves to be fast.
    _slow: bool = attrs.field(default=True, init=False)
    _quick: int = attrs.field(default=0, init=False)
    _closing: IDelayedCall | None = attrs.field(default=None, init=False)

    def connect(self, connection: Connection) -> None:
        """Write to *connection*."""
        self._connection = connection
        bound_unsent(connection, SLICE)
        connection.registerProducer(self, True)

    def has_output(self) -> None:
        """Flush at the end of this turn."""
        if not self.marked:
            self.marked = True
            self._flusher.mark(self)

    def flush(self) -> None:
        """Write what the session has, as far as the transport takes it."""
        self.marked = False
        if self._blocked or self.lost:
            return
        session = self._session
        data = session.bytes_to_send(self._portion)
        if data:
            self._connection.write(data)
            if len(data) >= self._portion and not self._blocked:
                self._portion = min(self._portion * 2, FLUSH)
        for stream_id in session.take_drained():
            stream = self._streams.get(stream_id)
            if stream is not None:
                stream.drained()
        if self._pulling:
            for stream in tuple(self._pulling):
                stream.pull()
        if session.has_output and not self._blocked:
            # The rest in the next turn: reading comes first.
            self.has_output()

    def pull_from(self, stream: StreamTransport) -> None:
        """Ask for more with each flush, until the stream is full or closed."""
        self._pulling.add(stream)
        self.has_output()

    def stop_pulling(self, stream: StreamTransport) -> None:
        """Its producer is done, or has to wait."""
        self._pulling.discard(stream)

    # What the transport calls.

    def pauseProducing(self) -> None:
        """The socket takes no more for now."""
        self._blocked = True
        self._blocked_at = self._clock.seconds()

    def resumeProducing(self) -> None:
        """The socket takes more again."""
        self._blocked = False
        # As many bytes as leave in about that time, whatever the path is.
        blocked = self._clock.seconds() - self._blocked_at
        if blocked > PORTION:
            self._portion = max(self._portion // 2, SLICE)
        else:
            self._portion = min(self._portion * 2, FLUSH)
        self._quick = 0 if blocked > SLOW else self._quick + 1
        slow = self._quick < QUICK if self._slow else not self._quick
        if slow is not self._slow:
            self._slow = slow
            bound_unsent(self._connection, SLICE if slow else UNSENT)
        self.flush()

    def stopProducing(self) -> None:
        """The transport lost its connection; `connection_lost` follows."""
        self._blocked = True

    # The end.

    def finish(self) -> None:
        """Close behind the last words; cut if the peer does not read them."""
        if self._closing is not None or self.lost:
            return
        connection = self._connection
        self._closing = self._clock.callLater(CLOSE_TIMEOUT, self.abort)
        # Past the pause: these are the last bytes, and few.
        last = self._session.bytes_to_send()
        connection.unregisterProducer()
        if last:
            connection.write(last)
        connection.loseConnection()

    def abort(self) -> None:
        """Cut the connection, unless it is gone."""
        if not self.lost:
            self._connection.abortConnection()

    def connection_lost(self) -> None:
        """Nothing can be written any more."""
        self.lost = True
        if self._closing is not None and self._closing.active():
            self._closing.cancel()
