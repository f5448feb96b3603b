"""Signatures; the expected ones come from the receivers' own libraries."""

from __future__ import annotations

import base64

import pytest

from tunnel.toolkit.webhook_signature import hub_signature, standard_signature

KEY = "whsec_MfKQ9r8GKYqTwUPD8ILPZIo2LaLw"
ID, TIME, BODY = "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}'
#: From `Webhook(KEY).sign` of the package standardwebhooks 1.1.0.
SIGNATURE = "v1,eiMbUccYwbh0u0X1ji92iG5RRUJyIGNsY1NA70ZocQI="


def test_standard() -> None:
    assert standard_signature(KEY.encode(), ID, TIME, BODY) == SIGNATURE


def test_rotation() -> None:
    """Each line is a key, and each key makes a signature."""
    other = "whsec_" + base64.b64encode(b"x" * 24).decode()
    found = standard_signature(f"{KEY}\n{other}\n".encode(), ID, TIME, BODY)
    assert found.split() == [
        SIGNATURE,
        standard_signature(other.encode(), ID, TIME, BODY),
    ]


def test_a_key_without_prefix() -> None:
    """The key is the text itself."""
    raw = base64.b64decode(KEY.removeprefix("whsec_"))
    assert standard_signature(raw, ID, TIME, BODY) == SIGNATURE


def test_a_damaged_key() -> None:
    with pytest.raises(ValueError, match="not base64") as caught:
        standard_signature(b"whsec_not*base64", ID, TIME, BODY)
    assert "not*base64" not in str(caught.value)


def test_github() -> None:
    """The example in GitHub's documentation."""
    found = hub_signature(b"It's a Secret to Everybody", b"Hello, World!")
    expected = "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
    assert found == f"sha256={expected}"
