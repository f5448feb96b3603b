"""What a transport of Twisted's knows and does not say, and its socket's buffers."""

from __future__ import annotations

import socket
from typing import Any, Final

from twisted.internet.tcp import Connection

__all__ = ["RECEIVED", "UNSENT", "bound_received", "bound_unsent", "tcp", "unsent"]

#: Bytes that the kernel takes before what was sent has left.  It would take megabytes,
#: and every one of them stands before the next small answer.  5 ms at 100 Mbit/s.
UNSENT: Final = 64 * 1024

#: Bytes that the kernel keeps of what an API server sends on an upgraded connection and
#: nobody read yet.  It would keep six megabytes: a minute's worth for a slow client,
#: behind which the rest stands.  A network inside a cluster is fast with less.
RECEIVED: Final = 256 * 1024

#: From linux/tcp.h; the module `socket` does not name it.
_TCP_NOTSENT_LOWAT: Final = 25


def tcp(transport: object) -> Any:
    """The TCP socket at the bottom of *transport*; None where there is none."""
    handle: Any = getattr(transport, "getHandle", lambda: None)()
    if getattr(handle, "family", None) in (socket.AF_INET, socket.AF_INET6):
        return handle
    return None


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


def unsent(transport: object) -> int | None:
    """
    How many bytes *transport* holds that the kernel has not taken yet.

    None if it does not say.  Besides sockets, every layer of this package says it for
    the socket at its bottom, by a method of the same name.
    """
    if isinstance(transport, Connection):
        return len(transport.dataBuffer) - transport.offset + transport._tempDataLen
    below = getattr(transport, "unsent", None)
    return None if below is None else below()
