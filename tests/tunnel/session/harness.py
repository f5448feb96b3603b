"""Protocols and peers that the tests of this directory share."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import Any, TypeVar

from twisted.internet import reactor
from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import (
    IHalfCloseableProtocol,
    IStreamClientEndpoint,
)
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure
from zope.interface import implementer

T = TypeVar("T")


def bounded(deferred: Deferred[T]) -> Deferred[T]:
    """Fail rather than hang: no test here needs more than a second or two."""
    return deferred.addTimeout(20, reactor)


class Recorder(Protocol):
    """Keeps what happened to it, and lets a test wait for it."""

    def __init__(self) -> None:
        self.chunks: list[bytes] = []
        self.made = 0
        self.lost: Failure | None = None
        self._gone: Deferred[None] = Deferred()
        self._awaited: list[tuple[int, Deferred[bytes]]] = []
        self.on_connected: Callable[[Recorder], None] = lambda _: None
        self.on_data: Callable[[bytes], None] = lambda _: None

    @property
    def received(self) -> bytes:
        return b"".join(self.chunks)

    @property
    def wire(self) -> Any:
        """The transport, for calls that ITransport does not list."""
        return self.transport

    def until(self, count: int) -> Deferred[bytes]:
        """Fires once that many bytes are here."""
        waiting: Deferred[bytes] = Deferred()
        self._awaited.append((count, waiting))
        self._wake()
        return bounded(waiting)

    async def end(self) -> Failure:
        """Wait for the end, and why."""
        await bounded(self._gone)
        assert self.lost is not None
        return self.lost

    def connectionMade(self) -> None:
        self.made += 1
        self.on_connected(self)
        if isinstance(self.factory, Recorders):
            self.factory.connected(self)

    def dataReceived(self, data: bytes) -> None:
        self.chunks.append(data)
        self.on_data(data)
        if self._awaited:
            self._wake()

    def _wake(self) -> None:
        here = self.received
        for waiting in [w for w in self._awaited if len(here) >= w[0]]:
            self._awaited.remove(waiting)
            waiting[1].callback(here)

    def connectionLost(self, reason: Failure = Failure(Exception())) -> None:  # noqa: B008
        assert self.lost is None, "lost twice"
        self.lost = reason
        self._gone.callback(None)


@implementer(IHalfCloseableProtocol)
class HalfCloseableRecorder(Recorder):
    """One that can go on in one direction."""

    def __init__(self) -> None:
        super().__init__()
        self.read_lost = 0
        self.write_lost = 0
        self.read_over: Deferred[None] = Deferred()

    def readConnectionLost(self) -> None:
        self.read_lost += 1
        self.read_over.callback(None)

    def writeConnectionLost(self) -> None:
        self.write_lost += 1


class Recorders(Factory):
    """Makes recorders and remembers them."""

    noisy = False

    def __init__(self, kind: type[Recorder] = Recorder) -> None:
        self.kind = kind
        self.made: list[Any] = []
        self.prepare: Callable[[Recorder], None] = lambda _: None
        self._awaited: list[Deferred[Any]] = []

    def buildProtocol(self, addr: object) -> Any:
        protocol = self.kind()
        protocol.factory = self
        self.prepare(protocol)
        self.made.append(protocol)
        return protocol

    def connected(self, protocol: Recorder) -> None:
        waiting, self._awaited = self._awaited, []
        for deferred in waiting:
            deferred.callback(protocol)

    def next(self) -> Deferred[Any]:
        """Fires with the next protocol that is connected."""
        deferred: Deferred[Any] = Deferred()
        self._awaited.append(deferred)
        return bounded(deferred)


class CountingTransport(StringTransport):
    """Counts the writes, and says what it holds if it is told."""

    held: int | None = None

    def __init__(self) -> None:
        super().__init__()
        self.writes = 0

    def write(self, data: bytes) -> None:
        self.writes += 1
        super().write(data)

    def unsent(self) -> int | None:
        return self.held


@implementer(IStreamClientEndpoint)
class MemoryEndpoint:
    """Connects at once to a transport that a test looks at."""

    ADDRESS = IPv4Address("TCP", "192.0.2.7", 3128)

    def __init__(self) -> None:
        self.transport = CountingTransport()
        self.transport.peerAddr = self.ADDRESS
        self.protocol: Any = None

    def connect(self, factory: Any) -> Deferred[Any]:
        self.protocol = factory.buildProtocol(self.ADDRESS)
        self.protocol.makeConnection(self.transport)
        return succeed(self.protocol)


class BufferPeer:
    """The other end of a TLS connection, without sockets: the plain ``ssl`` module."""

    def __init__(
        self,
        context: ssl.SSLContext,
        server_hostname: str | None = None,
        server_side: bool = False,
    ) -> None:
        self.incoming = ssl.MemoryBIO()
        self.outgoing = ssl.MemoryBIO()
        self.tls = context.wrap_bio(
            self.incoming, self.outgoing, server_side, server_hostname
        )
        self.shaken = False

    def exchange(self, protocol: Any, transport: StringTransport) -> None:
        """Move bytes both ways until nothing moves any more."""
        while True:
            if not self.shaken:
                try:
                    self.tls.do_handshake()
                    self.shaken = True
                except ssl.SSLWantReadError:
                    pass
            ours = self.outgoing.read()
            if ours:
                protocol.dataReceived(ours)
            theirs = transport.value()
            transport.clear()
            if theirs:
                self.incoming.write(theirs)
            if not ours and not theirs:
                return

    def send(self, data: bytes) -> bytes:
        """Encrypt *data*."""
        self.tls.write(data)
        return self.outgoing.read()

    def close_notify(self) -> bytes:
        """Say that nothing follows."""
        try:
            self.tls.unwrap()
        except ssl.SSLWantReadError:
            pass
        return self.outgoing.read()

    def read(self) -> bytes:
        """Decrypt everything that is here."""
        parts = []
        try:
            while part := self.tls.read(65536):
                parts.append(part)
        except ssl.SSLWantReadError:
            pass
        return b"".join(parts)
