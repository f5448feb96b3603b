"""
The reactor of kas and agentk: Twisted's for Linux, led by the poller of requests.

    PollerReactor ──> Poller ──> sockets that carry requests
                        └──────> EPollReactor ──> ports, pipes, threads, all else

An event of a request passes one poller and one call on its way to the transport; in
another reactor it passes two pollers, a loop of Twisted and a context for logging.
Everything works in any other one as well: ``twistd --reactor=epoll kas``.
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
    """Polls sockets in its `Poller`, and all else as `EPollReactor` does."""

    def __init__(self) -> None:
        self._changed = False
        super().__init__()  # type: ignore[no-untyped-call]
        poller = Poller.of(self)
        assert poller is not None, "epoll is there, and it is a reactor"
        self._sockets = poller
        poller.lead(self._poller.fileno())

    def doIteration(self, timeout: float | None) -> None:
        """Poll until there is something to do but for sockets, up to *timeout* s."""
        self._changed = False
        end = self.seconds() + (timeout or 0)
        while not self._sockets.turn(timeout):
            # The loop of Twisted around this one looks for timers and threads: ten
            # times what this does.
            if self._changed:
                return
            if timeout is not None:
                # A clock that is set back makes it no longer.
                timeout = min(timeout, end - self.seconds())
                if timeout <= 0:
                    return
        self.doPoll(0)  # type: ignore[no-untyped-call]

    def iterate(self, delay: float = 0.0) -> None:
        """
        Run one turn for a caller that waits in a callback, inside the surrounding turn.
        """
        self.runUntilCurrent()
        if self._sockets.turn(delay):
            self.doPoll(0)  # type: ignore[no-untyped-call]
        self._changed = True

    # Checks that Twisted's loop needs before its next timer.  Threads and signals wake
    # it through a pipe.

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
        """End after this turn."""
        self._changed = True
        super().stop()

    def crash(self) -> None:
        """End after this turn, whatever is left."""
        self._changed = True
        super().crash()

    # Each socket is as good as any other in what the reactor says of itself.

    def removeAll(self) -> list[Any]:
        """Stop polling all returned selectables."""
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
    """Make it the reactor of this process."""
    installReactor(PollerReactor())
