"""Requests to other servers at a limited rate; further requests wait for their turn."""

from __future__ import annotations

from collections import deque
from typing import Any

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.interfaces import IReactorTime

from tunnel.errors import CallError, Status
from tunnel.toolkit.token_bucket import TokenBucket

__all__ = ["RequestQueue"]

#: Maximum number of waiting requests.  At 50 requests per second, as for GitLab, the
#: last request waits for 40 seconds, which is longer than clients wait for a response.
MAX_WAITING = 2_000


class RequestQueue:
    """
    Queue that lets *size* requests pass at once, and *rate* per second afterwards.

    Requests pass in the order of their arrival.

    :param what: the kind of requests, for the text of errors.
    """

    def __init__(
        self, rate: float, size: int, clock: IReactorTime, what: str = "requests"
    ) -> None:
        self._what = what
        self._clock = clock
        self._bucket = TokenBucket(size, rate, clock.seconds())
        self._waiting: deque[Deferred[None]] = deque()
        self._call: Any = None

    @property
    def waiting(self) -> int:
        """Number of waiting requests."""
        return len(self._waiting)

    def passed(self) -> Deferred[None]:
        """
        Return a Deferred that fires when one request may be sent; cancelling the
        Deferred gives up the turn.

        The Deferred fails with `CallError` RESOURCE_EXHAUSTED if too many requests are
        already waiting.
        """
        if not self._waiting and self._bucket.spend(self._clock.seconds()):
            return succeed(None)
        if len(self._waiting) >= MAX_WAITING:
            text = f"too many {self._what} are waiting; try again later"
            return fail(CallError(Status.RESOURCE_EXHAUSTED, text))
        turn: Deferred[None] = Deferred(self._waiting.remove)
        self._waiting.append(turn)
        self._schedule()
        return turn

    def _schedule(self) -> None:
        if self._call is None and self._waiting:
            missing = max(0.0, 1 - self._bucket.left)
            seconds = missing / self._bucket.per_second
            self._call = self._clock.callLater(seconds, self._next)

    def _next(self) -> None:
        self._call = None
        while self._waiting and self._bucket.spend(self._clock.seconds()):
            self._waiting.popleft().callback(None)
        self._schedule()
