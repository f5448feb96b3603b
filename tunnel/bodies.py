"""Bodies of requests to other servers, and of their answers."""

from __future__ import annotations

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IConsumer
from twisted.internet.protocol import Protocol, connectionDone
from twisted.python.failure import Failure
from twisted.web.client import ResponseDone
from twisted.web.http import PotentialDataLoss
from twisted.web.iweb import IBodyProducer, IResponse
from zope.interface import implementer

__all__ = ["TooLarge", "WholeBody", "collect"]


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


class TooLarge(Exception):
    """The answer has more bytes than are read."""


def collect(response: IResponse, limit: int) -> Deferred[tuple[IResponse, bytes]]:
    """
    *response* with its body.

    The Deferred fails with `TooLarge` at more than *limit* bytes.
    """
    return Deferred.fromCoroutine(_read_body(response, limit))


class _Body(Protocol):
    """The body of an answer; its connection ends when it is not read to the end."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.whole: Deferred[bytes] = Deferred(lambda _: self._leave())
        self._parts: list[bytes] = []
        self._size = 0
        self._left = False

    def dataReceived(self, data: bytes) -> None:
        self._size += len(data)
        if self._left:
            return
        if self._size > self._limit:
            self._leave()
            self.whole.errback(TooLarge())
        else:
            self._parts.append(data)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        if self._left:
            return
        self._left = True
        if reason.check(ResponseDone, PotentialDataLoss):
            self.whole.callback(b"".join(self._parts))
        else:
            self.whole.errback(reason)

    def _leave(self) -> None:
        self._left = True
        self._parts.clear()
        if self.transport is not None:
            self.transport.loseConnection()


async def _read_body(response: IResponse, limit: int) -> tuple[IResponse, bytes]:
    body = _Body(limit)
    response.deliverBody(body)
    return response, await body.whole
