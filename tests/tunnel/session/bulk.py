"""Much data over a connection: who writes it, who takes it, and both digests."""

from __future__ import annotations

import hashlib
from typing import Any

from twisted.internet.defer import Deferred

from tests.tunnel.session.harness import Recorder

#: More than all buffers on the way together.
SIZE = 20 * 1024 * 1024


class Stuffer:
    """Writes SIZE bytes as fast as it may, and remembers how far it got."""

    def __init__(self, transport: Any) -> None:
        self.transport = transport
        self.digest = hashlib.sha256()
        self.sent = 0
        self.pauses = 0
        self.peak = 0
        self.paused = False

    def start(self) -> None:
        self.transport.registerProducer(self, True)
        self.resumeProducing()

    def pauseProducing(self) -> None:
        self.paused = True
        self.pauses += 1

    def resumeProducing(self) -> None:
        self.paused = False
        while not self.paused and self.sent < SIZE:
            piece = self.sent.to_bytes(8, "big") * 12_500
            piece = piece[: SIZE - self.sent]
            self.sent += len(piece)
            self.digest.update(piece)
            self.transport.write(piece)
            self.peak = max(self.peak, self.transport.unsent() or 0)
        if self.sent == SIZE:
            self.transport.unregisterProducer()

    def stopProducing(self) -> None:
        self.paused = True


class Sink(Recorder):
    """Takes a digest of what arrives, and can be waited for."""

    def __init__(self) -> None:
        super().__init__()
        self.digest = hashlib.sha256()
        self.count = 0
        self.full: Deferred[None] = Deferred()

    def dataReceived(self, data: bytes) -> None:
        self.digest.update(data)
        self.count += len(data)
        if self.count == SIZE:
            self.full.callback(None)
