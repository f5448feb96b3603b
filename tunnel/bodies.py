"""Bodies of requests to other servers, and of their responses."""

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
    """
    A request body that is written at once; Twisted's own class writes piece by piece.
    """

    def __init__(self, body: bytes) -> None:
        self._body = body
        self.length = len(body)

    def startProducing(self, consumer: IConsumer) -> Deferred[None]:
        consumer.write(self._body)
        return succeed(None)

    def pauseProducing(self) -> None:
        """Do nothing: all data was written."""

    def resumeProducing(self) -> None:
        """Do nothing: all data was written."""

    def stopProducing(self) -> None:
        """Do nothing: all data was written."""


class TooLarge(Exception):
    """Raised if a response is larger than the limit."""


def collect(response: IResponse, limit: int) -> Deferred[tuple[IResponse, bytes]]:
    """
    Read the body of *response*, and return both.

    The Deferred fails with `TooLarge` at more than *limit* bytes.
    """
    return Deferred.fromCoroutine(_read_body(response, limit))


class _Body(Protocol):
    """
    A reader of a response's body; if the body is not read to its end, the connection
    closes.
    """

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
