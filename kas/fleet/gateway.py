"""Gateway for streams from other kas to agents that are connected to this kas."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from twisted.internet.interfaces import IPushProducer
from twisted.logger import Logger
from zope.interface import classImplements

from kas.agents.registry import Registry
from kas.fleet.credentials import SessionCredentials
from kas.fleet.peers import PEER_LIMITS, PEER_TIMING
from kas.fleet.tokens import PeerToken
from tunnel.api import (
    IPathReceiver,
    ISpan,
    IStreamReceiver,
    ITracer,
    SpanKind,
)
from tunnel.errors import (
    CallError,
    ErrorCode,
    ProtocolError,
    SessionClosed,
    StreamReset,
)
from tunnel.pb import tunnel_pb2 as pb
from tunnel.program.runtime import Runtime
from tunnel.rpc.dispatch import Dispatcher
from tunnel.session.factory import TunnelFactory
from tunnel.session.protocol import TunnelOwner, TunnelProtocol
from tunnel.session.roles import KAS
from tunnel.session.stream import StreamTransport
from tunnel.toolkit.traces import traceparent_in

__all__ = ["Gateway", "GatewayFactory", "Relay"]


class Relay:
    """
    One half of a relay, which sends received frames unchanged to its other half
    *other*.

    ACK and RESUMED are relayed, too.  As a producer, a half pauses and resumes *other*:
    if this half's stream accepts no more data, *other* must stop receiving.
    """

    __slots__ = ("_acked", "_span", "idempotent", "other")

    def __init__(self, other: StreamTransport, span: ISpan | None = None) -> None:
        self.other = other
        self._span = span
        #: Whether another instance may handle the request instead, because no data has
        #: arrived yet.
        self.idempotent = False
        self._acked = 0

    @classmethod
    def join(
        cls,
        near: StreamTransport,
        far: StreamTransport,
        idempotent: bool,
        span: ISpan | None = None,
    ) -> Relay:
        """
        Join two streams, and return the receiver of *near*, which has just been opened.
        """
        back = cls(near, span)
        back.idempotent = idempotent
        far.receiver = far.resumable = back
        forth = cls(far, span)
        near.resumable = forth
        near.registerProducer(forth, True)
        far.registerProducer(back, True)
        return forth

    def headers_received(self, block: bytes) -> None:
        self.idempotent = False
        self.other.send_headers(block)

    def data_received(self, data: bytes) -> None:
        self.idempotent = False
        self.other.write(data)

    def fin_received(self) -> None:
        self.idempotent = False
        self.other.finish()

    def path_in_doubt(self) -> None:
        """
        Let another agentk handle the request, because this agentk does not respond.
        """
        if self.idempotent:
            self.other.reset(ErrorCode.PATH_LOST, "the agent is silent")

    def path_missing(self) -> None:
        """Do nothing: the kas that routes a stream keeps the stream."""

    def stream_closed(self, reason: Exception | None) -> None:
        """End the other half with the same reason; a finished half ends by itself."""
        if self._span is not None:
            self._span.end("" if reason is None else str(reason))
        if isinstance(reason, StreamReset):
            self.other.reset(reason.code, str(reason))
        elif isinstance(reason, SessionClosed):
            # Do not pass on the reason: the other end of a resumable stream must learn
            # only that the path broke, unless the credential was revoked.
            revoked = reason.code is ErrorCode.UNAUTHENTICATED
            code = reason.code if revoked else ErrorCode.PATH_LOST
            self.other.reset(code, str(reason), peer_closed=reason.peer_closed)

    def pauseProducing(self) -> None:
        """Pause *other*, because its data cannot be sent."""
        self.other.pauseProducing()

    def resumeProducing(self) -> None:
        self.other.resumeProducing()

    def stopProducing(self) -> None:
        """Do nothing: `stream_closed` is called next, with the reason."""

    def acked(self, received: int) -> None:
        """Relay an ACK if it contains a new position."""
        if received > self._acked:
            self._acked = received
            self.other.ack(received)

    def resumed(self, path: StreamTransport, received: int) -> None:
        """Relay RESUMED."""
        self.other.accept_resume(received)


classImplements(Relay, IPathReceiver, IPushProducer)


class Gateway(TunnelOwner):
    """
    Owner of the sessions that other kas have opened to this kas.

    :param verify: checks a peer's token, and returns the token with the proof for the
        peer; raises `CallError` if the token is not valid.
    :param dispatcher: handles the calls to this kas itself.
    :param credentials: records what has verified each session.
    """

    _log: ClassVar[Logger] = Logger()

    def __init__(
        self,
        verify: Callable[[bytes], PeerToken],
        registry: Registry,
        dispatcher: Dispatcher,
        runtime: Runtime,
        credentials: SessionCredentials | None = None,
    ) -> None:
        self.credentials = credentials or SessionCredentials()
        self.verify = verify
        self.registry = registry
        self.dispatcher = dispatcher
        self.runtime = runtime
        self.tracer: ITracer | None = runtime.tracer
        #: Number of streams since the start that were relayed, and that were refused
        #: because the agent is not connected to this kas.
        self.relayed = 0
        self.refused = 0
        #: Number of siblings that watch this worker; watches do not count as load.
        self.watches = 0
        #: The kas that was last refused, and the reason; empty after a kas was
        #: accepted.
        self.refusal = ""
        self.tunnels: set[TunnelProtocol] = set()

    def hello_received(self, tunnel: TunnelProtocol, hello: pb.Hello) -> None:
        """Accept a peer, or refuse it and send the reason to it."""
        if hello.role != KAS:
            tunnel.end(ErrorCode.PROTOCOL, "this port is for other kas")
            return
        try:
            token = self.verify(hello.credential)
        except CallError as error:
            more = tunnel.may_log()
            if more is not None:
                text = "kas at {peer} was refused: {reason}{more}"
                self._log.warn(text, peer=tunnel.peer, reason=error, more=more)
            self.refusal = f"{tunnel.peer}: {error.message}"
            tunnel.end(ErrorCode.UNAUTHENTICATED, error.message)
            return
        self.refusal = ""
        tunnel.limit_turns(("kas", hello.instance_id))
        tunnel.log_budget = None
        self.tunnels.add(tunnel)
        self.credentials.opened(tunnel, token)
        tunnel.kas_id = hello.instance_id
        tunnel.welcome(
            pb.Welcome(
                services=self.dispatcher.services,
                timing=PEER_TIMING.message(),
                kas_id=self.runtime.instance_id,
                proof=token.proof,
            )
        )

    def stream_opened(self, stream: StreamTransport, open_: pb.Open) -> IStreamReceiver:
        """
        Return the receiver of a stream to an agent of this kas, or of a call to this
        kas.
        """
        if not open_.HasField("target"):
            return self.dispatcher.accept(stream, open_)
        tunnel = self._held(open_.target)
        stream.charge(open_.target.agent_id)
        idempotent = open_.target.repeatable
        open_.ClearField("target")
        # Name this kas, because an agent that receives many relayed streams from a kas
        # opens a tunnel to that kas itself.
        open_.relayed_by = stream.kas_id
        span = self._traced(open_)
        return self._relay(
            stream, tunnel, open_, stream.opened_finished, idempotent, span
        )

    def stream_resumed(
        self, stream: StreamTransport, resume: pb.Resume
    ) -> IStreamReceiver:
        """
        Return the receiver of a stream that continues on a new path, because its former
        path was lost.
        """
        tunnel = self._held(resume.target)
        stream.charge(resume.target.agent_id)
        resume.ClearField("target")
        return self._relay(stream, tunnel, resume)

    def _traced(self, open_: pb.Open) -> ISpan | None:
        """
        Return a span that continues the trace of a stream; None if the stream is not
        traced.
        """
        if self.tracer is None:
            return None
        parent = traceparent_in(b"\r\n" + open_.metadata)
        if parent is None:
            return None
        return self.tracer.begin("relay", SpanKind.INTERNAL, parent)

    def _held(self, target: pb.Target) -> TunnelProtocol:
        connection = self.registry.instance(target.agent_id, target.instance_id)
        if connection is None or connection.agent.generation < target.generation:
            self.refused += 1
            raise ProtocolError(
                ErrorCode.REFUSED, "the agent is not connected here, or is silent"
            )
        return connection.tunnel

    def _relay(
        self,
        near: StreamTransport,
        tunnel: TunnelProtocol,
        message: pb.Open | pb.Resume,
        fin: bool = False,
        idempotent: bool = False,
        span: ISpan | None = None,
    ) -> IStreamReceiver:
        try:
            far = tunnel.open_stream(message, Relay(near), fin=fin)
        except StreamReset as error:
            if span is not None:
                span.end(str(error))
            raise ProtocolError(error.code, str(error)) from None
        self.relayed += 1
        return Relay.join(near, far, idempotent, span)

    def tunnel_closed(self, tunnel: TunnelProtocol, reason: SessionClosed) -> None:
        self.tunnels.discard(tunnel)
        self.credentials.closed(tunnel)

    @property
    def load(self) -> int:
        """Number of streams that peers have open at this kas."""
        return sum(tunnel.load for tunnel in self.tunnels) - self.watches

    def end(self) -> None:
        """Close every session."""
        for tunnel in tuple(self.tunnels):
            tunnel.end(ErrorCode.SHUTDOWN, "kas is shutting down")


class GatewayFactory(TunnelFactory):
    """A factory of a tunnel for each connection to the private port."""

    def __init__(self, gateway: Gateway) -> None:
        runtime = gateway.runtime
        super().__init__(
            gateway,
            timing=PEER_TIMING,
            clock=runtime.reactor,
            flusher=runtime.flusher,
            keepalive=runtime.keepalive,
            limits=PEER_LIMITS,
        )
