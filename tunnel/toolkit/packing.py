"""Deflated bytes, for texts that repeat themselves and have to fit into one frame."""

from __future__ import annotations

import zlib

__all__ = ["pack", "unpack"]

#: Level of zlib: the groups of a user shrink to a tenth at once, and little more later.
_LEVEL = 1


def pack(data: bytes) -> bytes:
    """Return *data* deflated."""
    return zlib.compress(data, _LEVEL)


def unpack(packed: bytes, most: int) -> bytes:
    """
    Return the bytes that were packed.

    :param most: the bytes that they may have; no more is ever allocated.
    :raises ValueError: they are more, or *packed* is damaged.
    """
    inflater = zlib.decompressobj()
    try:
        data = inflater.decompress(packed, most + 1)
    except zlib.error:
        raise ValueError("packed bytes that are damaged") from None
    if len(data) > most:
        raise ValueError(f"more than {most} bytes were packed")
    if not inflater.eof or inflater.unused_data:
        raise ValueError("packed bytes that are damaged")
    return data
