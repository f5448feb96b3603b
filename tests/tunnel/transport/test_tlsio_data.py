"""What passes an open TLS connection, and who is paused meanwhile."""

from __future__ import annotations

import ssl

from twisted.internet.error import ConnectionAborted, ConnectionLost
from twisted.python.failure import Failure

from tests.tunnel.producers import Producer
from tests.tunnel.session.harness import BufferPeer
from tests.tunnel.transport.tls_layer import DONE, LayerTestCase, trusting


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
