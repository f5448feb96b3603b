"""Lengths of the frames of sessions: of WebSocket (RFC 6455) and of SPDY/3.1."""

from __future__ import annotations

__all__ = ["SPDY_HEADER", "spdy_frame", "web_socket_frame"]

#: Length of the header of each frame of SPDY.
SPDY_HEADER = 8


def web_socket_frame(header: bytes) -> tuple[int, int] | None:
    """
    Return the length of the header, with its mask, and that of the payload; None if
    more of the header is needed.
    """
    if len(header) < 2:
        return None
    size, start = header[1] & 0x7F, 2
    if size >= 126:
        start = 4 if size == 126 else 10
        if len(header) < start:
            return None
        size = int.from_bytes(header[2:start], "big")
    return start + (4 if header[1] & 0x80 else 0), size


def spdy_frame(header: bytes) -> int | None:
    """
    Return the length of the payload, which follows `SPDY_HEADER` bytes; None if more of
    the header is needed.
    """
    if len(header) < SPDY_HEADER:
        return None
    return int.from_bytes(header[5:8], "big")
