"""
A connection in memory, with back-pressure: two transports and the bytes in transit.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.address import IPv4Address
from twisted.internet.interfaces import IAddress, IConsumer, IPushProducer, ITransport
from twisted.internet.protocol import Protocol, connectionDone
from twisted.internet.task import Clock
from zope.interface import implementer

__all__ = ["MemoryTransport", "Pipe"]


@implementer(ITransport, IConsumer, IPushProducer)
class MemoryTransport:
    """One end of a `Pipe`; it pauses producers, and can be paused, like a socket."""

    def __init__(self, pipe: Pipe, capacity: int, port: int) -> None:
        self.pipe = pipe
        self.capacity = capacity
        self.disconnecting = False
        self.disconnected = False
        self.reading = True
        #: Bytes that were written here and not yet read by the other end.
        self.buffer = bytearray()
        self._producer: IPushProducer | None = None
        self._paused = False
        self._address = IPv4Address("TCP", "127.0.0.1", port)

    def write(self, data: bytes) -> None:
        if self.disconnected or self.disconnecting:
            return
        self.buffer += data
        if self._producer is not None and len(self.buffer) > self.capacity:
            if not self._paused:
                self._paused = True
                self._producer.pauseProducing()

    def writeSequence(self, data: Any) -> None:
        self.write(b"".join(data))

    def loseConnection(self) -> None:
        self.disconnecting = True

    def abortConnection(self) -> None:
        self.buffer.clear()
        self.disconnecting = True

    def registerProducer(self, producer: Any, streaming: bool) -> None:
        self._producer = producer

    def unregisterProducer(self) -> None:
        self._producer = None

    def pauseProducing(self) -> None:
        self.reading = False

    def resumeProducing(self) -> None:
        self.reading = True

    def stopProducing(self) -> None:
        self.loseConnection()

    def getPeer(self) -> IAddress:
        return self._address

    def getHost(self) -> IAddress:
        return self._address

    def take(self, count: int) -> bytes:
        """
        Return the next bytes for the other end; the writer resumes when half of the
        space is free.
        """
        data = bytes(self.buffer[:count])
        del self.buffer[:count]
        if self._paused and len(self.buffer) <= self.capacity // 2:
            self._paused = False
            if self._producer is not None:
                self._producer.resumeProducing()
        return data


class Pipe:
    """
    Two protocols and the bytes in transit.

    :param capacity: bytes that each direction holds before its writer is paused.
    :param chunk: the largest piece that is delivered at once.
    """

    def __init__(
        self,
        clock: Clock,
        first: Protocol,
        second: Protocol,
        *,
        capacity: int = 65536,
        chunk: int = 65536,
    ) -> None:
        self.clock = clock
        self.chunk = chunk
        self.protocols = (first, second)
        self.transports = (
            MemoryTransport(self, capacity, 40001),
            MemoryTransport(self, capacity, 40002),
        )
        #: Whether the pipe delivers no data, as if its cable was pulled.
        self.cut = False
        for protocol, transport in zip(self.protocols, self.transports, strict=True):
            protocol.makeConnection(transport)

    def step(self) -> bool:
        """
        Deliver one piece in each direction; return False if there was nothing to do.
        """
        moved = False
        for index in (0, 1):
            source, target = self.transports[index], self.transports[1 - index]
            if source.disconnected:
                continue
            if self.cut:
                # An aborted connection has ended on this side only.
                if source.disconnecting and not source.buffer:
                    self._lose(index)
                    moved = True
                continue
            if source.buffer and target.reading and not target.disconnected:
                self.protocols[1 - index].dataReceived(source.take(self.chunk))
                moved = True
            elif source.disconnecting and not source.buffer:
                self._lose(index)
                self._lose(1 - index)
                moved = True
        return moved

    def _lose(self, index: int) -> None:
        transport = self.transports[index]
        if not transport.disconnected:
            transport.disconnected = True
            self.protocols[index].connectionLost(connectionDone)

    def flush(self, rounds: int = 100_000) -> None:
        """
        Deliver data until none is in transit, and run the timers that are due now.
        """
        for _ in range(rounds):
            moved = self.step()
            due = [
                c
                for c in self.clock.getDelayedCalls()
                if c.getTime() <= self.clock.seconds()
            ]
            if due:
                self.clock.advance(0)
            if not moved and not due:
                return
        raise AssertionError("the pipe does not become idle")
