"""Merkle trees over lines, as in RFC 6962."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256

__all__ = ["HASH_BYTES", "MerkleTree", "leaf_hash"]

#: Bytes of one hash.
HASH_BYTES = 32


def leaf_hash(line: bytes) -> bytes:
    """Return the hash of one line, which excludes its line feed."""
    return sha256(b"\x00" + line).digest()


class MerkleTree:
    """
    A tree that only grows, without its leaves.

    :param hashes: `hashes` of a tree to continue.
    :raises ValueError: if a tree with *size* leaves has another number of hashes.
    """

    __slots__ = ("_hashes", "size")

    def __init__(self, size: int = 0, hashes: Iterable[bytes] = ()) -> None:
        #: The number of leaves.
        self.size = size
        self._hashes = list(hashes)
        if size < 0 or len(self._hashes) != size.bit_count():
            raise ValueError(f"not the hashes of a tree with {size} leaves")
        if any(len(one) != HASH_BYTES for one in self._hashes):
            raise ValueError(f"a hash does not have {HASH_BYTES} bytes")

    @property
    def hashes(self) -> tuple[bytes, ...]:
        """
        The roots of the largest complete subtrees, from left to right; there is one for
        each bit of `size`.
        """
        return tuple(self._hashes)

    def append(self, leaf: bytes) -> None:
        """Add a leaf by its `leaf_hash`."""
        hashes, bits = self._hashes, self.size
        while bits & 1:
            leaf = sha256(b"\x01" + hashes.pop() + leaf).digest()
            bits >>= 1
        hashes.append(leaf)
        self.size += 1

    def root(self) -> bytes:
        """Return the hash of all leaves."""
        if not self._hashes:
            return sha256(b"").digest()
        *rest, root = self._hashes
        for one in reversed(rest):
            root = sha256(b"\x01" + one + root).digest()
        return root
