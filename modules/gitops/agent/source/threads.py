"""Threads that parse texts of repositories, so that the reactor stays responsive."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from twisted.internet.defer import Deferred, DeferredSemaphore
from twisted.internet.threads import deferToThread

__all__ = ["COMMIT_THREADS", "PREVIEW_THREADS", "TextThreads"]

#: Number of threads for texts of commits, and for texts of previews.  The reactor's
#: pool has ten threads, and agentk needs some threads to resolve the names of servers.
COMMIT_THREADS, PREVIEW_THREADS = 5, 2

P = ParamSpec("P")
T = TypeVar("T")


class TextThreads:
    """
    Limited access to the thread pool of the reactor, by slots.

    A thread cannot be stopped, so a cancelled call holds its slot until its thread has
    ended.

    :param at_once: the number of slots; further calls wait in order.
    """

    def __init__(self, at_once: int) -> None:
        self._room = DeferredSemaphore(at_once)

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return the result of *work*, called in a thread."""
        await self._room.acquire()
        done: Deferred[Any] = Deferred()

        def ended(result: Any) -> None:
            self._room.release()
            if not done.called:
                done.callback(result)

        deferToThread(work, *args, **kwargs).addBoth(ended)
        found: T = await done
        return found
