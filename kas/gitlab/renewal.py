"""Repeated checks of credentials in use with GitLab, so that revoked ones end."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from typing import Generic, TypeVar

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import LoopingCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from kas.gitlab.cache import AnswerCache, Lifetimes
from tunnel.errors import CallError, Status
from tunnel.toolkit.for_each import for_each

__all__ = ["Renewal"]

S = TypeVar("S")
T = TypeVar("T")

#: Credentials that are asked about again at the same time: half of what may be under
#: way, and half a second's worth of requests, so that an agent that comes does not wait
#: for thousands that are here.
MAX_RENEWING = 25

#: The part of an answer's lifetime after which it is asked for again while its
#: credential is in use; the rest is for the question, and for those before it.
RENEW_AT = 0.8

#: The part of a lifetime between two looks at which answers are that old.
LOOK_EVERY = 0.05

#: Seconds between two looks where answers have no lifetime: the usual one.
WITHOUT_LIFETIME = 60.0

_REFUSED = (Status.UNAUTHENTICATED, Status.PERMISSION_DENIED, Status.NOT_FOUND)


@attrs.frozen
class _Known(Generic[S, T]):
    """A credential that opened something, to be asked about again."""

    key: bytes
    subject: S = attrs.field(repr=False)
    #: The meaning of GitLab's answer.
    meaning: object
    means: Callable[[T], object]


class Renewal(Generic[S, T]):
    """
    Ends credentials that mean something else now, or nothing.

    Within the lifetime of GitLab's answers, and while GitLab does not answer not at
    all.

    :param in_use: ids of the credentials that hold something open now.
    """

    _log = Logger()

    def __init__(
        self,
        answers: AnswerCache[S, T],
        lifetimes: Lifetimes,
        in_use: Callable[[], Collection[str]],
        clock: IReactorTime,
    ) -> None:
        self._answers = answers
        self._lifetimes = lifetimes
        self._in_use = in_use
        self._known: dict[str, _Known[S, T]] = {}
        self._renewing: set[str] = set()
        #: To be asked about again, as of the last look.
        self._due: deque[str] = deque()
        self._starting = False
        self._callbacks: list[Callable[[str], object]] = []
        self._loop = LoopingCall(self._look)
        self._loop.clock = clock

    def start(self) -> None:
        """Ask about the credentials that are in use again, now and then."""
        # Where answers are not kept, all are asked for at each look.
        interval = max(1.0, self._lifetimes.success * LOOK_EVERY)
        if not self._lifetimes.success:
            interval = WITHOUT_LIFETIME
        looking: Deferred[LoopingCall] = self._loop.start(interval, now=False)
        looking.addErrback(
            lambda failure: self._log.failure("while asking GitLab again", failure)
        )

    def stop(self) -> None:
        """Ask no more."""
        self._due.clear()
        if self._loop.running:
            self._loop.stop()

    def on_revoked(self, callback: Callable[[str], object]) -> None:
        """Call *callback* with the id of each credential that GitLab took back."""
        self._callbacks.append(callback)

    def __contains__(self, credential_id: str) -> bool:
        return credential_id in self._known

    def subject(self, credential_id: str) -> S | None:
        """
        Return the subject for a request about a credential; None if it is unknown.
        """
        known = self._known.get(credential_id)
        return None if known is None else known.subject

    def add(
        self,
        credential_id: str,
        key: bytes,
        subject: S,
        meaning: object,
        means: Callable[[T], object],
    ) -> None:
        """
        Watch a credential that opens something.

        :param key: of the answer, and *subject* of its request.
        :param meaning: of the current answer for the credential.
        :param means: returns the meaning of a later answer.
        """
        self._known[credential_id] = _Known(key, subject, meaning, means)

    def _look(self) -> None:
        in_use = self._in_use()
        for credential_id in [one for one in self._known if one not in in_use]:
            if credential_id not in self._renewing:
                del self._known[credential_id]
        old = self._lifetimes.success * RENEW_AT
        self._due.clear()
        for_each(
            [one for one in self._known.items() if one[0] not in self._renewing],
            lambda one: self._look_at(*one, old),
            "looking at a credential",
        )
        self._renew_due()

    def _look_at(self, credential_id: str, known: _Known[S, T], old: float) -> None:
        # Another question may have been answered meanwhile.
        kept = self._answers.kept(known.key)
        if kept is not None and known.means(kept) != known.meaning:
            self._end(credential_id)
        elif self._answers.age(known.key) >= old:
            self._due.append(credential_id)

    def _renew_due(self) -> None:
        if self._starting:
            return  # one ended as soon as it began: the loop below goes on
        self._starting = True
        while self._due and len(self._renewing) < MAX_RENEWING:
            credential_id = self._due.popleft()
            known = self._known.get(credential_id)
            if known is not None:
                self._renewing.add(credential_id)
                renewing = self._answers.renew(known.key, known.subject)
                renewing.addBoth(self._renewed, credential_id, known)
                renewing.addBoth(lambda _: self._renew_due())
        self._starting = False

    def _renewed(
        self, result: T | Failure, credential_id: str, known: _Known[S, T]
    ) -> None:
        self._renewing.discard(credential_id)
        if isinstance(result, Failure):
            error = result.value
            if not isinstance(error, CallError):
                self._log.failure("while asking GitLab again", result)
                return
            if error.status not in _REFUSED:
                # GitLab says nothing: what is open stays so.
                return
        elif known.means(result) == known.meaning:
            return
        self._end(credential_id)

    def _end(self, credential_id: str) -> None:
        self._known.pop(credential_id, None)
        self._log.info("credential {id} ended: GitLab took it back", id=credential_id)
        for_each(
            tuple(self._callbacks),
            lambda end: end(credential_id),
            "ending {id}",
            id=credential_id,
        )
