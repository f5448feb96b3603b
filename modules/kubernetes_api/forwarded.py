"""Addresses of clients behind proxies that the operator trusts."""

from __future__ import annotations

import re
from typing import Final

import attrs
from twisted.internet.interfaces import IAddress

from tunnel.api import HasPeer
from tunnel.http1 import Exchange
from tunnel.toolkit.forwarded import ForwardingProxies

__all__ = ["Client", "TrustedProxies"]

_FIELD: Final = re.compile(rb"\r\nx-forwarded-for:([^\r]*)", re.IGNORECASE)


@attrs.frozen
class Client:
    """Client of a request, which may have come through a proxy."""

    peer_address: IAddress
    _exchange: Exchange

    @property
    def program(self) -> str:
        """Return the client's ``User-Agent``: see `tunnel.api.program_of`."""
        return self._exchange.program


class TrustedProxies(ForwardingProxies):
    """Proxies whose ``X-Forwarded-For`` is trusted."""

    def client_of(self, exchange: Exchange) -> HasPeer:
        """Return the client of a request: see `ForwardingProxies.client`."""
        peer = exchange.peer_address
        if not self.trusts(peer):
            return exchange
        found = b",".join(_FIELD.findall(exchange.head.fields))
        return Client(self.client(peer, found.decode("latin-1")), exchange)
