"""
Shared parts of both sides of a connection: writing, pausing, and timeouts.

All writes in one turn of the reactor are sent together, because a system call costs as
much as everything else in a small response. One timer serves the timeouts of all
connections of one owner: a delayed call for each request would be its most expensive
part.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable
from functools import partial
from typing import Any, ClassVar, Final

from twisted.internet.interfaces import (
    IHalfCloseableProtocol,
    IPushProducer,
    IReactorTime,
)
from twisted.internet.protocol import Protocol, connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import classImplements

from tunnel.toolkit.addresses import peer_network
from tunnel.toolkit.for_each import for_each
from tunnel.toolkit.recent import Recent
from tunnel.transport.sockets import bound_unsent
from tunnel.util.flusher import Flusher
from tunnel.util.poller import Poller

__all__ = ["HttpConnection", "Turn", "Writer"]

#: Function that writes to a transport, and that is used instead of the transport's
#: ``write``.
Writer = Callable[[Any, bytes], None]

_FLUSH_AT: Final = 16 * 1024  # larger writes gain nothing from waiting
_HOLD: Final = 64 * 1024  # bytes that a peer may send early: about one read
#: Maximum number of seconds of a turn that deferred connections may take, see
#: `Turn.later`.
_LATER_SECONDS: Final = 0.005
#: Maximum number of client networks that are remembered as proxies.
MAX_PROXIES: Final = 1000
_SWEEP_SECONDS: Final = 1.0  # how precise a time-out is; each connection costs 0.2 us


class Turn:
    """
    The clock of one owner: it flushes connections at the end of a reactor turn, and
    checks their timeouts in sweeps.

    :param connections: all present and future connections of the owner.
    """

    _log: ClassVar = Logger()

    def __init__(
        self,
        clock: IReactorTime,
        connections: Iterable[HttpConnection],
        writer: Writer | None,
        swept: Callable[[float], None] | None = None,
    ) -> None:
        self.clock = clock
        self._connections = connections
        #: Flushes connections before the reactor waits again.
        self.flusher = Flusher(clock)
        self._sweep_call: Any = None
        self._swept = swept
        self.writer = writer
        #: The time of the last sweep, which is precise enough and costs nothing.
        self.now = 0.0
        #: Function that returns the current time.
        self.seconds = clock.seconds
        #: Networks with connections that several users share.
        self.proxies: Recent[str, bool] = Recent(MAX_PROXIES)
        #: Connections that continue in a later turn.
        self._later: deque[HttpConnection] = deque()
        self._goes_on = False

    def start(self) -> None:
        """Start the sweeps, unless they are running."""
        if self._sweep_call is None:
            self.now = self.clock.seconds()
            self._sweep_call = self.clock.callLater(_SWEEP_SECONDS, self._sweep)

    def later(self, connection: HttpConnection) -> None:
        """Resume a paused connection in one of the next turns."""
        self._later.append(connection)
        if not self._goes_on:
            self._goes_on = True
            self.clock.callLater(0, self._go_on)

    def _go_on(self) -> None:
        until = self.seconds() + _LATER_SECONDS
        # Each connection is resumed at most once, because some connections pause
        # themselves again.
        for _ in range(len(self._later)):
            connection = self._later.popleft()
            try:
                connection.go_on()
            except Exception:
                # A failure of one connection must not stop the others.
                self._log.failure("a connection failed")
                connection.abort()
            if self.seconds() > until:
                break
        self._goes_on = bool(self._later)
        if self._goes_on:
            self.clock.callLater(0, self._go_on)

    def _sweep(self) -> None:
        self._sweep_call = None
        self.now = self.clock.seconds()
        connections = list(self._connections)
        what = "sweeping a connection"
        for_each(connections, lambda one: one.sweep(self.now), what)
        if connections and self._sweep_call is None:
            self._sweep_call = self.clock.callLater(_SWEEP_SECONDS, self._sweep)
        if self._swept is not None:
            self._swept(self.now)


class HttpConnection(Protocol):
    """
    The transport of one connection; subclasses implement `feed` and others.

    While reading is paused, no data is delivered, not even data that was already read,
    so a consumer that pauses the connection need not buffer anything.
    """

    _log: ClassVar = Logger()

    def __init__(self, turn: Turn, hold: int) -> None:
        self._turn = turn
        self._hold = max(hold, _HOLD)
        self._tcp: Any = None
        self._write: Callable[[bytes], None] = lambda data: None
        self._pending: list[bytes] = []
        self._pending_size = 0
        #: Number of bytes written; subclasses may reset it.
        self._written = 0
        self._scheduled = False
        self._producer: Any = None
        self._registered = False
        #: Whether the peer accepts no data now; and the time since which it accepts
        #: data again.
        self.write_paused = False
        self.write_resumed_at = 0.0
        self._buffer = b""
        self._feeding = False
        self._paused = False
        self._stopped = False
        self._open = False
        self._may_half_close = False
        #: Start of the phase whose duration the sweep limits.
        self._since = 0.0
        #: Owner that was passed to `limit_turns`.
        self._turns_of: Hashable = None
        #: Whether requests of several users share the connection.
        self._is_shared = False
        #: Whether the turns of the last request have ended, see `end_turns`.
        self._turns_ended = False

    def connectionMade(self) -> None:
        self._turn.start()
        tcp: Any = self.transport
        self._tcp = tcp
        Poller.take(tcp, self._turn.clock)
        if self._turn.proxies:
            self._is_shared = self._network() in self._turn.proxies
        writer = self._turn.writer
        self._write = tcp.write if writer is None else partial(writer, tcp)
        self._open = True
        self._since = self._turn.now
        # The class is checked, because Twisted's TLS passes unknown names to the
        # underlying socket, where a half-close would cut off records that are not
        # written yet.
        self._may_half_close = hasattr(type(tcp), "loseWriteConnection")
        if hasattr(tcp, "setTcpNoDelay"):  # Unix sockets have none
            tcp.setTcpNoDelay(True)
            tcp.setTcpKeepAlive(True)
        bound_unsent(tcp)

    def limit_turns(self, owner: Hashable) -> None:
        """
        Handle events of this connection only within *owner*'s share of each turn of the
        reactor.
        """
        if owner == self._turns_of and not self._turns_ended:
            return
        if self._turns_of not in (None, owner) and not self._is_shared:
            # A proxy sends requests of several users on the same connection.
            self._is_shared = True
            self._turn.proxies[self._network()] = True
        self._turns_of, self._turns_ended = owner, False
        Poller.limit(self._tcp, self._turn.clock, owner, "users")

    def end_turns(self) -> None:
        """
        Stop limiting turns by the owner of the last request, if the connection carries
        requests of several users.

        Otherwise the next request would be limited by the share of the previous user.
        If the client only counts as a proxy because another user at its address used
        one, its connection stays limited.
        """
        if self._is_shared and self._turns_of is not None and not self._turns_ended:
            self._turns_ended = True
            Poller.limit(
                self._tcp,
                self._turn.clock,
                self._turns_of,
                "users",
                spare=("client", self._network()),
            )

    def _network(self) -> str:
        return peer_network(self._tcp.getPeer())

    # Writing.

    def send(self, data: bytes) -> None:
        """Write *data* at the end of this turn, together with other writes."""
        self._pending.append(data)
        self._pending_size += len(data)
        if self._pending_size >= _FLUSH_AT:
            self.flush()
        elif not self._scheduled and not self._feeding:
            self._scheduled = True
            self._turn.flusher.mark(self)

    def send_now(self, data: bytes) -> None:
        """Write *data* at once, because nothing more follows in this turn."""
        self._pending.append(data)
        self.flush()

    def flush(self) -> None:
        """Write the data that `send` collected."""
        self._scheduled = False
        pending = self._pending
        # The producer is registered in `flush`, so that a response that is complete at
        # once need not register it.
        if self._producer is not None and not self._registered and self._open:
            self._registered = True
            self._tcp.registerProducer(self, True)
        if pending:
            data = pending[0] if len(pending) == 1 else b"".join(pending)
            self._pending = []
            self._pending_size = 0
            if self._open:
                self._written += len(data)
                self._write(data)

    def set_producer(self, producer: Any) -> None:
        """
        Set *producer*, which is paused while the socket accepts no data; it is never
        stopped.
        """
        if self._producer is not None:
            raise RuntimeError("a producer is registered already")
        self._producer = producer
        if self._pending_size == 0:
            self.flush()

    def clear_producer(self) -> None:
        """Forget the producer; repeating it does nothing."""
        self._producer = None
        self.write_paused = False
        if self._registered:
            self._registered = False
            self._tcp.unregisterProducer()

    def pauseProducing(self) -> None:
        """Stop writing: the socket accepts no more data for now."""
        self.write_paused = True
        if self._producer is not None:
            self._producer.pauseProducing()

    def resumeProducing(self) -> None:
        """Resume writing: the socket accepts data again."""
        if self.write_paused:
            self.write_paused = False
            self.write_resumed_at = self._turn.seconds()
        if self._producer is not None:
            self._producer.resumeProducing()

    def stopProducing(self) -> None:
        # connectionLost follows with the proper reason; stopping the producer here
        # would lose that reason.
        pass

    def close_write(self) -> None:
        """
        Send pending data, and then close the write half if the transport supports it.
        """
        self.clear_producer()
        self.flush()
        if self._may_half_close:
            self._tcp.loseWriteConnection()
        else:
            self._tcp.loseConnection()

    def close(self) -> None:
        """Send pending data and close."""
        self.clear_producer()
        self.flush()
        self._tcp.loseConnection()

    def abort(self) -> None:
        """Drop the connection immediately."""
        self._pending = []
        self._pending_size = 0
        self.clear_producer()
        self._tcp.abortConnection()

    # Reading.

    def dataReceived(self, data: bytes) -> None:
        if self._buffer:
            data = self._buffer + data
        if self._paused or self._feeding:
            self._buffer = data
            return
        self._buffer = b""
        self._feeding = True
        try:
            rest = self.feed(data)
        finally:
            self._feeding = False
        if self._pending and not self._scheduled:
            self.flush()
        if rest:
            self._buffer = rest + self._buffer if self._buffer else rest
            if len(rest) > self._hold and not self._stopped and self._open:
                self._stopped = True
                self._tcp.pauseProducing()
                return
        if self._stopped and not self._paused and len(rest) <= self._hold:
            self._stopped = False
            self._tcp.resumeProducing()

    def touched(self) -> None:
        """Restart the timeout of the phase, because bytes arrived."""
        self._since = self._turn.now

    def feed(self, data: bytes) -> bytes:
        """
        Handle bytes; return the bytes that must wait for more data or for their turn.
        """
        raise NotImplementedError

    def sweep(self, now: float) -> None:
        """End the phase if it took too long."""
        raise NotImplementedError

    def peer_finished(self) -> None:
        """Handle a peer that closed its half of the connection."""
        raise NotImplementedError

    def refill(self) -> None:
        """Handle held data; does nothing inside `feed`."""
        if not self._feeding and not self._paused:
            self.dataReceived(b"")

    def pause_reading(self) -> None:
        """Deliver nothing until `resume_reading`."""
        self._paused = True
        if not self._stopped and self._open:
            self._stopped = True
            self._tcp.pauseProducing()

    def resume_reading(self) -> None:
        """Resume delivery, beginning with the held data."""
        if self._paused:
            self._paused = False
            self.refill()

    def go_on(self) -> None:
        """End the pause before `Turn.later` does, unless the connection was lost."""
        if self._open:
            self.resume_reading()

    def readConnectionLost(self) -> None:
        self.peer_finished()

    def writeConnectionLost(self) -> None:
        # close_write closed this half; nothing else is to be done.
        pass

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self._open = False
        self._producer = None
        self._registered = False
        self._pending = []
        self._pending_size = 0


classImplements(HttpConnection, IHalfCloseableProtocol, IPushProducer)
