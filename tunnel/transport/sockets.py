"""The socket under a connection: its options and buffers, and its address as text."""

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

#: Bytes that the kernel buffers before it accepts more.  By default it buffers
#: megabytes, and the next small response waits behind all of them.  5 ms at 100 Mbit/s.
UNSENT: Final = 64 * 1024

#: Bytes that the kernel keeps of what an API server sends on an upgraded connection
#: until they are read.  It would keep six megabytes: a minute's worth for a slow
#: client, behind which the rest stands.  A network inside a cluster is fast with less.
RECEIVED: Final = 256 * 1024

#: From linux/tcp.h; the module `socket` does not name it.
_TCP_NOTSENT_LOWAT: Final = 25


def address_text(address: Any) -> str:
    """``host:port``, or the path of a unix socket."""
    host = getattr(address, "host", None)
    if host is None:
        name = getattr(address, "name", None) or b"unix socket"
        return name.decode(errors="replace") if isinstance(name, bytes) else str(name)
    return join_host_port(host, address.port)


def join_host_port(host: str, port: int) -> str:
    """Return ``host:port`` in the form of a URL."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


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
        # A socket for both families reports an IPv4 peer in this form.
        return found.ipv4_mapped.is_loopback
    return found.is_loopback


def tune_socket(transport: Any, dead_after: float) -> bool:
    """
    Set a tunnel's socket options; return False if the transport is not TCP.

    :param dead_after: seconds after which unacknowledged data ends the connection.  The
        sweep decides by silence; this option stops the kernel, which would retry for a
        quarter of an hour.
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
    """Have the kernel take at most *size* bytes, about, before they leave."""
    handle = tcp(transport)
    if handle is not None:
        handle.setsockopt(socket.IPPROTO_TCP, _TCP_NOTSENT_LOWAT, size)


def bound_received(transport: object) -> None:
    """Have the kernel keep at most `RECEIVED` bytes that were not read."""
    handle = tcp(transport)
    if handle is not None:
        handle.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVED)


def tcp(transport: object) -> Any:
    """Return the TCP socket at the bottom of *transport*; None: it has none."""
    handle: Any = getattr(transport, "getHandle", lambda: None)()
    if getattr(handle, "family", None) in (socket.AF_INET, socket.AF_INET6):
        return handle
    return None
