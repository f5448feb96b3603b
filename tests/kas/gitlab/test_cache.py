"""Answers that are kept, and questions that are asked once."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock
from twisted.logger import capturedLogs
from twisted.trial.unittest import SynchronousTestCase

from kas.gitlab import cache as module
from kas.gitlab.cache import HURRY, PATIENCE, AnswerCache, Lifetimes
from tunnel.errors import CallError, Status

REFUSED = CallError(Status.UNAUTHENTICATED, "no")
AWAY = CallError(Status.UNAVAILABLE, "away")


class CacheTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.asked: list[tuple[str, Deferred[str]]] = []
        self.cancelled = 0
        self.cache = self.make()

    def make(self, **lifetimes: float) -> AnswerCache[str, str]:
        times = {"success": 300.0, "error": 60.0, "outage": 1000.0, **lifetimes}
        return AnswerCache(self.ask, Lifetimes(**times), self.clock)

    def ask(self, subject: str) -> Deferred[str]:
        def cancel(_: object) -> None:
            self.cancelled += 1

        answer: Deferred[str] = Deferred(cancel)
        self.asked.append((subject, answer))
        return answer

    def get(self, key: bytes = b"k") -> Any:
        found = self.cache.get(key, "s")
        self.clock.advance(0)
        return found

    def renew(self) -> Deferred[str]:
        renewing = self.cache.renew(b"k", "s")
        self.clock.advance(0)
        return renewing

    def learn(self, answer: str | CallError) -> None:
        """Ask once, and be answered so."""
        waiting = self.get()
        _, asking = self.asked[-1]
        if isinstance(answer, str):
            asking.callback(answer)
        else:
            asking.errback(answer)
        waiting.addErrback(lambda failure: None)

    def test_once(self) -> None:
        """All who wait get the one answer, and later ones at once."""
        waiting = [self.get() for _ in range(3)]
        self.assertEqual(len(self.asked), 1)
        subject, asking = self.asked[0]
        self.assertEqual(subject, "s")
        asking.callback("yes")
        self.assertEqual([self.successResultOf(one) for one in waiting], ["yes"] * 3)
        self.assertEqual(self.get(), "yes")
        self.get(b"other")
        self.assertEqual(len(self.asked), 2)

    def test_lifetime(self) -> None:
        self.learn("yes")
        self.clock.advance(299)
        self.assertEqual(self.get(), "yes")
        self.clock.advance(1)
        self.learn("later")
        self.assertEqual(self.get(), "later")
        self.assertEqual(self.cache.age(b"k"), 0)
        self.assertEqual(self.cache.age(b"?"), float("inf"))

    def test_refused(self) -> None:
        """A refusal is kept for its own time, in place of what was before."""
        for status in (
            Status.UNAUTHENTICATED,
            Status.PERMISSION_DENIED,
            Status.NOT_FOUND,
        ):
            self.learn("yes")
            self.clock.advance(300)
            refusal = CallError(status, "no")
            self.learn(refusal)
            self.clock.advance(59)
            with self.assertRaises(CallError) as caught:
                self.get()
            self.assertEqual(
                (caught.exception.status, caught.exception.message), (status, "no")
            )
            self.clock.advance(1)

    def test_refused_often(self) -> None:
        """A refusal that is kept does not hold on to those that it was said to."""
        self.learn(CallError(Status.UNAUTHENTICATED, "no"))
        errors = []
        for _ in range(3):
            with self.assertRaises(CallError) as caught:
                self.get()
            errors.append(caught.exception)
        self.assertEqual(len({id(one) for one in errors}), 3)

    def test_hangs(self) -> None:
        """A GitLab that does not answer is away: its last word serves in time."""
        self.learn("yes")
        self.clock.advance(300)
        waiting = self.get()
        self.clock.advance(HURRY - 0.1)
        self.assertNoResult(waiting)
        self.clock.advance(0.1)
        self.assertEqual(self.successResultOf(waiting), "yes")
        self.assertEqual(self.cancelled, 1)
        # At once for those who come next, for as long as that may be.
        self.assertEqual(self.get(), "yes")
        self.clock.advance(700 - HURRY)
        waiting = self.get()
        self.clock.advance(HURRY)
        self.assertNoResult(waiting)
        waiting.cancel()
        self.failureResultOf(waiting, CancelledError)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_hangs_for_some(self) -> None:
        """Who waits longer gets the answer of the same question."""
        self.learn("yes")
        self.clock.advance(300)
        renewing = self.renew()
        waiting = self.get()
        self.clock.advance(HURRY)
        self.assertEqual(self.successResultOf(waiting), "yes")
        self.asked[-1][1].errback(CallError(Status.UNAUTHENTICATED, "no"))
        self.failureResultOf(renewing, CallError)
        self.assertEqual(self.cache.age(b"k"), float("inf"))
        with self.assertRaises(CallError):
            self.get()

    def test_answered_in_time(self) -> None:
        self.learn("yes")
        self.clock.advance(300)
        waiting = self.get()
        self.asked[-1][1].callback("later")
        self.assertEqual(self.successResultOf(waiting), "later")
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_outage(self) -> None:
        """What was said last serves on, is asked for now and then, and not forever."""
        self.learn("yes")
        self.clock.advance(300)
        waiting = self.get()
        self.asked[-1][1].errback(AWAY)
        self.assertEqual(self.successResultOf(waiting), "yes")
        count = len(self.asked)
        self.clock.advance(PATIENCE - 0.1)
        self.assertEqual(self.get(), "yes")
        self.assertEqual(len(self.asked), count)
        self.clock.advance(1000 - 300 - PATIENCE)
        self.assertEqual(self.get(), "yes")
        self.asked[-1][1].errback(AWAY)
        self.clock.advance(0.1)
        waiting = self.get()
        self.asked[-1][1].errback(AWAY)
        self.failureResultOf(waiting, CallError)

    def test_outage_that_is_known(self) -> None:
        """The last answer serves at once, and GitLab is asked beside it."""
        self.learn("yes")
        self.clock.advance(300)
        waiting = self.get()
        self.clock.advance(HURRY)
        self.assertEqual(self.successResultOf(waiting), "yes")
        for _ in range(3):
            self.clock.advance(PATIENCE)
            count = len(self.asked)
            self.assertEqual(self.get(), "yes")
            self.clock.advance(0)
            self.assertEqual(len(self.asked), count + 1)
            # A question that is not answered is given up.
            self.clock.advance(HURRY)
        self.assertEqual(self.cancelled, 4)
        # GitLab is back, and says something else.
        self.clock.advance(PATIENCE)
        self.assertEqual(self.get(), "yes")
        self.clock.advance(0)
        self.asked[-1][1].callback("later")
        self.assertEqual(self.get(), "later")
        self.clock.advance(300)
        waiting = self.get()
        self.asked[-1][1].errback(REFUSED)
        self.failureResultOf(waiting, CallError)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_nothing_known(self) -> None:
        """Without an answer before, and after a refusal, an outage is an error."""
        waiting = self.get()
        self.asked[-1][1].errback(AWAY)
        self.failureResultOf(waiting, CallError)
        self.learn(REFUSED)
        self.clock.advance(60)
        waiting = self.get()
        self.asked[-1][1].errback(AWAY)
        self.failureResultOf(waiting, CallError)

    def test_renew(self) -> None:
        """The answer of now, also where one is kept."""
        self.learn("yes")
        renewing = self.renew()
        self.asked[-1][1].errback(REFUSED)
        self.failureResultOf(renewing, CallError)
        with self.assertRaises(CallError):
            self.get()

    def test_given_up(self) -> None:
        """The question ends with the last who waits for it."""
        first, second = self.get(), self.get()
        first.cancel()
        self.failureResultOf(first, CancelledError)
        self.assertEqual(self.cancelled, 0)
        second.cancel()
        self.failureResultOf(second, CancelledError)
        self.assertEqual(self.cancelled, 1)
        self.learn("yes")
        self.assertEqual(self.get(), "yes")

    def test_given_up_at_once(self) -> None:
        """A question that is cancelled before the next turn was never asked."""
        for _ in range(3):
            waiting: Any = self.cache.get(b"k", "s")
            waiting.cancel()
            self.failureResultOf(waiting, CancelledError)
        self.clock.advance(1)
        self.assertEqual(self.asked, [])
        self.learn("yes")
        self.assertEqual(self.get(), "yes")

    def test_given_up_by_a_waiter(self) -> None:
        """One that leaves while the others are told."""
        second: Any = None
        first = self.get()
        first.addCallback(lambda _: second.cancel())
        second = self.get()
        second.addErrback(lambda failure: failure.trap(CancelledError) and None)
        self.asked[0][1].callback("yes")
        self.assertEqual(self.get(), "yes")

    def test_not_kept(self) -> None:
        """A lifetime of nothing."""
        self.cache = self.make(success=0, error=0)
        self.learn("yes")
        self.learn(REFUSED)
        self.assertEqual(len(self.cache), 0)
        self.assertEqual(len(self.asked), 2)

    def test_bounded(self) -> None:
        """The one that was made longest ago goes."""
        self.patch(module, "MAX_ANSWERS", 2)
        for key in (b"a", b"b", b"c"):
            self.get(key)
            self.asked[-1][1].callback("yes")
        self.assertEqual(len(self.cache), 2)
        self.assertEqual(self.cache.age(b"a"), float("inf"))

    def test_large_answers(self) -> None:
        """They count as several; replaced ones no longer do."""
        self.patch(module, "MAX_ANSWERS", 10)
        times = Lifetimes(success=300, error=60, outage=1000)
        self.cache = AnswerCache(self.ask, times, self.clock, weigh=len)
        for key, answer in (
            (b"a", "12345"),
            (b"b", "1234"),
            (b"a", "123"),
            (b"c", "1"),
        ):
            self.cache.renew(key, "s")
            self.clock.advance(0)
            self.asked[-1][1].callback(answer)
        self.assertEqual(len(self.cache), 3)
        self.get(b"d")
        self.asked[-1][1].callback("123456")
        self.assertEqual(
            [self.cache.kept(key) for key in (b"a", b"b", b"c", b"d")],
            ["123", None, "1", "123456"],
        )


def test_unexpected_failure_in_the_background() -> None:
    """The cache logs a failure that no caller waits for, unless GitLab is away."""
    clock, asked = Clock(), list[Deferred[str]]()

    def ask(_: str) -> Deferred[str]:
        asked.append(Deferred())
        return asked[-1]

    cache = AnswerCache(ask, Lifetimes(success=1.0, error=1.0, outage=1000.0), clock)
    for error in (AWAY, ZeroDivisionError("a bug")):
        asked.clear()
        cache.get(b"k", "s")
        clock.advance(0)
        asked.pop().callback("yes")
        clock.advance(2)
        cache.get(b"k", "s")
        clock.advance(0)
        asked.pop().errback(AWAY)
        clock.advance(1000 - 3)
        assert cache.get(b"k", "s") == "yes"
        with capturedLogs() as logged:
            clock.advance(0)
            # The last answer has expired when GitLab's answer arrives.
            clock.pump([1.0])
            asked.pop().errback(error)
        assert [event["log_format"] for event in logged] == (
            [] if error is AWAY else ["updating a cached response of GitLab failed"]
        )
        clock.advance(1000)
