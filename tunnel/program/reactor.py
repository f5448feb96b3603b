"""
The reactor of kas and agentk: Twisted's for Linux, led by the poller of requests.

    PollerReactor ──> Poller ──> sockets that carry requests
                        └──────> EPollReactor ──> ports, pipes, threads, all else

An event of a request passes one poller and one call on its way to the transport; in
another reactor it passes two pollers, the loop of Twisted and a context for logging.
Everything works in any other one as well: ``twistd --reactor=epoll kas``.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.epollreactor import EPollReactor
from twisted.internet.main import installReactor

from tunnel.util.poller import Poller

__all__ = ["PollerReactor", "install"]


class PollerReactor(EPollReactor):
    """Polls sockets in its `Poller`, and all else as `EPollReactor` does."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        poller = Poller.of(self)
        assert poller is not None, "epoll is there, and it is a reactor"
        self._sockets = poller
        poller.lead(self._poller.fileno())

    def doIteration(self, timeout: float | None) -> None:
        """One turn, as the loop of Twisted asks for it."""
        if self._sockets.turn(timeout):
            self.doPoll(0)  # type: ignore[no-untyped-call]

    def removeAll(self) -> list[Any]:
        """At the end; who is removed is told that his connection is lost."""
        others = super().removeAll()  # type: ignore[no-untyped-call]
        return [*others, self._sockets]


def install() -> None:
    """Make it the reactor of this process."""
    installReactor(PollerReactor())
