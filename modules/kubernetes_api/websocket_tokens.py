"""
Tokens for WebSockets of browsers, which can set no header field except the subprotocol.

A page requests a token with its usual credential, at the path of the WebSocket, with
``?kas-websocket-token-request=true``, and opens the WebSocket with the subprotocol
``websocket-token.kas.gitlab.com.<token>``.

The token is the encrypted credential: each kas with the secret can decrypt it. So a
WebSocket is authorized like every request, and ends with its credential. A token opens
only one WebSocket, so a token that is read from the log of a proxy is useless.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import secrets
from collections.abc import Callable
from typing import Final

import attrs
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tunnel.api import IStore
from tunnel.errors import CallError, Status
from tunnel.http1 import RequestHead
from tunnel.toolkit.recent import Recent

__all__ = [
    "LIFETIME",
    "REQUEST",
    "SealedCredential",
    "UsedTokens",
    "WebSocketTokens",
]

#: Query parameter that requests a token.
REQUEST: Final = b"kas-websocket-token-request"

#: Maximum seconds between the response with the token and the request that opens the
#: WebSocket.
LIFETIME: Final = 30.0

#: Maximum difference between the clocks of two kas, in seconds.
_LEEWAY: Final = 5.0

#: The purpose of the key: the same secret gives different keys for different purposes.
_PURPOSE: Final = b"kas websocket token"

_NONCE: Final = 12

#: Maximum number of used tokens that this kas remembers: 10,000 in the 40 seconds of a
#: token's maximum lifetime, with 150 bytes each.  The oldest is forgotten first.
MAX_USED: Final = 10_000

_PROTOCOLS = re.compile(rb"\r\nsec-websocket-protocol:([^\r]*)", re.IGNORECASE)
_PREFIX: Final = b"websocket-token.kas.gitlab.com."


@attrs.frozen
class SealedCredential:
    """Content of an encrypted credential; see `IAuthenticator`."""

    kind: str
    agent: str
    token: str = attrs.field(repr=False)
    #: Identifier of the token that contained this credential; empty without a token.
    sealed_in: str = attrs.field(default="", eq=False, repr=False)


class WebSocketTokens:
    """
    Encryption and decryption of credentials.

    :param secret: shared by all kas that a client may reach.
    :param now: returns the time of day.
    """

    def __init__(self, secret: bytes, now: Callable[[], float]) -> None:
        self._cipher = AESGCM(hashlib.sha256(_PURPOSE + secret).digest())
        self._now = now

    def seal(self, credential: SealedCredential, path: bytes) -> str:
        """
        Return a token that contains *credential* and is valid from now on.

        :param path: the path of its WebSocket.
        """
        said = (credential.kind, credential.agent, credential.token)
        content = json.dumps([self._now() + LIFETIME, *said]).encode()
        nonce = secrets.token_bytes(_NONCE)
        sealed = nonce + self._cipher.encrypt(nonce, content, path)
        return base64.urlsafe_b64encode(sealed).rstrip(b"=").decode()

    def open(self, token: bytes, path: bytes) -> SealedCredential:
        """
        Decrypt a token.

        :raises ValueError: if the token was made with another secret or for another
            path, or has expired.
        """
        try:
            sealed = base64.b64decode(
                token + b"=" * (-len(token) % 4), b"-_", validate=True
            )
            nonce = sealed[:_NONCE]
            content = self._cipher.decrypt(nonce, sealed[_NONCE:], path)
        except (ValueError, InvalidTag):
            raise ValueError("the WebSocket token is not valid") from None
        until, kind, agent, secret = json.loads(content)
        if not -_LEEWAY <= until - self._now() <= LIFETIME + _LEEWAY:
            raise ValueError("the WebSocket token expired: ask for another")
        return SealedCredential(kind, agent, secret, nonce.hex())

    def credential(self, head: RequestHead, path: bytes) -> SealedCredential | None:
        """
        Return the credential of a WebSocket with a token; None without a token.

        The subprotocol with the token is not forwarded.

        :raises ValueError: if the token is invalid.
        """
        found = b",".join(_PROTOCOLS.findall(head.fields))
        if _PREFIX not in found:
            return None
        protocols = [one.strip(b" \t") for one in found.split(b",")]
        tokens = [one for one in protocols if one.startswith(_PREFIX)]
        if len(tokens) != 1:
            raise ValueError("more than one WebSocket token")
        kept = b", ".join(one for one in protocols if one != tokens[0])
        head.fields = _PROTOCOLS.sub(b"", head.fields)
        if kept:
            head.fields += b"\r\nSec-WebSocket-Protocol: " + kept
        return self.open(tokens[0][len(_PREFIX) :], path)


class UsedTokens:
    """
    Record of the tokens that were used to open a WebSocket.

    :param store: opens the store that all kas share; while it is unavailable, each kas
        remembers only its own tokens.
    """

    def __init__(self, store: Callable[[], IStore]) -> None:
        # The store is opened at the first use, because most kas do not serve browsers.
        self._store = store
        self._here: Recent[str, None] = Recent(MAX_USED)

    async def use(self, name: str) -> None:
        """
        Record that the token with the id *name* (`SealedCredential.sealed_in`) is used.

        :raises CallError: UNAUTHENTICATED if the token was used before.
        """
        text = "the WebSocket token was used before: ask for another"
        used = CallError(Status.UNAUTHENTICATED, text)
        if name in self._here:
            raise used
        self._here[name] = None
        try:
            await self._store().set(
                name, b"1", version=0, expires_after=LIFETIME + 2 * _LEEWAY
            )
        except CallError as error:
            if error.status is Status.ABORTED:
                raise used from None
