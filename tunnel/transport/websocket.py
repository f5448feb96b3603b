"""
The tunnel's bytes inside a WebSocket, for proxies and networks that know only HTTP.

Each write becomes a binary message; where messages begin and end means nothing to the
receiver.  Compression is off: what is inside is mostly compressed or encrypted already,
and its memory would cost more per connection than all the rest.

The WebSocket core is that of the ``websockets`` package, which does no I/O.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from twisted.internet.error import ConnectionDone, ConnectionLost
from twisted.internet.interfaces import IAddress
from twisted.python.failure import Failure
from websockets.frames import CloseCode, Frame, Opcode
from websockets.protocol import Protocol as WebSocketCore
from websockets.protocol import State
from websockets.typing import Subprotocol

from tunnel.transport import eager
from tunnel.transport.layer import Layer
from tunnel.transport.negotiation import LayerFactory, NegotiationError

__all__ = [
    "MAX_MESSAGE_BYTES",
    "MAX_PONG_BYTES",
    "SILENT",
    "SUBPROTOCOL",
    "WebSocketConnection",
    "WebSocketError",
]

SUBPROTOCOL = Subprotocol("txkas-tunnel.v1")

#: The largest message that is taken: a whole one is in memory before its bytes are
#: passed on.  Four times what we send, because a proxy may join messages.
MAX_MESSAGE_BYTES = 1024 * 1024
#: The largest message that is sent; what is longer is cut.
_MAX_SENT_BYTES = 256 * 1024

#: Answers to pings that may wait in our buffer.  A peer that pings and does not read
#: would otherwise fill our memory.
MAX_PONG_BYTES = 64 * 1024

_GOOD_CLOSES = (
    CloseCode.NORMAL_CLOSURE,
    CloseCode.GOING_AWAY,
    CloseCode.NO_STATUS_RCVD,
)

#: ``websockets`` logs headers at debug level, among them credentials, and every closed
#: connection at info.  We say what there is to say.
SILENT = logging.getLogger("tunnel.transport.websocket.core")
SILENT.disabled = True


class WebSocketError(NegotiationError):
    """
    No WebSocket came about.

    Labels: ``status``, ``subprotocol``, ``upgrade``, ``path``, ``request``,
    ``not-http``, ``too-large``, ``timeout``, ``closed``, ``internal``.
    """

    layer = "WebSocket"


class WebSocketConnection(Layer):
    """What both ends do once the WebSocket is open."""

    error_type = WebSocketError
    _pong_bytes = 0

    def __init__(
        self, factory: LayerFactory, address: IAddress, core: WebSocketCore
    ) -> None:
        super().__init__(factory, address)
        self._core = core

    def receive(self, data: bytes) -> None:
        """Take bytes of the open WebSocket."""
        self._core.receive_data(data)
        self.take_frames(self._core.events_received())

    def take_frames(self, events: Sequence[object]) -> None:
        """Pass on what the messages carry, and answer what wants an answer."""
        parts: list[bytes | bytearray | memoryview] = []
        ended = False
        pongs = 0
        for event in events:
            assert isinstance(event, Frame)
            if event.opcode is Opcode.BINARY or event.opcode is Opcode.CONT:
                parts.append(event.data)
            elif event.opcode is Opcode.PING:
                pongs += len(event.data) + 2
            elif event.opcode is Opcode.CLOSE:
                ended = True
            elif event.opcode is Opcode.TEXT:
                reason = "only binary messages here"
                self._core.fail(CloseCode.UNSUPPORTED_DATA, reason)
                self._core.parser_exc = ValueError(reason)
                break
        broken = self._core.parser_exc
        if ended or broken is not None:
            self._writable = False
        self._flush()
        if pongs and not self._may_answer(pongs):
            return
        if parts or ended:
            self.hand_up(b"".join(parts), ended)
        if broken is not None and not self._lost and not self._ended:
            self._ended = True
            self._leave(ConnectionLost(f"WebSocket: {broken}"))

    def _may_answer(self, count: int) -> bool:
        waiting = self.unsent()
        self._pong_bytes = self._pong_bytes + count if waiting else 0
        if self._pong_bytes > MAX_PONG_BYTES:
            self.fail(ConnectionLost("WebSocket: the peer pings and does not read"))
            return False
        return True

    def _flush(self) -> None:
        data = b"".join(self._core.data_to_send())
        if data:
            eager.write(self._lower, data)

    def write(self, data: bytes) -> None:
        if not self._writable or not data:
            return
        if len(data) <= _MAX_SENT_BYTES:
            self._core.send_binary(data)
        else:
            whole = memoryview(data)
            for start in range(0, len(data), _MAX_SENT_BYTES):
                self._core.send_binary(whole[start : start + _MAX_SENT_BYTES])
        self._flush()

    def say_goodbye(self) -> None:
        # The answer is waited for: it tells that everything before was read.
        self._writable = False
        if self._core.state is State.OPEN:
            self._core.send_close(CloseCode.NORMAL_CLOSURE)
        self._flush()

    def peer_finished(self) -> None:
        if self.disconnecting:
            # The answer to ours.  How the connection below ends does not matter now.
            self._reason = Failure(ConnectionDone())
            self._lower.loseConnection()
            return
        close = self._core.close_rcvd
        if close is None or close.code in _GOOD_CLOSES:
            self._leave(ConnectionDone())
        else:
            self._leave(ConnectionLost(f"WebSocket closed by the peer: {close}"))

    def _leave(self, error: Exception) -> None:
        """Our close frame is written; nothing follows in either direction."""
        self.close_in_answer(error)
        self._watch_close()
        self._lower.loseConnection()

    def explain_loss(self, reason: Failure) -> Failure:
        if reason.check(ConnectionDone):
            text = "the connection ended without a WebSocket close frame"
            return Failure(ConnectionLost(text))
        return reason
