"""A server's WebSocket and its frames, for the tests of this directory."""

from __future__ import annotations

import struct
from typing import Any

from twisted.internet.address import IPv4Address
from twisted.internet.error import ConnectionDone
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from tests.tunnel.session.harness import CountingTransport, Recorder, Recorders
from tunnel.transport.negotiation import NegotiationError
from tunnel.transport.websocket import SUBPROTOCOL, wrap_websocket_server

ADDRESS = IPv4Address("TCP", "192.0.2.1", 4711)
KEY = "dGhlIHNhbXBsZSBub25jZQ=="

FIN, CONT, TEXT, BINARY, CLOSE, PING, PONG = 0x80, 0, 1, 2, 8, 9, 10


def request(**headers: str) -> bytes:
    """An upgrade request; a header of None is left out."""
    lines = {
        "Host": "kas.example",
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec_WebSocket_Key": KEY,
        "Sec_WebSocket_Version": "13",
        "Sec_WebSocket_Protocol": SUBPROTOCOL,
        **headers,
    }
    text = "".join(
        f"{name.replace('_', '-')}: {value}\r\n"
        for name, value in lines.items()
        if value
    )
    return f"GET /some/path?x=1 HTTP/1.1\r\n{text}\r\n".encode()


def frame(opcode: int, payload: bytes = b"", fin: bool = True) -> bytes:
    """A frame as a client sends it, masked with zeros."""
    first = opcode | (FIN if fin else 0)
    if len(payload) < 126:
        head = struct.pack(">BB", first, 0x80 | len(payload))
    elif len(payload) < 65536:
        head = struct.pack(">BBH", first, 0x80 | 126, len(payload))
    else:
        head = struct.pack(">BBQ", first, 0x80 | 127, len(payload))
    return head + bytes(4) + payload


def server_frame(opcode: int, payload: bytes = b"", fin: bool = True) -> bytes:
    """A small frame as a server sends it."""
    return struct.pack(">BB", opcode | (FIN if fin else 0), len(payload)) + payload


class ServerTestCase(SynchronousTestCase):
    """A server's WebSocket on a fake transport."""

    kind: type[Recorder] = Recorder
    path: str | None = None

    def setUp(self) -> None:
        self.clock = Clock()
        self.above = Recorders(self.kind)
        self.failures: list[NegotiationError] = []
        self.accept()

    def accept(self) -> None:
        self.transport = CountingTransport()
        factory = wrap_websocket_server(
            self.above, self.clock, self.path, failed=self.failures.append
        )
        layer: Any = factory.buildProtocol(ADDRESS)
        self.layer = layer
        self.layer.makeConnection(self.transport)

    def establish(self) -> Any:
        self.layer.dataReceived(request())
        self.assertTrue(self.transport.value().startswith(b"HTTP/1.1 101 "))
        self.transport.clear()
        return self.above.made[-1]

    def assert_declined(self, status: int, label: str, *words: str) -> None:
        """One answer with that status and these words; nothing was made above."""
        answer = self.transport.value().decode()
        self.assertTrue(answer.startswith(f"HTTP/1.1 {status} "), answer)
        for word in words:
            self.assertIn(word, answer)
        self.assertEqual([error.label for error in self.failures], [label])
        self.assertEqual(self.above.made, [])
        self.assertTrue(self.transport.disconnecting)
        self.layer.dataReceived(b"more")
        self.layer.connectionLost(Failure(ConnectionDone()))
        self.assertEqual(self.clock.getDelayedCalls(), [])
