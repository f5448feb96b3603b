"""Messages that wait for whoever reads them."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from tunnel.rpc.messages import MAX_PENDING, OVERHEAD, Inbox


class InboxTests(SynchronousTestCase):
    """Messages that wait for their reader."""

    def test_empty_messages(self) -> None:
        """They fill memory as others do, and pause the peer as others do."""
        inbox = Inbox()
        stream: Any = RecordingStream()
        inbox.stream = stream
        most = MAX_PENDING // OVERHEAD
        inbox.feed(bytes(4) * most)
        self.assertFalse(stream.paused)
        inbox.feed(bytes(4))
        self.assertTrue(stream.paused)
        for _ in range(most):
            self.successResultOf(Deferred.fromCoroutine(inbox.next()))
        self.assertFalse(stream.paused)


class RecordingStream:
    """Knows whether it was paused."""

    paused = False

    def pauseProducing(self) -> None:
        self.paused = True

    def resumeProducing(self) -> None:
        self.paused = False
