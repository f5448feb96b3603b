"""
Tokens for authentication between kas.

Addresses of other kas come from the store that all of them share, and a program that
can write to this store may insert its own address.  Therefore a token names the address
of the intended kas, a kas at another address does not accept it, and each
kas accepts a token only once.

The dialled kas proves in WELCOME that it has the secret, too; otherwise a program that
can write to the store could receive requests of users, and answer them.  The proof is
for one token and one address, so another kas cannot be made to create it.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections import OrderedDict
from collections.abc import Callable

import attrs

from kas.identity import jwt
from tunnel.errors import CallError, Status
from tunnel.session.roles import KAS

__all__ = ["IDENTITY", "PeerToken", "PeerTokens"]

#: Issuer and audience of tokens between kas; GitLab's tokens have another issuer.
IDENTITY = "gitlab-kas"

#: Lifetime of a token, in seconds.
LIFETIME = 5.0

#: Maximum number of used tokens that are remembered until they expire: enough for a
#: thousand kas that connect to this kas each second, during the lifetime of a token and
#: the leeway.
MAX_USED = 100_000


#: Label of the key that proofs are made with, so that a proof can never be used as
#: another message that the same secret signs.
_PROOF_KEY = b"txkas/1 proof of the dialled kas"


@attrs.frozen
class PeerToken:
    """Token of one session between kas, and the proof that it requires."""

    #: The token, as ``Hello.credential``.
    text: bytes = attrs.field(repr=False)
    #: The value that ``Welcome.proof`` must have.
    proof: bytes = attrs.field(repr=False)
    #: The secret that signed the token.
    secret: bytes = attrs.field(default=b"", repr=False)


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

    @property
    def accepted(self) -> tuple[bytes, ...]:
        """Return the secrets that are accepted now."""
        return self._secrets.accepted

    def sign(self, url: str) -> PeerToken:
        """Return a token for the kas at *url*."""
        secret, token_id = self._secrets.current, secrets.token_hex(16)
        text = jwt.sign(
            secret,
            issuer=IDENTITY,
            audience=[IDENTITY, url],
            now=self._now(),
            lifetime=LIFETIME,
            token_id=token_id,
        )
        return PeerToken(text.encode(), _proof(secret, token_id, url), secret)

    def verify(self, token: bytes) -> PeerToken:
        """
        Accept a token of another kas, once.

        :returns: the token, with the proof for the other kas.

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
        token_id = claims.get("jti")
        if not isinstance(token_id, str) or not token_id:
            text = "JWT validation failed: the id of the token (jti) is missing"
            raise CallError(Status.UNAUTHENTICATED, text)
        secret = self._secret_of(token)
        signed = token.rpartition(b".")[0]
        self._use(hashlib.sha256(signed).digest(), now, claims["exp"] + jwt.LEEWAY)
        return PeerToken(token, _proof(secret, token_id, self._url), secret)

    def _secret_of(self, token: bytes) -> bytes:
        """Return the secret that signed a token."""
        for secret in self._secrets.accepted:
            if jwt.signed_payload(token, [secret], ("HS256",)) is not None:
                return secret
        # The secret was replaced since the token was verified.
        text = "JWT validation failed: the signature was not made with this secret"
        raise CallError(Status.UNAUTHENTICATED, text)

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


def _proof(secret: bytes, token_id: str, url: str) -> bytes:
    """
    Return the proof for the token *token_id* of a kas that dials the kas at *url*.

    The format is in ``docs/protocol.rst``.
    """
    key = hmac.digest(secret, _PROOF_KEY, "sha256")
    parts = [KAS, KAS, token_id, url]
    message = b"".join(
        len(data).to_bytes(4, "big") + data
        for data in (part.encode("utf-8", "surrogateescape") for part in parts)
    )
    return hmac.digest(key, message, "sha256")
