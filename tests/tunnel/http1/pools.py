"""One pool on an endpoint of the test, and receivers that note everything."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IStreamClientEndpoint
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from tests.tunnel.http1.wire import Wire
from tunnel.http1 import (
    ResponseHead,
    UpstreamError,
    UpstreamLimits,
    UpstreamPool,
    UpstreamRequest,
)


@implementer(IStreamClientEndpoint)
class Endpoint:
    """Connects when the test says so."""

    def __init__(self) -> None:
        self.attempts: list[tuple[Any, Deferred[Any]]] = []
        self.cancelled = 0
        self.wires: list[Wire] = []
        self.at_once = True
        #: What a cancelled attempt fails with, if not as Deferreds do.
        self.on_cancel: Exception | None = None

    def connect(self, factory: Any) -> Deferred[Any]:
        attempt: Deferred[Any] = Deferred(self._cancel)
        self.attempts.append((factory, attempt))
        if self.at_once:
            self.succeed()
        return attempt

    def _cancel(self, attempt: Deferred[Any]) -> None:
        self.cancelled += 1
        self.attempts = [pair for pair in self.attempts if pair[1] is not attempt]
        if self.on_cancel is not None:
            attempt.errback(self.on_cancel)

    def succeed(self) -> Wire:
        factory, attempt = self.attempts.pop(0)
        protocol = factory.buildProtocol(None)
        wire = Wire(protocol)
        self.wires.append(wire)
        attempt.callback(protocol)
        return wire

    def fail(self, error: Exception) -> None:
        self.attempts.pop(0)[1].errback(error)


class Answer:
    """A receiver that notes everything."""

    def __init__(self) -> None:
        self.informational: list[int] = []
        self.head: ResponseHead | None = None
        self.body = b""
        self.trailers: list[bytes] = []
        self.failures: list[Exception] = []
        self.on_start: Callable[[], None] = lambda: None

    @property
    def status(self) -> int:
        assert self.head is not None
        return self.head.status

    def response_informational(self, head: ResponseHead) -> None:
        self.informational.append(head.status)

    def response_started(self, head: ResponseHead) -> None:
        self.head = head
        self.on_start()

    def response_data(self, data: bytes) -> None:
        self.body += data

    def response_finished(self, trailers: bytes) -> None:
        self.trailers.append(trailers)

    def response_failed(self, reason: Exception) -> None:
        self.failures.append(reason)


HELLO = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
SWITCH = (
    b"HTTP/1.1 101 Switching Protocols\r\n"
    b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
)


class PoolCase(SynchronousTestCase):
    """One pool on an endpoint of the test."""

    limits = UpstreamLimits()

    def setUp(self) -> None:
        self.clock = Clock()
        self.endpoint = Endpoint()
        self.pool = UpstreamPool(lambda: self.endpoint, self.clock, limits=self.limits)

    @property
    def wire(self) -> Wire:
        return self.endpoint.wires[-1]

    def send(
        self, method: bytes = b"GET", **rest: Any
    ) -> tuple[Answer, UpstreamRequest]:
        answer = Answer()
        request = self.pool.request(method, b"/x?y", b"\r\nHost: a", answer, **rest)
        return answer, request

    def turn(self) -> bytes:
        self.clock.advance(0)
        return self.wire.taken()

    def assert_empty(self) -> None:
        """Nothing is left of any request."""
        self.assertEqual(self.pool.connections, set())
        self.assertEqual(
            (
                self.pool.idle_count,
                self.pool.waiting_count,
                self.pool.connecting_count,
            ),
            (0, 0, 0),
        )


def status_of(answer: Answer) -> int:
    (error,) = answer.failures
    assert isinstance(error, UpstreamError)
    return error.status
