"""The TLS layer against the plain ``ssl`` module, without sockets and time."""

from __future__ import annotations

import ssl
import struct
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from twisted.internet.address import IPv4Address
from twisted.internet.error import ConnectionAborted, ConnectionDone, ConnectionLost
from twisted.internet.interfaces import (
    IHalfCloseableProtocol,
    INegotiated,
    IProtocol,
    ISSLTransport,
    ITCPTransport,
)
from twisted.internet.protocol import Factory
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from tests.tunnel.net import certificates
from tests.tunnel.net.harness import (
    BufferPeer,
    CountingTransport,
    HalfCloseableRecorder,
    Producer,
    Recorder,
    Recorders,
)
from tunnel.net.negotiation import NegotiationError
from tunnel.net.tls import CertificateFiles, client_context
from tunnel.net.tlsio import (
    CLOSE_TIMEOUT,
    HANDSHAKE_TIMEOUT,
    MAX_HANDSHAKE_BYTES,
    wrap_client,
    wrap_server,
)

ADDRESS = IPv4Address("TCP", "192.0.2.1", 4711)
DONE = Failure(ConnectionDone())


def server_context(identity: certificates.Identity | None = None) -> ssl.SSLContext:
    """What a server has, made without files that stay."""
    identity = identity or certificates.server_identity()
    with TemporaryDirectory() as directory:
        paths = identity.write(Path(directory), "server")
        return CertificateFiles(*paths).load(("txkas/1",), ssl.TLSVersion.TLSv1_2)


def trusting(**options: Any) -> ssl.SSLContext:
    return client_context(ca_data=certificates.authority().pem, **options)


class LayerTestCase(SynchronousTestCase):
    """A server's TLS connection on a fake transport."""

    context = staticmethod(server_context)
    kind: type[Recorder] = Recorder

    def setUp(self) -> None:
        self.clock = Clock()
        self.above = Recorders(self.kind)
        self.failures: list[NegotiationError] = []

    def accept(self, factory: Factory | None = None) -> Any:
        self.transport = CountingTransport()
        wrapped = wrap_server(
            factory or self.above,
            type(self).context,
            self.clock,
            failed=self.failures.append,
        )
        layer: Any = wrapped.buildProtocol(ADDRESS)
        self.layer = layer
        self.layer.makeConnection(self.transport)
        return self.layer

    def establish(self, **options: Any) -> Any:
        """Accept a connection and finish its handshake; returns what is above."""
        self.accept()
        self.peer = BufferPeer(trusting(**options), "localhost")
        self.peer.exchange(self.layer, self.transport)
        (protocol,) = self.above.made
        self.transport.writes = 0
        return protocol

    def assert_failed(self, label: str, *words: str) -> None:
        """The negotiation failed once, for that reason; nothing was made above."""
        self.assertEqual([error.label for error in self.failures], [label])
        for word in words:
            self.assertIn(word, str(self.failures[0]))
        self.assertEqual(self.above.made, [])

    def take(self) -> bytes:
        """Decrypt what we sent."""
        self.peer.incoming.write(self.transport.value())
        self.transport.clear()
        return self.peer.read()


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

    def test_untrusted(self) -> None:
        """Our own certificate does not please the client: its alert says so."""
        self.accept()
        peer = BufferPeer(client_context(), "localhost")
        self.assertRaises(
            ssl.SSLCertVerificationError, peer.exchange, self.layer, self.transport
        )
        self.layer.dataReceived(peer.outgoing.read())
        self.assert_failed("alert", "unknown ca")

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


class DataTests(LayerTestCase):
    def test_one_delivery_per_chunk(self) -> None:
        """All records of one chunk arrive above as one piece."""
        protocol = self.establish()
        blob = bytes(range(256)) * 96  # 24 KiB: two records
        self.layer.dataReceived(self.peer.send(blob))
        self.assertEqual(protocol.chunks, [blob])
        blob = bytes(range(256)) * 1024
        self.layer.dataReceived(self.peer.send(blob))
        self.assertEqual(protocol.received[-len(blob) :], blob)
        self.assertLessEqual(len(protocol.chunks), 10)

    def test_partial_records(self) -> None:
        protocol = self.establish()
        record = self.peer.send(b"one record")
        self.layer.dataReceived(record[:9])
        self.assertEqual(protocol.chunks, [])
        self.layer.dataReceived(record[9:] + self.peer.send(b"x" * 20000)[:50])
        self.assertEqual(protocol.chunks, [b"one record"])

    def test_write(self) -> None:
        """Whatever its size, one write above is one write below."""
        protocol = self.establish()
        for size in (1, 100, 16384, 32768, 32769, 300_000):
            blob = bytes(size)
            self.transport.writes = 0
            protocol.transport.write(blob)
            self.assertEqual(self.transport.writes, 1)
            self.assertEqual(self.take(), blob)
        protocol.transport.writeSequence([b"a", b"", b"bc"])
        self.assertEqual(self.take(), b"abc")
        self.transport.writes = 0
        protocol.transport.write(b"")
        self.assertEqual(self.transport.writes, 0)

    def test_broken_record(self) -> None:
        """A record that was tampered with ends the connection."""
        protocol = self.establish()
        good, bad = self.peer.send(b"good"), bytearray(self.peer.send(b"bad"))
        bad[-1] ^= 1
        self.layer.dataReceived(good + bytes(bad))
        self.assertEqual(protocol.chunks, [b"good"])
        self.assertTrue(self.transport.disconnected)
        self.layer.connectionLost(Failure(ConnectionAborted()))
        self.assertTrue(protocol.lost.check(ConnectionLost))
        self.assertIn("bad record mac", str(protocol.lost.value))

    def test_exception_above(self) -> None:
        """It reaches the transport below, which ends the connection with it."""
        protocol = self.establish()

        def broken(data: bytes) -> None:
            raise ZeroDivisionError

        protocol.on_data = broken
        record = self.peer.send(b"x")
        self.assertRaises(ZeroDivisionError, self.layer.dataReceived, record)
        self.layer.connectionLost(Failure(ZeroDivisionError()))
        self.assertTrue(protocol.lost.check(ZeroDivisionError))

    def test_abort_while_delivering(self) -> None:
        """Nothing follows an abort, not even from the same chunk."""
        protocol = self.establish()
        protocol.on_data = lambda _: protocol.wire.abortConnection()
        self.layer.dataReceived(self.peer.send(bytes(100_000)))
        self.assertEqual(len(protocol.chunks), 1)
        self.assertTrue(self.transport.disconnected)
        self.layer.connectionLost(Failure(ConnectionAborted()))
        self.assertTrue(protocol.lost.check(ConnectionAborted))

    def test_pause(self) -> None:
        """Pausing and resuming reach the transport below."""
        protocol = self.establish()
        protocol.wire.pauseProducing()
        self.assertEqual(self.transport.producerState, "paused")
        protocol.wire.resumeProducing()
        self.assertEqual(self.transport.producerState, "producing")

    def test_paused_from_the_start(self) -> None:
        """What came with the handshake waits for a protocol that starts paused."""
        self.above.prepare = lambda protocol: setattr(
            protocol, "on_connected", lambda p: p.wire.pauseProducing()
        )
        self.accept()
        peer = BufferPeer(trusting(), "localhost")
        self.assertRaises(ssl.SSLWantReadError, peer.tls.do_handshake)
        self.layer.dataReceived(peer.outgoing.read())
        peer.incoming.write(self.transport.value())
        peer.tls.do_handshake()
        last = peer.outgoing.read() + peer.send(b"hello")
        self.layer.dataReceived(last + peer.close_notify())
        (protocol,) = self.above.made
        self.assertEqual(protocol.chunks, [])
        self.assertFalse(self.transport.disconnecting)
        protocol.wire.resumeProducing()
        self.assertEqual(protocol.chunks, [])
        self.clock.advance(0)
        self.assertEqual(protocol.chunks, [b"hello"])
        self.assertTrue(self.transport.disconnecting)

    def test_failure_while_releasing(self) -> None:
        """An exception above, called by a timer, still ends the connection."""
        self.test_pause()
        (protocol,) = self.above.made

        def broken(data: bytes) -> None:
            raise ZeroDivisionError

        protocol.wire.pauseProducing()
        self.layer.dataReceived(self.peer.send(b"x"))
        protocol.on_data = broken
        protocol.wire.resumeProducing()
        self.clock.advance(0)
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        self.assertTrue(self.transport.disconnected)


class ProducerTests(LayerTestCase):
    def test_streaming(self) -> None:
        """The transport below paces it directly."""
        protocol = self.establish()
        producer = Producer()
        protocol.wire.registerProducer(producer, True)
        self.assertIs(self.transport.producer, producer)
        self.assertTrue(self.transport.streaming)
        self.assertRaises(
            RuntimeError, protocol.wire.registerProducer, Producer(), True
        )
        protocol.wire.unregisterProducer()
        self.assertIsNone(self.transport.producer)
        protocol.wire.unregisterProducer()

    def test_after_the_end(self) -> None:
        protocol = self.establish()
        self.layer.connectionLost(DONE)
        producer = Producer()
        protocol.wire.registerProducer(producer, True)
        self.assertEqual(producer.told, ["stop"])

    def test_close_waits_for_producer(self) -> None:
        """A producer may finish what it began before loseConnection takes effect."""
        protocol = self.establish()
        protocol.wire.registerProducer(Producer(), True)
        protocol.wire.loseConnection()
        protocol.wire.write(b"the rest")
        self.assertEqual(self.take(), b"the rest")
        self.assertFalse(self.transport.disconnecting)
        protocol.wire.unregisterProducer()
        self.assertTrue(self.transport.disconnecting)
        self.assertRaises(ssl.SSLZeroReturnError, self._read_end)

    def _read_end(self) -> None:
        self.peer.incoming.write(self.transport.value())
        self.peer.tls.unwrap()
        self.peer.tls.read(1)

    def test_peer_leaves(self) -> None:
        """When the peer is gone, a producer is stopped: nobody wants its data."""
        protocol = self.establish()
        producer = Producer()
        protocol.wire.registerProducer(producer, True)
        self.layer.dataReceived(self.peer.close_notify())
        self.assertEqual(producer.told, ["stop"])
        self.assertIsNone(self.transport.producer)
        self.assertTrue(self.transport.disconnecting)
        protocol.wire.unregisterProducer()


class CloseTests(LayerTestCase):
    def test_lose_connection(self) -> None:
        """What was written comes first, then close_notify, then the end below."""
        protocol = self.establish()
        protocol.wire.write(b"last words")
        protocol.wire.loseConnection()
        protocol.wire.loseConnection()
        protocol.wire.write(b"dropped")
        self.assertTrue(protocol.wire.disconnecting)
        self.assertTrue(self.transport.disconnecting)
        self.peer.incoming.write(self.transport.value())
        self.assertEqual(self.peer.tls.read(100), b"last words")
        self.assertEqual(self.peer.tls.read(100), b"")
        self.layer.dataReceived(self.peer.send(b"late"))
        self.assertEqual(protocol.chunks, [])
        self.assertIsNone(protocol.lost)
        self.layer.connectionLost(DONE)
        self.assertTrue(protocol.lost.check(ConnectionDone))
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_peer_closes(self) -> None:
        """close_notify is answered, and ends cleanly."""
        protocol = self.establish()
        self.layer.dataReceived(self.peer.send(b"bye") + self.peer.close_notify())
        self.assertEqual(protocol.chunks, [b"bye"])
        self.assertTrue(self.transport.disconnecting)
        self.peer.incoming.write(self.transport.value())
        self.peer.tls.unwrap()  # raises unless the answer is there
        self.layer.connectionLost(DONE)
        self.assertTrue(protocol.lost.check(ConnectionDone))

    def test_truncation(self) -> None:
        """The end of TCP alone is not trusted to be the peer's doing."""
        protocol = self.establish()
        self.layer.connectionLost(DONE)
        self.assertTrue(protocol.lost.check(ConnectionLost))
        self.assertIn("close_notify", str(protocol.lost.value))

    def test_truncation_by_half_close(self) -> None:
        """The same when the transport below can tell one direction from the other."""
        protocol = self.establish()
        self.layer.readConnectionLost()
        self.assertTrue(self.transport.disconnected)
        self.layer.connectionLost(Failure(ConnectionAborted()))
        self.assertIn("close_notify", str(protocol.lost.value))
        self.assertTrue(protocol.lost.check(ConnectionLost))

    def test_network_error(self) -> None:
        protocol = self.establish()
        reason = Failure(ConnectionLost("reset"))
        self.layer.connectionLost(reason)
        self.assertIs(protocol.lost, reason)
        protocol.wire.write(b"x")
        protocol.wire.loseConnection()
        protocol.wire.abortConnection()

    def test_stopped_peer(self) -> None:
        """A peer that takes nothing any more cannot keep a closing connection."""
        protocol = self.establish()
        self.transport.held = 5000
        protocol.wire.loseConnection()
        self.transport.held = 4000
        self.clock.advance(CLOSE_TIMEOUT)
        self.assertFalse(self.transport.disconnected)  # slow, but alive
        self.clock.advance(CLOSE_TIMEOUT)
        self.assertTrue(self.transport.disconnected)
        self.layer.connectionLost(Failure(ConnectionAborted()))
        self.assertIn("took nothing", str(protocol.lost.value))

    def test_stopped_peer_with_producer(self) -> None:
        """With a producer: waiting for the producer is fine, for the peer it is not."""
        protocol = self.establish()
        protocol.wire.registerProducer(Producer(), True)
        self.transport.held = 0
        protocol.wire.loseConnection()
        self.clock.advance(CLOSE_TIMEOUT)
        self.clock.advance(CLOSE_TIMEOUT)
        self.assertFalse(self.transport.disconnected)
        self.transport.held = 70_000
        self.clock.advance(CLOSE_TIMEOUT)
        self.assertFalse(self.transport.disconnected)
        self.clock.advance(CLOSE_TIMEOUT)
        self.assertTrue(self.transport.disconnected)


class HalfCloseTests(LayerTestCase):
    kind = HalfCloseableRecorder

    def test_peer_first(self) -> None:
        """After the peer's close_notify we may go on; TCP's end changes nothing."""
        protocol = self.establish()
        self.layer.dataReceived(self.peer.send(b"request") + self.peer.close_notify())
        self.assertEqual(protocol.received, b"request")
        self.assertEqual(protocol.read_lost, 1)
        self.assertFalse(self.transport.disconnecting)
        self.layer.readConnectionLost()
        self.assertEqual((protocol.read_lost, protocol.lost), (1, None))
        protocol.wire.write(b"answer")
        protocol.wire.loseConnection()
        self.peer.incoming.write(self.transport.value())
        self.assertTrue(self.transport.disconnecting)
        self.layer.connectionLost(DONE)
        self.assertTrue(protocol.lost.check(ConnectionDone))

    def test_we_first(self) -> None:
        """After our close_notify what the peer sends still arrives."""
        protocol = self.establish()
        protocol.wire.write(b"request")
        protocol.wire.loseWriteConnection()
        protocol.wire.loseWriteConnection()
        protocol.wire.write(b"dropped")
        self.assertEqual(protocol.write_lost, 0)
        self.clock.advance(0)
        self.assertEqual(protocol.write_lost, 1)
        self.peer.incoming.write(self.transport.value())
        self.assertEqual(self.peer.tls.read(100), b"request")
        self.assertEqual(self.peer.tls.read(100), b"")
        self.assertFalse(self.transport.disconnecting)
        self.layer.dataReceived(self.peer.send(b"answer"))
        self.assertEqual(protocol.chunks, [b"answer"])

    def test_within_a_record(self) -> None:
        """Closing our direction while half a record is here loses nothing."""
        protocol = self.establish()
        record = self.peer.send(b"answer")
        self.layer.dataReceived(record[:11])
        protocol.wire.loseWriteConnection()
        self.layer.dataReceived(record[11:])
        self.assertEqual(protocol.chunks, [b"answer"])

    def test_both(self) -> None:
        protocol = self.establish()
        protocol.wire.loseWriteConnection()
        self.layer.dataReceived(self.peer.send(b"answer"))
        self.assertEqual(protocol.received, b"answer")
        self.layer.dataReceived(self.peer.close_notify())
        self.assertTrue(self.transport.disconnecting)
        self.layer.connectionLost(DONE)
        self.assertTrue(protocol.lost.check(ConnectionDone))

    def test_both_other_order(self) -> None:
        protocol = self.establish()
        self.layer.dataReceived(self.peer.close_notify())
        self.assertFalse(self.transport.disconnecting)
        protocol.wire.loseWriteConnection()
        self.assertTrue(self.transport.disconnecting)

    def test_after_the_producer(self) -> None:
        """The direction is closed when the producer has finished."""
        protocol = self.establish()
        protocol.wire.registerProducer(Producer(), True)
        protocol.wire.loseWriteConnection()
        protocol.wire.write(b"the rest")
        self.assertEqual(self.take(), b"the rest")
        protocol.wire.unregisterProducer()
        self.peer.incoming.write(self.transport.value())
        self.assertEqual(self.peer.tls.read(100), b"")

    def test_truncation(self) -> None:
        """Half-closeable or not: no end without close_notify."""
        protocol = self.establish()
        self.layer.readConnectionLost()
        self.assertEqual(protocol.read_lost, 0)
        self.assertTrue(self.transport.disconnected)


class ClientTests(LayerTestCase):
    def connect(self, name: str, context: ssl.SSLContext | None = None) -> Any:
        factory = wrap_client(self.above, context or trusting(), name, self.clock)
        factory.failed = self.failures.append
        self.transport = CountingTransport()
        layer: Any = factory.buildProtocol(ADDRESS)
        layer.makeConnection(self.transport)
        return layer

    def answer(self, layer: Any, identity: certificates.Identity) -> BufferPeer:
        peer = BufferPeer(server_context(identity), server_side=True)
        peer.exchange(layer, self.transport)
        return peer

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
