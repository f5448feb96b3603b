"""The server side: connections that change protocol."""

from __future__ import annotations

from tests.tunnel.http1.fronts import FrontCase, Recorder
from tests.tunnel.http1.wire import Wire
from tunnel.http1 import Exchange

UPGRADE = (
    b"POST /exec HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\n"
    b"Upgrade: SPDY/3.1\r\nContent-Length: 0\r\n\r\n"
)
SWITCH = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: SPDY/3.1\r\n"


class UpgradeTests(FrontCase):
    """101, and raw bytes after it."""

    def test_first_bytes_are_not_lost(self) -> None:
        """Those that came with the request, cut at every offset (lesson 8)."""
        whole = UPGRADE + b"first bytes"
        for cut in range(1, len(whole)):
            handler = self.handler = Recorder()
            self.factory.handler = handler
            wire = self.connect()
            wire.receive(whole[:cut], whole[cut:])
            self.assertEqual(handler.body, b"", "before the 101 they wait")
            handler.exchange.upgrade(SWITCH)
            self.assertEqual(handler.body, b"first bytes", cut)
            self.clock.advance(0)
            self.assertEqual(wire.taken(), SWITCH + b"\r\n")

    def test_upgrade_inside_the_callback(self) -> None:
        """A handler may switch at once."""
        self.handler.on_request = lambda exchange: exchange.upgrade(SWITCH)
        self.wire.receive(UPGRADE + b"abc")
        self.assertEqual(self.handler.body, b"abc")

    def test_our_half_ends_inside_the_callback(self) -> None:
        """What the client still sends comes all the same, and so does its end."""

        def begin(exchange: Exchange) -> None:
            exchange.upgrade(SWITCH)
            exchange.finish()

        self.handler.on_request = begin
        self.wire.receive(UPGRADE)
        self.assertTrue(self.wire.half_closed)
        self.wire.receive(b"raw")
        self.assertEqual(self.handler.body, b"raw")
        self.wire.receive_end()
        self.assertEqual(self.handler.ends, [b""])
        self.wire.settle()
        self.assertEqual(self.handler.gone, [])

    def test_half_closes(self) -> None:
        """Each direction ends by itself, and the connection after both."""
        self.wire.receive(UPGRADE)
        exchange = self.handler.exchange
        exchange.upgrade(SWITCH)
        self.wire.receive(b"in")
        self.wire.receive_end()
        self.assertEqual(self.handler.ends, [b""])
        self.turn()
        exchange.write(b"out")
        self.assertEqual(self.turn(), b"out")
        self.assertFalse(self.wire.disconnecting)
        exchange.finish()
        self.assertTrue(self.wire.disconnecting)
        self.wire.settle()
        self.assertEqual(self.handler.gone, [])

    def test_our_half_first(self) -> None:
        """After `finish` the client may still send."""
        self.wire.receive(UPGRADE)
        self.handler.exchange.upgrade(SWITCH)
        self.handler.exchange.finish()
        self.assertTrue(self.wire.half_closed)
        self.wire.receive(b"more")
        self.assertEqual(self.handler.body, b"more")
        self.wire.receive_end()
        self.assertEqual(self.handler.ends, [b""])
        self.assertTrue(self.wire.disconnecting)

    def test_client_breaks_after_our_half(self) -> None:
        """Its half never ended: the handler must hear of it."""
        self.wire.receive(UPGRADE)
        self.handler.exchange.upgrade(SWITCH)
        self.handler.exchange.finish()
        self.wire.lose(clean=False)
        self.assertEqual(len(self.handler.gone), 1)

    def test_half_closed_for_ever(self) -> None:
        """One half alone lives while bytes move, and a minute longer."""
        self.wire.receive(UPGRADE)
        exchange = self.handler.exchange
        exchange.upgrade(SWITCH)
        self.clock.pump([1.0] * 7200)
        self.assertFalse(self.wire.aborted, "with both halves open, for ever")
        self.wire.receive_end()
        for _ in range(5):
            self.clock.pump([1.0] * 50)
            exchange.write(b"x")
        self.assertFalse(self.wire.aborted)
        self.clock.pump([1.0] * 62)
        self.assertTrue(self.wire.aborted)
        self.assertEqual(len(self.handler.gone), 1)

    def test_slow_reader(self) -> None:
        """What was written goes to the client, however long that takes."""
        self.wire.receive(UPGRADE)
        exchange = self.handler.exchange
        exchange.upgrade(SWITCH)
        exchange.write(b"last words")
        exchange.finish()
        self.clock.pump([1.0] * 62)
        self.assertTrue(self.wire.disconnecting)
        self.assertFalse(self.wire.aborted)
        self.assertEqual(len(self.handler.gone), 1)
        self.wire.settle()
        self.assertEqual(self.factory.connections, set())

    def test_refused_upgrade_is_plain_http(self) -> None:
        """P03: another status is an answer, then the connection closes; no pipe."""
        self.wire.receive(UPGRADE + b"GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n")
        self.handler.exchange.send_head(b"HTTP/1.1 403 Forbidden\r\n", 2)
        self.handler.exchange.write(b"no")
        self.handler.exchange.finish()
        self.assertIn(b"Connection: close\r\n", self.wire.taken())
        self.assertEqual(self.handler.body, b"")
        self.assertEqual(len(self.handler.exchanges), 1)
        self.wire.receive(b"GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n")
        self.assertEqual(len(self.handler.exchanges), 1)

    def test_not_asked_for(self) -> None:
        """Raw mode only for a request that wants it (CVE-2018-1002105)."""
        self.wire.receive(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        self.assertRaises(ValueError, self.handler.exchange.upgrade, SWITCH)

    def test_half_close_behind_a_wrapper(self) -> None:
        """Twisted's TLS passes the call to its socket and would cut records off."""

        class Wrapper:
            def __init__(self, wire: Wire) -> None:
                self.wire = wire

            def __getattr__(self, name: str) -> object:
                return getattr(self.wire, name)

        protocol = self.factory.buildProtocol(None)
        wire = Wire(self.factory.buildProtocol(None))
        protocol.makeConnection(Wrapper(wire))
        protocol.dataReceived(UPGRADE)
        self.handler.exchange.upgrade(SWITCH)
        self.handler.exchange.finish()
        self.assertFalse(wire.half_closed)
        self.assertTrue(wire.disconnecting)
