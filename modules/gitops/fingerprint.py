"""What kas and agentk know the files of a commit by, to see that none is missing."""

from __future__ import annotations

import hashlib

__all__ = ["Fingerprint"]


class Fingerprint:
    """
    The SHA-256 of files, one after the other.

    :ivar files: how many there were.
    """

    def __init__(self) -> None:
        self.files = 0
        self._hash = hashlib.sha256()

    def add(self, path: str, data: bytes) -> None:
        """One more file."""
        self.files += 1
        for part in (path.encode(), data):
            self._hash.update(len(part).to_bytes(8, "big"))
            self._hash.update(part)

    def digest(self) -> bytes:
        """Of all until now."""
        return self._hash.digest()
