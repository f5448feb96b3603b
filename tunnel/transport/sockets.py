"""The socket of a connection: its options and buffers, and its address as text."""

from __future__ import annotations

import ipaddress
import socket
from typing import Any, Final

__all__ = [
    "RECEIVED",
    "UNSENT",
    "address_text",
    "bound_received",
    "bound_unsent",
    "is_local",
    "join_host_port",
    "tcp",
    "tune_socket",
]

#: Maximum number of unsent bytes that the kernel buffers, about 5 ms at 100 Mbit/s.  By
#: default it buffers megabytes, and the next small response waits behind them.
UNSENT: Final = 64 * 1024

#: Maximum number of bytes that the kernel buffers from an API server on an upgraded
#: connection.  By default it would buffer six megabytes, which is a minute of data for
#: a slow client, and delays all further data.  Networks inside a cluster are fast with
#: a smaller buffer.
RECEIVED: Final = 256 * 1024

#: From linux/tcp.h; the module `socket` does not define it.
_TCP_NOTSENT_LOWAT: Final = 25


def address_text(address: Any) -> str:
    """Return ``host:port``, or the path of a Unix socket."""
    host = getattr(address, "host", None)
    if host is None:
        name = getattr(address, "name", None) or b"unix socket"
        return name.decode(errors="replace") if isinstance(name, bytes) else str(name)
    return join_host_port(host, address.port)


def join_host_port(host: str, port: int) -> str:
    """Return ``host:port`` in the form of a URL."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_local(address: Any) -> bool:
    """
    Tell whether a peer's address belongs to this machine: loopback, or a Unix socket.
    """
    host = getattr(address, "host", None)
    if host is None:
        return True
    try:
        found = ipaddress.ip_address(host)
    except ValueError:
        return False
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
        # A socket for both families reports an IPv4 peer as an IPv4-mapped IPv6
        # address.
        return found.ipv4_mapped.is_loopback
    return found.is_loopback


def tune_socket(transport: Any, dead_after: float) -> bool:
    """
    Set a tunnel's socket options; return False if the transport is not TCP.

    :param dead_after: seconds after which unacknowledged data ends the connection.  The
        keepalive sweep normally ends dead connections; without this option, the kernel
        would retry for a quarter of an hour.
    """
    handle = tcp(transport)
    if handle is None:
        return False
    handle.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    handle.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    milliseconds = round(dead_after * 1000)
    handle.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)
    return True


def bound_unsent(transport: object, size: int = UNSENT) -> None:
    """Limit the bytes that the kernel accepts before they are sent to about *size*."""
    handle = tcp(transport)
    if handle is not None:
        handle.setsockopt(socket.IPPROTO_TCP, _TCP_NOTSENT_LOWAT, size)


def bound_received(transport: object) -> None:
    """Limit the unread bytes that the kernel buffers to `RECEIVED`."""
    handle = tcp(transport)
    if handle is not None:
        handle.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVED)


def tcp(transport: object) -> Any:
    """Return the TCP socket under *transport*; None if there is none."""
    handle: Any = getattr(transport, "getHandle", lambda: None)()
    if getattr(handle, "family", None) in (socket.AF_INET, socket.AF_INET6):
        return handle
    return None
