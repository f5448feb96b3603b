"""Calls that several callers share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.python.failure import Failure

from tunnel.errors import CallError, Status
from tunnel.toolkit.single_flight import SingleFlight


class Calls:
    """Calls that end when a test says so."""

    def __init__(self) -> None:
        self.begun: list[Deferred[str]] = []
        self.cancelled = 0

    def __call__(self) -> Deferred[str]:
        def cancel(_: object) -> None:
            self.cancelled += 1

        self.begun.append(Deferred(cancel))
        return self.begun[-1]


def results(*waiters: Deferred[str]) -> list[list[object]]:
    """Collect the result of each of *waiters*: a failure's exception, or nothing."""
    found: list[list[object]] = [[] for _ in waiters]
    for waiter, result in zip(waiters, found, strict=True):
        waiter.addErrback(lambda failure: failure.value).addCallback(result.append)
    return found


@pytest.fixture
def calls() -> Iterator[Calls]:
    yield Calls()


def test_one_call_for_all_callers(calls: Calls) -> None:
    flight = SingleFlight(calls)
    found = results(flight.get(), flight.get())
    assert (len(calls.begun), flight.running) == (1, True)
    calls.begun[0].callback("x")
    assert (found, flight.running) == ([["x"], ["x"]], False)


def test_results_are_not_cached(calls: Calls) -> None:
    flight = SingleFlight(calls)
    first = results(flight.get())
    calls.begun[0].callback("x")
    second = results(flight.get())
    calls.begun[1].callback("y")
    assert (first, second) == ([["x"]], [["y"]])


def test_failure_goes_to_all(calls: Calls) -> None:
    flight = SingleFlight(calls)
    found = results(flight.get(), flight.get())
    error = CallError(Status.NOT_FOUND, "no")
    calls.begun[0].errback(Failure(error))
    assert found == [[error], [error]]


@pytest.mark.parametrize("abandon", [False, True])
def test_cancelled_caller_leaves_the_call_to_others(
    calls: Calls, abandon: bool
) -> None:
    flight = SingleFlight(calls, abandon=abandon)
    leaving, staying = flight.get(), flight.get()
    gone, found = results(leaving), results(staying)
    leaving.cancel()
    assert isinstance(gone[0][0], CancelledError)
    calls.begun[0].callback("x")
    assert (found, calls.cancelled) == ([["x"]], 0)


@pytest.mark.parametrize("abandon", [False, True])
def test_last_caller_leaves(calls: Calls, abandon: bool) -> None:
    flight = SingleFlight(calls, abandon=abandon)
    waiters = [flight.get(), flight.get()]
    results(*waiters)
    for waiter in waiters:
        waiter.cancel()
    assert calls.cancelled == abandon
    assert flight.running == (not abandon)


def test_cancelled_call(calls: Calls) -> None:
    flight = SingleFlight(calls)
    flight.cancel()
    found = results(flight.get(), flight.get())
    flight.cancel()
    assert [type(one[0]) for one in found] == [CancelledError] * 2
    assert not flight.running


def test_caller_that_another_makes_leave(calls: Calls) -> None:
    flight = SingleFlight(calls)
    waiters = [flight.get(), flight.get()]

    def cancel_other(result: str, other: Deferred[str]) -> str:
        other.cancel()
        return result

    for waiter, other in (waiters, waiters[::-1]):
        waiter.addCallback(cancel_other, other)
    found = results(*waiters)
    calls.begun[0].callback("x")
    assert sorted(type(one[0]).__name__ for one in found) == ["CancelledError", "str"]


def test_caller_that_comes_in_a_callback() -> None:
    """It starts another call, even if the first one ended at once."""
    begun: list[int] = []

    def call() -> Deferred[int]:
        begun.append(len(begun))
        return succeed(begun[-1]) if len(begun) == 1 else Deferred()

    flight = SingleFlight(call)
    flight.wait().addCallback(lambda _: flight.start())
    flight.start()
    assert (begun, flight.running) == ([0, 1], True)


def test_end_comes_after_the_results(calls: Calls) -> None:
    order: list[str] = []
    flight = SingleFlight(calls, ended=lambda: order.append("end"))
    waiter = flight.wait()
    assert calls.begun == []
    waiter.addCallback(order.append)
    flight.start()
    flight.start()
    calls.begun.pop().callback("x")
    assert (order, calls.begun) == (["x", "end"], [])
