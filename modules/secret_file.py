"""Secrets in files, which two sides know and prove to each other."""

from __future__ import annotations

from pathlib import Path

__all__ = ["read_secret"]

#: Bytes of the secret: shorter ones can be guessed.
MIN_SECRET, MAX_SECRET = 16, 4096

#: Bytes of the file: the secret, and white space around it.
MAX_FILE = 2 * MAX_SECRET


def read_secret(file: Path) -> bytes:
    """
    The secret in *file*, without white space around it.

    :raises ValueError: it is too short or too long, or cannot be read.
    """
    try:
        with file.open("rb") as source:
            found = source.read(MAX_FILE + 1)
    except OSError as error:
        raise ValueError(f"{file} cannot be read ({error.strerror})") from None
    if len(found) > MAX_FILE:
        raise ValueError(
            f"{file} has more than {MAX_FILE} bytes and cannot be a secret"
        )
    secret = found.strip()
    if not MIN_SECRET <= len(secret) <= MAX_SECRET:
        raise ValueError(
            f"the secret in {file} has {len(secret)} bytes; at least {MIN_SECRET} and "
            f"at most {MAX_SECRET} make a good one"
        )
    return secret
