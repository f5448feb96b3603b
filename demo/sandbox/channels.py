"""
The WebSocket of ``exec``: several byte streams, told apart by the first byte.

``v5.channel.k8s.io`` has five channels, and the client can say that one of them ends,
which is how a process sees the end of its input.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from twisted.internet.interfaces import IReactorTime
from websockets.frames import CloseCode, Frame, Opcode
from websockets.protocol import OPEN, Side
from websockets.protocol import Protocol as WebSocketCore

from demo.sandbox.store import ApiError
from tunnel.http1 import Exchange

__all__ = [
    "CLOSE",
    "ERROR",
    "MAX_MESSAGE",
    "RESIZE",
    "STDERR",
    "STDIN",
    "STDOUT",
    "ChannelReceiver",
    "ChannelSocket",
    "accept",
]

STDIN, STDOUT, STDERR, ERROR, RESIZE = range(5)
CLOSE = 255

#: kubectl sends 32 KiB at once; more than this in one message is not for a terminal.
MAX_MESSAGE = 1024 * 1024

#: Seconds for the client to answer our close.
CLOSE_TIMEOUT = 5.0

_PROTOCOL = "v5.channel.k8s.io"
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


class ChannelReceiver(Protocol):
    """What comes out of a `ChannelSocket`."""

    def channel_received(self, channel: int, data: bytes) -> None:
        """Bytes of one channel."""

    def channel_closed(self, channel: int) -> None:
        """The client says that there will be no more of them."""

    def gone(self) -> None:
        """The client left; told once, and not after `ChannelSocket.close`."""


def accept(taken: Mapping[bytes, Sequence[bytes]]) -> bytes:
    """
    The 101 answer to a request.

    :param taken: the request's ``Sec-WebSocket-*`` headers, by lower-case name.
    :raises ApiError: the request is no WebSocket of the kind that is known here.
    """
    key = taken.get(b"sec-websocket-key", [b""])[0]
    offers = b",".join(taken.get(b"sec-websocket-protocol", ())).decode("latin-1")
    if not key or _PROTOCOL not in [offer.strip() for offer in offers.split(",")]:
        raise ApiError(400, f"the sandbox speaks WebSocket only, with {_PROTOCOL}")
    proof = base64.b64encode(hashlib.sha1(key + _GUID).digest())
    block = (
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n"
        b"Connection: Upgrade\r\nSec-WebSocket-Accept: %b\r\n"
        b"Sec-WebSocket-Protocol: %b\r\n"
    )
    return block % (proof, _PROTOCOL.encode())


class ChannelSocket:
    """
    Channels over an exchange that was upgraded; its receiver, too.

    :ivar receiver: to be set before anything can arrive.
    """

    receiver: ChannelReceiver

    def __init__(self, exchange: Exchange, clock: IReactorTime) -> None:
        self.exchange = exchange
        self._clock = clock
        self._core = WebSocketCore(Side.SERVER, state=OPEN, max_size=MAX_MESSAGE)
        self._parts: list[bytes] = []
        self._closing: Any = None
        self._over = False

    def send(self, channel: int, data: bytes) -> None:
        """Bytes of one channel."""
        if not self._over:
            self._core.send_binary(bytes([channel]) + data)
            self._flush()

    def close(self, status: Mapping[str, Any]) -> None:
        """Say how it ended, and end the connection."""
        if self._over:
            return
        self.send(ERROR, json.dumps(status).encode())
        self._over = True
        self._core.send_close(CloseCode.NORMAL_CLOSURE)
        self._flush()
        self._closing = self._clock.callLater(CLOSE_TIMEOUT, self.exchange.abort)

    def body_received(self, data: bytes) -> None:
        """See `tunnel.http1.RequestReceiver`; frames of the client."""
        self._core.receive_data(data)
        self._take()

    def body_finished(self, trailers: bytes) -> None:
        """The client closed its half."""
        self._core.receive_eof()
        self._take()
        self._leave()

    def client_gone(self, reason: Exception) -> None:
        """The connection broke."""
        self._leave()

    def _leave(self) -> None:
        if self._closing is not None:
            self._closing.cancel()
            self._closing = None
        if not self._over:
            self._over = True
            self.receiver.gone()

    def _take(self) -> None:
        for event in self._core.events_received():
            if not isinstance(event, Frame) or self._over:
                continue
            if event.opcode in (Opcode.BINARY, Opcode.TEXT, Opcode.CONT):
                self._parts.append(bytes(event.data))
                if event.fin:
                    message, self._parts = b"".join(self._parts), []
                    self._message(message)
        self._flush()

    def _message(self, message: bytes) -> None:
        if not message:
            return
        channel, data = message[0], message[1:]
        if channel == CLOSE:
            if data:
                self.receiver.channel_closed(data[0])
        else:
            self.receiver.channel_received(channel, data)

    def _flush(self) -> None:
        for data in self._core.data_to_send():
            if data:
                self.exchange.write(data)
            else:
                # Both have said close, or the client broke the rules.
                self.exchange.finish()
                self._leave()
