"""Waits for work that may survive its cancellation."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.defer import CancelledError, Deferred, TimeoutError
from twisted.internet.task import Clock
from twisted.python.failure import Failure

from tunnel.toolkit.time_limit import within


def result_of(waiter: Deferred[Any]) -> Any:
    """Return the result, or the type of the error; None without either."""
    got: list[Any] = []
    waiter.addBoth(got.append)
    if not got:
        return None
    return got[0].type if isinstance(got[0], Failure) else got[0]


async def stubborn(ends: list[Deferred[None]], results: list[str]) -> str:
    """Survive the first cancellation."""
    for _ in range(2):
        ends.append(Deferred())
        try:
            await ends[-1]
        except CancelledError:
            results.append("cancelled")
    return "late"


@pytest.mark.parametrize("given", ["a result", ValueError()])
def test_in_time(given: Any) -> None:
    clock, work = Clock(), Deferred[Any]()
    waiter = within(work, 10, clock)
    if isinstance(given, str):
        work.callback(given)
        assert result_of(waiter) == given
    else:
        work.errback(given)
        assert result_of(waiter) is ValueError
    assert clock.getDelayedCalls() == []


def test_too_late() -> None:
    """The caller goes on; the later result is dropped."""
    clock, ends, results = Clock(), list[Deferred[None]](), list[str]()
    waiter = within(Deferred.fromCoroutine(stubborn(ends, results)), 10, clock)
    clock.advance(9)
    assert (len(ends), results) == (1, [])
    clock.advance(1)
    assert result_of(waiter) is TimeoutError
    assert results == ["cancelled"]
    ends[-1].callback(None)


def test_work_that_ends_when_it_is_cancelled() -> None:
    clock = Clock()
    waiter = within(Deferred[None](), 10, clock)
    clock.advance(10)
    assert result_of(waiter) is TimeoutError


def test_a_caller_that_is_cancelled() -> None:
    """So is the work, and its later failure is nobody's."""
    clock, ends, results = Clock(), list[Deferred[None]](), list[str]()
    waiter = within(Deferred.fromCoroutine(stubborn(ends, results)), 10, clock)
    waiter.cancel()
    assert result_of(waiter) is CancelledError
    assert results == ["cancelled"]
    ends[-1].errback(ValueError())
    assert clock.getDelayedCalls() == []
