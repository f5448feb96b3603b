"""What requests that are not whole may hold, all together."""

from __future__ import annotations

from typing import Any

from h2.errors import ErrorCodes
from h2.events import ResponseReceived

from tests.kas.api.clients import ExternalCase, SilentClient, token
from tunnel.errors import Status


class HeldTests(ExternalCase):
    """Large requests that never end, each within its own limits."""

    memory_limits = (100_000, 10_000)

    def begin(self, size: int, kind: str = "application/grpc") -> tuple[Any, ...]:
        """A request of a megabyte, so far of *size*."""
        client, pipe = self.http2()
        name = "Join" if kind == "application/grpc" else "Say"
        stream = client.open(name, content_type=kind)
        client.send_bytes(stream, b"\0\0\x10\0\0" + b"x" * size)
        pipe.flush()
        return client, pipe, stream

    def test_grpc(self) -> None:
        """What is beyond the sum is refused; what is small is taken."""
        first = self.begin(60_000)
        one, _, stream = self.begin(60_000)
        self.assertEqual(one.status(stream), Status.RESOURCE_EXHAUSTED)
        for _ in range(10):
            small, _, stream = self.begin(9_000)
            self.assertIsNone(small.status(stream))
        self.assertLess(self.memory.bytes, 200_000)
        # What is given up, or whole, leaves room.
        client, pipe, stream = first
        self.assertIsNone(client.status(stream))
        client.h2.reset_stream(stream, ErrorCodes.CANCEL)
        client.flush()
        pipe.flush()
        self.assertLess(self.memory.bytes, 100_000)

    def test_grows(self) -> None:
        """One that grows beyond the sum is refused, and what it held is free."""
        client, pipe, stream = self.begin(60_000)
        for _ in range(5):
            client.send_bytes(stream, b"x" * 10_000)
            pipe.flush()
            if client.status(stream) is not None:
                break
        self.assertEqual(client.status(stream), Status.RESOURCE_EXHAUSTED)
        self.assertEqual(self.memory.bytes, 0)

    def test_whole(self) -> None:
        """A message that is whole is the handler's, and does not count here."""
        client, pipe = self.http2()
        stream = client.open("Join")
        for _ in range(10):
            client.send(stream, "x" * 20_000)
            pipe.flush()
        self.assertEqual(self.memory.bytes, 0)
        self.assertIsNone(client.status(stream))

    def test_connect(self) -> None:
        """The same for its unary calls over HTTP/2."""
        self.begin(60_000)
        client, _, stream = self.begin(60_000, "application/json")
        (answer,) = client.of(ResponseReceived, stream)
        self.assertEqual(dict(answer.headers)[":status"], "429")

    def test_http1(self) -> None:
        """A body is refused as a whole, and its connection ends."""
        head = (
            "POST /tests.proto.Echo/Say HTTP/1.1\r\nHost: kas\r\n"
            f"Content-Type: application/json\r\nAuthorization: Bearer {token()}\r\n"
            "Content-Length: 1000000\r\n\r\n"
        )
        clients = [SilentClient() for _ in range(2)]
        for client in clients:
            pipe = self.connect(client)
            pipe.transports[0].write(head.encode() + b"x" * 60_000)
            pipe.flush()
        self.assertEqual(clients[0].received, b"")
        self.assertTrue(clients[1].received.startswith(b"HTTP/1.1 503 "))
        self.assertTrue(clients[1].lost)
        self.assertEqual(self.memory.bytes, 60_000)
