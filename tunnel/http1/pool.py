"""
A pool of connections to one upstream, which assigns requests to connections.

A request for an upgrade gets a connection of its own, which is not reused.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from twisted.internet.defer import Deferred
from twisted.internet.error import TimeoutError as ConnectTimeout
from twisted.internet.interfaces import IReactorTime, IStreamClientEndpoint
from twisted.internet.protocol import Factory
from twisted.python.failure import Failure

from tunnel.http1.client import (
    NotConnected,
    ResponseReceiver,
    UpstreamConnection,
    UpstreamError,
    UpstreamLimits,
    UpstreamRequest,
)
from tunnel.http1.connection import Turn, Writer
from tunnel.http1.head import ResponseParser

__all__ = ["UpstreamPool"]

#: Bytes that end the target in a request line.
_ENDS_TARGET: Final = re.compile(rb"[\x00-\x20\x7f]")

#: Parser that cuts no lines out of heads.
_WHOLE: Final = ResponseParser()


class _ConnectionFactory(Factory):
    noisy = False

    def __init__(self, pool: UpstreamPool) -> None:
        self._pool = pool

    def buildProtocol(self, addr: object) -> Any:
        return UpstreamConnection(self._pool)


class UpstreamPool:
    """
    A pool of connections to one upstream.

    :param endpoint: returns the endpoint for one new connection; called each time,
        because certificates rotate.
    :param write: writes to a transport; used instead of the transport's ``write``.
    """

    def __init__(
        self,
        endpoint: Callable[[], IStreamClientEndpoint],
        clock: IReactorTime,
        *,
        limits: UpstreamLimits | None = None,
        write: Writer | None = None,
    ) -> None:
        self._endpoint = endpoint
        self._clock = clock
        self.limits = limits or UpstreamLimits()
        #: All connections, including idle ones.
        self.connections: set[UpstreamConnection] = set()
        self.turn = Turn(clock, self.connections, write, self._swept)
        self._factory = _ConnectionFactory(self)
        # The most recently used connection is last, because it is most likely to be
        # alive.
        self._idle: list[UpstreamConnection] = []
        self._waiting: deque[UpstreamRequest] = deque()
        self._attempts: list[Deferred[Any]] = []
        self._closed = False

    @property
    def idle_count(self) -> int:
        """The number of connections that wait for a request."""
        return len(self._idle)

    @property
    def waiting_count(self) -> int:
        """The number of requests that wait for a connection."""
        return len(self._waiting)

    @property
    def connecting_count(self) -> int:
        """The number of connections that are being established."""
        return len(self._attempts)

    def request(
        self,
        method: bytes,
        target: bytes,
        fields: bytes,
        receiver: ResponseReceiver,
        *,
        parser: ResponseParser = _WHOLE,
        length: int = 0,
        upgrade: bytes = b"",
        expect_continue: bool = False,
    ) -> UpstreamRequest:
        """
        Send a request; return the consumer of its body.

        No method of *receiver* is called before this method returns, unless the request
        fails at once.

        :param fields: with ``Host``, but without fields about length or connection.
        :param parser: selects the lines to cut out of the response's head.
        :param length: bytes of the body, or `tunnel.http1.head.CHUNKED`.
        :raises ValueError: *target* would end the request line early, so that the
            upstream could read the rest as another request.
        """
        if _ENDS_TARGET.search(target) is not None:
            raise ValueError(f"{target[:200]!r} is not the target of a request")
        request = UpstreamRequest(
            self,
            method,
            target,
            fields,
            receiver,
            parser,
            length,
            upgrade,
            expect_continue,
        )
        if self._closed:
            request.fail(UpstreamError("the client was closed", 503))
            return request
        if not upgrade:
            while self._idle:
                connection = self._idle.pop()
                if connection.reusable:
                    connection.begin(request)
                    return request
        self._wait(request)
        return request

    def running(self) -> list[UpstreamRequest]:
        """Return all requests that have not ended."""
        found = list(self._waiting)
        for connection in self.connections:
            request = connection.request
            if request is not None:
                found.append(request)
        return found

    def give_up(
        self,
        owned: Callable[[ResponseReceiver], bool],
        error: UpstreamError | None = None,
    ) -> None:
        """
        Fail the running requests for whose receivers *owned* returns True.

        :param error: the reason; by default, the client was closed.
        """
        if error is None:
            error = UpstreamError("the client was closed", 503)
        for request in tuple(self._waiting):
            if owned(request.receiver):
                self.forget(request)
                request.fail(error)
        for connection in tuple(self.connections):
            running = connection.request
            if running is not None and owned(running.receiver):
                connection.drop()
                running.fail(error)

    def close(self) -> None:
        """Drop every connection; requests in progress fail."""
        self._closed = True
        error = UpstreamError("the client was closed", 503)
        while self._waiting:
            self._waiting.popleft().fail(error)
        attempts, self._attempts = self._attempts, []
        for attempt in attempts:
            attempt.cancel()
        for connection in list(self.connections):
            connection.abort()

    # Methods for connections and requests: `ConnectionOwner`.

    def opened(self, connection: UpstreamConnection) -> None:
        self.connections.add(connection)

    def retry(self, request: UpstreamRequest) -> None:
        """
        Send *request* again, because the upstream had already closed its connection.
        """
        if self._closed:
            request.fail(UpstreamError("the client was closed", 503))
            return
        request.queued_at = self.turn.now
        self._waiting.appendleft(request)
        self._connect_more()

    def forget(self, request: UpstreamRequest) -> None:
        """Forget *request*, which does not wait any longer."""
        try:
            self._waiting.remove(request)
        except ValueError:
            return
        if len(self._attempts) > len(self._waiting):
            # Remove it from the list first: an endpoint may fail with any error when it
            # is cancelled, which must not fail a waiting request.
            self._attempts.pop().cancel()

    def ready(self, connection: UpstreamConnection) -> None:
        """Give *connection* a waiting request, or keep it for the next one."""
        fresh = not connection.used
        for request in self._waiting:
            if fresh or not request.upgrade:
                self._waiting.remove(request)
                connection.begin(request)
                return
        if self._closed or len(self._idle) >= self.limits.max_idle:
            connection.close()
        else:
            self._idle.append(connection)

    def lost(self, connection: UpstreamConnection) -> None:
        self.connections.discard(connection)
        if not connection.busy and connection in self._idle:
            self._idle.remove(connection)
        self._connect_more()

    # Connecting.

    def _wait(self, request: UpstreamRequest) -> None:
        limits = self.limits
        room = limits.max_connections - len(self.connections)
        if room <= len(self._waiting) and self._idle:
            # Only an upgrade opens a connection while another one is idle.
            self._idle.pop(0).close()
            room += 1
        if len(self._waiting) - max(room, 0) >= limits.max_waiting:
            request.fail(UpstreamError("too many requests to the upstream", 503))
            return
        self.turn.start()
        request.queued_at = self.turn.now
        self._waiting.append(request)
        self._connect_more()

    def _connect_more(self) -> None:
        while (
            len(self._attempts) < len(self._waiting)
            and len(self._attempts) + len(self.connections)
            < self.limits.max_connections
            and not self._closed
        ):
            self._connect()

    def _connect(self) -> None:
        try:
            attempt: Deferred[Any] = self._endpoint().connect(self._factory)
        except Exception:
            attempt = Deferred()
            attempt.errback(Failure())
        self._attempts.append(attempt)
        attempt.addTimeout(
            self.limits.connect_seconds,
            self._clock,
            lambda _, seconds: Failure(
                ConnectTimeout(f"no connection within {seconds:g} s")
            ),
        )
        attempt.addCallbacks(
            self._connected,
            self._not_connected,
            callbackArgs=(attempt,),
            errbackArgs=(attempt,),
        )

    def _connected(self, protocol: Any, attempt: Deferred[Any]) -> None:
        if attempt in self._attempts:
            self._attempts.remove(attempt)
        connection: UpstreamConnection = protocol
        if connection.reusable:
            self.ready(connection)
        else:
            self._connect_more()

    def _not_connected(self, failure: Failure, attempt: Deferred[Any]) -> None:
        if attempt not in self._attempts:
            return
        self._attempts.remove(attempt)
        if self._waiting:
            status = 504 if failure.check(ConnectTimeout) else 502
            reason = failure.getErrorMessage() or repr(failure.value)
            request = self._waiting.popleft()
            request.fail(NotConnected(f"cannot connect: {reason}", status))
        self._connect_more()

    def _swept(self, now: float) -> None:
        limit = now - self.limits.waiting_seconds
        while self._waiting and self._waiting[0].queued_at <= limit:
            request = self._waiting.popleft()
            request.fail(UpstreamError("no connection was free in time", 503))
        if self._waiting:
            # All connections may have been closed in the meantime, which ends the
            # sweeps.
            self.turn.start()
