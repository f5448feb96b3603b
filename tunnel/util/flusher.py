"""One flush per reactor turn, for every connection with pending output."""

from __future__ import annotations

from typing import ClassVar, Protocol

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from tunnel.util.poller import Poller


class Flushable(Protocol):
    """A connection whose output can wait for the end of the turn."""

    def flush(self) -> None:
        """Write the output to the transport."""


class Flusher:
    """
    Collector of connections with pending output, which all write once per turn.

    A turn may bring a hundred requests for one agent.  Written one by one, they need a
    hundred TLS records and system calls; written together, they need only one.
    """

    _log: ClassVar = Logger()

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._poller = Poller.of(clock)
        self._dirty: set[Flushable] = set()

    def mark(self, connection: Flushable) -> None:
        """Schedule `flush` of *connection*, which has output, before the next turn."""
        if not self._dirty:
            if self._poller is not None and self._poller.dispatching:
                self._poller.after.append(self._flush)
            else:
                self._clock.callLater(0, self._flush)
        self._dirty.add(connection)

    def _flush(self) -> None:
        dirty, self._dirty = self._dirty, set()
        for connection in dirty:
            try:
                connection.flush()
            except BaseException:
                # A failure of one connection must not affect the others.  `for_each` is
                # not used, because its two calls would slow each request down.
                self._log.failure("the flush of a connection failed")
