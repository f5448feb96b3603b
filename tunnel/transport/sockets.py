"""The socket under a tunnel: its options, and its address for people."""

from __future__ import annotations

import ipaddress
import socket
from typing import Any

from tunnel.transport.kernel_buffers import tcp


def address_text(address: Any) -> str:
    """``host:port``, or the path of a unix socket."""
    host = getattr(address, "host", None)
    if host is None:
        name = getattr(address, "name", None) or b"unix socket"
        return name.decode(errors="replace") if isinstance(name, bytes) else str(name)
    return f"[{host}]:{address.port}" if ":" in host else f"{host}:{address.port}"


def is_local(address: Any) -> bool:
    """Whether a peer's address is of this machine: loopback, or a unix socket."""
    host = getattr(address, "host", None)
    if host is None:
        return True
    try:
        found = ipaddress.ip_address(host)
    except ValueError:
        return False
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
        # What a socket for both families says of an IPv4 peer.
        return found.ipv4_mapped.is_loopback
    return found.is_loopback


def tune_socket(transport: Any, dead_after: float) -> bool:
    """
    Set what a tunnel wants of its socket; False where there is no TCP under it.

    :param dead_after: seconds after which what was sent and not acknowledged ends the
        connection.  The sweep decides by silence; this is for the kernel, which would
        go on trying for a quarter of an hour.
    """
    handle = tcp(transport)
    if handle is None:
        return False
    handle.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    handle.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    milliseconds = round(dead_after * 1000)
    handle.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)
    return True
