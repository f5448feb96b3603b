"""Verification of tokens that an identity provider signed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping
from typing import Any

import attrs

from kas.config.oidc import OpenIdConnect
from kas.identity.jwt import read_claims, read_header, signed_payload
from kas.oidc.code_flow import MAX_TOKEN
from kas.oidc.keys import ProviderKeys, VerificationKey
from tunnel.errors import CallError, Status

__all__ = ["MAX_ID", "TokenVerifier", "VerifiedToken", "is_id", "refused"]

#: Types of an ID token, and of a logout token (OpenID Connect Back-Channel Logout 1.0,
#: 2.4, which permits the general type, too).
_ID_TYPES = frozenset({"JWT"})
_LOGOUT_TYPES = frozenset({"JWT", "LOGOUT+JWT"})

#: Claim of a logout token that says what it is.
_LOGOUT_EVENT = "http://schemas.openid.net/event/backchannel-logout"

#: Maximum age of a logout token in seconds.  Providers send it at once, and repeat it
#: for a few minutes if kas does not respond; an old token would end newer sessions.
MAX_LOGOUT_AGE = 600.0

#: Maximum characters of an id in a token: OpenID Connect Core, 2, limits ``sub``.
MAX_ID = 255


@attrs.frozen(eq=False)
class VerifiedToken:
    """
    Token whose signature and claims were verified.

    :ivar digest: digest of the signed part, because some signatures can be changed into
        other valid signatures.
    """

    claims: Mapping[str, Any] = attrs.field(repr=False)
    key: VerificationKey
    digest: str


class TokenVerifier:
    """Verifier of the tokens of one provider for one client."""

    def __init__(
        self, settings: OpenIdConnect, keys: ProviderKeys, now: Callable[[], float]
    ) -> None:
        self._settings = settings
        self._keys = keys
        self._now = now

    async def id_token(self, token: str) -> VerifiedToken:
        """
        Verify an ID token.

        :raises CallError: UNAUTHENTICATED with the reason, without any part of the
            token; UNAVAILABLE if the keys of the provider are unavailable.
        """
        settings = self._settings
        # Logout tokens and some access tokens have another type (RFC 8725, 3.11).
        found = await self._signed(token, _ID_TYPES, "an ID token")
        claims = found.claims
        party = claims.get("azp")
        if party is not None and party not in (
            settings.client_id,
            *settings.authorized_parties,
        ):
            raise refused(
                "it was issued to another client (azp); if that client may use "
                "tokens for kas, list it in oidc.authorized_parties"
            )
        if "events" in claims:
            raise refused("it is not an ID token (events)")
        for name, wanted in settings.required_claims.items():
            if claims.get(name) != wanted:
                raise refused(
                    f"its claim {name!r} does not have the value that kas requires"
                )
        return found

    async def logout_token(self, token: str) -> VerifiedToken:
        """
        Verify a logout token (OpenID Connect Back-Channel Logout 1.0, 2.6).

        A repeated token is accepted, because the provider repeats it if kas could not
        end the sessions; the caller keeps sessions that began after its ``iat``.  Its
        claims ``sub`` and ``sid`` are ids (`is_id`) if they exist, and one of them
        exists.

        :raises CallError: see `id_token`.
        """
        found = await self._signed(token, _LOGOUT_TYPES, "a logout token")
        claims = found.claims
        events = claims.get("events")
        if not isinstance(events, dict) or not isinstance(
            events.get(_LOGOUT_EVENT), dict
        ):
            raise refused("it is not a logout token (events)")
        if "nonce" in claims:
            raise refused("a logout token must not have a nonce")
        issued_at = claims.get("iat")
        if issued_at is None:
            raise refused("the time of issue (iat) is missing")
        if issued_at < self._now() - MAX_LOGOUT_AGE - self._settings.clock_skew:
            raise refused(f"it was issued more than {MAX_LOGOUT_AGE:g} s ago (iat)")
        names = [name for name in ("sub", "sid") if claims.get(name) is not None]
        for name in (*names, "jti"):
            if not is_id(claims.get(name)):
                raise refused(
                    f"its claim {name!r} is not a text of 1 to {MAX_ID} characters"
                )
        if not names:
            raise refused("it names neither a user (sub) nor a session (sid)")
        return found

    async def _signed(
        self, token: str, types: Collection[str], what: str
    ) -> VerifiedToken:
        settings = self._settings
        if len(token) > MAX_TOKEN or not token.isascii():
            raise refused(f"it is not ASCII text of at most {MAX_TOKEN} characters")
        raw = token.encode("ascii")
        header = read_header(raw, settings.signing_algorithms)
        kid = header.get("kid")
        if str(header.get("typ", "JWT")).upper() not in types:
            raise refused(f"it is not {what} (typ)")
        if kid is not None and not isinstance(kid, str):
            raise refused("its kid is not a text")
        key = await self._keys.find(header["alg"], kid)
        payload = signed_payload(raw, [key.public], [key.algorithm])
        if payload is None:
            raise refused("its signature was not made with the identity provider's key")
        claims = read_claims(
            payload,
            settings.client_id,
            settings.issuer,
            now=self._now(),
            leeway=settings.clock_skew,
            longest=settings.max_token_lifetime,
        )
        signed = hashlib.sha256(raw.rpartition(b".")[0])
        return VerifiedToken(claims, key, signed.hexdigest())


def is_id(found: object) -> bool:
    """Tell whether *found* is a text of at most `MAX_ID` characters, and not empty."""
    return isinstance(found, str) and 0 < len(found) <= MAX_ID


def refused(why: str) -> CallError:
    """Return the error for a token that is not valid."""
    return CallError(Status.UNAUTHENTICATED, f"the token is not valid: {why}")
