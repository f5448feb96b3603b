"""Proxies in front of kas, and the clients that they name in ``X-Forwarded-For``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Final

from twisted.internet.address import IPv4Address, IPv6Address, UNIXAddress
from twisted.internet.interfaces import IAddress

__all__ = ["MAX_HOPS", "UNIX", "ForwardingProxies", "are_proxies"]

#: Name of a proxy that connects to a Unix socket.
UNIX: Final = "unix"

#: Maximum number of entries of ``X-Forwarded-For`` that are read, from the last one:
#: longer chains of trusted proxies do not exist, and a client can write any number of
#: entries.
MAX_HOPS: Final = 20

#: Entry with a port, as some proxies write it (Azure's, HAProxy): the first group
#: matches an IPv6 address, the second one an IPv4 address.
_WITH_PORT: Final = re.compile(r"\[([^\]]*)\](?::[0-9]{1,5})?|([0-9.]+):[0-9]{1,5}")


class ForwardingProxies:
    """
    Proxies whose ``X-Forwarded-*`` fields are trusted.

    :param names: networks, addresses, or `UNIX`.
    :raises ValueError: if one of *names* is neither a network, nor an address, nor
        `UNIX`.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._unix = UNIX in names
        self._networks: list[IPv4Network | IPv6Network] = [
            ip_network(name) for name in names if name != UNIX
        ]

    def trusts(self, peer: IAddress) -> bool:
        """Return whether *peer* is one of the proxies."""
        if isinstance(peer, UNIXAddress):
            return self._unix
        return self._trusts(getattr(peer, "host", ""))

    def client(self, peer: IAddress, forwarded_for: str) -> IAddress:
        """
        Return the address of the client of *peer*, which is *peer* itself if it is not
        one of the proxies.

        Each trusted proxy appends the address that it saw, so the client's address is
        the last one that does not belong to a trusted proxy.

        :param forwarded_for: the values of ``X-Forwarded-For``, separated by commas.
        """
        if not self.trusts(peer):
            return peer
        hops = forwarded_for.rsplit(",", MAX_HOPS)[-MAX_HOPS:]
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
        return peer

    def _trusts(self, host: str) -> bool:
        try:
            address = ip_address(host)
        except ValueError:
            return False
        address = getattr(address, "ipv4_mapped", None) or address
        return any(address in network for network in self._networks)


def are_proxies(instance: object, attribute: object, value: Sequence[str]) -> None:
    """Validate the names of proxies in a configuration."""
    try:
        ForwardingProxies(value)
    except ValueError as error:
        raise ValueError(f"{error}; write 10.0.0.0/8, 10.0.0.7 or unix") from None
