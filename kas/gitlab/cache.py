"""Cache of GitLab's responses; callers that wait for the same response share one
request."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Generic, Protocol, TypeVar

import attrs
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure

from kas.identity.authenticators import CHECK_TIMEOUT
from tunnel.errors import CallError, Status
from tunnel.toolkit.single_flight import SingleFlight
from tunnel.toolkit.timers import cancel_call

__all__ = ["AnswerCache", "Lifetimes", "Refusals"]

S = TypeVar("S")
T = TypeVar("T")

#: Maximum number of cached responses of about 600 bytes, including refusals; a larger
#: response counts as several responses.  The oldest response is dropped first.  The
#: maximum is ten times the number of agents of a large kas, and takes 60 MiB.
MAX_ANSWERS = 100_000

#: Seconds after a failed request for which a cached response is used without a further
#: request, so that new connections do not cause requests to a GitLab that is down.  A
#: refusal that another kas received stays valid for the same time.
PATIENCE = 5.0

#: Seconds during which a known agent waits for GitLab's response before the cached
#: response is used: the check must end before its timeout, and a GitLab that does not
#: respond counts as unavailable.
HURRY = CHECK_TIMEOUT / 2

#: Errors that are responses about the subject; all other errors say nothing about it.
_REFUSALS = (Status.UNAUTHENTICATED, Status.PERMISSION_DENIED, Status.NOT_FOUND)


@attrs.frozen(kw_only=True)
class Lifetimes:
    """
    Seconds during which cached responses stay valid; 0 if responses are not cached.

    :ivar outage: the seconds during which a response stays valid while GitLab does not
        respond.
    """

    success: float
    error: float
    outage: float


class Refusals(Protocol):
    """Interface to the refusals that any kas received from GitLab."""

    async def find(self, key: bytes) -> CallError | None:
        """Return the refusal for *key*; None if no refusal is known."""

    def add(self, key: bytes, error: CallError, seconds: float) -> None:
        """
        Share a refusal with other kas, so that they need not send the request for
        *seconds*.
        """


class SharedRefusal(CallError):
    """Error for a refusal that another kas received from GitLab."""


@attrs.define
class _Entry(Generic[T]):
    answer: T | CallError
    asked_at: float
    #: Time until which the entry is used without a request.
    fresh_until: float


class AnswerCache(Generic[S, T]):
    """
    Cache that sends one request for all callers with the same subject.

    A request is cancelled when no caller waits for it any more.

    The subject may be a secret.  It is kept only until the response arrives, and the
    response is cached under a key that does not reveal the subject.

    A request begins in the next turn of the reactor: if the request is cancelled before
    that, nothing is sent to GitLab.

    :param ask: sends the request to GitLab; fails with a `CallError`.  Cancelling it
        must release its resources.
    :param weigh: returns the response's share of `MAX_ANSWERS`.
    :param refusals: the refusals that all kas share.
    """

    _log = Logger()

    def __init__(
        self,
        ask: Callable[[S], Awaitable[T]],
        lifetimes: Lifetimes,
        clock: IReactorTime,
        weigh: Callable[[T], int] = lambda _: 1,
        refusals: Refusals | None = None,
    ) -> None:
        self._ask = ask
        self._weigh = weigh
        self._refusals = refusals
        self._weight = 0
        self._lifetimes = lifetimes
        self._clock = clock
        #: Cached responses, the oldest first.
        self._kept: OrderedDict[bytes, _Entry[T]] = OrderedDict()
        self._questions: dict[bytes, SingleFlight[T]] = {}
        #: Whether GitLab did not respond to the last request.
        self._away = False

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: bytes, subject: S) -> T | Deferred[T]:
        """
        Return the response, at once if it is cached.

        :raises CallError: if GitLab refused; at once, or as the failure of the
            Deferred.
        """
        entry = self._kept.get(key)
        if entry is not None and self._clock.seconds() < entry.fresh_until:
            if isinstance(entry.answer, CallError):
                # Raise a new exception, because each raise adds frames to its
                # traceback.
                raise CallError(entry.answer.status, entry.answer.message)
            return entry.answer
        waiter = self._wait(key, subject, self._refusals)
        if self._serves_on(entry) and not waiter.called:
            hurry = self._clock.callLater(HURRY, self._hurry, key, waiter)
            waiter.addBoth(_no_hurry, hurry)
            if self._away and (answer := self._last(key)) is not None:
                # Let the request continue, so that kas notices when GitLab responds
                # again.
                waiter.addErrback(self._not_answered)
                return answer
        return waiter

    def _not_answered(self, failure: Failure) -> None:
        # Do not log errors from GitLab: the caller has the cached response, and the
        # client logs GitLab's outage.
        if failure.check(CallError, CancelledError) is None:
            self._log.failure("updating a cached response of GitLab failed", failure)

    def renew(self, key: bytes, subject: S) -> Deferred[T]:
        """
        Request and return a current response, even if the cached response is fresh.
        """

        def ask_gitlab(failure: Failure) -> Deferred[T]:
            # Send a request after all: the request that failed was already in progress,
            # and the refusal of another kas may be older.
            failure.trap(SharedRefusal)
            return self.renew(key, subject)

        return self._wait(key, subject, None).addErrback(ask_gitlab)

    def age(self, key: bytes) -> float:
        """
        Return the seconds since GitLab's response; infinite for a refusal, or without a
        response.
        """
        entry = self._kept.get(key)
        if entry is None or isinstance(entry.answer, CallError):
            return math.inf
        return self._clock.seconds() - entry.asked_at

    def kept(self, key: bytes) -> T | None:
        """Return GitLab's last response; None for a refusal, or without a response."""
        entry = self._kept.get(key)
        if entry is None or isinstance(entry.answer, CallError):
            return None
        return entry.answer

    def _wait(self, key: bytes, subject: S, known: Refusals | None) -> Deferred[T]:
        question = self._questions.get(key)
        if question is None:
            question = self._questions[key] = SingleFlight(
                partial(self._answered, key, subject, known), abandon=True
            )
        return question.get()

    def _answered(self, key: bytes, subject: S, known: Refusals | None) -> Deferred[T]:
        asking = Deferred.fromCoroutine(self._asked(key, subject, known))
        return asking.addBoth(self._judge, key)

    async def _asked(self, key: bytes, subject: S, known: Refusals | None) -> T:
        await deferLater(self._clock, 0)
        heard = None if known is None else await known.find(key)
        if heard is not None:
            raise SharedRefusal(heard.status, heard.message)
        return await self._ask(subject)

    def _hurry(self, key: bytes, waiter: Deferred[T]) -> None:
        """Use the cached response, if permitted, because GitLab is slow."""
        self._away = True
        answer = self._last(key)
        if answer is not None:
            self._questions[key].leave(waiter)
            waiter.callback(answer)

    def _serves_on(self, entry: _Entry[T] | None) -> bool:
        """
        Return whether a cached response may be used while GitLab does not respond.
        """
        return (
            entry is not None
            and not isinstance(entry.answer, CallError)
            and self._clock.seconds() - entry.asked_at < self._lifetimes.outage
        )

    def _last(self, key: bytes) -> T | None:
        """
        Return the cached response, and extend its validity for a while; None if no
        response is cached.
        """
        entry = self._kept.get(key)
        if (
            entry is None
            or isinstance(entry.answer, CallError)
            or not self._serves_on(entry)
        ):
            return None
        end = entry.asked_at + self._lifetimes.outage
        entry.fresh_until = min(self._clock.seconds() + PATIENCE, end)
        return entry.answer

    def _judge(self, result: T | Failure, key: bytes) -> T | Failure:
        """Cache a result, and return it for the waiting callers."""
        del self._questions[key]
        now, lifetimes = self._clock.seconds(), self._lifetimes
        if not isinstance(result, Failure):
            self._away = False
            self._keep(key, result, now, lifetimes.success)
            return result
        if result.check(CancelledError):
            return result
        error = result.value
        if isinstance(error, CallError) and error.status in _REFUSALS:
            if not isinstance(error, SharedRefusal):
                self._away = False
            # Cache a new error without the traceback, whose frames contain the subject.
            kept = CallError(error.status, error.message)
            life = lifetimes.error
            if isinstance(error, SharedRefusal):
                # Use the refusal only for a short time, because the shared store
                # determines when it ends.
                life = min(life, PATIENCE)
            elif self._refusals is not None and life > 0:
                self._refusals.add(key, kept, life)
            self._keep(key, kept, now, life)
            return result
        self._away = True
        known = self._last(key)
        return result if known is None else known

    def _keep(self, key: bytes, answer: T | CallError, now: float, life: float) -> None:
        before = self._kept.pop(key, None)
        if before is not None:
            self._weight -= self._weight_of(before)
        if life > 0:
            entry = self._kept[key] = _Entry(answer, now, now + life)
            self._weight += self._weight_of(entry)
            while self._weight > MAX_ANSWERS:
                _, oldest = self._kept.popitem(last=False)
                self._weight -= self._weight_of(oldest)

    def _weight_of(self, entry: _Entry[T]) -> int:
        answer = entry.answer
        return 1 if isinstance(answer, CallError) else self._weigh(answer)


def _no_hurry(result: T, hurry: IDelayedCall) -> T:
    cancel_call(hurry)
    return result
