"""Rules for every WebSocket with the protocol core of the ``websockets`` package."""

from __future__ import annotations

import logging

import attrs
from websockets.frames import CloseCode

__all__ = ["GOOD_CLOSES", "MAX_PONG_BYTES", "SILENT", "PongLimit"]

#: Maximum number of bytes of responses to pings that wait in our buffer.  Without this
#: limit, a peer that sends pings without reading would fill our memory.
MAX_PONG_BYTES = 64 * 1024

GOOD_CLOSES = (
    CloseCode.NORMAL_CLOSURE,
    CloseCode.GOING_AWAY,
    CloseCode.NO_STATUS_RCVD,
)

#: Logger of the ``websockets`` package, which logs headers at debug level, including
#: credentials, and every closed connection at info level.  It is silent; our own code
#: logs relevant events itself.
SILENT = logging.getLogger("tunnel.transport.websocket.core")
SILENT.disabled = True


@attrs.define
class PongLimit:
    """Count of the bytes of responses to pings that the peer has not read."""

    _bytes: int = attrs.field(default=0, init=False)

    def allows(self, count: int, waiting: int | None) -> bool:
        """
        Count *count* bytes of further responses; return whether they may wait.

        :param waiting: the number of all bytes that wait in our buffer, after the
            responses were written.
        """
        self._bytes = self._bytes + count if waiting else 0
        return self._bytes <= MAX_PONG_BYTES
