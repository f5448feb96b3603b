"""Several things at the same time, and no more than so many."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from twisted.internet.defer import (
    Deferred,
    DeferredSemaphore,
    FirstError,
    gatherResults,
)

__all__ = ["in_parallel"]

#: Requests to the API server at the same time, of one source.  Its own fairness and its
#: 429 are what limits agentk beyond that.
IN_FLIGHT = 32

_T = TypeVar("_T")


async def in_parallel(
    calls: Iterable[Callable[[], Awaitable[_T]]], limit: int = IN_FLIGHT
) -> list[_T]:
    """
    Their results, in their order; at most *limit* run at the same time.

    The first failure ends all; the rest is cancelled.
    """
    semaphore = DeferredSemaphore(limit)

    def begin(call: Callable[[], Awaitable[_T]]) -> Deferred[_T]:
        async def run() -> _T:
            return await call()

        return semaphore.run(lambda: Deferred.fromCoroutine(run()))

    running = [begin(call) for call in calls]
    everything = gatherResults(running, consumeErrors=True)
    try:
        return await everything
    except FirstError as error:
        # Cancelled from outside it is one as well.
        first = error.subFailure.value
        assert first is not None
        raise first from None
    finally:
        for one in running:
            one.cancel()
