"""Each reason why a handshake fails has its label, and words that help."""

from __future__ import annotations

import ssl

from tests.tunnel.session.harness import BufferPeer
from tests.tunnel.transport import certificates
from tests.tunnel.transport.tls_layer import (
    ClientTestCase,
    LayerTestCase,
    server_context,
)
from tunnel.transport.tls import client_context


class ServerTests(LayerTestCase):
    def test_untrusted(self) -> None:
        """Our own certificate does not please the client: its alert says so."""
        self.accept()
        peer = BufferPeer(client_context(), "localhost")
        self.assertRaises(
            ssl.SSLCertVerificationError, peer.exchange, self.layer, self.transport
        )
        self.layer.dataReceived(peer.outgoing.read())
        self.assert_failed("alert", "unknown ca")


class ClientTests(ClientTestCase):
    def test_wrong_name(self) -> None:
        layer = self.connect("evil.example")
        with self.assertRaises(ssl.SSLError):
            self.answer(layer, certificates.server_identity())
        self.assert_failed("name-mismatch", "evil.example")

    def test_untrusted(self) -> None:
        layer = self.connect("localhost")
        with self.assertRaises(ssl.SSLError):
            self.answer(layer, certificates.other_authority().issue("localhost"))
        self.assert_failed("untrusted", "CA certificate")

    def test_expired(self) -> None:
        layer = self.connect("localhost")
        with self.assertRaises(ssl.SSLError):
            self.answer(
                layer, certificates.authority().issue("localhost", expired=True)
            )
        self.assert_failed("expired", "clock")

    def test_not_tls(self) -> None:
        layer = self.connect("localhost")
        layer.dataReceived(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        self.assert_failed("not-tls", "does not speak TLS")

    def test_old_server(self) -> None:
        layer = self.connect("localhost")
        context = server_context()
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        peer = BufferPeer(context, server_side=True)
        with self.assertRaises(ssl.SSLError):
            peer.exchange(layer, self.transport)
        layer.dataReceived(peer.outgoing.read())
        self.assert_failed("version")
