"""Who decides what a tunnel means."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from tunnel.errors import ErrorCode, ProtocolError, SessionClosed
from tunnel.pb import tunnel_pb2 as pb

if TYPE_CHECKING:
    from tunnel.interfaces import IStreamReceiver
    from tunnel.session.protocol import TunnelProtocol
    from tunnel.session.stream import StreamTransport

__all__ = ["TunnelOwner"]


class TunnelOwner(Protocol):
    """
    What a tunnel tells whoever made it: the listener in kas, the dialler in agentk.

    A listener writes `hello_received`, a dialler `welcome_received`; the session never
    lets the other one happen.
    """

    def hello_received(self, tunnel: TunnelProtocol, hello: pb.Hello) -> None:
        """A peer dialled; answer with `TunnelProtocol.welcome` or `end`."""
        return

    def welcome_received(self, tunnel: TunnelProtocol, welcome: pb.Welcome) -> None:
        """The peer that we dialled took us."""
        return

    def stream_opened(self, stream: StreamTransport, open_: pb.Open) -> IStreamReceiver:
        """
        The peer opened a stream: say who receives it.

        :raises ProtocolError: with the code to reset the stream with.
        """
        raise ProtocolError(ErrorCode.UNKNOWN_METHOD, "this side only asks")

    def stream_resumed(
        self, stream: StreamTransport, resume: pb.Resume
    ) -> IStreamReceiver:
        """The peer wants to go on with a stream; as `stream_opened`."""
        raise ProtocolError(ErrorCode.NOT_RESUMABLE, "streams are not kept here")

    def go_away_received(self, tunnel: TunnelProtocol, go_away: pb.GoAway) -> None:
        """The peer leaves, soon or now."""
        return

    def tunnel_idle(self, tunnel: TunnelProtocol) -> None:
        """The peer is going away, and the last stream has just closed."""
        return

    def tunnel_closed(self, tunnel: TunnelProtocol, reason: SessionClosed) -> None:
        """The end, told exactly once for a tunnel whose transport was connected."""
