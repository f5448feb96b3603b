"""Bodies of requests to other servers."""

from __future__ import annotations

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IConsumer
from twisted.web.iweb import IBodyProducer
from zope.interface import implementer

__all__ = ["WholeBody"]


@implementer(IBodyProducer)
class WholeBody:
    """Written at once: Twisted's own would be read piece by piece."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self.length = len(body)

    def startProducing(self, consumer: IConsumer) -> Deferred[None]:
        consumer.write(self._body)
        return succeed(None)

    def pauseProducing(self) -> None:
        """All of it is written."""

    def resumeProducing(self) -> None:
        """All of it is written."""

    def stopProducing(self) -> None:
        """All of it is written."""
