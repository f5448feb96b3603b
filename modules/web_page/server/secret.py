"""The value of a session's cookie, and what kas derives from it."""

from __future__ import annotations

import base64
import hashlib
import os
import re
from collections.abc import Callable
from functools import cached_property
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tunnel.api import page_csrf

__all__ = ["SessionSecret"]

#: Bytes of a secret, so that nobody can guess one.
_BYTES: Final = 32

#: Bytes of a nonce of AES-GCM.
_NONCE: Final = 12

_TEXT: Final = re.compile("[A-Za-z0-9_-]{43}")


class SessionSecret:
    """
    Secret of one session, which only the browser keeps.

    kas stores a digest of the secret, and credentials that are encrypted with a key
    from it.  Whoever reads the store, or the Redis behind it, can therefore neither use
    a session nor read its credential.

    :param text: the value of the cookie.
    :raises ValueError: *text* cannot be a secret.
    """

    def __init__(self, text: str) -> None:
        if _TEXT.fullmatch(text) is None:
            raise ValueError("this is not the secret of a session")
        #: The value of the cookie.
        self.text = text
        #: Key of the session in the store.
        self.key = hashlib.sha256(b"kas page session:" + text.encode()).hexdigest()

    # Each request of a session needs its key, and few need more.

    @cached_property
    def _cipher(self) -> AESGCM:
        key = hashlib.sha256(b"kas page credential:" + self.text.encode()).digest()
        return AESGCM(key)

    @property
    def csrf(self) -> str:
        """See `tunnel.api.page_csrf`."""
        return page_csrf(self.text)

    @classmethod
    def new(cls, random: Callable[[int], bytes] = os.urandom) -> SessionSecret:
        """Return a new secret."""
        return cls(_encoded(random(_BYTES)))

    def seal(
        self, content: bytes, random: Callable[[int], bytes] = os.urandom
    ) -> bytes:
        """Encrypt *content*."""
        nonce = random(_NONCE)
        return nonce + self._cipher.encrypt(nonce, content, self.key.encode())

    def open(self, sealed: bytes) -> bytes:
        """
        Decrypt what `seal` returned.

        :raises ValueError: somebody changed it, or it belongs to another session.
        """
        try:
            return self._cipher.decrypt(
                sealed[:_NONCE], sealed[_NONCE:], self.key.encode()
            )
        except (InvalidTag, ValueError):
            raise ValueError("the stored session was changed") from None

    def __repr__(self) -> str:
        return f"<SessionSecret {self.key[:8]}>"


def _encoded(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
