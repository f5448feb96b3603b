"""
Tokens for authentication between kas.

Addresses of other kas come from the store that all of them share, and a program that
can write to this store may insert its own address.  Therefore a token names the address
of the intended kas, a kas at another address does not accept it, and each
kas accepts a token only once.
"""

from __future__ import annotations

import hashlib
import secrets
from collections import OrderedDict
from collections.abc import Callable

import attrs

from kas.identity import jwt
from tunnel.errors import CallError, Status

__all__ = ["IDENTITY", "PeerTokens"]

#: Issuer and audience of tokens between kas; GitLab's tokens have another issuer.
IDENTITY = "gitlab-kas"

#: Lifetime of a token, in seconds.
LIFETIME = 5.0

#: Maximum number of used tokens that are remembered until they expire: enough for a
#: thousand kas that connect to this kas each second, during the lifetime of a token and
#: the leeway.
MAX_USED = 100_000


@attrs.define(eq=False)
class PeerTokens:
    """
    Signer of tokens for other kas, and verifier of their tokens.

    :param url: the address of this kas for other kas.
    :param now: returns the time of day.
    """

    _secrets: jwt.Secrets
    _url: str
    _now: Callable[[], float]
    #: Expiry times of used tokens, by digest, in the order of their use.
    _used: OrderedDict[bytes, float] = attrs.field(factory=OrderedDict, init=False)

    def sign(self, url: str) -> bytes:
        """Return a token for the kas at *url*."""
        return jwt.sign(
            self._secrets,
            issuer=IDENTITY,
            audience=[IDENTITY, url],
            now=self._now(),
            lifetime=LIFETIME,
            token_id=secrets.token_hex(16),
        ).encode()

    def verify(self, token: bytes) -> None:
        """
        Accept a token of another kas, once.

        :raises CallError: UNAUTHENTICATED if the token is not valid, is for another
            kas, or was used before; RESOURCE_EXHAUSTED if too many tokens were used.
        """
        now = self._now()
        claims = jwt.verify(
            token,
            self._secrets,
            audience=IDENTITY,
            issuer=IDENTITY,
            algorithms=("HS256",),
            now=now,
        )
        audience = claims["aud"]
        if not isinstance(audience, list) or self._url not in audience:
            text = "JWT validation failed: the token is for a kas at another address"
            raise CallError(Status.UNAUTHENTICATED, text)
        signed = token.rpartition(b".")[0]
        self._use(hashlib.sha256(signed).digest(), now, claims["exp"] + jwt.LEEWAY)

    def _use(self, digest: bytes, now: float, until: float) -> None:
        used = self._used
        while used and next(iter(used.values())) < now:
            used.popitem(last=False)
        if digest in used:
            text = "JWT validation failed: the token was used before"
            raise CallError(Status.UNAUTHENTICATED, text)
        if len(used) >= MAX_USED:
            text = "too many kas are connecting; try again"
            raise CallError(Status.RESOURCE_EXHAUSTED, text)
        used[digest] = until
