"""Sessions in pairs, and frames that no Session would send."""

from __future__ import annotations

from tunnel.pb import tunnel_pb2 as pb
from tunnel.wire import events
from tunnel.wire.framing import FrameType, encode_frame
from tunnel.wire.limits import DEFAULT_LIMITS, Limits
from tunnel.wire.session import Session


def deliver(source: Session, target: Session) -> list[events.Event]:
    """Everything that *source* has to send, received by *target*."""
    happened: list[events.Event] = []
    while data := source.bytes_to_send():
        happened += target.receive_bytes(data)
    return happened


def greeted(
    dialler_limits: Limits = DEFAULT_LIMITS, listener_limits: Limits = DEFAULT_LIMITS
) -> tuple[Session, Session]:
    """A dialler and a listener that know each other."""
    dialler = Session(dialler=True, limits=dialler_limits)
    listener = Session(dialler=False, limits=listener_limits)
    dialler.hello(pb.Hello(role="agent", instance_id=b"i" * 16))
    deliver(dialler, listener)
    listener.welcome(pb.Welcome(agent_id="7"))
    deliver(listener, dialler)
    assert dialler.ready and listener.ready
    return dialler, listener


def frame(kind: int, stream_id: int, payload: bytes = b"", flags: int = 0) -> bytes:
    """Any frame at all."""
    return encode_frame(kind, flags, stream_id, payload)


def opened(stream_id: int, method: str = "/s/M", fin: bool = False) -> bytes:
    """An OPEN."""
    payload = pb.Open(method=method).SerializeToString()
    return frame(FrameType.OPEN, stream_id, payload, 1 if fin else 0)
