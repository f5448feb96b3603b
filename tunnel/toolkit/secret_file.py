"""Secrets in files, which two sides share to authenticate each other."""

from __future__ import annotations

from pathlib import Path

from tunnel.toolkit.files import read_secret_file

__all__ = ["read_secret"]

#: Minimum and maximum size of the secret in bytes; shorter secrets can be guessed.
MIN_SECRET, MAX_SECRET = 16, 4096

#: Maximum size of the file in bytes: the secret, and surrounding white space.
MAX_FILE = 2 * MAX_SECRET


def read_secret(file: Path) -> bytes:
    """
    Return the secret in *file*, without surrounding white space.

    :raises ValueError: if the file cannot be read, or the secret is too short or
        too long.
    """
    secret = read_secret_file(file, MAX_FILE).strip()
    if not MIN_SECRET <= len(secret) <= MAX_SECRET:
        raise ValueError(
            f"the secret in {file} has {len(secret)} bytes; it must have at least "
            f"{MIN_SECRET} and at most {MAX_SECRET}"
        )
    return secret
