"""Listener of the admission webhook."""

from __future__ import annotations

import hmac
import json
from collections.abc import Callable
from typing import Any, Final

import attrs
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from tunnel.http1 import Exchange, HttpServerFactory, HttpServerLimits

__all__ = ["MAX_BODIES", "MAX_REVIEW", "make_factory"]

#: Maximum bytes of one review: API servers accept objects of 3 MiB, and a review may
#: contain an object before and after the change.
MAX_REVIEW: Final = 8 * 1024 * 1024

#: Maximum bytes of all reviews that have not arrived completely.
MAX_BODIES: Final = 32 * 1024 * 1024

#: An API server keeps a few connections; each replica of a control plane has its own.
_LIMITS: Final = HttpServerLimits(
    max_header_bytes=16 * 1024,
    body_seconds=10.0,  # the API server waits for three seconds
    max_connections=64,
)


@attrs.define(eq=False)
class _Reviews:
    """
    Handler of the requests.

    :param path: the only path, which contains a secret: other clients in the cluster
        may reach the port, too.
    :param answer: returns the response to the JSON value of a review; raises ValueError
        if the value is not a review.
    :ivar size: bytes of the reviews that have not arrived completely.
    """

    path: Callable[[], str]
    answer: Callable[[Any], bytes]
    size: int = 0

    def request_received(self, exchange: Exchange) -> _Body | None:
        head = exchange.head
        target = head.target.partition(b"?")[0]
        wanted = self.path().encode()
        if not wanted or not hmac.compare_digest(target, wanted):
            _refuse(exchange, 404, "this page does not exist")
            return None
        if head.method != b"POST" or not head.length:
            _refuse(exchange, 405, "only POST with an AdmissionReview is supported")
            return None
        return _Body(self, exchange)


@attrs.define(eq=False)
class _Body:
    """Body of one request, until it is complete."""

    _reviews: _Reviews
    _exchange: Exchange
    _parts: list[bytes] = attrs.field(factory=list)
    _size: int = 0
    _log = Logger()

    def body_received(self, data: bytes) -> None:
        reviews = self._reviews
        if self._size + len(data) > MAX_REVIEW:
            self._end(413, f"a review has at most {MAX_REVIEW} bytes")
        elif reviews.size + len(data) > MAX_BODIES:
            self._end(503, "too many reviews at once")
        else:
            self._parts.append(data)
            self._size += len(data)
            reviews.size += len(data)

    def body_finished(self, trailers: bytes) -> None:
        data = b"".join(self._parts)
        self._forget()
        try:
            body = self._reviews.answer(json.loads(data))
        except (ValueError, RecursionError) as error:
            _refuse(self._exchange, 400, str(error)[:200])
        except Exception:
            self._log.failure("deciding on an admission review failed")
            _refuse(self._exchange, 500, "an internal error; see the log of agentk")
        else:
            fields = b"\r\nContent-Type: application/json"
            self._exchange.respond(200, fields, body)

    def client_gone(self, reason: Exception) -> None:
        self._forget()

    def _end(self, status: int, message: str) -> None:
        self._forget()
        _refuse(self._exchange, status, message)

    def _forget(self) -> None:
        self._reviews.size -= self._size
        self._size = 0
        self._parts.clear()


def _refuse(exchange: Exchange, status: int, message: str) -> None:
    body = json.dumps({"code": status, "message": message}).encode()
    exchange.respond(status, b"\r\nContent-Type: application/json", body)


def make_factory(
    path: Callable[[], str], answer: Callable[[Any], bytes], clock: IReactorTime
) -> HttpServerFactory:
    """
    Return a factory that serves the webhook.

    :param path: returns the path of the webhook; empty while it is not known.
    :param answer: as for `_Reviews`.
    """
    return HttpServerFactory(_Reviews(path, answer), clock, limits=_LIMITS)
