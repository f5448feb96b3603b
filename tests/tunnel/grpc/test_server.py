"""Calls of gRPC over HTTP/2, as honest clients make them."""

from __future__ import annotations

import base64

from h2.errors import ErrorCodes
from h2.events import ResponseReceived

from tests.kas.api.clients import ExternalCase
from tunnel.errors import Status
from tunnel.grpc.fields import MAX_TRAILERS
from tunnel.grpc.messages import envelope
from tunnel.pb import status_pb2
from tunnel.rpc.messages import MAX_MESSAGE, Inbox
from tunnel.rpc.status import MAX_DETAILS


class CallTests(ExternalCase):
    """Calls as an honest client makes them."""

    def test_unary(self) -> None:
        """One request, one response, trailers."""
        client, pipe = self.http2()
        stream = client.open("Say")
        client.send(stream, "hello", end=True)
        pipe.flush()
        self.assertEqual(client.texts(stream), ["HELLO"])
        self.assertEqual(client.status(stream), 0)
        self.assertEqual(client.resets(stream), [])

    def test_in_small_pieces(self) -> None:
        """Frames may be cut anywhere."""
        client, pipe = self.http2(chunk=7)
        stream = client.open("Chat")
        for text in ("a", "", "bye"):
            client.send(stream, text)
        pipe.flush()
        self.assertEqual(client.texts(stream), ["A", "", "BYE"])
        self.assertEqual(client.status(stream), 0)

    def test_early_end(self) -> None:
        """A call that is answered while the client sends: it is told to stop."""
        client, pipe = self.http2()
        stream = client.open("Chat")
        client.send(stream, "bye")
        pipe.flush()
        self.assertEqual(client.status(stream), 0)
        self.assertEqual(client.resets(stream), [])
        self.clock.advance(self.limits.linger)
        pipe.flush()
        (reset,) = client.resets(stream)
        self.assertEqual(reset.error_code, ErrorCodes.NO_ERROR)

    def test_end_after_the_answer(self) -> None:
        """A client that was about to end is not reset; one that goes on is, at once."""
        client, pipe = self.http2()
        ends, goes_on = client.open("Chat"), client.open("Chat")
        for stream in (ends, goes_on):
            client.send(stream, "bye")
        pipe.flush()
        client.h2.end_stream(ends)
        client.send(goes_on, "more")
        pipe.flush()
        self.assertEqual(client.resets(ends), [])
        self.assertEqual(len(client.resets(goes_on)), 1)
        self.clock.advance(self.limits.linger)
        pipe.flush()
        self.assertEqual(client.resets(ends), [])

    def test_cancel(self) -> None:
        """The handler is cancelled where it waits."""
        client, pipe = self.http2()
        stream = client.open("Say")
        client.send(stream, "wait", end=True)
        pipe.flush()
        client.h2.reset_stream(stream, ErrorCodes.CANCEL)
        client.flush()
        pipe.flush()
        self.assertEqual(self.echo.cancelled, 1)

    def test_deadline(self) -> None:
        """After the time that the client gave, whatever its unit."""
        for text in ("2S", "2000m", "2000000u"):
            client, pipe = self.http2()
            stream = client.open("Say", ("grpc-timeout", text))
            client.send(stream, "wait", end=True)
            pipe.flush()
            self.clock.advance(1.9)
            pipe.flush()
            self.assertIsNone(client.status(stream))
            self.clock.advance(0.2)
            pipe.flush()
            self.assertEqual(client.status(stream), Status.DEADLINE_EXCEEDED)

    def test_bad_timeout(self) -> None:
        """What is no time is refused."""
        client, pipe = self.http2()
        for text in ("", "2", "S", "123456789S", "-1S", "2s"):
            stream = client.open("Say", ("grpc-timeout", text))
            pipe.flush()
            self.assertEqual(client.status(stream), Status.INVALID_ARGUMENT)

    def test_lost(self) -> None:
        """Handlers of a connection that is cut do not go on."""
        client, pipe = self.http2()
        client.send(client.open("Say"), "wait", end=True)
        pipe.flush()
        pipe.transports[0].abortConnection()
        pipe.flush()
        self.assertEqual(self.echo.cancelled, 1)

    def test_too_large(self) -> None:
        """Refused by its length; nothing of it is waited for."""
        client, pipe = self.http2()
        stream = client.open("Say")
        client.send_bytes(stream, b"\0" + (MAX_MESSAGE + 1).to_bytes(4, "big"))
        pipe.flush()
        self.assertEqual(client.status(stream), Status.RESOURCE_EXHAUSTED)

    def test_flags(self) -> None:
        """Compressed, or marked with what nobody knows."""
        client, pipe = self.http2()
        stream = client.open("Say", ("grpc-encoding", "gzip"))
        client.send_bytes(stream, b"\1\0\0\0\0")
        other = client.open("Say")
        client.send_bytes(other, b"\2\0\0\0\0")
        cut = client.open("Say")
        client.send_bytes(cut, b"\0\0\0\0\5ab", end=True)
        pipe.flush()
        self.assertEqual(client.status(stream), Status.UNIMPLEMENTED)
        self.assertEqual(client.status(other), Status.INTERNAL)
        self.assertEqual(client.status(cut), Status.INTERNAL)

    def test_many_in_one_frame(self) -> None:
        """Thousands of empty messages are handed on together, and not one by one."""
        fed: list[int] = []
        feed = Inbox.feed

        def counted(inbox: Inbox, data: bytes) -> None:
            fed.append(len(data))
            feed(inbox, data)

        self.patch(Inbox, "feed", counted)
        client, pipe = self.http2()
        stream = client.open("Chat")
        client.send_bytes(stream, envelope(b"") * 3000)
        pipe.flush()
        self.assertEqual(fed, [4 * 3000])
        self.assertEqual(client.texts(stream), [""] * 3000)

    def explained(self, details: int, text: int) -> list[bytes]:
        """``grpc-status-details-bin`` of an error with so many characters in each."""
        client, pipe = self.http2()
        stream = client.open("Say")
        client.send(stream, f"explain {details} {text}", end=True)
        pipe.flush()
        self.assertEqual(client.status(stream), Status.INVALID_ARGUMENT)
        (head,) = client.of(ResponseReceived, stream)
        size = sum(len(name) + len(value) + 32 for name, value in head.headers)
        self.assertLessEqual(size, MAX_TRAILERS)
        return [
            base64.b64decode(value + "==")
            for name, value in head.headers
            if name == "grpc-status-details-bin"
        ]

    def test_details(self) -> None:
        """As a ``google.rpc.Status`` that repeats code and message."""
        (found,) = self.explained(3, 2)
        status = status_pb2.Status.FromString(found)
        self.assertEqual(status.code, 3)
        self.assertRegex(status.message, r"^yy \[trace [0-9a-f]{32}\]$")
        why = status_pb2.BadRequest.FromString(status.details[0].value)
        self.assertEqual(why.field_violations[0].description, "xxx")

    def test_details_too_large(self) -> None:
        """All trailers have to fit into what clients take; the status comes first."""
        self.assertEqual(len(self.explained(MAX_DETAILS - 200, 1000)), 1)
        self.assertEqual(self.explained(MAX_DETAILS - 200, 2000), [])
        self.assertEqual(self.explained(MAX_DETAILS, 1), [])

    def test_withdrawn(self) -> None:
        """A module that is stopped answers no more."""
        self.services.withdraw("tests")
        client, pipe = self.http2()
        stream = client.open("Say")
        pipe.flush()
        self.assertEqual(client.status(stream), Status.UNIMPLEMENTED)
        self.assertEqual(self.services.names, [])
