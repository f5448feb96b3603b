"""Answers that go on until somebody has enough: ``watch`` and ``logs -f``."""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.interfaces import IPushProducer
from zope.interface import implementer

from tunnel.http1 import Exchange

__all__ = ["MAX_BEHIND", "Feed"]

#: Bytes that are kept for a client that does not read; a watch gets that in an hour.
MAX_BEHIND = 1024 * 1024


@implementer(IPushProducer)
class Feed:
    """
    One answer of unknown length.

    A client that does not read is dropped once it is too far behind.

    :param ended: called once, whoever ended it.
    """

    def __init__(
        self, exchange: Exchange, content_type: bytes, ended: Callable[[], None]
    ) -> None:
        self._exchange = exchange
        self._ended = ended
        self._stalled = False
        self._behind = 0
        block = b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\nCache-Control: no-store\r\n"
        exchange.send_head(block % content_type, -1)
        exchange.registerProducer(self, True)

    def send(self, data: bytes) -> None:
        """The next part of it."""
        if self._stalled:
            self._behind += len(data)
        if self._behind > MAX_BEHIND:
            self._exchange.abort()
            self._over()
        else:
            self._exchange.write(data)

    def finish(self) -> None:
        """It is complete."""
        self._exchange.finish()
        self._over()

    def _over(self) -> None:
        ended, self._ended = self._ended, lambda: None
        ended()

    def body_received(self, data: bytes) -> None:
        """A GET has none."""

    def body_finished(self, trailers: bytes) -> None:
        """A GET has none."""

    def client_gone(self, reason: Exception) -> None:
        """See `tunnel.http1.RequestReceiver`."""
        self._over()

    def pauseProducing(self) -> None:
        self._stalled = True

    def resumeProducing(self) -> None:
        self._stalled = False
        self._behind = 0

    def stopProducing(self) -> None:
        self._over()
