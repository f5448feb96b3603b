"""
Sign-in with an authorization code and PKCE, without any I/O.

kasctl and kas share this code: it builds the parameters of each request to an identity
provider, and checks each response (OpenID Connect Core, 3.1; RFC 7636; RFC 9207).  The
caller sends the requests, and verifies the signatures of tokens if it needs to.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import secrets
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from urllib.parse import urlencode, urlsplit

import attrs

from tunnel.errors import TunnelError
from tunnel.toolkit.texts import clean
from tunnel.toolkit.urls import is_private

__all__ = [
    "MAX_BODY",
    "MAX_REASON",
    "MAX_TOKEN",
    "BegunFlow",
    "CodeFlow",
    "IssuedTokens",
    "SignInAgain",
    "SignInFailed",
    "Unreachable",
    "checked_description",
    "description_url",
    "is_same",
    "name_of",
    "read_object",
    "unusable",
    "unverified_claims",
    "unverified_payload",
]

#: Maximum bytes of a response from the provider: descriptions have 2 to 10 KiB, and
#: lists of keys with certificates up to 100 KiB.
MAX_BODY = 256 * 1024

#: Maximum characters of a token; longer tokens are not decoded.
MAX_TOKEN = 16 * 1024

#: Maximum characters of a message from the provider.
MAX_REASON = 200

#: Maximum characters of an ID token in the URL that ends the provider's session: the
#: token of a user with hundreds of groups exceeds the URLs that servers accept.
MAX_HINT = 4096

#: Maximum characters of a user's name for display.
MAX_NAME = 100

#: Errors of a renewal after which the user must sign in again (RFC 6749, 5.2; OpenID
#: Connect Core, 3.1.2.6, which some providers also use for a renewal).
_SIGN_IN_AGAIN = frozenset(
    {"invalid_grant", "interaction_required", "login_required", "consent_required"}
)


class SignInFailed(TunnelError):
    """Error if the user could not be signed in; the text contains the reason."""


class SignInAgain(SignInFailed):
    """Error if tokens cannot be renewed, and the user has to sign in again."""


class Unreachable(SignInFailed):
    """Error if the provider does not respond, or responds with a server error."""


class BegunFlow(NamedTuple):
    """
    Sign-in that has begun, until the provider redirects the browser back.

    :ivar url: the provider's URL that the browser opens.
    """

    url: str
    state: str
    nonce: str
    verifier: str

    def __repr__(self) -> str:
        return "<BegunFlow>"


class IssuedTokens(NamedTuple):
    """
    Tokens of one response of the provider; nothing is verified yet.

    :ivar refresh_token: None if the response contains none.
    """

    id_token: str
    refresh_token: str | None

    def __repr__(self) -> str:
        return "<IssuedTokens>"


@attrs.frozen
class CodeFlow:
    """
    Requests and responses of one client at one identity provider.

    :ivar scopes: scopes in addition to ``openid``, and to ``offline_access`` if the
        provider supports it.
    :ivar description: the provider's description, see `checked_description`.
    """

    issuer: str
    client_id: str
    scopes: tuple[str, ...]
    description: Mapping[str, Any] = attrs.field(repr=False)

    def endpoint(self, name: str, hint: str = "") -> str:
        """
        Return the URL that the provider announces as *name*.

        :param hint: the end of the error message.
        :raises SignInFailed: if the provider announces no such URL.
        """
        found = self.description.get(name)
        if not isinstance(found, str) or not is_private(found) or not _is_plain(found):
            raise SignInFailed(
                "the identity provider does not announce an https URL as its "
                f"{name}{hint}"
            )
        return found

    def parameters(self) -> dict[str, str]:
        """Return the parameters of every kind of sign-in: the client and its scopes."""
        offered = self.description.get("scopes_supported")
        offline = isinstance(offered, list) and "offline_access" in offered
        more = ("offline_access",) if offline else ()
        scopes = dict.fromkeys(("openid", *self.scopes, *more))
        asked = {"client_id": self.client_id, "scope": " ".join(scopes)}
        if "offline_access" in scopes:
            # Add the prompt: without it, the provider must ignore the scope (OpenID
            # Connect Core, 11).
            asked["prompt"] = "consent"
        return asked

    def begin(
        self,
        redirect_uri: str,
        make_text: Callable[[], str] = lambda: secrets.token_urlsafe(32),
    ) -> BegunFlow:
        """
        Begin a sign-in in a browser.

        :param make_text: returns a new random text of 256 bits.
        :raises SignInFailed: if the provider announces no endpoint for sign-ins.
        """
        start = self.endpoint("authorization_endpoint")
        state, nonce, verifier = (make_text() for _ in range(3))
        asked = {
            **self.parameters(),
            "response_type": "code",
            "redirect_uri": redirect_uri,
            "state": state,
            "nonce": nonce,
            "code_challenge": _base64(hashlib.sha256(verifier.encode()).digest()),
            "code_challenge_method": "S256",
        }
        return BegunFlow(_with_query(start, asked), state, nonce, verifier)

    def code(self, answer: Mapping[str, str]) -> str:
        """
        Return the code that the browser brought back.

        The caller has already compared the state (`is_same`).

        :param answer: the parameters of the redirect.
        :raises SignInFailed: if another provider issued the code, or the provider
            refused the sign-in.
        """
        said = answer.get("iss")
        demanded = self.description.get(
            "authorization_response_iss_parameter_supported"
        )
        # Check the issuer (RFC 9207): otherwise, the code could be sent to another
        # provider.
        if said != self.issuer and (said is not None or demanded is True):
            raise SignInFailed(
                "the response in the browser comes from another issuer (iss)"
            )
        code = answer.get("code")
        if "error" in answer or not code:
            raise self.refusal(None, answer, code or "")
        return code

    def code_form(self, code: str, redirect_uri: str, verifier: str) -> dict[str, str]:
        """Return the form for the token endpoint that redeems *code*."""
        return {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect_uri,
            "client_id": self.client_id,
            "code_verifier": verifier,
        }

    def renewal_form(self, refresh_token: str) -> dict[str, str]:
        """Return the form for the token endpoint that renews tokens."""
        return {
            "grant_type": "refresh_token",
            "refresh_token": refresh_token,
            "client_id": self.client_id,
        }

    def issued(
        self, status: int, answer: Mapping[str, Any], *hidden: str
    ) -> IssuedTokens:
        """
        Return the tokens in a response of the token endpoint.

        :param hidden: secret values that must not appear in the error message.
        :raises SignInFailed: if the provider refused, or the response has no ID token.
        """
        if status != 200:
            raise self.refusal(status, answer, *hidden)
        id_token = answer.get("id_token")
        if not isinstance(id_token, str) or len(id_token) > MAX_TOKEN:
            raise SignInFailed(
                "the identity provider did not return an ID token of at most "
                f"{MAX_TOKEN} characters"
            )
        refresh_token = answer.get("refresh_token")
        if not isinstance(refresh_token, str) or not refresh_token:
            refresh_token = None
        return IssuedTokens(id_token, refresh_token)

    def renewed(
        self,
        status: int,
        answer: Mapping[str, Any],
        refresh_token: str,
        *hidden: str,
    ) -> IssuedTokens:
        """
        Return the tokens in the response to `renewal_form`; the old refresh token if
        the provider issued no other one.

        :param hidden: further secret values that must not appear in the error message.
        :raises SignInAgain: if the user has to sign in again.
        :raises SignInFailed: if the provider refused for another reason.
        """
        if status == 200 and "id_token" not in answer:
            # OpenID Connect Core, 12.2: an ID token is optional.
            raise SignInAgain("the identity provider did not renew the ID token")
        if status != 200:
            error = answer.get("error")
            if isinstance(error, str) and error in _SIGN_IN_AGAIN:
                refusal = self.refusal(status, answer, refresh_token, *hidden)
                raise SignInAgain(str(refusal))
        found = self.issued(status, answer, refresh_token, *hidden)
        return found._replace(refresh_token=found.refresh_token or refresh_token)

    def check_claims(self, claims: Mapping[str, Any], nonce: str | None) -> None:
        """
        Check the claims of an ID token that only the client of the sign-in can check.

        :param nonce: the nonce of the sign-in; None for a renewal.
        :raises SignInFailed: if the token is for another client or another sign-in.
        """
        if claims.get("azp", self.client_id) != self.client_id:
            raise unusable("it is for another client (azp)")
        if nonce is not None and not is_same(claims.get("nonce"), nonce):
            raise unusable("it belongs to another sign-in (nonce)")

    def check_subject(self, claims: Mapping[str, Any], subject: object) -> None:
        """
        Check that a renewed ID token belongs to the same user as before.

        :raises SignInAgain: if the provider issued a token for another user.
        """
        if claims.get("sub") != subject:
            raise SignInAgain("the identity provider returned another user's ID token")

    def end_url(self, id_token: str, back: str) -> str:
        """
        Return the URL that ends the user's session at the provider (OpenID Connect
        RP-Initiated Logout); empty if the provider has none.

        :param back: URL of the page to which the provider then redirects the browser,
            registered at the provider.
        """
        if self.description.get("end_session_endpoint") is None:
            return ""
        end = self.endpoint("end_session_endpoint")
        asked = {"client_id": self.client_id, "post_logout_redirect_uri": back}
        if len(id_token) <= MAX_HINT:
            asked = {"id_token_hint": id_token, **asked}
        return _with_query(end, asked)

    def refusal(
        self, status: int | None, answer: Mapping[str, Any], *hidden: str
    ) -> SignInFailed:
        """
        Return the exception for an error response from the provider.

        :param hidden: secret values that must not appear in the text.
        """
        parts = [answer.get("error"), answer.get("error_description")]
        text = ": ".join(str(one) for one in parts if one) or "no reason given"
        for one in hidden:
            text = text.replace(one, "...") if one else text
        number = "" if status is None else f" with {status}"
        return SignInFailed(
            f"the identity provider refused{number}: {clean(text, MAX_REASON)}"
        )


def description_url(issuer: str) -> str:
    """Return the URL of the provider's description (OpenID Connect Discovery, 4)."""
    return issuer.rstrip("/") + "/.well-known/openid-configuration"


def checked_description(
    issuer: str, status: int, found: dict[str, Any]
) -> dict[str, Any]:
    """
    Return the provider's description, the response of `description_url`.

    :raises SignInFailed: if it describes another provider.
    """
    if status != 200:
        raise SignInFailed(
            f"{description_url(issuer)} responded with {status}; is the issuer correct?"
        )
    if found.get("issuer") != issuer:
        said = clean(str(found.get("issuer")), MAX_REASON)
        raise SignInFailed(
            f"the identity provider calls itself {said}, but the configured "
            f"issuer is {issuer}"
        )
    return found


def read_object(url: str, status: int, body: bytes) -> dict[str, Any]:
    """
    Return the JSON object in a response of the provider; an error response may have
    another body, which is then ignored.

    :param body: at least the first `MAX_BODY` + 1 bytes of the body.
    :raises Unreachable: for an error of the server.
    :raises SignInFailed: if the body is too large, or not an object.
    """
    if status >= 500 or status == 429:
        raise Unreachable(f"{url} responded with {status}")
    if len(body) > MAX_BODY:
        raise SignInFailed(f"the response of {url} has more than {MAX_BODY} bytes")
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        if status == 200:
            raise SignInFailed(f"{url} did not return a JSON object")
        found = {}
    return found


def unverified_payload(token: str) -> bytes:
    """
    Return the payload of a token, without verifying the signature of the token.

    :raises SignInFailed: if *token* is not a JSON Web Token.
    """
    parts = token.split(".")
    try:
        if len(parts) != 3:
            raise ValueError
        return base64.b64decode(parts[1] + "=" * (-len(parts[1]) % 4), b"-_", True)
    except (ValueError, binascii.Error):
        raise unusable("it is not a JSON Web Token") from None


def unverified_claims(token: str) -> dict[str, Any]:
    """
    Return the claims of a token that was verified before; none if *token* is not a
    JSON Web Token.
    """
    try:
        claims = json.loads(unverified_payload(token))
    except (ValueError, RecursionError, SignInFailed):
        return {}
    return claims if isinstance(claims, dict) else {}


def name_of(claims: Mapping[str, Any]) -> str:
    """Return the name of a user, to show to that user."""
    names = (claims.get(one) for one in ("preferred_username", "email", "name", "sub"))
    found = next((one for one in names if isinstance(one, str) and one), "nobody")
    return clean(found, MAX_NAME)


def is_same(found: object, wanted: str) -> bool:
    """Tell whether *found* is the secret text *wanted*, in constant time."""
    return isinstance(found, str) and hmac.compare_digest(
        found.encode("utf-8", "surrogatepass"), wanted.encode()
    )


def unusable(why: str) -> SignInFailed:
    """Return the exception for an ID token that cannot be used."""
    return SignInFailed(f"the ID token cannot be used: {why}")


def _with_query(url: str, asked: Mapping[str, str]) -> str:
    return f"{url}{'&' if urlsplit(url).query else '?'}{urlencode(asked)}"


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode("ascii")


def _is_plain(url: str) -> bool:
    """
    Return whether a terminal shows the URL unchanged, and a query can be appended to
    it.
    """
    return url.isascii() and url.isprintable() and not set(url) & set(" #\"'<>")
