"""One front with a recording handler, and connections in memory to it."""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.tunnel.http1.wire import Wire
from tunnel.http1 import Exchange, HttpServerFactory, HttpServerLimits

OK = b"HTTP/1.1 200 OK\r\n"


class Recorder:
    """A handler and receiver that notes everything."""

    def __init__(self) -> None:
        self.exchanges: list[Exchange] = []
        self.body = b""
        self.ends: list[bytes] = []
        self.gone: list[Exception] = []
        self.on_request: Callable[[Exchange], None] = lambda exchange: None
        self.on_body: Callable[[bytes], None] = lambda data: None

    @property
    def exchange(self) -> Exchange:
        return self.exchanges[-1]

    def request_received(self, exchange: Exchange) -> Recorder:
        self.exchanges.append(exchange)
        self.on_request(exchange)
        return self

    def body_received(self, data: bytes) -> None:
        self.body += data
        self.on_body(data)

    def body_finished(self, trailers: bytes) -> None:
        self.ends.append(trailers)

    def client_gone(self, reason: Exception) -> None:
        self.gone.append(reason)


class FrontCase(SynchronousTestCase):
    """One front, one connection, a recording handler."""

    limits = HttpServerLimits()

    def setUp(self) -> None:
        self.clock = Clock()
        self.handler = Recorder()
        self.factory = HttpServerFactory(self.handler, self.clock, limits=self.limits)
        self.wire = self.connect()

    def connect(self) -> Wire:
        return Wire(self.factory.buildProtocol(None))

    def turn(self) -> bytes:
        """The end of a reactor turn, and what was written in it."""
        self.clock.advance(0)
        return self.wire.taken()

    def answer(self, body: bytes = b"hi", exchange: Exchange | None = None) -> None:
        exchange = exchange or self.handler.exchange
        exchange.send_head(OK, len(body))
        exchange.write(body)
        exchange.finish()
