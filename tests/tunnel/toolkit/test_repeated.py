"""Calls at a fixed interval."""

from __future__ import annotations

import asyncio

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.internet.testing import EventLoggingObserver
from twisted.logger import formatEvent, globalLogPublisher

from tunnel.toolkit.repeated import Repeated


@pytest.mark.parametrize("error", [KeyError, asyncio.CancelledError, SystemExit])
def test_a_failure_does_not_end_it(error: type[BaseException]) -> None:
    observer = EventLoggingObserver()
    globalLogPublisher.addObserver(observer)
    clock, calls = Clock(), list[float]()

    def call() -> None:
        calls.append(clock.seconds())
        if len(calls) == 2:
            raise error

    repeated = Repeated(clock, "checking", call)
    repeated.start(1)
    assert calls == []
    clock.pump([1] * 4)
    assert calls == [1, 2, 3, 4]
    before = repeated.running
    repeated.stop()
    repeated.stop()
    clock.pump([1] * 4)
    assert len(calls) == 4
    assert (before, repeated.running) == (True, False)
    globalLogPublisher.removeObserver(observer)
    (line,) = map(formatEvent, observer)
    assert line == "checking failed; the next try follows"


def test_work_that_waits() -> None:
    """The next call begins when it has ended, also after a failure."""
    observer = EventLoggingObserver()
    globalLogPublisher.addObserver(observer)
    clock, waiting = Clock(), list[Deferred[None]]()

    async def call() -> None:
        waiting.append(Deferred())
        await waiting[-1]

    repeated = Repeated(clock, "checking", call)
    repeated.start(1)
    clock.pump([1] * 3)
    assert len(waiting) == 1
    waiting[0].errback(KeyError())
    clock.pump([1] * 3)
    assert len(waiting) == 2
    waiting[1].callback(None)
    repeated.stop()
    globalLogPublisher.removeObserver(observer)
    assert len(list(observer)) == 1


def test_the_first_call_at_once() -> None:
    clock, calls = Clock(), list[float]()
    repeated = Repeated(clock, "checking", lambda: calls.append(clock.seconds()))
    repeated.start(5, now=True)
    clock.advance(5)
    repeated.stop()
    assert calls == [0, 5]
