"""A transport and its session: the one place where the wire meets Twisted."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from twisted.internet.interfaces import IAddress, IReactorTime
from twisted.internet.protocol import Protocol, connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure

from tunnel.errors import (
    CallError,
    ErrorCode,
    ProtocolError,
    SessionClosed,
    StreamReset,
)
from tunnel.pb import tunnel_pb2 as pb
from tunnel.session import leftovers
from tunnel.session.keepalive import DOUBTED, Keepalive, Timing
from tunnel.session.outlet import Connection, Outlet
from tunnel.session.owner import TunnelOwner
from tunnel.session.stream import StreamTransport
from tunnel.transport.sockets import address_text, tune_socket
from tunnel.util.flusher import Flusher
from tunnel.wire import events
from tunnel.wire.session import Session
from tunnel.wire.window import WindowEstimator

if TYPE_CHECKING:
    from tunnel.interfaces import ConnectedAgent, IStreamReceiver


class TunnelProtocol(Protocol):
    """
    Moves the bytes of a transport to a session, and its events to owner and streams.

    What goes the other way leaves by its `Outlet`.
    """

    _log = Logger()

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
        #: Whom the owner took the peer for; streams that it opens show it.
        self.agent: ConnectedAgent | None = None
        self.heard = False
        self.silence = 0.0
        self.expecting = False
        self.doubt = 0.0
        self.asked = False
        self.greeted = False
        self._owner = owner
        self._clock = clock
        self._keepalive = keepalive
        self._streams: dict[int, StreamTransport] = {}
        self.outlet = Outlet(session, self._streams, flusher, clock)
        # For each frame of each stream, hence not one call further away.
        self.has_output = self.outlet.has_output
        self.flush = self.outlet.flush
        self._leftovers = leftovers.NONE
        self._estimator: WindowEstimator | None = None
        self._token = 0
        self._receiving = False
        self.set_timing(timing)

    def set_timing(self, timing: Timing) -> None:
        """Use other intervals from now on."""
        self.timing = timing
        # Both sides would ask in the same moment; the side that dialled asks first,
        # and hearing it is all that the other needs.
        self.patience = timing.ping_interval * (1.0 if self.session.dialler else 1.25)

    # What its owner and its streams call.

    def hello(self, hello: pb.Hello) -> None:
        """Say who we are."""
        self.session.hello(hello)
        self.has_output()

    def welcome(self, welcome: pb.Welcome) -> None:
        """Take the peer."""
        self.session.welcome(welcome)
        self.greeted = True
        self.has_output()

    def open_stream(
        self, open_: pb.Open, receiver: IStreamReceiver, *, fin: bool = False
    ) -> StreamTransport:
        """
        Open a stream whose other end is told of by *open_*.

        :raises SessionClosed: the connection ended or is ending.
        :raises StreamReset: the peer takes no more streams now.
        """
        stream = self._begin(self.session.open_stream(open_, fin=fin), receiver)
        stream._finished = fin
        return stream

    def resume_stream(
        self, resume: pb.Resume, receiver: IStreamReceiver
    ) -> StreamTransport:
        """Ask to go on with a stream that lost its path; raises as `open_stream`."""
        return self._begin(self.session.resume_stream(resume), receiver)

    def _begin(self, stream_id: int, receiver: IStreamReceiver) -> StreamTransport:
        stream = StreamTransport(self, stream_id)
        stream.receiver = receiver
        self._streams[stream_id] = stream
        self.expecting = True
        self.has_output()
        return stream

    def go_away(self, go_away: pb.GoAway) -> None:
        """Take no new streams from now on."""
        self.session.go_away(go_away)
        self.has_output()

    def end(self, code: ErrorCode, message: str = "") -> None:
        """Close the connection, telling the peer why."""
        self.session.end(code, message)
        self._finish_connection(SessionClosed(code, message))

    def abort(self, code: ErrorCode, message: str) -> None:
        """Cut the connection: the peer would not hear anything."""
        self.session.end(code, message)
        self._end_streams(SessionClosed(code, message))
        self.outlet.abort()

    @property
    def load(self) -> int:
        """Streams that are open now."""
        return len(self._streams)

    @property
    def peer_address(self) -> IAddress:
        """Who is at the other end of the transport."""
        return self._connection.getPeer()

    @property
    def peer(self) -> str:
        """`peer_address` for people."""
        return address_text(self.peer_address)

    @property
    def host_address(self) -> IAddress:
        """Our end of the transport."""
        return self._connection.getHost()

    @property
    def alive(self) -> bool:
        """
        Greeted, not ending, and heard of within one ping interval and a bit.

        Where it was asked, by a request or by `ask`, it has to be heard of much sooner.
        """
        return (
            self.greeted
            and not self.session.going
            and self.doubt < DOUBTED
            and self._was_heard_of
        )

    @property
    def _was_heard_of(self) -> bool:
        return self.silence <= self.timing.ping_interval * 1.5

    def ask(self) -> None:
        """Find out at once whether the peer lives: somebody has reason to doubt it."""
        self._keepalive.ask(self)

    def consumed(self, stream_id: int, count: int) -> None:
        """A receiver took *count* bytes."""
        session = self.session
        session.consumed(stream_id, count, self._clock.seconds)
        # While bytes are being received somebody looks at the end.
        if not self._receiving and not self.outlet.marked and session.has_output:
            self.has_output()

    def forget(self, stream: StreamTransport) -> None:
        """A stream is closed."""
        self._streams.pop(stream.stream_id, None)
        self.outlet.stop_pulling(stream)
        if self.session.going and not self._streams and self.session.ended is None:
            self._owner.tunnel_idle(self)

    # What the transport calls.

    def connectionMade(self) -> None:
        """The connection stands: TLS included."""
        tune_socket(self.transport, self.timing.dead_after)
        self.outlet.connect(self._connection)
        self._keepalive.watch(self)

    def dataReceived(self, data: bytes) -> None:
        """Bytes of the peer."""
        self.heard = True
        self.asked = False
        if not self.doubt:
            self.expecting = False
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
        if not self.outlet.marked and self.session.has_output:
            self.has_output()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """The transport is gone."""
        if self.outlet.lost:
            return
        self.outlet.connection_lost()
        self._keepalive.forget(self)
        ended = self.session.ended
        if ended is not None:
            closed = SessionClosed(ended.code, ended.message)
        else:
            closed = SessionClosed(
                ErrorCode.NONE,
                reason.getErrorMessage(),
                # Of an agent alone: another kas that dies takes no agent with it.  Who
                # was silent before may be cut off, whatever ended the connection.
                peer_closed=self.agent is not None and self._was_heard_of,
            )
            self.session.end(ErrorCode.NONE)
        self._end_streams(closed)
        self._owner.tunnel_closed(self, closed)

    # What the sweep calls.

    def send_ping(self) -> None:
        """It was quiet for a while."""
        self.session.ping(0)
        self.has_output()

    def peer_is_doubted(self) -> None:
        """The question whether anybody is there was not answered."""
        self._log.info("{peer} is silent though it was asked", peer=self.peer)
        for stream in tuple(self._streams.values()):
            receiver: Any = stream.receiver
            tell = getattr(receiver, "path_in_doubt", None)
            if tell is not None:
                tell()

    def peer_is_dead(self) -> None:
        """It was quiet, or did not answer, for too long."""
        seconds = max(self.silence, self.doubt)
        self._log.info(
            "{peer} was silent for {seconds:.0f} s: connection given up",
            peer=self.peer,
            seconds=seconds,
        )
        self.abort(ErrorCode.DEAD_PEER, f"silent for {seconds:.0f} s")

    def greeting_is_late(self) -> None:
        """The other side did not say who it is."""
        self.end(ErrorCode.PROTOCOL, "no greeting in time")

    def renew_budget(self) -> None:
        """A new interval: for what the peer sends without credit, or gives none for."""
        session = self.session
        session.budget.renew()
        if session.open_streams > len(self._streams):
            self._leftovers = leftovers.look(session, self._streams, self._leftovers)
            if session.has_output:
                self.has_output()

    # Inside.

    @property
    def _connection(self) -> Connection:
        assert self.transport is not None
        return cast(Connection, self.transport)

    def _arrived(self, stream_id: int, headers: bool, data: bytes, fin: bool) -> None:
        stream = self._streams.get(stream_id)
        if stream is not None:
            stream.arrived(headers, data, fin)
        else:
            # Our end is closed, yet these were sent before the peer could know.
            self.consumed(stream_id, len(data))

    def _stream_began(
        self,
        stream_id: int,
        accept: Callable[[StreamTransport, Any], IStreamReceiver],
        message: pb.Open | pb.Resume,
        fin: bool,
    ) -> None:
        stream = StreamTransport(self, stream_id)
        stream.opened_finished = fin
        self._streams[stream_id] = stream
        try:
            stream.receiver = accept(stream, message)
        except (ProtocolError, CallError) as error:
            code = getattr(error, "code", ErrorCode.REFUSED)
            stream.reset(code, str(error))
            return
        except Exception:
            self._log.failure("no receiver for a stream of {peer}", peer=self.peer)
            stream.reset(ErrorCode.INTERNAL, "no receiver")
            return
        if fin:
            stream.arrived(False, b"", True)

    def _connection_event(self, event: events.Event) -> None:
        if isinstance(event, events.Ponged):
            self.expecting = False
            self.doubt = 0.0
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
            self.greeted = True
            self.set_timing(Timing.from_message(event.welcome.timing))
            self._owner.welcome_received(self, event.welcome)
        elif isinstance(event, events.GoAwayReceived):
            self._owner.go_away_received(self, event.go_away)
        elif isinstance(event, events.SessionEnded):
            if not event.by_peer:
                self._log.warn(
                    "{peer} broke the protocol ({code}): {message}",
                    peer=self.peer,
                    code=event.code.name,
                    message=event.message,
                )
            self._finish_connection(SessionClosed(event.code, event.message))

    def _finish_connection(self, reason: SessionClosed) -> None:
        self._end_streams(reason)
        self.outlet.finish()

    def _end_streams(self, reason: SessionClosed) -> None:
        for stream in list(self._streams.values()):
            stream.close(reason)
        self._streams.clear()
