"""Addresses of clients behind proxies that the operator trusts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Final

import attrs
from twisted.internet.address import IPv4Address, IPv6Address, UNIXAddress
from twisted.internet.interfaces import IAddress

from tunnel.api import HasPeer
from tunnel.http1 import Exchange

__all__ = ["UNIX", "Client", "TrustedProxies"]

#: Name of a proxy that connects to a Unix socket.
UNIX: Final = "unix"

#: Maximum number of entries of ``X-Forwarded-For`` that are read, from the last one:
#: longer chains of trusted proxies do not exist, and a client can write any number of
#: entries.
MAX_HOPS: Final = 20

_FIELD: Final = re.compile(rb"\r\nx-forwarded-for:([^\r]*)", re.IGNORECASE)

#: Entry with a port, as some proxies write it (Azure's, HAProxy): the first group
#: matches an IPv6 address, the second one an IPv4 address.
_WITH_PORT: Final = re.compile(r"\[([^\]]*)\](?::[0-9]{1,5})?|([0-9.]+):[0-9]{1,5}")


@attrs.frozen
class Client:
    """Client of a request, which may have come through a proxy."""

    peer_address: IAddress


class TrustedProxies:
    """
    Proxies whose ``X-Forwarded-For`` is trusted.

    :param names: networks, addresses, or `UNIX`.
    :raises ValueError: if one of *names* is neither a network, nor an address, nor
        `UNIX`.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._unix = UNIX in names
        self._networks: list[IPv4Network | IPv6Network] = [
            ip_network(name) for name in names if name != UNIX
        ]

    def client_of(self, exchange: Exchange) -> HasPeer:
        """
        Return the client of a request.

        Each trusted proxy appends the address that it saw, so the client's address is
        the last one that does not belong to a trusted proxy.
        """
        peer = exchange.peer_address
        if isinstance(peer, UNIXAddress):
            if not self._unix:
                return exchange
        elif not self._trusts(getattr(peer, "host", "")):
            return exchange
        found = b",".join(_FIELD.findall(exchange.head.fields))
        hops = found.decode("latin-1").rsplit(",", MAX_HOPS)[-MAX_HOPS:]
        for hop in reversed(hops):
            host = hop.strip(" \t")
            if (found_port := _WITH_PORT.fullmatch(host)) is not None:
                host = found_port[1] or found_port[2] or ""
            try:
                version = ip_address(host).version
            except ValueError:
                # The entry is not an address, so the proxy that wrote it is the last
                # known one.
                break
            peer = (IPv4Address if version == 4 else IPv6Address)("TCP", host, 0)
            if not self._trusts(host):
                break
        return Client(peer)

    def _trusts(self, host: str) -> bool:
        try:
            address = ip_address(host)
        except ValueError:
            return False
        address = getattr(address, "ipv4_mapped", None) or address
        return any(address in network for network in self._networks)
