"""Responses that continue until the client leaves: ``watch`` and ``logs -f``."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from twisted.internet.interfaces import IPushProducer
from zope.interface import implementer

from tunnel.http1 import Exchange

__all__ = ["MAX_BEHIND", "MAX_LINES", "Feed", "PodLog"]

#: Maximum number of bytes that are kept for a client that does not read; this is about
#: an hour of a watch.
MAX_BEHIND = 1024 * 1024

#: Maximum number of lines in a pod's log: some minutes of the pod `ticker`.
MAX_LINES = 1000


@implementer(IPushProducer)
class Feed:
    """
    A response of unknown length.

    A client that does not read is disconnected when it is too far behind.

    :param ended: called once at the end, for any reason.
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
        """Send the next part of the response."""
        if self._stalled:
            self._behind += len(data)
        if self._behind > MAX_BEHIND:
            self._exchange.abort()
            self.stopProducing()
        else:
            self._exchange.write(data)

    def finish(self) -> None:
        """Complete the response."""
        self._exchange.finish()
        self.stopProducing()

    def body_received(self, data: bytes) -> None:
        """Do nothing: a GET has no body."""

    def body_finished(self, trailers: bytes) -> None:
        """Do nothing: a GET has no body."""

    def client_gone(self, reason: Exception) -> None:
        """See `tunnel.http1.RequestReceiver`."""
        self.stopProducing()

    def pauseProducing(self) -> None:
        self._stalled = True

    def resumeProducing(self) -> None:
        self._stalled = False
        self._behind = 0

    def stopProducing(self) -> None:
        ended, self._ended = self._ended, lambda: None
        ended()


class PodLog:
    """The log of one pod."""

    def __init__(self) -> None:
        self._lines: deque[bytes] = deque(maxlen=MAX_LINES)
        self.followers: set[Feed] = set()

    def write(self, text: str) -> None:
        """Add one line, and send it to the clients that follow the log."""
        line = text.encode() + b"\n"
        self._lines.append(line)
        for feed in tuple(self.followers):
            feed.send(line)

    def answer(
        self, exchange: Exchange, follow: bool, tail: int = MAX_LINES
    ) -> Feed | None:
        """Send the last *tail* lines, and new lines if the client follows the log."""
        body = b"".join(list(self._lines)[max(0, len(self._lines) - tail) :])
        if not follow:
            exchange.respond(200, b"\r\nContent-Type: text/plain", body)
            return None
        feed = Feed(exchange, b"text/plain", lambda: self.followers.discard(feed))
        self.followers.add(feed)
        feed.send(body)
        return feed
