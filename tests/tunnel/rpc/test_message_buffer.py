"""Messages whose bytes arrive in pieces of any size."""

from __future__ import annotations

import random
import struct

import pytest

from tunnel.rpc.message_buffer import CHUNK, MessageBuffer, Pieces


def _length(buffer: bytearray, start: int) -> int:
    length: int = struct.unpack_from(">I", buffer, start)[0]
    if length > 10 * CHUNK:
        raise ValueError("too large")
    return length


@pytest.mark.parametrize("most", [1, 7, 1000, CHUNK, 3 * CHUNK])
def test_pieces_of_messages(most: int) -> None:
    source = random.Random(most)
    sizes = [0, 1, 5, CHUNK - 4, CHUNK, 2 * CHUNK + 1, 0] if most > 7 else [0, 1, 50, 0]
    messages = [source.randbytes(size) for size in sizes]
    data = b"".join(struct.pack(">I", len(one)) + one for one in messages)
    buffer, found = MessageBuffer(4, _length), list[bytes]()
    while data:
        size = source.randint(1, most)
        for prefix, message in buffer.feed(data[:size]):
            assert prefix == struct.pack(">I", len(message))
            found.append(message)
        data = data[size:]
    assert found == messages
    assert len(buffer) == 0


def test_incomplete_message() -> None:
    buffer = MessageBuffer(4, _length)
    assert buffer.feed(struct.pack(">I", 3 * CHUNK)) == []
    for _ in range(2):
        assert buffer.feed(b"x" * CHUNK) == []
    assert len(buffer) == 4 + 2 * CHUNK
    buffer.clear()
    assert len(buffer) == 0
    assert buffer.feed(struct.pack(">I", 1) + b"a") == [(b"\0\0\0\1", b"a")]


def test_too_large() -> None:
    with pytest.raises(ValueError, match="too large"):
        MessageBuffer(4, _length).feed(struct.pack(">I", 10 * CHUNK + 1))


def test_no_piece_becomes_large() -> None:
    """Blocks that grow further would have to move."""
    pieces = Pieces()
    for _ in range(100):
        pieces.append(b"x" * 5000)
    assert len(pieces) == 500_000
    assert max(map(len, pieces._chunks)) < CHUNK + 5000
    assert pieces.joined() == b"x" * 500_000
    pieces.append(b"y")
    assert pieces.joined() == b"x" * 500_000 + b"y"
    pieces.clear()
    assert len(pieces) == 0
