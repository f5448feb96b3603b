"""Fingerprint of the files of a commit, so that agentk detects missing files."""

from __future__ import annotations

import hashlib

__all__ = ["Fingerprint"]


class Fingerprint:
    """
    Builder of the SHA-256 of a sequence of files.

    :ivar files: the number of files.
    """

    def __init__(self) -> None:
        self.files = 0
        self._hash = hashlib.sha256()

    def add(self, path: str, data: bytes) -> None:
        """Add a file to the fingerprint."""
        self.files += 1
        for part in (path.encode(), data):
            self._hash.update(len(part).to_bytes(8, "big"))
            self._hash.update(part)

    def digest(self) -> bytes:
        """Return the digest of all files so far."""
        return self._hash.digest()
