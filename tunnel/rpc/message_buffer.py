"""Bytes that arrive in pieces, joined to messages."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["CHUNK", "MessageBuffer", "Pieces"]

#: Number of bytes that are kept in one piece until a message is complete.  A single
#: buffer for a whole message would move whenever it grows, and a hundred such buffers
#: would leave holes in the memory of kas, several times their size.
CHUNK = 64 * 1024


class Pieces:
    """Bytes that arrive in pieces of any size, until all are needed at once."""

    def __init__(self) -> None:
        self._chunks: list[bytes] = []
        #: The end of the data, after the chunks.
        self._rest = bytearray()
        self._size = 0

    def __len__(self) -> int:
        return self._size + len(self._rest)

    def append(self, data: bytes) -> None:
        """Add bytes."""
        rest = self._rest
        rest += data
        if len(rest) >= CHUNK:
            self._size += len(rest)
            self._chunks.append(bytes(rest))
            rest.clear()

    def joined(self) -> bytearray:
        """Return all bytes; the result becomes the only piece."""
        if self._chunks:
            self._rest = bytearray().join((*self._chunks, self._rest))
            self._chunks.clear()
            self._size = 0
        return self._rest

    def clear(self) -> None:
        """Drop all bytes."""
        self._chunks.clear()
        self._rest.clear()
        self._size = 0


class MessageBuffer:
    """
    The incomplete message of a stream on which each message is preceded by a prefix
    that contains its length.

    :param prefix: number of bytes of a prefix.
    :param length_of: returns the length of the message whose prefix begins at an index
        of the data; raises an exception if the message is too large.
    """

    def __init__(self, prefix: int, length_of: Callable[[bytearray, int], int]) -> None:
        self._prefix = prefix
        self._length_of = length_of
        self._pieces = Pieces()
        #: Number of bytes of the incomplete message and its prefix; 0 if it is not
        #: known yet.
        self._needed = 0

    def __len__(self) -> int:
        return len(self._pieces)

    def feed(self, data: bytes) -> list[tuple[bytes, bytes]]:
        """Return the prefix and the content of each message that is now complete."""
        pieces, prefix = self._pieces, self._prefix
        pieces.append(data)
        if len(pieces) < (self._needed or prefix):
            return []
        buffer, found = pieces.joined(), []
        start = self._needed = 0
        while len(buffer) - start >= prefix:
            begin = start + prefix
            stop = begin + self._length_of(buffer, start)
            if stop > len(buffer):
                self._needed = stop - start
                break
            found.append((bytes(buffer[start:begin]), bytes(buffer[begin:stop])))
            start = stop
        # Delete once, because the buffer may contain thousands of messages.
        del buffer[:start]
        return found

    def clear(self) -> None:
        """Drop the incomplete message."""
        self._pieces.clear()
        self._needed = 0
