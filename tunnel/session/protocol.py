"""The protocol that connects a transport and its session."""

from __future__ import annotations

import typing
from collections.abc import Callable, Hashable, Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Final, cast

from mypy_extensions import mypyc_attr
from twisted.internet.interfaces import (
    IAddress,
    IDelayedCall,
    IPushProducer,
    IReactorTime,
)
from twisted.internet.protocol import Protocol, connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import classImplements

from tunnel.api import ConnectedAgent, IPathReceiver, IStreamReceiver
from tunnel.errors import (
    CallError,
    ErrorCode,
    ProtocolError,
    SessionClosed,
    StreamReset,
)
from tunnel.pb import tunnel_pb2 as pb
from tunnel.session.keepalive import Keepalive, Liveness, Timing
from tunnel.session.stream import StreamTransport
from tunnel.toolkit.log_budget import LogBudget
from tunnel.toolkit.timers import cancel_call
from tunnel.transport import eager
from tunnel.transport.sockets import UNSENT, address_text, bound_unsent, tune_socket
from tunnel.util.flusher import Flusher
from tunnel.util.poller import Poller
from tunnel.wire import events
from tunnel.wire.limits import SLICE
from tunnel.wire.outbox import FLUSH
from tunnel.wire.session import NOT_READ, Session
from tunnel.wire.window import WindowEstimator

__all__ = [
    "CLOSE_TIMEOUT",
    "PORTION",
    "STUCK",
    "TunnelOwner",
    "TunnelProtocol",
]

#: Maximum number of seconds that a peer has to read our last bytes; then its connection
#: is cut.
CLOSE_TIMEOUT: Final = 5.0

#: Maximum number of seconds that the socket should take to send the bytes that are
#: passed to it at once, because responses that arrive in the meantime have to wait.
PORTION: Final = 0.004

#: Number of bytes that are first written at once to an unknown path; the number is
#: doubled each time.
FIRST: Final = 2 * SLICE

#: Seconds without progress after which a path counts as slow: the kernel then buffers
#: only the smallest portion for it.
SLOW: Final = 0.02

#: Number of consecutive portions that the socket must accept in less time than `SLOW`
#: before a path counts as fast, because a path that loses packets is fast between two
#: losses.
QUICK: Final = 16

#: Number of budget renewals, five minutes in total, after which a stream that both
#: sides have finished is reset if its peer granted no credit for its last bytes.
#: Credit arrives for half a window at a time: a peer that reads 30 KB/s of the largest
#: window has not stopped.
STUCK: Final = 30


@mypyc_attr(native_class=False)
class TunnelOwner(typing.Protocol):
    """
    Callbacks of a tunnel's owner: the listener in kas, the dialler in agentk.

    A listener implements `hello_received`, a dialler `welcome_received`; the session
    calls only the one that applies.  Return values are ignored, except the receivers of
    streams.
    """

    def hello_received(self, tunnel: TunnelProtocol, hello: pb.Hello) -> object:
        """Handle a peer that dialled: call `TunnelProtocol.welcome` or `end`."""
        return None

    def welcome_received(self, tunnel: TunnelProtocol, welcome: pb.Welcome) -> object:
        """Handle the WELCOME of the peer that we dialled."""
        return None

    def stream_opened(self, stream: StreamTransport, open_: pb.Open) -> IStreamReceiver:
        """
        Return the receiver of a stream that the peer opened.

        :raises ProtocolError: with the code that resets the stream; FLOOD ends the
            tunnel.
        """
        raise ProtocolError(
            ErrorCode.UNKNOWN_METHOD, "this side does not accept streams"
        )

    def stream_resumed(
        self, stream: StreamTransport, resume: pb.Resume
    ) -> IStreamReceiver:
        """
        Return the receiver of a stream that the peer resumes; the same rules as for
        `stream_opened` apply.
        """
        raise ProtocolError(ErrorCode.NOT_RESUMABLE, "streams cannot be resumed here")

    def go_away_received(self, tunnel: TunnelProtocol, go_away: pb.GoAway) -> object:
        """Handle the announcement that the peer leaves soon or now."""
        return None

    def tunnel_idle(self, tunnel: TunnelProtocol) -> object:
        """Handle the end of the last stream with a peer that is leaving."""
        return None

    def tunnel_closed(self, tunnel: TunnelProtocol, reason: SessionClosed) -> object:
        """
        Handle the end of a tunnel whose transport was connected; called exactly once.
        """


class TunnelProtocol(Protocol):
    """
    A protocol that passes received bytes to a session, and the session's events to the
    owner and the streams.

    Its `TunnelWriter` sends the session's bytes to the transport.
    """

    #: Id of the kas at the other end, if a kas dialled; otherwise empty.
    kas_id = b""
    #: Whether the owner has ended the tunnel because of a flood of streams.
    _flooded = False
    _log: ClassVar = Logger()
    #: Streams that our side has ended, and whose last bytes wait for credit: the number
    #: of these bytes, and the number of budget renewals since it last changed.
    _leftovers: Mapping[int, tuple[int, int]] = MappingProxyType({})

    def __init__(
        self,
        session: Session,
        owner: TunnelOwner,
        *,
        clock: IReactorTime,
        flusher: Flusher,
        keepalive: Keepalive,
        timing: Timing,
    ) -> None:
        self.session = session
        #: Agent at the other end; visible to the streams that the agent opens.
        self.agent: ConnectedAgent | None = None
        #: Log budget that all unauthenticated peers share; None after authentication.
        self.log_budget: LogBudget | None = None
        self.liveness = Liveness(timing, dialler=session.dialler)
        self._owner = owner
        self._clock = clock
        self._keepalive = keepalive
        self._streams: dict[int, StreamTransport] = {}
        self.writer = TunnelWriter(session, self._streams, flusher, clock)
        # Stored as an attribute to save a call, because each frame of each stream uses
        # it.
        self.has_output = self.writer.has_output
        self.flush = self.writer.flush
        self._estimator: WindowEstimator | None = None
        self._token = 0
        self._receiving = False

    # Methods for the owner and the streams of the tunnel.

    def hello(self, hello: pb.Hello) -> None:
        """Send HELLO."""
        self.session.hello(hello)
        self.has_output()

    def welcome(self, welcome: pb.Welcome) -> None:
        """Accept the peer and send WELCOME."""
        self.session.welcome(welcome)
        self.has_output()

    def open_stream(
        self,
        message: pb.Open | pb.Resume,
        receiver: IStreamReceiver,
        *,
        fin: bool = False,
    ) -> StreamTransport:
        """
        Open a stream, or resume a stream that lost its path.

        :param message: OPEN or RESUME for the other end.
        :raises SessionClosed: the connection has ended or is ending.
        :raises StreamReset: the peer accepts no more streams now.
        """
        stream_id = self.session.open_stream(message, fin=fin)
        stream = StreamTransport(self, stream_id, fin)
        stream.receiver = receiver
        self._streams[stream_id] = stream
        liveness = self.liveness
        if liveness.wheel_slot is not None:
            self._keepalive.wake(self)
        liveness.expecting = True
        self.has_output()
        return stream

    def go_away(self, go_away: pb.GoAway) -> None:
        """Announce to the peer that we accept no new streams."""
        self.session.go_away(go_away)
        self.has_output()

    def limit_turns(self, owner: Hashable, group: str = "") -> None:
        """
        Handle events of this connection only within *owner*'s share of each turn of the
        reactor.

        :param group: see `tunnel.util.poller.Poller.limit`.
        """
        Poller.limit(self.transport, self._clock, owner, group)

    def end(self, code: ErrorCode, message: str = "") -> None:
        """Close the connection, and send the reason to the peer."""
        self.session.end(code, message)
        self._finish_connection(SessionClosed(code, message))

    def abort(self, code: ErrorCode, message: str) -> None:
        """Cut the connection, because the peer would not receive a reason."""
        self.session.end(code, message)
        self._end_streams(SessionClosed(code, message))
        self.writer.abort()

    def may_log(self) -> str | None:
        """
        Return the text to append to a log line about the peer; None if the line exceeds
        the peer's budget of log lines.
        """
        budget = self.log_budget
        return "" if budget is None else budget.spend(self._clock.seconds())

    @property
    def load(self) -> int:
        """The number of open streams."""
        return len(self._streams)

    @property
    def peer_address(self) -> IAddress:
        """The address of the other end."""
        return self._connection.getPeer()

    @property
    def peer(self) -> str:
        """Return `peer_address` as text for logs."""
        return address_text(self.peer_address)

    @property
    def host_address(self) -> IAddress:
        """The address of our end."""
        return self._connection.getHost()

    @property
    def alive(self) -> bool:
        """
        Whether the connection is greeted, not ending, and bytes arrived recently.

        Recently means within one and a half ping intervals, or within a much shorter
        time after a request or `ask`.
        """
        session = self.session
        return session.ready and not session.going and self.liveness.alive

    @property
    def greeted(self) -> bool:
        """Whether both sides have sent their greetings."""
        return self.session.ready

    @property
    def settled(self) -> bool:
        """
        Whether the connection is greeted, and no stream has last bytes that wait for
        credit.
        """
        session = self.session
        return session.ready and session.open_streams <= len(self._streams)

    def ask(self) -> None:
        """
        Check at once whether the peer is alive, because the sender of a request has a
        reason to doubt it.
        """
        self._keepalive.ask(self)

    def consumed(self, stream_id: int, count: int) -> None:
        """Record that a receiver consumed *count* bytes."""
        session = self.session
        session.consumed(stream_id, count, self._clock.seconds)
        # While data is received, `dataReceived` flushes at its end.
        if not self._receiving and not self.writer.marked and session.has_output:
            self.has_output()

    def pull_from(self, stream: StreamTransport) -> None:
        """
        Request data from a stream's producer with each flush, until the stream is full
        or closed.
        """
        self.writer.pull_from(stream)

    def stop_pulling(self, stream: StreamTransport) -> None:
        """Stop requesting data, because the producer has finished or has to wait."""
        self.writer.pulling.pop(stream, None)

    def forget(self, stream: StreamTransport) -> None:
        self._streams.pop(stream.stream_id, None)
        self.writer.pulling.pop(stream, None)
        if self.session.going and not self._streams and self.session.ended is None:
            self._owner.tunnel_idle(self)

    # Methods for the transport.

    def connectionMade(self) -> None:
        """Begin the session; TLS is already established."""
        Poller.take(self.transport, self._clock)
        tune_socket(self.transport, self.liveness.timing.dead_after)
        self.writer.connect(self._connection)
        self._keepalive.watch(self)

    def dataReceived(self, data: bytes) -> None:
        liveness = self.liveness
        if liveness.wheel_slot is not None:
            self._keepalive.wake(self)
        liveness.bytes_came()
        estimator = self._estimator
        if estimator is None:
            estimator = self._estimator = WindowEstimator(
                self.session.limits.initial_window
            )
        if (
            estimator.received(len(data))
            and self.session.ready
            and estimator.probe(self._clock.seconds())
        ):
            self._token += 1
            self.session.ping(self._token)
        streams = self._streams
        self._receiving = True
        for event in self.session.receive_bytes(data):
            if isinstance(event, events.DataReceived):
                self._arrived(event.stream_id, False, event.data, event.fin)
            elif isinstance(event, events.HeadersReceived):
                self._arrived(event.stream_id, True, event.block, event.fin)
            elif isinstance(event, events.StreamOpened):
                self._stream_began(
                    event.stream_id, self._owner.stream_opened, event.open, event.fin
                )
            elif isinstance(event, events.StreamEnded):
                ended = streams.get(event.stream_id)
                if ended is not None:
                    ended.close(
                        StreamReset(
                            event.code,
                            event.message,
                            by_peer=event.by_peer,
                            peer_closed=event.peer_closed,
                        )
                    )
            else:
                self._connection_event(event)
        self._receiving = False
        if not self.writer.marked and self.session.has_output:
            self.has_output()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        if self.writer.lost:
            return
        self.writer.connection_lost()
        self._keepalive.forget(self)
        ended = self.session.ended
        if ended is not None:
            closed = SessionClosed(ended.code, ended.message)
        else:
            closed = SessionClosed(
                ErrorCode.NONE,
                reason.getErrorMessage(),
                # Only an agent's process ends together with its connection: if another
                # kas dies, its agents do not die.  If the agent was already silent, the
                # path may have been cut off, whatever ended the connection.
                peer_closed=self.agent is not None and self.liveness.heard_lately,
            )
            self.session.end(ErrorCode.NONE)
        self._end_streams(closed)
        self._owner.tunnel_closed(self, closed)

    # Methods for the sweep.

    def send_ping(self) -> None:
        """Send a PING after a quiet period."""
        self.session.ping(0)
        self.has_output()

    def peer_is_doubted(self) -> None:
        """Doubt a peer that did not answer a PING in time."""
        waiting = [
            stream.receiver
            for stream in self._streams.values()
            if IPathReceiver.providedBy(stream.receiver)
        ]
        # Without a waiting stream, this is normal: of thousands of agents that connect
        # in the same seconds, half respond late.
        log = self._log.info if waiting else self._log.debug
        log("{peer} did not respond to a ping", peer=self.peer)
        for receiver in waiting:
            receiver.path_in_doubt()

    def peer_is_dead(self) -> None:
        """End the tunnel to a peer that was silent for too long."""
        seconds = max(self.liveness.silence, self.liveness.doubt)
        self._log.info(
            "{peer} was silent for {seconds:.0f} s: closing the connection",
            peer=self.peer,
            seconds=seconds,
        )
        self.abort(ErrorCode.DEAD_PEER, f"silent for {seconds:.0f} s")

    def greeting_is_late(self) -> None:
        """End a tunnel whose peer did not greet in time."""
        self.end(ErrorCode.PROTOCOL, "no greeting arrived in time")

    def renew_budget(self) -> None:
        """Begin a new interval of the budget for frames without credit."""
        session = self.session
        session.budget.renew()
        if session.open_streams > len(self._streams):
            self._reset_stuck()
            if session.has_output:
                self.has_output()

    def _reset_stuck(self) -> None:
        """
        Reset streams whose last bytes the peer does not accept.

        Both sides have finished these streams, so no receiver waits for anything; but
        if the peer grants no credit, the last bytes would be kept for as long as the
        session lives.
        """
        session = self.session
        left = {}
        for stream_id in session.streams():
            if stream_id in self._streams:
                continue
            queued = session.queued(stream_id)
            known, renewals = self._leftovers.get(stream_id, (queued, 0))
            renewals = renewals + 1 if known == queued else 0
            if renewals > STUCK:
                session.reset(
                    stream_id, ErrorCode.CANCELLED, "the peer did not read its end"
                )
            else:
                left[stream_id] = (queued, renewals)
        self._leftovers = left

    # Internal methods.

    @property
    def _connection(self) -> TunnelTransport:
        assert self.transport is not None
        return cast(TunnelTransport, self.transport)

    def _arrived(self, stream_id: int, headers: bool, data: bytes, fin: bool) -> None:
        stream = self._streams.get(stream_id)
        if stream is not None:
            stream.arrived(headers, data, fin)
        else:
            # Our end is closed, but the peer sent these bytes before it could know.
            self.consumed(stream_id, len(data))

    def _stream_began(
        self,
        stream_id: int,
        accept: Callable[[StreamTransport, Any], IStreamReceiver],
        message: pb.Open | pb.Resume,
        fin: bool,
    ) -> None:
        if self._flooded:
            return
        stream = StreamTransport(self, stream_id)
        stream.opened_finished = fin
        self._streams[stream_id] = stream
        try:
            stream.receiver = accept(stream, message)
        except ProtocolError as broken:
            if broken.code is ErrorCode.FLOOD:
                # A reset for each further stream would cost more than the flood itself.
                self._flooded = True
                self.end(broken.code, str(broken))
            else:
                stream.reset(broken.code, str(broken))
            return
        except CallError as refused:
            stream.reset(ErrorCode.REFUSED, str(refused))
            return
        except Exception:
            self._log.failure("cannot accept a stream of {peer}", peer=self.peer)
            stream.reset(ErrorCode.INTERNAL, "no receiver")
            return
        if fin:
            stream.arrived(False, b"", True)

    def _connection_event(self, event: events.Event) -> None:
        if isinstance(event, events.Ponged):
            self.liveness.pong_came()
            if event.token and event.token == self._token and self._estimator:
                self.session.window_target = self._estimator.probe_answered(
                    self._clock.seconds(), self.session.limits.max_window
                )
        elif isinstance(event, events.AckReceived | events.ResumedReceived):
            stream = self._streams.get(event.stream_id)
            if stream is not None:
                stream.noted(event.received, isinstance(event, events.AckReceived))
        elif isinstance(event, events.ResumeReceived):
            self._stream_began(
                event.stream_id, self._owner.stream_resumed, event.resume, False
            )
        elif isinstance(event, events.HelloReceived):
            self._owner.hello_received(self, event.hello)
        elif isinstance(event, events.WelcomeReceived):
            self.liveness.set_timing(Timing.from_message(event.welcome.timing))
            self._owner.welcome_received(self, event.welcome)
        elif isinstance(event, events.GoAwayReceived):
            self._owner.go_away_received(self, event.go_away)
        elif isinstance(event, events.SessionEnded):
            more = None if event.by_peer else self.may_log()
            if more is not None:
                self._log.warn(
                    "{peer} violated the protocol ({code}): {message}{more}",
                    peer=self.peer,
                    code=event.code.name,
                    message=event.message,
                    more=more,
                )
            self._finish_connection(SessionClosed(event.code, event.message))

    def _finish_connection(self, reason: SessionClosed) -> None:
        self._end_streams(reason)
        self.writer.finish()

    def _end_streams(self, reason: SessionClosed) -> None:
        for stream in list(self._streams.values()):
            stream.close(reason)
        self._streams.clear()


class TunnelTransport(typing.Protocol):
    """
    A transport with the methods that a tunnel uses: TCP, Unix sockets, TLS or
    WebSocket.
    """

    def write(self, data: bytes) -> None: ...
    def loseConnection(self) -> None: ...
    def abortConnection(self) -> None: ...
    def registerProducer(self, producer: IPushProducer, streaming: bool) -> None: ...
    def unregisterProducer(self) -> None: ...
    def getPeer(self) -> IAddress: ...
    def getHost(self) -> IAddress: ...


class TunnelWriter:
    """
    Writer of a session's bytes, once per turn while the socket accepts them; it also
    ends the connection.

    The writer is the streaming producer of its connection: while the socket accepts no
    data, the session keeps its frames, control frames first, and reading continues.

    :ivar marked: whether `flush` will be called at the end of this turn.
    :ivar lost: whether the connection is gone.
    """

    __slots__ = (
        "_blocked",
        "_blocked_at",
        "_clock",
        "_closing",
        "_connection",
        "_flusher",
        "_portion",
        "_quick",
        "_session",
        "_slow",
        "_streams",
        "lost",
        "marked",
        "pulling",
    )
    _connection: TunnelTransport

    def __init__(
        self,
        session: Session,
        streams: Mapping[int, StreamTransport],
        flusher: Flusher,
        clock: IReactorTime,
    ) -> None:
        self._session = session
        #: Streams to notify when their written data has been sent.
        self._streams = streams
        self._flusher = flusher
        self._clock = clock
        self.marked = False
        self.lost = False
        #: Streams whose pull producer may provide a piece now.  A dict is used because
        #: an empty set takes four times the memory.
        self.pulling: dict[StreamTransport, None] = {}
        #: Number of bytes that are written at once; and the time since which the socket
        #: accepts no data.
        self._portion = FIRST
        self._blocked = False
        self._blocked_at = 0.0
        #: Whether the kernel buffers only little data, until the path proves to be
        #: fast.
        self._slow = True
        self._quick = 0
        self._closing: IDelayedCall | None = None

    def connect(self, connection: TunnelTransport) -> None:
        self._connection = connection
        bound_unsent(connection, SLICE)
        connection.registerProducer(self, True)

    def has_output(self) -> None:
        """Schedule a flush at the end of this turn."""
        if not self.marked:
            self.marked = True
            self._flusher.mark(self)

    def flush(self) -> None:
        """Write the session's bytes, until the transport accepts no more."""
        self.marked = False
        session = self._session
        if session.shed:
            self._close_shed()
        if self._blocked or self.lost:
            return
        data = session.bytes_to_send(self._portion)
        if data:
            eager.write(self._connection, data)
            if len(data) >= self._portion and not self._blocked:
                self._portion = min(self._portion * 2, FLUSH)
        if session.drained:
            for stream_id in session.take_drained():
                stream = self._streams.get(stream_id)
                if stream is not None:
                    stream.drained()
        if self.pulling:
            for stream in tuple(self.pulling):
                stream.pull()
        if session.has_output and not self._blocked:
            # The rest is written in the next turn, because reading comes first.
            self.has_output()

    def _close_shed(self) -> None:
        """Notify the receivers of streams whose bytes the peer did not read."""
        for stream_id in self._session.take_shed():
            stream = self._streams.get(stream_id)
            if stream is not None:
                stream.close(StreamReset(ErrorCode.MEMORY, NOT_READ, by_peer=False))

    def pull_from(self, stream: StreamTransport) -> None:
        self.pulling[stream] = None
        self.has_output()

    # Methods for the transport.

    def pauseProducing(self) -> None:
        """Stop writing: the socket accepts no more for now."""
        self._blocked = True
        self._blocked_at = self._clock.seconds()

    def resumeProducing(self) -> None:
        """Resume writing: the socket accepts data again."""
        self._blocked = False
        # The next portion has the number of bytes that the socket sends in about
        # `PORTION` seconds.
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
        """
        Stop writing: the transport lost its connection, and `connection_lost` follows.
        """
        self._blocked = True

    # End of the connection.

    def finish(self) -> None:
        """
        Close after the last bytes; cut the connection if the peer does not read them.
        """
        if self._closing is not None or self.lost:
            return
        connection = self._connection
        self._closing = self._clock.callLater(CLOSE_TIMEOUT, self.abort)
        # The last bytes are few, so they are written even while the socket is full.
        last = self._session.bytes_to_send()
        connection.unregisterProducer()
        if last:
            connection.write(last)
        connection.loseConnection()

    def abort(self) -> None:
        """Cut the connection, unless it is already gone."""
        if not self.lost:
            self._connection.abortConnection()

    def connection_lost(self) -> None:
        """Record that nothing can be written any more."""
        self.lost = True
        cancel_call(self._closing)


classImplements(TunnelWriter, IPushProducer)
