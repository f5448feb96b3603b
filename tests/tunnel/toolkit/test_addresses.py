"""Addresses of clients, as limits count them."""

from __future__ import annotations

import pytest

from tunnel.toolkit.addresses import client_network


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("192.0.2.1", "192.0.2.2", False),
        ("192.0.2.1", "::ffff:192.0.2.1", True),
        ("2001:db8::1", "2001:db8::ffff:0:1", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("", "/run/kas", True),
    ],
)
def test_networks(one: str, other: str, same: bool) -> None:
    assert (client_network(one) == client_network(other)) is same
