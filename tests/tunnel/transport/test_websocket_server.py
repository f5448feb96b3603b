"""Which upgrades a server takes, and what it answers to the others."""

from __future__ import annotations

from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import IConsumer, IPushProducer
from twisted.python.failure import Failure
from zope.interface.verify import verifyObject

from tests.tunnel.transport.websocket_layer import (
    BINARY,
    ServerTestCase,
    frame,
    request,
)
from tunnel.transport.negotiation import HANDSHAKE_TIMEOUT
from tunnel.transport.websocket_server import MAX_REQUEST_BYTES


class RequestTests(ServerTestCase):
    def test_accepted(self) -> None:
        protocol = self.establish()
        self.assertEqual(protocol.made, 1)
        for interface in (IConsumer, IPushProducer):
            verifyObject(interface, self.layer)

    def test_answer(self) -> None:
        self.layer.dataReceived(request())
        answer = self.transport.value().decode().lower()
        self.assertIn("sec-websocket-protocol: txkas-tunnel.v1\r\n", answer)
        self.assertIn("sec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo=\r\n", answer)
        self.assertNotIn("extensions", answer)

    def test_compression_is_not_negotiated(self) -> None:
        self.layer.dataReceived(request(Sec_WebSocket_Extensions="permessage-deflate"))
        self.assertNotIn(b"deflate", self.transport.value())

    def test_split_anywhere(self) -> None:
        """However request and first frames are cut, no byte is lost."""
        stream = request() + frame(BINARY, b"hello") + frame(BINARY, b"world")
        for cut in range(1, len(stream)):
            self.accept()
            self.layer.dataReceived(stream[:cut])
            self.layer.dataReceived(stream[cut:])
            self.assertEqual(self.above.made[-1].received, b"helloworld")

    def test_wrong_subprotocol(self) -> None:
        self.layer.dataReceived(request(Sec_WebSocket_Protocol="ws-tunnel"))
        self.assert_declined(400, "subprotocol", "txkas-tunnel.v1", "ws-tunnel")

    def test_no_subprotocol(self) -> None:
        self.layer.dataReceived(request(Sec_WebSocket_Protocol=""))
        self.assert_declined(400, "subprotocol", "txkas-tunnel.v1", "none")

    def test_no_upgrade(self) -> None:
        """A browser, a health check, or a proxy that drops the headers."""
        self.layer.dataReceived(request(Upgrade="", Connection="close"))
        self.assert_declined(
            426, "upgrade", "Upgrade: websocket", "agentk connects here", "proxy"
        )

    def test_wrong_method(self) -> None:
        self.layer.dataReceived(request().replace(b"GET", b"POST"))
        self.assert_declined(405, "request", "GET")

    def test_old_http(self) -> None:
        """What nginx sends unless it is told proxy_http_version 1.1."""
        self.layer.dataReceived(request().replace(b"HTTP/1.1", b"HTTP/1.0"))
        self.assert_declined(426, "upgrade", "speak HTTP/1.1")

    def test_no_http(self) -> None:
        self.layer.dataReceived(b"\x00\x00\x00\x10 tunnel?\r\n\r\n")
        self.assert_declined(400, "not-http")

    def test_long_request(self) -> None:
        cookie = "c" * 8000
        self.layer.dataReceived(request(Cookie=cookie, X_Token=cookie)[:-2])
        self.layer.dataReceived(b"A: " + b"a" * 8000)
        self.assert_declined(431, "too-large")

    def test_long_request_in_one_piece(self) -> None:
        cookie = "c" * 7000
        self.layer.dataReceived(request(A=cookie, B=cookie, C=cookie))
        self.assert_declined(431, "too-large")

    def test_long_first_frame(self) -> None:
        """The limit is for the request; what follows it may be longer."""
        self.layer.dataReceived(request() + frame(BINARY, bytes(MAX_REQUEST_BYTES)))
        self.assertEqual(len(self.above.made[0].received), MAX_REQUEST_BYTES)

    def test_slow_request(self) -> None:
        for byte in request()[:30]:
            self.clock.advance(HANDSHAKE_TIMEOUT / 29)
            self.layer.dataReceived(bytes([byte]))
        self.assertEqual([error.label for error in self.failures], ["timeout"])
        self.assertTrue(self.transport.disconnected)
        self.layer.connectionLost(Failure(ConnectionDone()))


class PathTests(RequestTests):
    """All of the above, with the one path that is served."""

    path = "/some/path"

    def test_other_path(self) -> None:
        self.layer.dataReceived(request().replace(b"/some/path", b"/elsewhere"))
        self.assert_declined(404, "path", "/some/path")
