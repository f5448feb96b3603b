"""
Secrets that kas shares with GitLab or with other kas, and JSON Web Tokens that are
signed with these secrets.

`verify` accepts only HMAC: both ends have the same secret, so a token that is signed in
another way comes from another party, whatever its header says.  The header selects one
of the algorithms that the caller allows; its other content is ignored.
"""

from __future__ import annotations

import base64
import json
import math
import os
import warnings
from collections.abc import Collection, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import jwt
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from tunnel.errors import CallError, Status
from tunnel.toolkit.files import (
    HOW_TO_MAKE_ONE,
    WatchedFile,
    file_version,
    read_base64_secret,
    warn_if_public,
)

__all__ = [
    "HMAC_ALGORITHMS",
    "LEEWAY",
    "Secrets",
    "read_claims",
    "read_header",
    "read_secret",
    "sign",
    "signed_payload",
    "verify",
]

#: All algorithms that kas can accept.
HMAC_ALGORITHMS = ("HS256", "HS384", "HS512")

#: Maximum difference between the clocks of two machines, in seconds.
LEEWAY = 60.0

#: Maximum characters of a token.  GitLab's tokens have 300; tokens that exceed the
#: maximum are not even decoded.
MAX_TOKEN = 8192

#: Maximum remaining lifetime of a token, in seconds.  GitLab's tokens last a minute; a
#: long-lived token is a password that cannot be revoked.
MAX_LIFETIME = 3600.0

#: Minimum bytes of a decoded secret, because shorter HMAC keys can be guessed (RFC
#: 7518, 3.2).
MIN_SECRET = 32

#: Seconds between two checks whether a file with a secret has changed.
LOOK_INTERVAL = 1.0

#: Seconds to subtract from the time in kas' own tokens, for a peer whose clock is
#: behind.
NOT_BEFORE = 5.0

# Ignore a warning: a secret of 32 bytes is enough for all three algorithms, but PyJWT
# expects 64 for HS512.
warnings.filterwarnings("ignore", "The HMAC key is", UserWarning)

_jws = jwt.PyJWS()
_hmac = jwt.get_algorithm_by_name("HS256")


def read_secret(path: str | os.PathLike[str]) -> bytes:
    """
    Read a secret in base64 from a file, as GitLab's tools write it.

    :raises ValueError: if the secret is invalid; the text contains the reason without
        quoting the secret.
    """
    secret = read_base64_secret(path, MIN_SECRET)
    try:
        _hmac.prepare_key(secret)
    except jwt.InvalidKeyError:
        raise ValueError(
            f"{path} contains a public key or certificate, not a secret; "
            f"{HOW_TO_MAKE_ONE}"
        ) from None
    return secret


class Secrets:
    """
    Secrets from files: one for signing, and additional secrets whose signatures are
    accepted.

    To replace a secret without an interruption: make every kas accept the new secret,
    then sign with it, and then remove the old secret.

    :raises ValueError: if a file is invalid.
    """

    _log = Logger()

    def __init__(
        self, current: Path, accepted: Iterable[Path] = (), *, clock: IReactorTime
    ) -> None:
        self._files = [
            WatchedFile(
                partial(file_version, path),
                partial(self._read, path),
                self._refused,
                unusable=ValueError,
                seconds=clock.seconds,
                interval=LOOK_INTERVAL,
                changed=partial(self._changed, path),
            )
            for path in (current, *accepted)
        ]

    @property
    def current(self) -> bytes:
        """Return the secret for signatures by kas."""
        return self._files[0].get()

    @property
    def accepted(self) -> tuple[bytes, ...]:
        """Return the accepted secrets, beginning with the current secret."""
        return tuple(file.get() for file in self._files)

    def _read(self, path: Path) -> bytes:
        secret = read_secret(path)
        warn_if_public(path)
        return secret

    def _changed(self, path: Path) -> None:
        self._log.info("secret {path} read again", path=str(path))

    def _refused(self, error: Exception) -> None:
        self._log.error(
            "the previous secret stays in effect: {problem}", problem=str(error)
        )


def sign(
    secrets: Secrets | bytes,
    *,
    issuer: str,
    audience: str | Sequence[str],
    now: float,
    lifetime: float = 5.0,
    algorithm: str = "HS256",
    token_id: str = "",
) -> str:
    """
    Return a signed token of kas.

    :param secrets: the secrets, if the current one should be used; or the secret
        itself.
    :param lifetime: lifetime in seconds; short, because kas makes a token for each
        connection or call.
    :param token_id: id that distinguishes this token from other tokens (``jti``); empty
        for no id.
    """
    claims: dict[str, Any] = {
        "iss": issuer,
        "aud": audience,
        "iat": math.floor(now),
        "nbf": math.floor(now - NOT_BEFORE),
        "exp": math.ceil(now + lifetime),
    }
    if token_id:
        claims["jti"] = token_id
    secret = secrets.current if isinstance(secrets, Secrets) else secrets
    return _jws.encode(json.dumps(claims).encode(), secret, algorithm)


def verify(
    token: str | bytes,
    secrets: Secrets,
    audience: str,
    issuer: str,
    algorithms: Collection[str] = HMAC_ALGORITHMS,
    *,
    now: float,
    leeway: float = LEEWAY,
) -> dict[str, Any]:
    """
    Verify a token for *audience* at the time *now*, and return its claims.

    ``exp`` and ``aud`` are required; ``nbf`` and ``iat`` are checked if present.

    :param issuer: the required issuer; empty to accept any issuer.
    :param algorithms: the accepted algorithms, from `HMAC_ALGORITHMS`.
    :raises CallError: UNAUTHENTICATED if the token is not valid; the message may be
        shown to the sender of the token.
    """
    if len(token) > MAX_TOKEN:
        _refuse(f"the token is longer than {MAX_TOKEN} characters")
    if isinstance(token, str):
        if not token.isascii():
            _refuse("not a token")
        token = token.encode("ascii")
    allowed = [name for name in HMAC_ALGORITHMS if name in algorithms]
    read_header(token, allowed)
    payload = signed_payload(token, secrets.accepted, allowed)
    if payload is None:
        _refuse("the signature was not made with this secret")
    return read_claims(payload, audience, issuer, now=now, leeway=leeway)


def read_header(token: bytes, algorithms: Collection[str]) -> dict[str, Any]:
    """
    Return the unverified header of a token.

    :param algorithms: accepted algorithms.
    :raises CallError: UNAUTHENTICATED if the header is invalid.
    """
    if not all(map(_is_canonical, token.split(b"."))):
        _refuse("it is not base64url without padding")
    try:
        header = _jws.get_unverified_header(token)
        if "crit" in header:
            # RFC 7515, 4.1.11: tokens with critical parameters that kas does not
            # understand must be refused.
            _refuse("the header has critical parameters")
        if header.get("alg") not in algorithms:
            _refuse(f"the algorithm must be one of {', '.join(algorithms)}")
    except (jwt.PyJWTError, ValueError, TypeError, RecursionError):
        _refuse("not a token")
    return header


def _is_canonical(part: bytes) -> bool:
    # Refuse padding, and unused bits in the last character: otherwise one token could
    # have many spellings, each with its own credential id.
    try:
        data = base64.b64decode(part + b"=" * (-len(part) % 4), b"-_", validate=True)
    except ValueError:
        return False
    return base64.urlsafe_b64encode(data).rstrip(b"=") == part


def signed_payload(
    token: bytes, keys: Iterable[Any], algorithms: Collection[str]
) -> bytes | None:
    """Return the payload of a token if one of *keys* signed it; otherwise None."""
    payload = None
    for key in keys:
        try:
            found = _jws.decode_complete(token, key, list(algorithms))["payload"]
        except jwt.PyJWTError:
            continue
        payload = bytes(found)
    return payload


def read_claims(
    payload: bytes,
    audience: str,
    issuer: str,
    *,
    now: float,
    leeway: float,
    longest: float = MAX_LIFETIME,
) -> dict[str, Any]:
    """
    Check the claims in the payload of a signed token, and return them; see `verify`.

    :param longest: maximum remaining lifetime in seconds.
    """
    claims = _claims(payload)
    _check_audience(claims.get("aud"), audience)
    if issuer and claims.get("iss") != issuer:
        _refuse(f"the issuer (iss) must be {issuer!r}")
    _check_times(claims, now, leeway, longest)
    return claims


def _claims(payload: bytes) -> dict[str, Any]:
    try:
        claims = json.loads(
            payload, object_pairs_hook=_once, parse_constant=_no_constant
        )
    except (ValueError, RecursionError):
        _refuse("the claims cannot be read")
    if not isinstance(claims, dict):
        _refuse("the claims are not an object")
    return claims


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    # Refuse duplicate claims, because two parsers may use different values of them.
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("it contains a duplicated name")
    return found


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not JSON")


def _check_audience(found: object, audience: str) -> None:
    accepted = found if isinstance(found, list) else [found]
    if not all(isinstance(one, str) for one in accepted) or audience not in accepted:
        _refuse(f"the audience (aud) must be {audience!r}")


def _check_times(
    claims: dict[str, Any], now: float, leeway: float, longest: float
) -> None:
    skew = f"check the clocks of both machines ({leeway:g} s of difference are allowed)"
    expires = _time(claims, "exp")
    if expires is None:
        _refuse("the time of expiry (exp) is missing")
    if expires <= now - leeway:
        _refuse(f"the token expired {now - expires:.0f} s ago; {skew}")
    for name, what in (("nbf", "valid"), ("iat", "issued")):
        begins = _time(claims, name)
        if begins is not None and begins > now + leeway:
            ahead = begins - now
            _refuse(f"the token is {what} only in {ahead:.0f} s ({name}); {skew}")
    # Check this last, because every token seems valid for too long if this clock is
    # behind.
    if expires > now + longest + leeway:
        _refuse(f"the token is valid for more than {longest:g} s from now")


def _time(claims: dict[str, Any], name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    # Check for bool, because bool is an int in Python.
    if isinstance(value, bool) or not isinstance(value, int | float):
        _refuse(f"{name} is not a time")
    try:
        seconds = float(value)
    except OverflowError:
        seconds = math.inf
    if not math.isfinite(seconds):
        _refuse(f"{name} is not a time")
    return seconds


def _refuse(reason: str) -> NoReturn:
    raise CallError(Status.UNAUTHENTICATED, f"JWT validation failed: {reason}")
