"""Messages with flags and a length before each, as gRPC and Connect have them."""

from __future__ import annotations

import struct

from tunnel.errors import CallError, Status
from tunnel.rpc.messages import MAX_MESSAGE

__all__ = ["COMPRESSED", "Envelopes", "envelope"]

#: The flag of a message that is compressed, in both protocols.
COMPRESSED = 0x1

#: Prefix of a message on the wire: flags, and its length.
_ENVELOPE = struct.Struct(">BI")


class Envelopes:
    """
    Cuts messages out of a body: flags and length before each, as both protocols do it.

    Holds at most one message that is not whole.
    """

    def __init__(self, limit: int = MAX_MESSAGE) -> None:
        self._limit = limit
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        """
        Return flags and content of each message that is now complete.

        :raises CallError: a message is too large, as soon as its length is known.
        """
        buffer = self._buffer
        buffer += data
        found = []
        start = 0
        while len(buffer) - start >= _ENVELOPE.size:
            flags, length = _ENVELOPE.unpack_from(buffer, start)
            if length > self._limit:
                raise CallError(
                    Status.RESOURCE_EXHAUSTED,
                    f"a message of {length} bytes; at most {self._limit} are taken",
                )
            stop = start + _ENVELOPE.size + length
            if stop > len(buffer):
                break
            found.append((flags, bytes(buffer[start + _ENVELOPE.size : stop])))
            start = stop
        # Once: there may be thousands of messages in it.
        del buffer[:start]
        return found

    @property
    def waiting(self) -> int:
        """Bytes that are left, of a message that is not whole."""
        return len(self._buffer)

    def clear(self) -> None:
        self._buffer.clear()


def envelope(message: bytes, flags: int = 0) -> bytes:
    """One message as it goes into a body."""
    return _ENVELOPE.pack(flags, len(message)) + message
