"""The TLS layer against the plain ``ssl`` module, without sockets and time."""

from __future__ import annotations

import ssl
import struct
from typing import Any

from twisted.internet.error import ConnectionAborted
from twisted.internet.interfaces import (
    IHalfCloseableProtocol,
    INegotiated,
    IProtocol,
    ISSLTransport,
    ITCPTransport,
)
from twisted.internet.protocol import Factory
from twisted.python.failure import Failure
from zope.interface.verify import verifyObject

from tests.tunnel.session.harness import BufferPeer, CountingTransport
from tests.tunnel.transport import certificates
from tests.tunnel.transport.tls_layer import (
    ADDRESS,
    DONE,
    ClientTestCase,
    LayerTestCase,
    server_context,
    trusting,
)
from tunnel.transport.tlsio import HANDSHAKE_TIMEOUT, MAX_HANDSHAKE_BYTES, wrap_server


class InterfaceTests(LayerTestCase):
    def test_interfaces(self) -> None:
        protocol = self.establish()
        for interface in (
            ISSLTransport,
            ITCPTransport,
            INegotiated,
            IProtocol,
            IHalfCloseableProtocol,
        ):
            verifyObject(interface, self.layer)
        self.assertIs(protocol.transport, self.layer)
        self.assertEqual(self.layer.getPeer(), self.transport.getPeer())
        self.assertEqual(self.layer.getHost(), self.transport.getHost())

    def test_options_of_tcp(self) -> None:
        """They reach the transport below if it has them, else do nothing."""
        self.establish()
        self.layer.setTcpNoDelay(True)
        self.assertFalse(self.layer.getTcpNoDelay())
        told: list[bool] = []
        below: Any = self.transport
        below.setTcpNoDelay = told.append
        below.setTcpKeepAlive = told.append
        below.getTcpKeepAlive = lambda: 1
        self.layer.setTcpNoDelay(True)
        self.layer.setTcpKeepAlive(False)
        self.assertEqual(told, [True, False])
        self.assertIs(self.layer.getTcpKeepAlive(), True)

    def test_alpn(self) -> None:
        self.establish()
        self.assertEqual(self.layer.negotiated_alpn, "txkas/1")
        self.assertEqual(self.layer.negotiatedProtocol, b"txkas/1")
        self.layer.connectionLost(DONE)
        self.assertIsNone(self.layer.negotiated_alpn)
        self.assertIsNone(self.layer.negotiatedProtocol)
        self.assertIsNone(self.layer.getPeerCertificate())


class HandshakeTests(LayerTestCase):
    def test_connected_after_the_handshake(self) -> None:
        """The protocol above is made when the handshake is over, and not before."""
        self.accept()
        peer = BufferPeer(trusting(), "localhost")
        self.assertRaises(ssl.SSLWantReadError, peer.tls.do_handshake)
        self.layer.dataReceived(peer.outgoing.read())
        self.assertEqual(self.above.made, [])
        self.layer.write(b"too early")
        peer.exchange(self.layer, self.transport)
        self.assertEqual(self.above.made[0].made, 1)
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.assertEqual(peer.read(), b"")

    def test_data_in_the_last_flight(self) -> None:
        """Bytes in one segment with the end of the handshake are not lost."""
        self.accept()
        peer = BufferPeer(trusting(), "localhost")
        self.assertRaises(ssl.SSLWantReadError, peer.tls.do_handshake)
        self.layer.dataReceived(peer.outgoing.read())
        peer.incoming.write(self.transport.value())
        peer.tls.do_handshake()
        finished = peer.outgoing.read()
        self.layer.dataReceived(finished + peer.send(b"hello") + peer.send(b" there"))
        self.assertEqual(self.above.made[0].chunks, [b"hello there"])

    def test_byte_by_byte(self) -> None:
        """However the network cuts the stream."""
        self.accept()
        peer = BufferPeer(trusting(), "localhost")

        class Slow:
            def dataReceived(_, data: bytes) -> None:
                for byte in data:
                    self.layer.dataReceived(bytes([byte]))

        peer.exchange(Slow(), self.transport)
        Slow().dataReceived(peer.send(b"hello") + peer.send(b"world"))
        self.assertEqual(self.above.made[0].received, b"helloworld")

    def test_timeout(self) -> None:
        """A peer that says nothing is cut off."""
        self.accept()
        self.clock.advance(HANDSHAKE_TIMEOUT - 0.1)
        self.assertEqual(self.failures, [])
        self.clock.advance(0.2)
        self.assert_failed("timeout", "longer than 10 s")
        self.assertTrue(self.transport.disconnected)
        self.layer.connectionLost(Failure(ConnectionAborted()))
        self.assertEqual(len(self.failures), 1)

    def test_drip_feeding_does_not_prolong(self) -> None:
        """The deadline counts from the start, whatever arrives."""
        self.accept()
        peer = BufferPeer(trusting(), "localhost")
        self.assertRaises(ssl.SSLWantReadError, peer.tls.do_handshake)
        for byte in peer.outgoing.read()[:20]:
            self.clock.advance(HANDSHAKE_TIMEOUT / 19)
            self.layer.dataReceived(bytes([byte]))
        self.assert_failed("timeout")

    def test_peer_vanishes(self) -> None:
        self.accept()
        peer = BufferPeer(trusting(), "localhost")
        self.assertRaises(ssl.SSLWantReadError, peer.tls.do_handshake)
        self.layer.dataReceived(peer.outgoing.read())
        self.layer.connectionLost(DONE)
        self.assert_failed("closed", "cleanly")
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_peer_half_closes(self) -> None:
        """The end of the incoming direction ends an unfinished handshake."""
        self.accept()
        self.layer.readConnectionLost()
        self.assert_failed("closed")
        self.assertTrue(self.transport.disconnected)
        self.layer.connectionLost(Failure(ConnectionAborted()))

    def test_garbage(self) -> None:
        self.accept()
        self.layer.dataReceived(b"\x00\x01garbage garbage garbage")
        self.assertEqual(len(self.failures), 1)
        self.assertEqual(self.above.made, [])
        self.assertTrue(self.transport.disconnecting)
        self.layer.dataReceived(b"more")
        # the deadline stays until the peer is gone
        self.clock.advance(HANDSHAKE_TIMEOUT)
        self.assertTrue(self.transport.disconnected)
        self.layer.connectionLost(DONE)
        self.assertEqual(len(self.failures), 1)

    def test_plain_http(self) -> None:
        """Somebody who forgot the s in https gets an answer that he can read."""
        self.accept()
        self.layer.dataReceived(b"GET /version HTTP/1.1\r\nHost: kas\r\n\r\n")
        self.assert_failed("not-tls")
        self.assertTrue(self.transport.value().startswith(b"HTTP/1.1 400 "))
        self.assertIn(b"https://", self.transport.value())

    def test_flood(self) -> None:
        """A first message that never ends is cut at the limit."""
        self.accept()
        # A ClientHello of the largest size that OpenSSL would wait for.
        hello = b"\x01" + (131_000).to_bytes(3, "big") + b"\x03\x03" + bytes(131_000)
        sent = 0
        while not self.failures:
            fragment = hello[sent : sent + 16384]
            record = b"\x16\x03\x01" + struct.pack(">H", len(fragment)) + fragment
            self.layer.dataReceived(record)
            sent += len(fragment)
            self.assertLessEqual(sent, MAX_HANDSHAKE_BYTES + 16384)
        self.assert_failed("flood")
        self.assertTrue(self.transport.disconnecting)

    def test_no_context(self) -> None:
        """A context source that fails costs one connection."""

        def broken() -> ssl.SSLContext:
            raise ValueError("no context today")

        factory = wrap_server(self.above, broken, self.clock)
        layer: Any = factory.buildProtocol(ADDRESS)
        self.transport = CountingTransport()
        layer.makeConnection(self.transport)
        self.assertTrue(self.transport.disconnecting)
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 1)
        layer.connectionLost(DONE)

    def test_factory_refuses(self) -> None:
        """No protocol, no connection."""

        class Refusing(Factory):
            noisy = False

            def buildProtocol(self, addr: object) -> None:
                return None

        self.accept(Refusing())
        peer = BufferPeer(trusting(), "localhost")
        peer.exchange(self.layer, self.transport)
        self.assertTrue(self.transport.disconnected)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_client_without_certificate(self) -> None:
        """Where certificates are required, the server counts what was missing."""
        context = server_context()
        context.load_verify_locations(cadata=certificates.authority().pem)
        context.verify_mode = ssl.CERT_REQUIRED
        wrapped = wrap_server(
            self.above, lambda: context, self.clock, failed=self.failures.append
        )
        layer: Any = wrapped.buildProtocol(ADDRESS)
        self.layer = layer
        self.transport = CountingTransport()
        self.layer.makeConnection(self.transport)
        peer = BufferPeer(trusting(), "localhost")
        peer.exchange(self.layer, self.transport)
        self.assert_failed("client-certificate")
        # In TLS 1.3 the client believes that it is connected, and then learns.
        self.assertTrue(peer.shaken)
        with self.assertRaises(ssl.SSLError) as caught:
            peer.tls.read(10)
        self.assertEqual(caught.exception.reason, "TLSV13_ALERT_CERTIFICATE_REQUIRED")


class ClientTests(ClientTestCase):
    def test_verified(self) -> None:
        for name in ("localhost", "127.0.0.1"):
            layer = self.connect(name)
            peer = self.answer(layer, certificates.server_identity())
            self.above.made[-1].wire.write(b"hello")
            peer.incoming.write(self.transport.value())
            self.assertEqual(peer.read(), b"hello")
            self.assertEqual(
                layer.getPeerCertificate(),
                certificates.server_identity().certificate_der,
            )
