"""Calls at a fixed interval, which a failure does not end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import LoopingCall  # noqa: TID251 - the only use
from twisted.logger import Logger
from twisted.python.failure import Failure

__all__ = ["Repeated"]


class Repeated:
    """
    A call that is repeated until `stop`.

    `LoopingCall` ends after the first exception.  A check that ends a connection, for
    instance after a revocation, must not end itself.

    :param clock: the reactor.
    :param what: the name of the call for the log, such as "checking credentials".
    :param call: the function; an exception is logged, and the next call takes place.  A
        coroutine or a Deferred that it returns delays the next call until it ends.
    """

    _log = Logger()

    def __init__(self, clock: IReactorTime, what: str, call: Callable[[], Any]) -> None:
        self._what = what
        self._call = call
        self._loop = LoopingCall(self._once)
        self._loop.clock = clock

    @property
    def running(self) -> bool:
        """Whether the call is repeated."""
        return self._loop.running

    def start(self, interval: float, now: bool = False) -> None:
        """
        Begin.

        :param interval: seconds between the beginnings of two calls.
        :param now: whether the first call takes place at once.
        """
        self._loop.start(interval, now)

    def stop(self) -> None:
        """End, if the call is repeated."""
        if self._loop.running:
            self._loop.stop()

    def _once(self) -> Deferred[Any]:
        calling: Deferred[Any] = maybeDeferred(self._call)
        return calling.addErrback(self._failed)

    def _failed(self, failure: Failure) -> None:
        self._log.failure(
            "{what} failed; the next try follows", failure, what=self._what
        )
