"""
Many light agents in one process: real tunnels, answers from memory.

Each line on standard input is a command: ``connect N`` makes N more connections, and
``connected N`` is printed once all of them were welcomed.
"""

from __future__ import annotations

import argparse
import os
import random
from pathlib import Path
from typing import Any

from twisted.internet import reactor as _reactor
from twisted.internet import ssl, stdio
from twisted.internet.endpoints import SSL4ClientEndpoint, TCP4ClientEndpoint
from twisted.internet.protocol import Factory, Protocol
from twisted.protocols.basic import LineReceiver

from modules.kubernetes_api.fields import METHOD
from tunnel.interfaces import IStream
from tunnel.pb import tunnel_pb2 as pb
from tunnel.program.tuning import tune_allocator
from tunnel.rpc.dispatch import Dispatcher
from tunnel.session.keepalive import Keepalive, Timing
from tunnel.session.protocol import TunnelOwner, TunnelProtocol
from tunnel.transport.tls import client_context
from tunnel.transport.tlsio import TLSClientEndpoint
from tunnel.util.flusher import Flusher
from tunnel.wire.session import Session

reactor: Any = _reactor

_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nCache-Control: no-cache\r\n"
    b"Audit-Id: 7e0a4f3c-7f0c-4c3e-9a38-53f4d1f7a001\r\nContent-Length: 200\r\n"
)


class _Answer:
    """Answers a request at once."""

    def headers_received(self, block: bytes) -> None:
        pass

    def data_received(self, data: bytes) -> None:
        pass

    def fin_received(self) -> None:
        pass

    def stream_closed(self, reason: Exception | None) -> None:
        pass


_ANSWER = _Answer()


def accept(stream: IStream, open_: pb.Open) -> Any:
    """A request for the Kubernetes API."""
    stream.send_headers(_HEAD)
    stream.write(b"x" * 200)
    stream.finish()
    return _ANSWER


class Fleet(LineReceiver, TunnelOwner):
    """All of them; they are each tunnel's owner."""

    delimiter = b"\n"

    def __init__(self, options: Any) -> None:
        self._options = options
        self._tokens = Path(options.tokens).read_text().split()
        if not options.bare:
            self._context = client_context(options.ca, system_pool=False)
        self._dispatcher = Dispatcher(reactor)
        self._dispatcher.handle_stream("bench", METHOD, accept)
        self._flusher, self._keepalive = Flusher(reactor), Keepalive(reactor)
        self._wanted = self._welcomed = self._made = 0
        #: Which of the tokens each tunnel uses, and those whose tunnel was lost.
        self._numbers: dict[Any, int] = {}
        self._lost: set[int] = set()

    def connectionMade(self) -> None:
        print("fleet ready", flush=True)

    def lineReceived(self, line: bytes) -> None:
        word, _, number = line.decode().partition(" ")
        if word == "connect":
            self._wanted += int(number)
            for _ in range(int(number)):
                self._connect()

    def _connect(self) -> None:
        number, self._made = self._made, self._made + 1
        joined = self._dial(self._options.port, number)
        joined.addErrback(lambda failure: print(failure.getErrorMessage(), flush=True))

    def _dial(self, port: int, number: int) -> Any:
        endpoint: Any = TCP4ClientEndpoint(reactor, "127.0.0.1", port)
        if self._options.bare:
            options = ssl.CertificateOptions(verify=False)
            endpoint = SSL4ClientEndpoint(reactor, "127.0.0.1", port, options)
            factory: Any = Factory.forProtocol(_Bare)
        else:
            endpoint = TLSClientEndpoint(
                endpoint, lambda: self._context, "localhost", reactor
            )
            factory = Factory.forProtocol(self._tunnel)
        factory.noisy = False
        joined = endpoint.connect(factory)
        return joined.addCallback(self._greet, number)

    def _tunnel(self) -> TunnelProtocol:
        return TunnelProtocol(
            Session(dialler=True),
            self,
            clock=reactor,
            flusher=self._flusher,
            keepalive=self._keepalive,
            timing=Timing(),
        )

    def _greet(self, tunnel: Any, number: int) -> None:
        if self._options.bare:
            return
        self._numbers[tunnel] = number
        token = self._tokens[number % len(self._tokens)]
        tunnel.hello(
            pb.Hello(
                role="agent",
                credential=token.encode(),
                instance_id=os.urandom(16),
                generation=1,
            )
        )

    def welcome_received(self, tunnel: Any, welcome: pb.Welcome) -> None:
        number = self._numbers[tunnel]
        if number in self._lost:
            self._lost.discard(number)
            if not self._lost and self._welcomed == len(self._numbers):
                print("all are back", flush=True)
            return
        self.count()

    def count(self) -> None:
        self._welcomed += 1
        if self._welcomed == self._wanted:
            print(f"connected {self._welcomed}", flush=True)

    def stream_opened(self, stream: IStream, open_: pb.Open) -> Any:
        return self._dispatcher.accept(stream, open_)

    def tunnel_closed(self, tunnel: Any, reason: Any) -> None:
        if not self._options.then:
            print(f"closed {reason}", flush=True)
            return
        # As agentk does: with full jitter, to whichever kas the balancer chooses.
        number = self._numbers.pop(tunnel, None)
        if number is not None:
            self._lost.add(number)
            reactor.callLater(random.random() * 0.5, self._return, number)

    def _return(self, number: int, most: float = 0.5) -> None:
        port = int(random.choice(self._options.then.split(",")))
        connecting = self._dial(port, number)
        connecting.addErrback(
            lambda failure: reactor.callLater(
                random.random() * most, self._return, number, min(30.0, most * 2)
            )
        )


class _Bare(Protocol):
    """A TLS connection and nothing else; TLS is over when the first byte may go."""

    def connectionMade(self) -> None:
        self.transport.write(b"x")  # type: ignore[union-attr]
        FLEET.count()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("port", type=int)
    parser.add_argument("--ca", default="")
    parser.add_argument("--tokens", default=os.devnull)
    parser.add_argument("--bare", action="store_true")
    parser.add_argument("--then", default="", help="ports to go to when this one dies")
    global FLEET
    tune_allocator()
    FLEET = Fleet(parser.parse_args())
    stdio.StandardIO(FLEET)
    reactor.run()


FLEET: Any = None

if __name__ == "__main__":
    main()
