"""
Credentials in requests: in ``Authorization``, in a subprotocol, or in a cookie.

Browsers can set no header of a WebSocket except the subprotocols.  A page therefore
offers a subprotocol that contains its token, as for the Kubernetes API.  A client that
cannot do that sends its token in the first message (`messages.AUTHENTICATE`).
"""

from __future__ import annotations

import base64
import hashlib
import re
from typing import Final
from urllib.parse import unquote_plus

import attrs

from tunnel.api import (
    PAGE_SESSION,
    SESSION_COOKIE,
    WebSocketRequest,
    page_session,
)
from tunnel.errors import CallError, Status

__all__ = ["BEARER_PROTOCOL", "CableCredential", "credential_in", "parse_bearer"]

#: Prefix of a subprotocol with a token in base64url, without padding.
BEARER_PROTOCOL: Final = "base64url.bearer.authorization.k8s.io."

_COOKIE: Final = "_gitlab_kas"
_CSRF_PARAMETER: Final = "gitlab-csrf-token"

#: Kind and agent are missing in tokens that name neither.
_BEARER: Final = re.compile(
    r"(?:([a-z_]{1,32}):([A-Za-z0-9][A-Za-z0-9._-]{0,127}):)?([!-~]{1,8192})"
)


@attrs.frozen
class CableCredential:
    """
    A credential, not checked yet: see `tunnel.api.IUsers.authorize`.

    :ivar agent: the agent that the credential names; empty if it names none.
    """

    kind: str
    agent: str
    token: str = attrs.field(repr=False)

    @property
    def key(self) -> str:
        """Text that is the same for each connection with this credential."""
        text = f"{self.kind}\0{self.token}".encode("utf-8", "surrogateescape")
        return hashlib.sha256(text).hexdigest()[:32]


def parse_bearer(text: str) -> CableCredential:
    """
    Return the credential in a bearer token: ``<kind>:<agent>:<token>`` or ``<token>``.

    :raises CallError: UNAUTHENTICATED if *text* is not a token.
    """
    match = _BEARER.fullmatch(text)
    if match is None:
        raise CallError(Status.UNAUTHENTICATED, "the bearer token is malformed")
    return CableCredential(match[1] or "", match[2] or "", match[3])


def credential_in(request: WebSocketRequest) -> CableCredential | None:
    """
    Return the credential of a request; None if it has none.

    :raises CallError: UNAUTHENTICATED if the credential is malformed.
    """
    for read in _READERS:
        found = read(request)
        if found is not None:
            return found
    return None


def _in_header(request: WebSocketRequest) -> CableCredential | None:
    values = request.headers.get("authorization", ())
    if not values:
        return None
    scheme, _, token = values[0].partition(" ")
    if len(values) > 1 or scheme.lower() != "bearer":
        raise CallError(Status.UNAUTHENTICATED, "send one Authorization: Bearer")
    return parse_bearer(token.strip())


def _in_subprotocol(request: WebSocketRequest) -> CableCredential | None:
    offered = [one for one in request.subprotocols if one.startswith(BEARER_PROTOCOL)]
    if not offered:
        return None
    if len(offered) > 1:
        raise CallError(Status.UNAUTHENTICATED, "more than one token in subprotocols")
    encoded = offered[0].removeprefix(BEARER_PROTOCOL)
    try:
        padded = encoded + "=" * (-len(encoded) % 4)
        token = base64.b64decode(padded, b"-_", validate=True).decode("ascii")
    except ValueError:
        text = "the token in the subprotocol is not base64url"
        raise CallError(Status.UNAUTHENTICATED, text) from None
    return parse_bearer(token)


def _in_cookie(request: WebSocketRequest) -> CableCredential | None:
    """
    Return the session of a page of GitLab.

    A browser sends the cookie for pages of any origin.  Only GitLab's page knows the
    CSRF token, and the origin was checked before.
    """
    pairs = ";".join(request.headers.get("cookie", ())).split(";")
    named = (pair.strip().partition("=") for pair in pairs)
    cookies = [value for name, _, value in named if name == _COOKIE]
    if not cookies:
        return None
    tokens = request.query.get(_CSRF_PARAMETER, ())
    if len(cookies) != 1 or len(tokens) != 1 or not request.origin:
        text = (
            "a request with GitLab's session cookie needs the header field Origin and "
            f"one query parameter {_CSRF_PARAMETER}"
        )
        raise CallError(Status.UNAUTHENTICATED, text)
    token = f"{tokens[0]} {unquote_plus(cookies[0], 'latin-1')}"
    return CableCredential(SESSION_COOKIE, "", token)


def _in_session(request: WebSocketRequest) -> CableCredential | None:
    """
    Return the session of kas' own page.

    The browser sends the cookie to pages of other origins as well, which need another
    credential.
    """
    session = page_session(request.headers.get("cookie", ()))
    if not session or request.origin.lower() != request.own_origin:
        return None
    return CableCredential(PAGE_SESSION, "", session)


# A browser may have both cookies, and GitLab's pages are of another origin.
_READERS: Final = (_in_header, _in_subprotocol, _in_session, _in_cookie)
