"""Messages preceded by flags and a length, as in gRPC and Connect."""

from __future__ import annotations

import struct

from tunnel.errors import CallError, Status
from tunnel.rpc.message_buffer import MessageBuffer
from tunnel.rpc.messages import MAX_MESSAGE

__all__ = ["COMPRESSED", "Envelopes", "envelope"]

#: The flag of a compressed message, in both protocols.
COMPRESSED = 0x1

#: The prefix of a message: its flags and length.
_ENVELOPE = struct.Struct(">BI")


class Envelopes:
    """
    Splitter of a body into messages, each preceded by its flags and length.

    A splitter holds at most one incomplete message.
    """

    def __init__(self, limit: int = MAX_MESSAGE) -> None:
        self._limit = limit
        self._buffer = MessageBuffer(_ENVELOPE.size, self._length_of)

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        """
        Return the flags and the content of each message that is now complete.

        :raises CallError: if a message is too large; raised as soon as its length is
            known.
        """
        return [(prefix[0], message) for prefix, message in self._buffer.feed(data)]

    def _length_of(self, buffer: bytearray, start: int) -> int:
        length: int = _ENVELOPE.unpack_from(buffer, start)[1]
        if length > self._limit:
            raise CallError(
                Status.RESOURCE_EXHAUSTED,
                f"a message has {length} bytes, but at most {self._limit} are allowed",
            )
        return length

    @property
    def waiting(self) -> int:
        """The number of bytes of an incomplete message."""
        return len(self._buffer)

    def clear(self) -> None:
        self._buffer.clear()


def envelope(message: bytes, flags: int = 0) -> bytes:
    """Return a message with its prefix."""
    return _ENVELOPE.pack(flags, len(message)) + message
