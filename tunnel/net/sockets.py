"""Options of the socket under a tunnel."""

from __future__ import annotations

import socket
from typing import Any

#: Bytes that the kernel takes before what was sent has left.  It would take megabytes,
#: and every one of them stands before the next small answer.
UNSENT = 128 * 1024

#: From linux/tcp.h; the module `socket` does not name it.
_TCP_NOTSENT_LOWAT = 25


def tune_socket(transport: Any, dead_after: float) -> bool:
    """
    Set what a tunnel wants of its socket; False where there is no TCP under it.

    :param dead_after: seconds after which what was sent and not acknowledged ends the
        connection.  The sweep decides by silence; this is for the kernel, which would
        go on trying for a quarter of an hour.
    """
    handle: Any = getattr(transport, "getHandle", lambda: None)()
    if getattr(handle, "family", None) not in (socket.AF_INET, socket.AF_INET6):
        return False
    handle.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    handle.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    milliseconds = round(dead_after * 1000)
    handle.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)
    handle.setsockopt(socket.IPPROTO_TCP, _TCP_NOTSENT_LOWAT, UNSENT)
    return True
