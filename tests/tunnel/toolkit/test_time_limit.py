"""Waits for work that may survive its cancellation, or must."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.defer import CancelledError, Deferred, TimeoutError
from twisted.internet.task import Clock
from twisted.python.failure import Failure

from tunnel.toolkit.time_limit import shielded, within


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


class Shielded:
    """Work whose caller may be cancelled, and what both came to."""

    def __init__(self, work: Deferred[Any] | None = None) -> None:
        self.clock, self.cancelled = Clock(), list[str]()
        self.work = work or Deferred(lambda _: self.cancelled.append("work"))
        self.results: list[Any] = []
        waits = shielded(self.work, 10, self.clock)
        self.caller = Deferred.fromCoroutine(waits)
        self.caller.addBoth(self.results.append)

    @property
    def result(self) -> Any:
        """The result, or the type of the error; None without either."""
        for one in self.results:
            return one.type if isinstance(one, Failure) else one
        return None


@pytest.mark.parametrize("given", ["a result", ValueError()])
def test_work_that_is_not_cancelled(given: Any) -> None:
    one = Shielded()
    assert not one.results
    if isinstance(given, str):
        one.work.callback(given)
        assert one.result == given
    else:
        one.work.errback(given)
        assert one.result is ValueError
    assert one.clock.getDelayedCalls() == []


def test_work_that_has_ended() -> None:
    work: Deferred[str] = Deferred()
    work.callback("done")
    assert Shielded(work).result == "done"


@pytest.mark.parametrize("given", ["a result", ValueError()])
def test_work_that_ends_after_its_caller_is_cancelled(given: Any) -> None:
    """However often: the work goes on, and then the cancellation takes effect."""
    one = Shielded()
    for _ in range(3):
        one.caller.cancel()
        one.clock.advance(3)
    assert (one.result, one.cancelled) == (None, [])
    if isinstance(given, str):
        one.work.callback(given)
    else:
        one.work.errback(given)
    assert one.result is CancelledError
    assert (one.cancelled, one.clock.getDelayedCalls()) == ([], [])


def test_shielded_work_that_is_too_late() -> None:
    """It is cancelled, too, and its caller goes on even if the work does not end."""
    ends, results = list[Deferred[None]](), list[str]()
    one = Shielded(Deferred.fromCoroutine(stubborn(ends, results)))
    one.caller.cancel()
    one.clock.advance(9)
    assert (one.result, results) == (None, [])
    one.clock.advance(1)
    assert (one.result, results) == (CancelledError, ["cancelled"])
    ends[-1].errback(ValueError())
