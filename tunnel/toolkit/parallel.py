"""Concurrent calls with a limit on their number."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeVar

from twisted.internet.defer import Deferred, FirstError, gatherResults

__all__ = ["in_parallel"]

#: Maximum number of concurrent requests of one source to the API server.  Beyond that,
#: the API server's own fairness and its 429 responses limit agentk.
IN_FLIGHT = 32

_T = TypeVar("_T")


async def in_parallel(
    calls: Iterable[Callable[[], Coroutine[Any, Any, _T]]],
    limit: int = IN_FLIGHT,
) -> list[_T]:
    """
    Return the results of *calls* in their order; at most *limit* run at the same time.

    A failure or a cancellation ends all calls: running calls are cancelled, and waiting
    calls never start.
    """
    waiting = enumerate(calls)
    results: dict[int, _T] = {}

    async def work() -> None:
        for number, call in waiting:
            results[number] = await call()

    working = [Deferred.fromCoroutine(work()) for _ in range(limit)]
    try:
        await gatherResults(working, consumeErrors=True)
    except FirstError as error:
        # A cancellation is a failure, too.
        first = error.subFailure.value
        assert first is not None
        raise first from None
    finally:
        for one in working:
            one.cancel()
    return [results[number] for number in range(len(results))]
