"""
Floors and upstreams, each a small process of its own.

    upstream         our HTTP server with TLS, used without nginx; watches; large bodies
    relay            the smallest Twisted program that relays between TLS and TCP
    connect          requests each connection from konnectivity, like the API server
    accept           a bare Twisted TLS listener

Each prints ``port N`` when it listens.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from twisted.internet import reactor as _reactor
from twisted.internet import ssl, stdio
from twisted.internet.endpoints import (
    SSL4ClientEndpoint,
    SSL4ServerEndpoint,
    TCP4ClientEndpoint,
    TCP4ServerEndpoint,
    UNIXClientEndpoint,
)
from twisted.internet.protocol import Factory, Protocol
from twisted.protocols.basic import LineReceiver

from tunnel.http1 import Exchange, HttpServerFactory
from tunnel.program.tuning import settle, tune_allocator
from tunnel.transport.tls import ReloadingServerContext
from tunnel.transport.tlsio import wrap_server

reactor: Any = _reactor

_HEADERS = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nCache-Control: no-cache\r\n"
    b"Audit-Id: 7e0a4f3c-7f0c-4c3e-9a38-53f4d1f7a001\r\n"
)
_CHUNK = b"x" * 65536


class Bodies:
    """
    Handler with three kinds of responses: ``/N`` returns N bytes, ``/stream/N`` streams
    N bytes, and ``/watch`` sends a line for each line on standard input.
    """

    def __init__(self) -> None:
        self.watches: set[Exchange] = set()
        self._bodies: dict[bytes, bytes] = {}

    def request_received(self, exchange: Exchange) -> Any:
        path = exchange.head.target.partition(b"?")[0]
        kind, _, number = path.lstrip(b"/").rpartition(b"/")
        if path.endswith(b"/watch"):
            return self._watch(exchange)
        if kind.endswith(b"stream"):
            return _Sender(exchange, int(number))
        body = self._bodies.get(number)
        if body is None:
            body = self._bodies[number] = b"x" * int(number)
        exchange.send_head(_HEADERS, len(body))
        exchange.write(body)
        exchange.finish()
        return None

    def _watch(self, exchange: Exchange) -> Any:
        exchange.send_head(_HEADERS, -1)
        self.watches.add(exchange)
        return _Watcher(self, exchange)

    def event(self) -> None:
        """Send one line to every watch."""
        for exchange in self.watches:
            exchange.write(b'{"type":"ADDED"}\n')


class _Watcher:
    def __init__(self, bodies: Bodies, exchange: Exchange) -> None:
        self._bodies, self._exchange = bodies, exchange

    def body_received(self, data: bytes) -> None:
        pass

    def body_finished(self, trailers: bytes) -> None:
        pass

    def client_gone(self, reason: Exception) -> None:
        self._bodies.watches.discard(self._exchange)


class _Sender:
    """Streaming producer of a large body."""

    def __init__(self, exchange: Exchange, left: int) -> None:
        self._exchange, self._left, self._paused = exchange, left, False
        exchange.send_head(_HEADERS, left)
        exchange.registerProducer(self, True)
        self.resumeProducing()

    def resumeProducing(self) -> None:
        self._paused = False
        while self._left and not self._paused:
            piece = _CHUNK[: self._left]
            self._left -= len(piece)
            self._exchange.write(piece)
        if not self._left:
            self._exchange.unregisterProducer()
            self._exchange.finish()

    def pauseProducing(self) -> None:
        self._paused = True

    def stopProducing(self) -> None:
        self._left, self._paused = 0, True

    def body_received(self, data: bytes) -> None:
        pass

    def body_finished(self, trailers: bytes) -> None:
        pass

    def client_gone(self, reason: Exception) -> None:
        self._left = 0


class _Relay(Protocol):
    """One direction of a relay; the other direction is another instance."""

    other: _Relay | None = None

    def connectionMade(self) -> None:
        self.transport.pauseProducing()  # type: ignore[union-attr]
        peer = TCP4ClientEndpoint(reactor, "127.0.0.1", self.factory.port)
        endpoint: Any = peer
        if self.factory.tls:
            endpoint = SSL4ClientEndpoint(
                reactor,
                "127.0.0.1",
                self.factory.port,
                ssl.CertificateOptions(verify=False),
            )
        endpoint.connect(Factory.forProtocol(_RelayEnd)).addCallback(self._joined)

    def _joined(self, other: Any) -> None:
        self.other, other.other = other, self
        mine: Any = self.transport
        theirs: Any = other.transport
        mine.registerProducer(theirs, True)
        theirs.registerProducer(mine, True)
        mine.resumeProducing()

    def dataReceived(self, data: bytes) -> None:
        self.other.transport.write(data)  # type: ignore[union-attr]

    def connectionLost(self, reason: Any = None) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.loseConnection()


class _RelayEnd(_Relay):
    def connectionMade(self) -> None:
        pass


class _Connect(_Relay):
    """Relay that asks konnectivity for each connection, as the API server does."""

    def connectionMade(self) -> None:
        self.transport.pauseProducing()  # type: ignore[union-attr]
        endpoint = UNIXClientEndpoint(reactor, self.factory.through)
        asked: Any = Factory.forProtocol(_Connected)
        asked.waiting, asked.port = self, self.factory.port
        endpoint.connect(asked)


class _Connected(_RelayEnd):
    """The other end of a `_Connect`, after the tunnel has confirmed the connection."""

    _head = b""

    def connectionMade(self) -> None:
        line = b"CONNECT 127.0.0.1:%d HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
        self.transport.write(line % self.factory.port)  # type: ignore[union-attr]

    def dataReceived(self, data: bytes) -> None:
        if self.other is not None:
            super().dataReceived(data)
            return
        self._head += data
        # No data follows the head, because the upstream sends only after a request.
        if self._head.endswith(b"\r\n\r\n"):
            if b" 200 " not in self._head.partition(b"\r\n")[0]:
                raise RuntimeError(f"no connection through the tunnel: {self._head!r}")
            self.factory.waiting._joined(self)


class _Accepted(Protocol):
    """
    Counter of connections; it counts at the first byte, when the handshake has ended.
    """

    count = 0

    def dataReceived(self, data: bytes) -> None:
        _Accepted.count += 1


class _Commands(LineReceiver):
    delimiter = b"\n"

    def __init__(self, bodies: Bodies) -> None:
        self._bodies = bodies

    def lineReceived(self, line: bytes) -> None:
        if line == b"event":
            self._bodies.event()
        elif line == b"watches":
            print(f"watches {len(self._bodies.watches)}", flush=True)
        elif line == b"accepted":
            print(f"accepted {_Accepted.count}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("name", choices=["upstream", "relay", "connect", "accept"])
    parser.add_argument("--certificate")
    parser.add_argument("--key")
    parser.add_argument("--to", type=int, help="port that a relay connects to")
    parser.add_argument("--through", help="unix socket of konnectivity")
    parser.add_argument("--to-tls", action="store_true")
    parser.add_argument("--from-tls", action="store_true")
    options = parser.parse_args()
    tune_allocator()
    bodies = Bodies()
    factory: Any
    if options.name == "upstream":
        factory = HttpServerFactory(bodies, reactor)
        if options.certificate:
            context = ReloadingServerContext(
                options.certificate, options.key, clock=reactor, alpn=("http/1.1",)
            )
            factory = wrap_server(factory, context, reactor)
        endpoint: Any = TCP4ServerEndpoint(reactor, 0, 5000, "127.0.0.1")
    else:
        protocols = {"relay": _Relay, "connect": _Connect, "accept": _Accepted}
        factory = Factory.forProtocol(protocols[options.name])
        factory.port, factory.tls = options.to, options.to_tls
        factory.through = options.through
        if options.name == "accept" or options.from_tls:
            own = ssl.PrivateCertificate.loadPEM(
                open(options.certificate).read() + open(options.key).read()
            )
            endpoint = SSL4ServerEndpoint(reactor, 0, own.options(), 5000, "127.0.0.1")
        else:
            endpoint = TCP4ServerEndpoint(reactor, 0, 5000, "127.0.0.1")
    stdio.StandardIO(_Commands(bodies))
    endpoint.listen(factory).addCallback(
        lambda port: print(f"port {port.getHost().port}", flush=True)
    )
    reactor.callWhenRunning(settle)
    reactor.run()
    sys.exit(0)


if __name__ == "__main__":
    main()
