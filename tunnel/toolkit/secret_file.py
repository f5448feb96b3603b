"""Secrets in files, which two sides share to authenticate each other."""

from __future__ import annotations

from pathlib import Path

from tunnel.toolkit.files import read_secret_file

__all__ = ["read_secret"]

#: Bytes of the secret: shorter ones can be guessed.
MIN_SECRET, MAX_SECRET = 16, 4096

#: Bytes of the file: the secret, and surrounding white space.
MAX_FILE = 2 * MAX_SECRET


def read_secret(file: Path) -> bytes:
    """
    Return the secret in *file*, without surrounding white space.

    :raises ValueError: it is too short or too long, or cannot be read.
    """
    secret = read_secret_file(file, MAX_FILE).strip()
    if not MIN_SECRET <= len(secret) <= MAX_SECRET:
        raise ValueError(
            f"the secret in {file} has {len(secret)} bytes; at least {MIN_SECRET} and "
            f"at most {MAX_SECRET} make a good one"
        )
    return secret
