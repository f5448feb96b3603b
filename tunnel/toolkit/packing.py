"""Compressed bytes, for repetitive texts that have to fit into one frame."""

from __future__ import annotations

import zlib

__all__ = ["pack", "unpack"]

#: Compression level of zlib: the lowest already shrinks the groups of a user to a
#: tenth.
_LEVEL = 1


def pack(data: bytes) -> bytes:
    """Compress *data*."""
    return zlib.compress(data, _LEVEL)


def unpack(packed: bytes, most: int) -> bytes:
    """
    Return the original bytes.

    :param most: their maximum number; no more is ever allocated.
    :raises ValueError: the limit is exceeded, or *packed* is damaged.
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
