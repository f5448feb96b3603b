"""A step ends when something newer comes, the loop when it is cancelled."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.defer import CancelledError, Deferred

from tunnel.toolkit.interruptible import Interruptible


async def _wait(for_: Deferred[Any], cleaned: Deferred[None] | None = None) -> Any:
    try:
        return await for_
    finally:
        if cleaned is not None:
            await cleaned


def _results(running: Deferred[Any]) -> list[Any]:
    results: list[Any] = []
    running.addBoth(results.append)
    return results


def test_result() -> None:
    steps, work = Interruptible(), Deferred[str]()
    results = _results(Deferred.fromCoroutine(steps.run(_wait(work))))
    work.callback("done")
    assert results == ["done"]
    steps.interrupt()
    assert steps.is_interrupted
    steps.begin()
    assert not steps.is_interrupted


def test_failure() -> None:
    steps, work = Interruptible(), Deferred[str]()
    results = _results(Deferred.fromCoroutine(steps.run(_wait(work))))
    work.errback(ValueError("no"))
    assert results[0].check(ValueError)


@pytest.mark.parametrize("is_interrupted", [False, True])
def test_own_cancellation(is_interrupted: bool) -> None:
    """Work that is cancelled from elsewhere ends the loop unless it is obsolete."""
    steps, work = Interruptible(), Deferred[str]()
    results = _results(Deferred.fromCoroutine(steps.run(_wait(work))))
    steps.is_interrupted = is_interrupted
    work.cancel()
    assert (results == [None]) is is_interrupted


def test_interrupt() -> None:
    """The step's cleanup ends before the next step begins."""
    steps, cleaned = Interruptible(), Deferred[None]()
    results = _results(Deferred.fromCoroutine(steps.run(_wait(Deferred(), cleaned))))
    steps.interrupt()
    assert results == []
    cleaned.callback(None)
    assert results == [None]


def test_cancel() -> None:
    steps, cleaned = Interruptible(), Deferred[None]()
    running = Deferred.fromCoroutine(steps.run(_wait(Deferred(), cleaned)))
    results = _results(running)
    running.cancel()
    assert results == []
    cleaned.callback(None)
    assert results[0].check(CancelledError)


def test_cancel_at_once() -> None:
    steps = Interruptible()
    running = Deferred.fromCoroutine(steps.run(_wait(Deferred())))
    results = _results(running)
    running.cancel()
    assert results[0].check(CancelledError)


def test_cancel_after_interrupt() -> None:
    """A loop ends although its step was interrupted and still cleans up."""
    steps, cleaned = Interruptible(), Deferred[None]()
    running = Deferred.fromCoroutine(steps.run(_wait(Deferred(), cleaned)))
    results = _results(running)
    steps.interrupt()
    running.cancel()
    cleaned.callback(None)
    assert results[0].check(CancelledError)


def test_failing_cleanup() -> None:
    """Its error is not lost."""
    steps, cleaned = Interruptible(), Deferred[None]()
    running = Deferred.fromCoroutine(steps.run(_wait(Deferred(), cleaned)))
    results = _results(running)
    running.cancel()
    cleaned.errback(ValueError("no"))
    assert results[0].check(ValueError)
