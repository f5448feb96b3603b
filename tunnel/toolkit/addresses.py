"""Addresses of clients, as limits count them."""

from __future__ import annotations

from ipaddress import ip_address

from twisted.internet.interfaces import IAddress

__all__ = ["client_network", "peer_network"]

#: Number of leading bits of an IPv6 address that identify one customer of a provider:
#: the customer can use every address that begins with these bits.
_NETWORK = 64


def client_network(host: str) -> str:
    """
    Return the key of a client in limits: its host, or its IPv6 network.

    :param host: an IP address; for any other text, such as the empty text of a Unix
        socket, the key is ``local``.
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
    """Return the key of a peer in limits: see `client_network`."""
    return client_network(getattr(peer, "host", ""))
