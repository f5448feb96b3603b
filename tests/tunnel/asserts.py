"""
What sessions, tunnels and streams did, in the terms of the protocol.

*told* is what a session or a tunnel told its owner: the events of
`Session.receive_bytes`, or the reasons that a tunnel's owner or a stream's receiver got
(``End.closed``, ``RecordingReceiver.closed``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from google.protobuf.message import Message

from tunnel.errors import ErrorCode, SessionClosed, StreamReset
from tunnel.wire.events import SessionEnded, StreamEnded
from tunnel.wire.framing import FrameDecoder
from tunnel.wire.outbox import FLUSH
from tunnel.wire.session import Session

__all__ = ["assert_frames", "assert_session_ends", "assert_stream_reset"]


def assert_frames(
    session: Session, *expected: tuple[Any, ...], wanted: int = FLUSH
) -> None:
    """
    *session* has exactly these frames to send: type, stream, payload, flags if any.

    A payload is bytes, or the message that they are.

    :param wanted: as of `Session.bytes_to_send`.
    """
    decoder = FrameDecoder()
    sent: list[tuple[Any, ...]] = []
    for kind, flags, stream_id, payload in decoder.feed(session.bytes_to_send(wanted)):
        model = expected[len(sent)][2] if len(sent) < len(expected) else b""
        if isinstance(model, Message):
            sent.append((kind, stream_id, type(model).FromString(payload), flags))
        else:
            sent.append((kind, stream_id, payload, flags))
    assert sent == [(*one, 0)[:4] for one in expected]
    assert decoder.error is None and decoder.buffered == 0


def assert_session_ends(
    told: Sequence[object],
    code: ErrorCode,
    message: str | None = None,
    *,
    by_peer: bool | None = None,
) -> None:
    """
    The session ended with *code*, once, and nothing was told after it.

    :param by_peer: which side ended it, in events.
    """
    ends = [one for one in told if isinstance(one, SessionEnded | SessionClosed)]
    assert len(ends) == 1 and told[-1] is ends[0], told
    (end,) = ends
    assert end.code is code, end
    if isinstance(end, SessionEnded):
        assert by_peer is None or end.by_peer is by_peer, end
        assert message is None or end.message == message, end
    else:
        assert message is None or str(end) == message, end


def assert_stream_reset(
    told: Sequence[object],
    code: ErrorCode,
    message: str | None = None,
    *,
    stream: int | None = None,
    by_peer: bool | None = None,
) -> None:
    """
    One stream was reset with *code*, and no other.

    :param stream: its number, in events.
    :param by_peer: which side reset it.
    """
    (end,) = [one for one in told if isinstance(one, StreamEnded | StreamReset)]
    assert end.code is code, end
    assert by_peer is None or end.by_peer is by_peer, end
    if isinstance(end, StreamEnded):
        assert stream is None or end.stream_id == stream, end
        assert message is None or end.message == message, end
    else:
        assert message is None or str(end) == message, end
