"""
The reactor of kas and agentk: Twisted's for Linux, driven by the poller of requests.

    PollerReactor ──> Poller ──> sockets that carry requests
                        └──────> EPollReactor ──> ports, pipes, threads, all else

An event of a request reaches the transport through one poller and one call; in another
reactor it passes two pollers, a loop of Twisted and a context for logging. Everything
works in other reactors, too: ``twistd --reactor=epoll kas``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.base import DelayedCall
from twisted.internet.epollreactor import EPollReactor
from twisted.internet.main import installReactor

from tunnel.util.poller import Poller

__all__ = ["PollerReactor", "install"]


class PollerReactor(EPollReactor):
    """
    A reactor that polls sockets in its `Poller`, and everything else as `EPollReactor`
    does.
    """

    def __init__(self) -> None:
        self._changed = False
        super().__init__()  # type: ignore[no-untyped-call]
        poller = Poller.of(self)
        assert poller is not None, "epoll is there, and it is a reactor"
        self._sockets = poller
        poller.lead(self._poller.fileno())

    def doIteration(self, timeout: float | None) -> None:
        """
        Poll until there is work other than events of sockets, for at most *timeout*
        seconds.
        """
        self._changed = False
        end = self.seconds() + (timeout or 0)
        while not self._sockets.turn(timeout):
            # Twisted's outer loop checks timers and threads, which takes ten times as
            # long as this loop.
            if self._changed:
                return
            if timeout is not None:
                # If the clock is set back, the remaining timeout must not become
                # longer.
                timeout = min(timeout, end - self.seconds())
                if timeout <= 0:
                    return
        self.doPoll(0)  # type: ignore[no-untyped-call]

    def iterate(self, delay: float = 0.0) -> None:
        """
        Run one turn for a caller that waits in a callback, within the present turn.
        """
        self.runUntilCurrent()
        if self._sockets.turn(delay):
            self.doPoll(0)  # type: ignore[no-untyped-call]
        self._changed = True

    # Checks that Twisted's loop must make before its next timer. Threads and signals
    # wake it through a pipe.

    def callLater(
        self, delay: float, callable: Callable[..., Any], *args: object, **kw: object
    ) -> DelayedCall:
        """Schedule a call, and note the new timer."""
        self._changed = True
        return super().callLater(delay, callable, *args, **kw)

    def _moveCallLaterSooner(self, delayedCall: DelayedCall) -> None:
        self._changed = True
        super()._moveCallLaterSooner(delayedCall)

    def stop(self) -> None:
        """Stop the reactor after this turn."""
        self._changed = True
        super().stop()

    def crash(self) -> None:
        """Stop the reactor after this turn, without shutdown triggers."""
        self._changed = True
        super().crash()

    # The reactor's lists include the poller's sockets.

    def removeAll(self) -> list[Any]:
        """Stop polling all selectables, and return them."""
        others = super().removeAll()  # type: ignore[no-untyped-call]
        return [*others, *self._sockets.removeAll()]

    def getReaders(self) -> list[Any]:
        """Return the selectables that are polled for reading."""
        others = super().getReaders()  # type: ignore[no-untyped-call]
        return [*others, *self._sockets.getReaders()]

    def getWriters(self) -> list[Any]:
        """Return the selectables that are polled for writing."""
        others = super().getWriters()  # type: ignore[no-untyped-call]
        return [*others, *self._sockets.getWriters()]


def install() -> None:
    """Install `PollerReactor` as the reactor of this process."""
    installReactor(PollerReactor())
