"""
Encoder and decoder of frames (specification section 2).

    0               4               8       9       10
    +---------------+---------------+-------+-------+------------
    | length (u32)  | stream (u32)  | type  | flags | payload ...
    +---------------+---------------+-------+-------+------------

Numbers are big-endian; *length* counts only the payload.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Final

from tunnel.errors import ErrorCode, ProtocolError
from tunnel.wire.limits import FRAME_HEADER, MAX_PAYLOAD

_HEADER: Final = struct.Struct(">IIBB")

#: The first four bytes of an HTTP response, read as a length.
_HTTP: Final = 0x48545450
pack_header = _HEADER.pack
_unpack_from = _HEADER.unpack_from

#: One frame: type, flags, stream number, payload.
Frame = tuple[int, int, int, bytes]


class FrameType(IntEnum):
    """The type of a frame; the numbers are sent on the wire."""

    HELLO = 1
    WELCOME = 2
    OPEN = 3
    HEADERS = 4
    DATA = 5
    CREDIT = 6
    RESET = 7
    PING = 8
    PONG = 9
    GO_AWAY = 10
    RESUME = 11
    RESUMED = 12
    ACK = 13


#: Flag: nothing follows on this stream from this side (OPEN, HEADERS, DATA).
FIN: Final = 0x01
#: Flag: a receiver that does not know the type skips the frame.
IGNORABLE: Final = 0x80


def encode_frame(kind: int, flags: int, stream_id: int, payload: bytes) -> bytes:
    return pack_header(len(payload), stream_id, kind, flags) + payload


class FrameDecoder:
    """
    A decoder that splits a byte stream into frames.

    It holds at most one incomplete frame, and the last chunk; memory is allocated only
    for bytes that have arrived, not for the length that a frame claims.
    """

    __slots__ = ("_need", "_parts", "_size", "error", "max_payload")

    def __init__(self, max_payload: int = MAX_PAYLOAD) -> None:
        self.max_payload = max_payload
        #: Error after a frame that was too large; nothing is decoded after it.
        self.error: ProtocolError | None = None
        self._parts: list[bytes] = []
        self._size = 0
        self._need = FRAME_HEADER

    @property
    def buffered(self) -> int:
        """The number of bytes that wait for the rest of their frame."""
        return self._size

    def feed(self, chunk: bytes) -> list[Frame]:
        """Add *chunk* and return each frame that is now complete."""
        if self.error is not None:
            return []
        if self._parts:
            self._parts.append(chunk)
            self._size += len(chunk)
            if self._size < self._need:
                return []
            # The parts are joined once per frame, because joining at each chunk would
            # take quadratic time.
            chunk = b"".join(self._parts)
            self._parts.clear()
        frames: list[Frame] = []
        position, end = 0, len(chunk)
        need = FRAME_HEADER
        while end - position >= FRAME_HEADER:
            length, stream_id, kind, flags = _unpack_from(chunk, position)
            if length > self.max_payload:
                said = (
                    f"a frame has {length} bytes, but at most {self.max_payload} are "
                    "allowed"
                )
                if length == _HTTP:
                    said = "received an HTTP response instead of a frame"
                self.error = ProtocolError(ErrorCode.FRAME_SIZE, said)
                self._size = 0
                return frames
            start = position + FRAME_HEADER
            stop = start + length
            if stop > end:
                need = FRAME_HEADER + length
                break
            frames.append((kind, flags, stream_id, chunk[start:stop]))
            position = stop
        self._need = need
        self._size = end - position
        if self._size:
            self._parts.append(chunk[position:] if position else chunk)
        return frames
