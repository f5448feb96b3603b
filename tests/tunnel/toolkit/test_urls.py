"""URLs that may receive or contain secrets."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

import pytest

from kas.config.own_address import parse_peer_url
from tunnel.config import redis_address
from tunnel.config.listen import Listen
from tunnel.errors import ConfigurationError
from tunnel.toolkit.urls import quoted_address
from tunnel.transport.address import parse_kas_address


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://u:secret@h/a", "'https://***@h/a'"),
        ("https://u:sec/ret@h/a", "'https://***@h/a'"),
        ("http:/u:secret@h", "'***@h'"),
        ("redis://:secret@h:1", "'redis://***@h:1'"),
        ("u:secret@h:1", "'***@h:1'"),
        ("u:sec@ret@h:1", "'***@h:1'"),
        ("h:1", "'h:1'"),
        ("https://h/x", "'https://h/x'"),
        ("redis://:secret", "'redis://:***'"),
        ("redis://h:1/0?password=secret", "'redis://h:1/0?***'"),
        ("redis://u:sec?ret@h:1", "'redis://***@h:1'"),
    ],
)
def test_quoted_address(text: str, shown: str) -> None:
    assert quoted_address(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "redis://u:secret@h:1",
        "u:secret@h:1",
        "tls://u:1/secret@h:1",
        "wss://u:a/secret@h",
    ],
)
@pytest.mark.parametrize(
    "read",
    [
        redis_address,
        parse_peer_url,
        parse_kas_address,
        lambda text: Listen(network="tcp", address=text),
    ],
)
def test_refusals(read: Callable[[str], Any], text: str) -> None:
    """A message never repeats a password."""
    with pytest.raises((ValueError, ConfigurationError, ExceptionGroup)) as caught:
        read(text)
    lines = traceback.format_exception_only(caught.value)
    assert "secret" not in "".join(lines)
