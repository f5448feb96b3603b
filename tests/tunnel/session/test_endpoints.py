"""Any Twisted protocol over one stream."""

from __future__ import annotations

from typing import Any

from twisted.internet.interfaces import IHalfCloseableProtocol
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.task import Clock
from twisted.protocols.basic import LineReceiver
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from tunnel.errors import SessionClosed, StreamReset
from tunnel.session.endpoints import StreamEndpoint, StreamPort
from tunnel.testing import connected

METHOD = "/tests.Tcp/Connect"


class Shout(LineReceiver):
    """Answers each line in capitals."""

    lost: Failure | None = None

    def lineReceived(self, line: bytes) -> None:
        self.sendLine(line.upper())

    def connectionLost(self, reason: Any = None) -> None:
        self.lost = reason


class Recorder(Protocol):
    """Remembers."""

    def __init__(self) -> None:
        self.data = b""
        self.lost: Failure | None = None

    def dataReceived(self, data: bytes) -> None:
        self.data += data

    def connectionLost(self, reason: Any = None) -> None:
        self.lost = reason


@implementer(IHalfCloseableProtocol)
class HalfCloseable(Recorder):
    """Knows that the other side may finish first."""

    finished = False

    def readConnectionLost(self) -> None:
        self.finished = True

    def writeConnectionLost(self) -> None:
        pass


class EndpointTests(SynchronousTestCase):
    """A client here, a server there."""

    def setUp(self) -> None:
        self.agent, self.kas, self.pipe = connected(Clock())
        self.servers: list[Any] = []
        self.endpoint = StreamEndpoint(
            lambda receiver: self.kas.open_stream(METHOD, receiver)
        )

    def serve(self, protocol: type[Protocol]) -> None:
        class Server(Factory):
            def buildProtocol(_, addr: Any) -> Any:
                self.servers.append(protocol())
                return self.servers[-1]

        self.agent.dispatcher.handle_stream(
            "tests", METHOD, StreamPort(Server()).accept
        )

    def connect(self, protocol: type[Protocol]) -> Any:
        client = self.successResultOf(
            self.endpoint.connect(Factory.forProtocol(protocol))
        )
        self.pipe.flush()
        return client

    def test_lines_cross(self) -> None:
        """And the connection ends cleanly for both."""
        self.serve(Shout)
        client = self.connect(Recorder)
        client.transport.write(b"hello\r\nworld\r\n")
        self.pipe.flush()
        self.assertEqual(client.data, b"HELLO\r\nWORLD\r\n")
        client.transport.loseConnection()
        self.pipe.flush()
        self.assertIsNotNone(client.lost)
        self.assertIsNotNone(self.servers[0].lost)
        self.assertEqual(self.agent.tunnel.load, 0)

    def test_half_close(self) -> None:
        """A protocol that knows it can answer after the end of the question."""
        self.serve(HalfCloseable)
        client = self.connect(HalfCloseable)
        client.transport.write(b"question")
        client.transport.loseWriteConnection()
        self.pipe.flush()
        (server,) = self.servers
        self.assertTrue(server.finished)
        server.transport.write(b"answer")
        server.transport.loseConnection()
        self.pipe.flush()
        self.assertEqual(client.data, b"answer")
        self.assertTrue(client.finished)

    def test_abort_is_seen_as_a_reset(self) -> None:
        """By both."""
        self.serve(Recorder)
        client = self.connect(Recorder)
        client.transport.abortConnection()
        self.pipe.flush()
        self.assertIsNotNone(client.lost.check(StreamReset))
        self.assertIsNotNone(self.servers[0].lost.check(StreamReset))

    def test_headers_do_not_belong_on_a_byte_stream(self) -> None:
        """They reset it."""
        self.serve(Recorder)
        client = self.connect(Recorder)
        client.transport.send_headers(b"what?")
        self.pipe.flush()
        self.assertIsNotNone(client.lost.check(StreamReset))
        self.assertEqual(len(self.flushLoggedErrors()), 1)

    def test_addresses_are_those_of_the_connection(self) -> None:
        """Of the tunnel under the stream."""
        self.serve(Recorder)
        client = self.connect(Recorder)
        self.assertEqual(client.transport.getPeer().host, "127.0.0.1")
        self.assertEqual(client.transport.getHost().host, "127.0.0.1")

    def test_tunnel_that_is_gone_fails_the_connect(self) -> None:
        """With its reason."""
        self.kas.tunnel.end(1)  # type: ignore[arg-type]
        self.pipe.flush()
        failed = self.endpoint.connect(Factory.forProtocol(Recorder))
        self.failureResultOf(failed, SessionClosed)

    def test_factories_may_refuse(self) -> None:
        """On either side."""

        class Refusing(Factory):
            def buildProtocol(self, addr: Any) -> None:
                return None

        self.failureResultOf(self.endpoint.connect(Refusing()), ValueError)
        self.agent.dispatcher.handle_stream(
            "tests", METHOD, StreamPort(Refusing()).accept
        )
        client = self.connect(Recorder)
        self.assertIsNotNone(client.lost.check(StreamReset))
