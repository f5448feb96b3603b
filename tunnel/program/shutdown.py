"""The last work of a library at shutdown, run in a thread with a short timeout."""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread
from typing import Any

from twisted.internet.defer import CancelledError, Deferred, TimeoutError

__all__ = ["SHUTDOWN_SECONDS", "run_at_shutdown"]

#: Maximum number of seconds for remaining work at shutdown.
SHUTDOWN_SECONDS = 3.0


async def run_at_shutdown(
    reactor: Any, call: Callable[[], object], seconds: float = SHUTDOWN_SECONDS
) -> None:
    """
    Run *call* in a thread of its own, and wait for it for at most *seconds*.

    A thread of the reactor's pool would delay the end of the process.
    """
    done: Deferred[None] = Deferred()

    def signalled() -> None:
        if not done.called:
            done.callback(None)

    def run() -> None:
        try:
            call()
        finally:
            reactor.callFromThread(signalled)

    Thread(target=run, name="shutdown", daemon=True).start()
    done.addTimeout(seconds, reactor)
    # The process ends anyway; the thread is a daemon and does not delay it.
    await done.addErrback(lambda failure: failure.trap(TimeoutError, CancelledError))
