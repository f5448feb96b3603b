"""Credentials of users who signed in, and sign-outs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tunnel.api import LoggedOut, SignedIn, SignInBegun


def signed_in(**more: Any) -> SignedIn:
    wanted: dict[str, Any] = {
        "kind": "oidc",
        "token": "secret-token",
        "refresh_token": "secret-refresh",
        "expires_at": 1_700_000_000,
        "name": "Alice ж",
        "subject": "alice",
        "session": "s1",
        **more,
    }
    return SignedIn(**wanted)


def test_stored() -> None:
    """A credential comes back from a store; also one of another version of kas."""
    found = signed_in()
    assert SignedIn.from_bytes(found.to_bytes()) == found
    content = {**json.loads(found.to_bytes()), "from_the_future": 1}
    assert SignedIn.from_bytes(json.dumps(content).encode()) == found
    del content["session"], content["refresh_token"]
    without = signed_in(session="", refresh_token="")
    assert SignedIn.from_bytes(json.dumps(content).encode()) == without


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff",
        b"[]",
        b"7",
        b"{}",
        b"[" * 9999,
        signed_in().to_bytes().replace(b'"secret-token"', b"7"),
        signed_in().to_bytes().replace(b"1700000000.0", b"[]"),
        signed_in().to_bytes().replace(b"1700000000.0", b'"secret"'),
    ],
    ids=[
        "empty",
        "binary",
        "list",
        "number",
        "object",
        "deep",
        "token",
        "time",
        "text",
    ],
)
def test_no_credential(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"^these bytes are not a credential$"):
        SignedIn.from_bytes(data)


def test_repr() -> None:
    """Secrets are not in the texts that a log may contain."""
    begun = SignInBegun(url="https://secret", state="secret", secret=b"secret")
    assert "secret" not in f"{begun}{signed_in()}"
    assert "alice" in repr(signed_in())


@pytest.mark.parametrize(
    ("subject", "session", "mine", "ends"),
    [
        ("alice", "", "s1", True),
        ("alice", "s1", "s1", True),
        ("", "s1", "s1", True),
        ("alice", "s2", "s1", False),
        ("", "s2", "s1", False),
        ("bob", "s1", "s1", False),
        ("alice", "s2", "", True),
        ("", "s2", "", False),
        ("bob", "", "s1", False),
    ],
)
def test_ends(subject: str, session: str, mine: str, ends: bool) -> None:
    gone = LoggedOut(subject=subject, session=session, issued_at=1.0)
    assert gone.ends(signed_in(session=mine)) is ends
