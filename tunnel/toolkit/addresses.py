"""Addresses of clients, as limits count them."""

from __future__ import annotations

from ipaddress import ip_address

from twisted.internet.interfaces import IAddress

__all__ = ["client_network", "peer_network"]

#: Leading bits of an IPv6 address that name one customer of a provider, who can use
#: all addresses that begin with them.
_NETWORK = 64


def client_network(host: str) -> str:
    """
    Return the part of a client's address that is limited: a host, or an IPv6 network.

    :param host: an IP address; any other text, such as the empty one of a Unix socket,
        is ``local``.
    """
    try:
        address = ip_address(host)
    except ValueError:
        return "local"
    mapped = getattr(address, "ipv4_mapped", None)
    if mapped is not None:
        return str(mapped)
    if address.version == 4:
        return str(address)
    return str(int(address) >> (128 - _NETWORK))


def peer_network(peer: IAddress) -> str:
    """Return the part of a peer's address that is limited: see `client_network`."""
    return client_network(getattr(peer, "host", ""))
