"""Refs whose reads take long: callers get a commit soon, and never an older one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from tunnel.api import FollowedRef
from tunnel.api.followed_refs import MIN_PAUSE
from tunnel.errors import CallError, Status

PERIOD = 300.0


class SlowRef:
    """A ref whose reads take *seconds*, and return the commit at their beginning."""

    def __init__(self, seconds: float) -> None:
        self.clock = Clock()
        self.seconds = seconds
        self.commit = "a" * 40
        self.reads = 0
        repository: Any = self
        self.ref = FollowedRef(
            "apps", repository, "refs/heads/main", PERIOD, self.clock, lambda: 1.0
        )

    def resolve(self, ref: str) -> Deferred[str]:
        """As a repository."""
        self.reads += 1
        read: Deferred[str] = Deferred()
        self.clock.callLater(self.seconds, read.callback, self.commit)
        return read

    def next(self, known: str = "", then: Callable[[], Any] | None = None) -> Caller:
        """Begin to wait."""
        caller = Caller(self.clock)
        waiting = Deferred.fromCoroutine(self.ref.next(known))
        waiting.addCallback(caller.got)
        if then is not None:
            waiting.addCallback(lambda _: then())
        return caller

    def passes(self, seconds: float) -> None:
        """Let time pass in small steps."""
        for _ in range(round(seconds / 0.05)):
            self.clock.advance(0.05)


@attrs.define(eq=False)
class Caller:
    """What one caller got, and when."""

    _clock: Clock
    commit: str = ""
    at: float = -1.0

    def got(self, commit: str) -> None:
        """Note the commit."""
        self.commit, self.at = commit, self._clock.seconds()


SLOW = (0.5, 1.0, MIN_PAUSE + 0.05, 10.0)


@pytest.mark.parametrize("seconds", SLOW)
def test_a_caller_that_comes_back_at_once(seconds: float) -> None:
    """It waits for another read, and not for the period."""
    ref = SlowRef(seconds)
    second: list[Caller] = []
    first = ref.next(then=lambda: second.append(ref.next()))
    ref.passes(3 * seconds + 1)
    assert first.at == pytest.approx(seconds, abs=0.15)
    assert second[0].commit == ref.commit
    assert second[0].at <= 2 * seconds + MIN_PAUSE


@pytest.mark.parametrize("seconds", SLOW)
def test_a_caller_with_a_newer_commit(seconds: float) -> None:
    """A read that began before it came may be older than its commit."""
    ref = SlowRef(seconds)
    ref.next()
    ref.passes(0.9 * seconds)
    # Another kas has read the new commit already.
    ref.commit = "b" * 40
    caller = ref.next(ref.commit)
    ref.passes(3 * seconds + 2 * MIN_PAUSE)
    if 0.9 * seconds < MIN_PAUSE:
        # As for all callers, a result of the last second is new enough.
        assert caller.commit == "a" * 40
        return
    assert caller.at == -1.0
    ref.commit = "c" * 40
    ref.ref.announced()
    ref.passes(2 * seconds + MIN_PAUSE)
    assert caller.commit == "c" * 40


@pytest.mark.parametrize("seconds", SLOW)
def test_callers_without_news(seconds: float) -> None:
    """They cost one read per period."""
    ref = SlowRef(seconds)
    ref.next(ref.commit)
    ref.next(ref.commit)
    ref.passes(PERIOD - 1)
    assert ref.reads == 1
    ref.passes(PERIOD + 1)
    assert ref.reads <= 3


def test_many_callers_during_a_read() -> None:
    """They share one further read."""
    ref = SlowRef(10.0)
    ref.next()
    ref.passes(5)
    callers = [ref.next() for _ in range(20)]
    ref.passes(16)
    assert {one.commit for one in callers} == {ref.commit}
    assert ref.reads == 2


@attrs.define(eq=False)
class _Nameless:
    """A repository whose default branch can be read only at times."""

    fails: bool = True
    asked: int = 0

    async def resolve(self, ref: str) -> str:
        """As a repository."""
        return "a" * 40

    async def default_branch(self) -> str:
        """As a repository."""
        self.asked += 1
        if self.fails:
            raise CallError(Status.UNAVAILABLE, "no answer")
        return "refs/heads/main"


def test_default_branch_that_cannot_be_read() -> None:
    """Callers get the commit; each read asks for the name until it is known."""
    found = _Nameless()
    repository: Any = found
    clock = Clock()
    ref = FollowedRef("apps", repository, "HEAD", PERIOD, clock, lambda: 1.0)
    for fails, whole, asked in (
        (True, "HEAD", 1),
        (False, "refs/heads/main", 2),
        (True, "refs/heads/main", 2),
    ):
        found.fails = fails
        ref.pushed()
        caller = Caller(clock)
        Deferred.fromCoroutine(ref.next("")).addCallback(caller.got)
        clock.advance(MIN_PAUSE)
        assert caller.commit == "a" * 40
        assert (ref.whole, found.asked) == (whole, asked)
