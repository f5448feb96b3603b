"""
Cache of the tokens of `kasctl login`, in files that only this user can read.

kubectl starts ``kasctl login --exec`` for each of its commands, so this file imports
only a few modules.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

__all__ = ["KeptTokens", "Tokens", "all_kept", "cache_folder"]

#: Maximum bytes of a file; kas accepts ID tokens of 16 KiB, and a refresh token can
#: have the same length.
MAX_FILE = 256 * 1024

#: Number of attempts to lock before the user is notified, and seconds between two
#: attempts.
_QUIET_LOOKS = 40
_PAUSE = 0.05


class Tokens(NamedTuple):
    """
    Tokens from the identity provider.

    :ivar expires_at: expiry of the ID token, in seconds since 1970.
    :ivar refresh_token: None if the provider issues no refresh token.
    """

    id_token: str
    expires_at: float
    refresh_token: str | None

    @property
    def lifetime(self) -> float:
        """Return the lifetime of the ID token in seconds; infinite if it is unknown."""
        try:
            _, payload, _ = self.id_token.split(".")
            padded = payload + "=" * (-len(payload) % 4)
            issued_at = float(json.loads(base64.urlsafe_b64decode(padded))["iat"])
        except (ArithmeticError, ValueError, KeyError, TypeError, RecursionError):
            return math.inf
        return max(0.0, self.expires_at - issued_at)

    def __repr__(self) -> str:
        return f"<Tokens until {self.expires_at:.0f}>"


def cache_folder(environ: Mapping[str, str]) -> Path:
    """Return the folder that contains the files with tokens."""
    base = environ.get("XDG_CACHE_HOME", "")
    # Ignore a relative path, as the XDG Base Directory Specification requires.
    return Path(base if os.path.isabs(base) else Path.home() / ".cache", "txkas")


class KeptTokens:
    """
    File with the tokens of one user at one provider, for one client and its scopes.

    :param name: the name of the file.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._file = folder / f"{name}.json"
        self._lock = folder / f"{name}.lock"

    @classmethod
    def of(
        cls, folder: Path, issuer: str, client_id: str, scopes: tuple[str, ...]
    ) -> KeptTokens:
        """Return the file for these settings."""
        key = json.dumps([issuer, client_id, sorted(set(scopes))])
        return cls(folder, f"oidc-{hashlib.sha256(key.encode()).hexdigest()[:32]}")

    def read(self) -> Tokens | None:
        """
        Return the tokens; None if the file contains no tokens, or if other users could
        read the file.
        """
        try:
            descriptor = os.open(self._file, os.O_RDONLY | os.O_NOFOLLOW)
        except OSError:
            return None
        with os.fdopen(descriptor, "rb") as source:
            found = os.fstat(source.fileno())
            if found.st_uid != os.geteuid() or found.st_mode & 0o077:
                return None
            data = source.read(MAX_FILE + 1)
        try:
            content = json.loads(data)
            refresh_token = content["refresh_token"]
            tokens = Tokens(
                content["id_token"], float(content["expires_at"]), refresh_token
            )
        except (ArithmeticError, ValueError, KeyError, TypeError, RecursionError):
            return None
        usable = isinstance(tokens.id_token, str) and (
            refresh_token is None or isinstance(refresh_token, str)
        )
        return tokens if usable else None

    def write(self, tokens: Tokens) -> None:
        """Replace the tokens atomically."""
        # Import it here, because this includes Twisted's logger, and most commands only
        # read.
        from tunnel.toolkit.files import replace_file

        self._make_folder()
        replace_file(self._file, json.dumps(tokens._asdict()).encode(), durable=False)

    def remove(self) -> bool:
        """Remove the tokens; return whether any tokens existed."""
        try:
            self._file.unlink()
        except FileNotFoundError:
            return False
        return True

    @contextmanager
    def locked(self, waits: Callable[[], object]) -> Iterator[None]:
        """
        Hold the lock, so that only one process at a time renews the tokens; the lock
        ends with the process.

        :param waits: called when another process holds the lock longer than a renewal
            takes.
        """
        import fcntl

        self._make_folder()
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(self._lock, flags, 0o600)
        try:
            for _ in range(_QUIET_LOOKS):
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    time.sleep(_PAUSE)
            else:
                waits()
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _make_folder(self) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self._folder.stat().st_mode & 0o077:
            # This raises an error if the folder belongs to another user.
            self._folder.chmod(0o700)


def all_kept(folder: Path) -> list[KeptTokens]:
    """Return all files with tokens in the folder."""
    return [
        KeptTokens(folder, file.stem) for file in sorted(folder.glob("oidc-*.json"))
    ]
