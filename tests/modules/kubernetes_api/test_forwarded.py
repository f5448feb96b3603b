"""Addresses of clients behind proxies: believed from trusted ones, and no others."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from twisted.internet.address import IPv4Address, IPv6Address, UNIXAddress
from twisted.internet.interfaces import IAddress

from modules.kubernetes_api.forwarded import TrustedProxies
from tests.modules.kubernetes_api.cases import head_of
from tests.modules.kubernetes_api.pair import World
from tunnel.api import Access
from tunnel.http1 import RequestHead
from tunnel.toolkit.forwarded import MAX_HOPS


@attrs.frozen
class Request:
    peer_address: IAddress
    head: RequestHead


def client(host: str | None, *forwarded: str, trusted: tuple[str, ...] = ()) -> str:
    """Return the address that counts for a request from *host*."""
    lines = [f"X-Forwarded-For: {one}".encode() for one in forwarded]
    peer: Any = UNIXAddress("/run/kas")
    if host is not None:
        kind = IPv6Address if ":" in host else IPv4Address
        peer = kind("TCP", host, 1)
    request: Any = Request(peer, head_of(*lines))
    found: Any = TrustedProxies(trusted or ("10.0.0.0/8", "fd00::1")).client_of(request)
    return str(getattr(found.peer_address, "host", "unix"))


@pytest.mark.parametrize(
    ("host", "forwarded", "counts"),
    [
        ("192.0.2.1", ["198.51.100.1"], "192.0.2.1"),
        ("10.1.2.3", [], "10.1.2.3"),
        ("10.1.2.3", ["198.51.100.1"], "198.51.100.1"),
        ("::ffff:10.1.2.3", ["198.51.100.1"], "198.51.100.1"),
        ("fd00::1", ["2001:db8::7"], "2001:db8::7"),
        ("fd00::2", ["2001:db8::7"], "fd00::2"),
        # A client writes what it likes before what the proxies append.
        ("10.1.2.3", ["203.0.113.9, 198.51.100.1"], "198.51.100.1"),
        ("10.1.2.3", ["203.0.113.9", "198.51.100.1, 10.9.9.9"], "198.51.100.1"),
        ("10.1.2.3", ["10.0.0.1, 10.0.0.2"], "10.0.0.1"),
        ("10.1.2.3", ["198.51.100.1, nonsense"], "10.1.2.3"),
        ("10.1.2.3", ["198.51.100.1, nonsense, 10.0.0.2"], "10.0.0.2"),
        ("10.1.2.3", ["198.51.100.1" + ", 10.0.0.2" * MAX_HOPS], "10.0.0.2"),
        ("10.1.2.3", ["198.51.100.1:4711"], "198.51.100.1"),
        ("10.1.2.3", ["[2001:db8::7]:4711"], "2001:db8::7"),
        ("10.1.2.3", ["[2001:db8::7]"], "2001:db8::7"),
        ("10.1.2.3", ["198.51.100.1:4711, 10.0.0.2:80"], "198.51.100.1"),
        ("fd00::1", ["2001:db8::7, [fd00::1]:443"], "2001:db8::7"),
        ("10.1.2.3", ["198.51.100.1:"], "10.1.2.3"),
        ("10.1.2.3", ["198.51.100.1:port"], "10.1.2.3"),
        ("10.1.2.3", ["[]:80"], "10.1.2.3"),
        ("10.1.2.3", ["[2001:db8::7"], "10.1.2.3"),
        ("10.1.2.3", [":4711"], "10.1.2.3"),
        (None, ["198.51.100.1"], "unix"),
    ],
)
def test_client(host: str | None, forwarded: list[str], counts: str) -> None:
    assert client(host, *forwarded) == counts


def test_unix_socket() -> None:
    """nginx on the same machine."""
    assert client(None, "198.51.100.1", trusted=("unix",)) == "198.51.100.1"
    assert client("10.1.2.3", "198.51.100.1", trusted=("unix",)) == "10.1.2.3"


@pytest.mark.parametrize("name", ["", "proxy.example.org", "10.0.0.1/8", "::/129"])
def test_names_that_cannot_be(name: str) -> None:
    with pytest.raises(ValueError):
        TrustedProxies((name,))


def test_credentials_are_checked_for_the_client() -> None:
    """Clients of one proxy have limits of their own, and the cluster sees the field."""
    world = World(trusted_proxies=("192.168.1.1",))
    peers: list[Any] = []
    authorize = world.server_api.authorize

    def noted(kind: str, agent: str, token: str, peer: Any = None) -> Access:
        peers.append(peer)
        answer = authorize(kind, agent, token, peer)
        assert isinstance(answer, Access)
        return answer

    world.server_api.authorize = noted  # type: ignore[method-assign]
    world.request(b"GET /api HTTP/1.1", b"X-Forwarded-For: 198.51.100.1")
    assert b"X-Forwarded-For: 198.51.100.1" in world.origin.taken()
    assert peers[-1].peer_address.host == "198.51.100.1"
