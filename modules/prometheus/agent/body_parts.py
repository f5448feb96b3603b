"""A response of Prometheus, part by part."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Final

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime

from tunnel.errors import CallError, Status
from tunnel.http1 import ResponseHead, UpstreamRequest
from tunnel.toolkit.timers import cancel_call

__all__ = ["IDLE_SECONDS", "BodyParts"]

#: Maximum seconds without a byte of Prometheus.  The first byte comes after the whole
#: evaluation, for which Prometheus itself takes at most 2 minutes.
IDLE_SECONDS: Final = 130.0

#: Bytes that wait for a slow reader; above it, Prometheus is paused.
MAX_WAITING: Final = 256 * 1024


class BodyParts:
    """
    Receiver of one response, and its reader.

    :param idle: maximum seconds without a byte.
    """

    def __init__(self, clock: IReactorTime, idle: float = IDLE_SECONDS) -> None:
        self._clock = clock
        self._idle = idle
        self._request: UpstreamRequest | None = None
        self._head: Deferred[ResponseHead] = Deferred()
        self._parts: deque[bytes] = deque()
        self._waiting = 0
        self._paused = False
        self._reader: Deferred[None] | None = None
        self._ended = False
        self._error: Exception | None = None
        self._timer: IDelayedCall | None = None

    async def begin(self, send: Callable[[BodyParts], UpstreamRequest]) -> ResponseHead:
        """
        Send the request and return the head of the response.

        :raises UpstreamError: Prometheus did not respond.
        :raises CallError: DEADLINE_EXCEEDED.
        """
        self._touch()
        request = send(self)
        if not self._ended:
            self._request = request
        try:
            return await self._head
        except BaseException:
            self.close()
            raise

    async def parts(self) -> AsyncIterator[bytes]:
        """
        Yield the parts of the body.

        :raises UpstreamError: the response is incomplete.
        :raises CallError: DEADLINE_EXCEEDED.
        """
        while True:
            while not self._parts and not self._ended:
                self._reader = Deferred()
                try:
                    await self._reader
                finally:
                    self._reader = None
            if not self._parts:
                if self._error is not None:
                    raise self._error
                return
            part = self._parts.popleft()
            self._waiting -= len(part)
            if self._paused and self._waiting <= MAX_WAITING // 2:
                self._paused = False
                self._touch()
                if self._request is not None:
                    self._request.resumeProducing()
            yield part

    def close(self) -> None:
        """Stop reading."""
        request, self._request = self._request, None
        self._parts.clear()
        self._end(None)
        if request is not None:
            request.abort()

    def _touch(self) -> None:
        """Wait again for the next byte."""
        cancel_call(self._timer)
        if not self._ended:
            self._timer = self._clock.callLater(self._idle, self._late)

    def _late(self) -> None:
        request, self._request = self._request, None
        self._end(
            CallError(
                Status.DEADLINE_EXCEEDED,
                f"Prometheus sent nothing for {self._idle:g} seconds",
            )
        )
        if request is not None:
            request.abort()

    def _end(self, error: Exception | None) -> None:
        if self._ended:
            return
        self._ended, self._error = True, error
        cancel_call(self._timer)
        if error is not None and not self._head.called:
            self._head.errback(error)
        self._wake()

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.called:
            self._reader.callback(None)

    # Methods of `tunnel.http1.ResponseReceiver`.

    def response_informational(self, head: ResponseHead) -> None:
        """See `tunnel.http1.ResponseReceiver`."""

    def response_started(self, head: ResponseHead) -> None:
        self._touch()
        if not self._head.called:
            self._head.callback(head)

    def response_data(self, data: bytes) -> None:
        if self._ended:
            return
        self._parts.append(data)
        self._waiting += len(data)
        if self._waiting > MAX_WAITING and not self._paused:
            self._paused = True
            # A slow reader is not a silent Prometheus.
            cancel_call(self._timer)
            if self._request is not None:
                self._request.pauseProducing()
        if not self._paused:
            self._touch()
        self._wake()

    def response_finished(self, trailers: bytes) -> None:
        self._request = None
        self._end(None)

    def response_failed(self, reason: Exception) -> None:
        self._request = None
        self._end(reason)
