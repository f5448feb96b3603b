"""Steps of long calculations."""

from __future__ import annotations

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock

from modules.gitops.server.step_scheduler import PAUSE, SLICE, StepScheduler, Work


def begun(
    scheduler: StepScheduler, key: str, slices: int, done: list[str]
) -> Deferred[None]:
    """Begin a calculation, which names its agent in *done* for each slice."""

    async def run() -> None:
        work = Work(scheduler, key)
        for _ in range(slices):
            await work.take(SLICE)
            done.append(key)

    return Deferred.fromCoroutine(run())


def test_a_slice_at_a_time() -> None:
    """The reactor is free after each."""
    clock, done = Clock(), list[str]()
    ended = begun(StepScheduler(clock), "a", 3, done)
    assert done == ["a"]
    clock.advance(PAUSE / 2)
    assert done == ["a"]
    clock.advance(PAUSE / 2)
    assert done == ["a", "a"]
    clock.advance(PAUSE)
    assert done == ["a", "a", "a"]
    assert ended.called
    assert clock.getDelayedCalls() == []


def test_small_work_does_not_wait() -> None:
    """Steps add up to a slice first."""
    clock = Clock()
    work = Work(StepScheduler(clock), "a")
    taken = [Deferred.fromCoroutine(work.take(SLICE // 4)) for _ in range(5)]
    assert [one.called for one in taken] == [True] * 4 + [False]
    assert work.total == SLICE // 4 * 5
    clock.advance(PAUSE)
    assert taken[4].called


def test_agents_take_turns() -> None:
    """However many calculations one of them has."""
    clock, done = Clock(), list[str]()
    scheduler = StepScheduler(clock)
    for _ in range(4):
        begun(scheduler, "a", 2, done)
    begun(scheduler, "b", 3, done)
    assert len(scheduler) == 5
    done.clear()
    for _ in range(9):
        clock.advance(PAUSE * 5)
    assert done == ["a", "b", "a", "b", "a", "a", "a", "a", "a"]
    assert len(scheduler) == 0


def test_a_pause_is_as_long_as_the_work() -> None:
    """One step may be much longer than a slice."""
    clock = Clock()
    work = Work(StepScheduler(clock), "a")
    Deferred.fromCoroutine(work.take(SLICE * 10))
    waiting = Deferred.fromCoroutine(work.take(1))
    clock.advance(PAUSE * 9)
    assert not waiting.called
    clock.advance(PAUSE)
    assert waiting.called


def test_a_calculation_that_is_cancelled() -> None:
    """It leaves its place to the others."""
    clock, done = Clock(), list[str]()
    scheduler = StepScheduler(clock)
    first, second = begun(scheduler, "a", 2, done), begun(scheduler, "b", 2, done)
    first.cancel()
    first.addErrback(lambda failure: failure.trap(CancelledError))
    assert len(scheduler) == 1
    done.clear()
    clock.advance(PAUSE * 2)
    assert done == ["b"]
    assert second.called
    assert len(scheduler) == 0
