"""The ends of a TLS connection: both directions, one of them, and by force."""

from __future__ import annotations

from twisted.internet.error import ConnectionAborted, ConnectionDone, ConnectionLost
from twisted.python.failure import Failure

from tests.tunnel.producers import Producer
from tests.tunnel.session.harness import HalfCloseableRecorder
from tests.tunnel.transport.tls_layer import DONE, LayerTestCase
from tunnel.transport.tlsio import CLOSE_TIMEOUT


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
        self.assertIn("accepted no data", str(protocol.lost.value))

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
