"""Two connected tunnels, and a receiver that records calls."""

from __future__ import annotations

from typing import Any

import attrs
from twisted.internet.task import Clock
from zope.interface import implementer

from tunnel.api import ConnectedAgent, IStream, IStreamReceiver
from tunnel.errors import SessionClosed
from tunnel.hosting.capabilities import CapabilityTable
from tunnel.hosting.events import EventBus
from tunnel.pb import tunnel_pb2 as pb
from tunnel.rpc.client import ServiceClient
from tunnel.rpc.dispatch import Dispatcher
from tunnel.session.keepalive import Keepalive, Timing
from tunnel.session.protocol import TunnelOwner, TunnelProtocol
from tunnel.testing.memory import Pipe
from tunnel.util.flusher import Flusher
from tunnel.wire.limits import DEFAULT_LIMITS, Limits
from tunnel.wire.session import Session

__all__ = ["AGENT", "End", "RecordingReceiver", "connected"]

#: The only agent in these tests.
AGENT = ConnectedAgent("1", "agent-1", b"i", 1, 0.0)


@implementer(IStreamReceiver)
@attrs.define(eq=False, slots=False)
class RecordingReceiver:
    """An `IStreamReceiver` that records its calls."""

    headers: list[bytes] = attrs.Factory(list)
    data: bytearray = attrs.Factory(bytearray)
    finished: bool = False
    #: Reason for the end of the stream, as the only entry; empty while the stream is
    #: open.
    closed: list[Exception | None] = attrs.Factory(list)

    def headers_received(self, block: bytes) -> None:
        self.headers.append(block)

    def data_received(self, data: bytes) -> None:
        self.data += data

    def fin_received(self) -> None:
        self.finished = True

    def stream_closed(self, reason: Exception | None) -> None:
        self.closed.append(reason)


class End(TunnelOwner):
    """One side of `connected`: its tunnel, and the dispatcher of its calls."""

    def __init__(self, clock: Clock, *, dialler: bool, limits: Limits) -> None:
        self.clock = clock
        # agentk dials, so the dialler's peer is kas.
        self.dispatcher = Dispatcher(clock, from_kas=dialler)
        self.bus = EventBus()
        self.capabilities = CapabilityTable()
        self.closed: list[SessionClosed] = []
        self.going_away: list[pb.GoAway] = []
        self.tunnel = TunnelProtocol(
            Session(dialler=dialler, limits=limits),
            self,
            clock=clock,
            flusher=Flusher(clock),
            keepalive=Keepalive(clock),
            timing=Timing(),
        )

    def open_stream(
        self,
        method: str,
        receiver: IStreamReceiver,
        *,
        metadata: bytes = b"",
        fin: bool = False,
        timeout: float = 0,
    ) -> IStream:
        open_ = pb.Open(
            method=method, metadata=metadata, timeout_ms=round(timeout * 1000)
        )
        stream: IStream = self.tunnel.open_stream(open_, receiver, fin=fin)
        return stream

    def client(self, service: Any) -> ServiceClient:
        """Return a client for a service of the other side."""
        return ServiceClient(service, self.open_stream, self.clock)

    # tunnel.session.protocol.TunnelOwner

    def hello_received(self, tunnel: TunnelProtocol, hello: pb.Hello) -> None:
        tunnel.agent = AGENT
        tunnel.welcome(pb.Welcome(agent_id="1", agent_name="agent-1"))

    def stream_opened(self, stream: Any, open_: pb.Open) -> IStreamReceiver:
        return self.dispatcher.accept(stream, open_)

    def go_away_received(self, tunnel: TunnelProtocol, go_away: pb.GoAway) -> None:
        self.going_away.append(go_away)

    def tunnel_closed(self, tunnel: TunnelProtocol, reason: SessionClosed) -> None:
        self.closed.append(reason)


def connected(
    clock: Clock,
    *,
    capacity: int = 65536,
    chunk: int = 65536,
    limits: Limits = DEFAULT_LIMITS,
) -> tuple[End, End, Pipe]:
    """Return a dialler, a listener, and the pipe between them, after the greeting."""
    dialler = End(clock, dialler=True, limits=limits)
    listener = End(clock, dialler=False, limits=limits)
    pipe = Pipe(clock, dialler.tunnel, listener.tunnel, capacity=capacity, chunk=chunk)
    dialler.tunnel.hello(pb.Hello(role="agent", instance_id=b"i"))
    pipe.flush()
    return dialler, listener, pipe
