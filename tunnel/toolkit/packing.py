"""Compressed bytes, for repetitive texts that have to fit into one frame."""

from __future__ import annotations

import zlib

__all__ = ["pack", "unpack"]

#: The lowest compression level of zlib, which already shrinks the groups of a user to a
#: tenth.
_LEVEL = 1


def pack(data: bytes) -> bytes:
    """Compress *data*."""
    return zlib.compress(data, _LEVEL)


def unpack(packed: bytes, most: int) -> bytes:
    """
    Decompress *packed*, and return the original bytes.

    :param most: maximum number of original bytes; no more memory is ever allocated.
    :raises ValueError: the limit is exceeded, or *packed* is damaged.
    """
    inflater = zlib.decompressobj()
    try:
        data = inflater.decompress(packed, most + 1)
    except zlib.error:
        raise ValueError("the compressed bytes are damaged") from None
    if len(data) > most:
        raise ValueError(f"the data has more than {most} bytes when decompressed")
    if not inflater.eof or inflater.unused_data:
        raise ValueError("the compressed bytes are damaged")
    return data
