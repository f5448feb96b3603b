"""The token in front of every call of the external API."""

from __future__ import annotations

from pathlib import Path

import pytest
from twisted.internet.task import Clock

from kas.api.auth import AUDIENCE, Authenticator
from kas.fleet.tokens import PeerTokens
from kas.identity.jwt import Secrets, sign
from tunnel.errors import CallError, Status

NOW = 1_800_000_000.0


@pytest.fixture
def secrets(tmp_path: Path) -> Secrets:
    file = tmp_path / "secret"
    file.write_text("0123456789abcdef" * 4)
    return Secrets(file, clock=Clock())


def check(secrets: Secrets, token: str) -> None:
    Authenticator(secrets, "", lambda: NOW).check(f"Bearer {token}")


def test_a_token_between_kas(secrets: Secrets) -> None:
    """It has the same audience and perhaps the same secret, and calls nothing."""
    url = "tcp://kas-2:8155"
    token = PeerTokens(secrets, "tcp://kas-1:8155", lambda: NOW).sign(url).text.decode()
    with pytest.raises(CallError) as caught:
        check(secrets, token)
    assert caught.value.status is Status.UNAUTHENTICATED
    assert "between kas" in caught.value.message


@pytest.mark.parametrize("issuer", ["gitlab", "gitlab.example.org", "kas"])
def test_other_issuers(secrets: Secrets, issuer: str) -> None:
    """Secret and audience decide."""
    token = sign(secrets, issuer=issuer, audience=AUDIENCE, now=NOW, lifetime=30.0)
    check(secrets, token)
