"""Sum of the hashes of rows: agentk and kas compare their rows by it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

__all__ = ["row_sum"]


def row_sum(key: Sequence[str], columns: bytes) -> int:
    """
    Return a number of 64 bits for one row.

    The numbers of all rows of a view are added modulo 2**64, in any order.

    :param key: group, kind, namespace, name and part.
    """
    digest = hashlib.blake2b("\0".join(key).encode() + b"\0" + columns, digest_size=8)
    return int.from_bytes(digest.digest(), "big")
