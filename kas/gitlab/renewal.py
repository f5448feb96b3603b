"""
Repeated checks of credentials in use with GitLab, so that connections of revoked
credentials end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from typing import Generic, TypeVar

import attrs
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from kas.gitlab.cache import AnswerCache, Lifetimes
from tunnel.errors import CallError, Status
from tunnel.toolkit.for_each import for_each
from tunnel.toolkit.repeated import Repeated

__all__ = ["Renewal"]

S = TypeVar("S")
T = TypeVar("T")

#: Maximum number of credentials that are checked again at the same time: half of the
#: permitted simultaneous requests, and the number of requests in half a second, so that
#: a new agent does not have to wait for the checks of thousands of connected agents.
MAX_RENEWING = 25

#: Share of a response's lifetime after which kas requests it again while its credential
#: is in use; the rest of the lifetime is for this request and for earlier requests in
#: the queue.
RENEW_AT = 0.8

#: Interval between two searches for responses to request again, as a share of the
#: lifetime.
LOOK_EVERY = 0.05

#: Seconds between two searches if responses have no lifetime.
WITHOUT_LIFETIME = 60.0

_REFUSED = (Status.UNAUTHENTICATED, Status.PERMISSION_DENIED, Status.NOT_FOUND)


@attrs.frozen
class _Known(Generic[S, T]):
    """Credential with open connections, which is checked repeatedly."""

    key: bytes
    subject: S = attrs.field(repr=False)
    #: Meaning of GitLab's last response for the credential.
    meaning: object
    meaning_of: Callable[[T], object]


class Renewal(Generic[S, T]):
    """
    Supervisor that checks credentials in use again, and reports the credentials that
    have become invalid or have changed their meaning.

    A change is detected within the lifetime of GitLab's responses, but not while GitLab
    does not respond.

    :param in_use: returns the ids of credentials with open connections.
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
        #: Credentials to check again, found by the last search.
        self._due: deque[str] = deque()
        self._starting = False
        self._callbacks: list[Callable[[str], object]] = []
        self._loop = Repeated(
            clock, "repeating the checks of credentials with GitLab", self._look
        )

    def start(self) -> None:
        """Start the repeated checks of credentials in use."""
        # If responses are not cached, each search requests all of them again.
        interval = max(1.0, self._lifetimes.success * LOOK_EVERY)
        if not self._lifetimes.success:
            interval = WITHOUT_LIFETIME
        self._loop.start(interval)

    def stop(self) -> None:
        """Stop the repeated checks."""
        self._due.clear()
        self._loop.stop()

    def on_revoked(self, callback: Callable[[str], object]) -> None:
        """Call *callback* with the id of each credential that GitLab has revoked."""
        self._callbacks.append(callback)

    def __contains__(self, credential_id: str) -> bool:
        return credential_id in self._known

    def subject(self, credential_id: str) -> S | None:
        """
        Return the subject for a request about a credential; None if the credential is
        unknown.
        """
        known = self._known.get(credential_id)
        return None if known is None else known.subject

    def add(
        self,
        credential_id: str,
        key: bytes,
        subject: S,
        meaning: object,
        meaning_of: Callable[[T], object],
    ) -> None:
        """
        Check a credential repeatedly while it has open connections.

        :param key: the key of the response; *subject* is the subject of the request.
        :param meaning: the meaning of the current response for the credential.
        :param meaning_of: returns the meaning of a later response.
        """
        self._known[credential_id] = _Known(key, subject, meaning, meaning_of)

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
            "checking a credential",
        )
        self._renew_due()

    def _look_at(self, credential_id: str, known: _Known[S, T], old: float) -> None:
        # Use a newer response if another request has completed in the meantime.
        kept = self._answers.kept(known.key)
        if kept is not None and known.meaning_of(kept) != known.meaning:
            self._end(credential_id)
        elif self._answers.age(known.key) >= old:
            self._due.append(credential_id)

    def _renew_due(self) -> None:
        if self._starting:
            return  # A check ended as soon as it began: the loop below continues.
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
                self._log.failure(
                    "repeating the check of a credential with GitLab failed", result
                )
                return
            if error.status not in _REFUSED:
                # GitLab does not respond, so connections stay open.
                return
        elif known.meaning_of(result) == known.meaning:
            return
        self._end(credential_id)

    def _end(self, credential_id: str) -> None:
        self._known.pop(credential_id, None)
        self._log.info("credential {id} ended: GitLab revoked it", id=credential_id)
        for_each(
            tuple(self._callbacks),
            lambda end: end(credential_id),
            "ending {id}",
            id=credential_id,
        )
