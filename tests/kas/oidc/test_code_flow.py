"""The code flow without I/O; tests of kasctl's sign-in try the rest of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from kas.oidc import code_flow as module
from kas.oidc.code_flow import (
    MAX_HINT,
    CodeFlow,
    IssuedTokens,
    SignInAgain,
    SignInFailed,
    name_of,
    unverified_claims,
)

ISSUER = "https://id.example.com"


def flow(**more: Any) -> CodeFlow:
    description = {
        "authorization_endpoint": f"{ISSUER}/authorize",
        "end_session_endpoint": f"{ISSUER}/end?a=b",
        **more,
    }
    return CodeFlow(ISSUER, "kubernetes", ("email",), description)


def query(url: str) -> dict[str, str]:
    return {name: one for name, (one,) in parse_qs(urlsplit(url).query).items()}


def test_begin() -> None:
    """The challenge is the digest of the verifier (RFC 7636, appendix B)."""
    verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"
    texts: Iterator[str] = iter(("of the state", "of the nonce", verifier))
    begun = flow().begin("https://kas.example.com/back", lambda: next(texts))
    assert begun.url.startswith(f"{ISSUER}/authorize?")
    assert query(begun.url) == {
        "client_id": "kubernetes",
        "scope": "openid email",
        "response_type": "code",
        "redirect_uri": "https://kas.example.com/back",
        "state": "of the state",
        "nonce": "of the nonce",
        "code_challenge": "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM",
        "code_challenge_method": "S256",
    }
    first, second = flow().begin("https://a"), flow().begin("https://a")
    assert len({*first[1:], *second[1:]}) == 6
    assert repr(begun) == "<BegunFlow>"
    assert repr(IssuedTokens("secret", "secret")) == "<IssuedTokens>"


def test_end_url() -> None:
    back = "https://kas.example.com/bye"
    url = flow().end_url("x.y.z", back)
    assert url.startswith(f"{ISSUER}/end?a=b&")
    assert query(url) == {
        "a": "b",
        "id_token_hint": "x.y.z",
        "client_id": "kubernetes",
        "post_logout_redirect_uri": back,
    }
    assert "id_token_hint" not in query(flow().end_url("x" * (MAX_HINT + 1), back))
    without = CodeFlow(ISSUER, "kubernetes", (), {})
    assert without.end_url("x.y.z", back) == ""
    assert flow(end_session_endpoint=None).end_url("x.y.z", back) == ""
    for wrong in ("http://id.example.com/end", "https://id.example.com/#x", 7, ""):
        with pytest.raises(SignInFailed, match="end_session_endpoint"):
            flow(end_session_endpoint=wrong).end_url("x.y.z", back)


def test_hidden_values() -> None:
    """The provider may repeat secrets in its errors; messages do not."""
    said = {"error": "invalid_client", "error_description": "bad s3cret or refresh"}
    with pytest.raises(SignInFailed, match=r"bad \.\.\. or \.\.\.$"):
        flow().renewed(401, said, "refresh", "s3cret")
    with pytest.raises(SignInAgain, match=r"bad \.\.\. or \.\.\.$"):
        flow().renewed(400, {**said, "error": "invalid_grant"}, "refresh", "s3cret")


def test_old_token() -> None:
    assert unverified_claims("x") == {}
    assert unverified_claims("x.W10.x") == {}
    assert unverified_claims("x.e30.x") == {}


def test_name() -> None:
    """The first claim that is a text, without control characters."""
    assert name_of({"preferred_username": 7, "email": "a@b\x1b", "sub": "1"}) == "a@b?"
    assert name_of({"sub": "x" * 1000}) == "x" * module.MAX_NAME
    assert name_of({}) == "nobody"
