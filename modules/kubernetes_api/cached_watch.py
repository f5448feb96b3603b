"""One watch from the cache of an agent, with the methods of a stream."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, Final, Protocol

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from tunnel.errors import CallError
from tunnel.toolkit.timers import cancel_call

__all__ = ["ANSWER_SECONDS", "CachedWatch", "CachedWatchReceiver"]

#: Seconds until a cache must answer; it may have to read all objects of the kind first.
ANSWER_SECONDS: Final = 5.0


class CachedWatchReceiver(Protocol):
    """Receiver of a watch from a cache."""

    def cache_answered(self) -> None:
        """Handle the beginning: the cache answers the watch."""

    def data_received(self, data: bytes) -> None:
        """Handle a part of the events."""

    def fin_received(self) -> None:
        """Handle the regular end."""

    def cache_failed(self, reason: str) -> None:
        """Handle the end without an answer, or in the middle of one."""


class CachedWatch:
    """
    A running watch.

    :param parts: see `tunnel.api.ICachedWatches.open`.
    """

    _log = Logger()

    def __init__(
        self,
        parts: AsyncGenerator[bytes, None],
        receiver: CachedWatchReceiver,
        clock: IReactorTime,
    ) -> None:
        self._parts = parts
        self._receiver = receiver
        self._over = False
        self._paused = False
        #: Whether a method of the receiver runs, within `_run`.
        self._is_calling = False
        self._room: Deferred[None] | None = None
        self._timer = clock.callLater(ANSWER_SECONDS, self._late)
        self._running: Deferred[None] | None = None

    def start(self) -> None:
        """Begin; the receiver may be called before this returns."""
        self._running = Deferred.fromCoroutine(self._run())
        self._running.addErrback(self._failed)

    def pauseProducing(self) -> None:
        """Stop calling the receiver."""
        self._paused = True

    def resumeProducing(self) -> None:
        """Continue."""
        self._paused = False
        room, self._room = self._room, None
        if room is not None:
            room.callback(None)

    def reset(self, code: Any, message: str) -> None:
        """End the watch; the receiver gets no further call."""
        self._over = True
        cancel_call(self._timer)
        if self._running is not None and not self._is_calling:
            self._running.cancel()

    async def _run(self) -> None:
        async with aclosing(self._parts) as parts:
            begun = False
            async for part in parts:
                while self._paused:
                    self._room = Deferred()
                    await self._room
                self._is_calling = True
                try:
                    if not begun:
                        begun = True
                        cancel_call(self._timer)
                        self._receiver.cache_answered()
                    elif part:
                        self._receiver.data_received(part)
                finally:
                    self._is_calling = False
                if self._over:
                    return
        if not self._over:
            self._over = True
            cancel_call(self._timer)
            self._receiver.fin_received()

    def _late(self) -> None:
        self.reset(None, "")
        self._receiver.cache_failed(f"no answer within {ANSWER_SECONDS:g} s")

    def _failed(self, failure: Failure) -> None:
        if self._over:
            if failure.check(CancelledError, CallError) is None:
                self._log.failure("ending a watch from a cache failed", failure)
            return
        self._over = True
        cancel_call(self._timer)
        if failure.check(CallError) is None:
            self._log.failure("a watch from a cache failed", failure)
        self._receiver.cache_failed(str(failure.value))
