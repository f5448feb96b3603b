"""A transport in memory that closes by halves and honours pauses."""

from __future__ import annotations

from typing import Any

from twisted.internet.error import ConnectionDone, ConnectionLost
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure


class Wire(StringTransport):
    """
    One connection seen from its protocol; the test is the peer.

    What the test sends while the protocol has paused us waits, as in a kernel.
    """

    def __init__(self, protocol: Any) -> None:
        super().__init__()
        self.protocol = protocol
        self.aborted = False
        self.half_closed = False
        self.writes = 0
        self._waiting: list[bytes] = []
        self._ended: Failure | None = None
        protocol.makeConnection(self)

    # What the protocol calls.

    def write(self, data: bytes) -> None:
        self.writes += 1
        super().write(data)

    def setTcpKeepAlive(self, enabled: bool) -> None:
        pass

    def loseWriteConnection(self) -> None:
        self.half_closed = True

    def abortConnection(self) -> None:
        self.aborted = True
        self.disconnecting = True

    def pauseProducing(self) -> None:
        self.producerState = "paused"

    def resumeProducing(self) -> None:
        self.producerState = "producing"
        while self._waiting and self.producerState == "producing":
            self.protocol.dataReceived(self._waiting.pop(0))

    # What the test does.

    def receive(self, *chunks: bytes) -> None:
        """The peer sends."""
        for data in chunks:
            if self.producerState == "producing" and not self.aborted:
                self.protocol.dataReceived(data)
            else:
                self._waiting.append(data)

    def receive_end(self) -> None:
        """The peer closes its half."""
        self.protocol.readConnectionLost()

    def lose(self, clean: bool = True) -> None:
        """The connection is gone."""
        if self._ended is None:
            self._ended = Failure(ConnectionDone() if clean else ConnectionLost())
            if self.producer is not None:
                self.producer.stopProducing()
            self.protocol.connectionLost(self._ended)

    def settle(self) -> None:
        """Do what a reactor does after the protocol closed."""
        if self.disconnecting:
            self.lose(not self.aborted)

    def taken(self) -> bytes:
        """What was written since the last time."""
        value: bytes = self.value()
        self.clear()
        return value
