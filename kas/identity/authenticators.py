"""
Table of all authenticators of this kas, by the kind of credential that they check.

A user's credential names its kind: ``<kind>:<agent>:<token>``. The token of an agent
has a prefix for its kind.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import NoReturn, Protocol, TypeVar

import attrs
from twisted.internet.defer import CancelledError, Deferred, TimeoutError
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from kas.identity.failed_checks import Asker, FailedChecks, NoTurn
from kas.identity.sign_ins import SignIns
from tunnel.api import (
    Access,
    AgentIdentity,
    HasPeer,
    IAuthenticator,
    IListingAuthenticator,
    Reach,
)
from tunnel.errors import CallError, Status
from tunnel.toolkit.addresses import peer_network
from tunnel.toolkit.recent import Recent
from tunnel.toolkit.time_limit import within

__all__ = ["Authenticators"]

#: Maximum number of credentials, of all kinds, that are checked at the same time, if
#: their results are not known at once.  Each check holds a connection of a client whose
#: credential is not verified yet.
MAX_CHECKS = 1_000

#: Maximum seconds for one check: agents that wait for WELCOME, and kubectl, must still
#: receive the reason of a failure.
CHECK_TIMEOUT = 8.0

#: Maximum number of refusals per minute for one address: this is 4 % of the maximum
#: rate of requests to GitLab, and enough for an office whose tokens have expired
#: overnight.
FAILED_CHECKS_PER_MINUTE = 120

#: Maximum number of remembered refused credentials, with 300 bytes each.  Their checks
#: are counted separately from checks of new credentials, so that a client that repeats
#: a bad credential does not use up the limit of other clients at the same address.
MAX_REFUSED = 10_000

#: Maximum characters of a remembered refusal.
MAX_REASON = 400

#: Maximum number of remembered accepted credentials, with 150 bytes each.  The limits
#: of addresses do not apply to these credentials.  A forgotten credential is checked
#: like a new credential.
MAX_ACCEPTED = 20_000

_REFUSED = (Status.UNAUTHENTICATED, Status.PERMISSION_DENIED, Status.NOT_FOUND)

_T = TypeVar("_T")
_Prefix = TypeVar("_Prefix", str, bytes)


class RunningCheck(Protocol):
    """
    Interface of a task in the background that checks accepted credentials again and
    again.
    """

    def start(self) -> None:
        """Start the repeated checks."""

    def stop(self) -> None:
        """Stop the repeated checks."""

    def on_revoked(self, callback: Callable[[str], object]) -> object:
        """Call *callback* with the id of each credential that is no longer valid."""


@attrs.define(eq=False)
class Authenticators:
    """
    Table of all authenticators; the first authenticator also checks credentials without
    a kind.

    A known result is returned at once.  Otherwise a Deferred is returned, which fires
    within `CHECK_TIMEOUT`; cancelling the Deferred cancels the check of the
    authenticator.

    :param failed: limits the refusals of one address.  Known results and recently
        accepted credentials are exempt, so that other clients at the same address
        cannot lock out their owners.  A new credential waits for a moment if many
        credentials of its address were refused.
    """

    _clock: IReactorTime
    failed: FailedChecks = attrs.field(
        default=attrs.Factory(
            lambda self: FailedChecks(FAILED_CHECKS_PER_MINUTE, self._clock),
            takes_self=True,
        )
    )
    #: Authenticators of users, by kind of credential, and of agents, by the prefix of
    #: their tokens.
    _users: dict[str, IAuthenticator] = attrs.field(factory=dict, init=False)
    _agents: dict[bytes, IAuthenticator] = attrs.field(factory=dict, init=False)
    #: Authenticators of users whose credential does not name a kind, by prefix.
    _prefixes: dict[str, IAuthenticator] = attrs.field(factory=dict, init=False)
    #: Digests of accepted credentials.
    _accepted: Recent[bytes, None] = attrs.field(
        factory=lambda: Recent(MAX_ACCEPTED), init=False
    )
    #: Digests of refused credentials, each with its refusal.
    _refused: Recent[bytes, CallError] = attrs.field(
        factory=lambda: Recent(MAX_REFUSED), init=False
    )
    #: Number of checks in progress.
    checks: int = attrs.field(default=0, init=False)
    #: Records sign-ins; None if kas has no audit log.
    sign_ins: SignIns | None = attrs.field(default=None, kw_only=True)
    _running: list[RunningCheck] = attrs.field(factory=list, init=False)
    _log = Logger()

    def add(
        self, authenticator: IAuthenticator, token_prefix: str = ""
    ) -> Callable[[], None]:
        """
        Register an authenticator; return a function that removes it.

        :param token_prefix: this authenticator also checks credentials without a kind
            that begin with this prefix.
        :raises ValueError: if another authenticator already has one of its kinds.
        """
        kinds, prefixes = authenticator.user_kinds, authenticator.agent_prefixes
        taken = [f"{kind!r}" for kind in kinds if kind in self._users]
        taken += [f"{prefix!r}" for prefix in prefixes if prefix in self._agents]
        if taken:
            raise ValueError(
                f"credentials of kind {taken[0]} already have an authenticator"
            )
        self._users.update(dict.fromkeys(kinds, authenticator))
        self._agents.update(dict.fromkeys(prefixes, authenticator))
        if token_prefix:
            self._prefixes[token_prefix] = authenticator

        def remove() -> None:
            self._prefixes.pop(token_prefix, None)
            for kind in kinds:
                self._users.pop(kind, None)
            for prefix in prefixes:
                self._agents.pop(prefix, None)

        return remove

    def run(self, check: RunningCheck) -> None:
        """
        Start and stop *check* together with this object, and report the revocations
        that it finds.
        """
        self._running.append(check)

    def start(self, revoked: Callable[[str], object]) -> None:
        """
        Start all running checks.

        :param revoked: called with the id of each credential that is no longer valid.
        """
        for check in self._running:
            check.on_revoked(revoked)
            check.start()

    def stop(self) -> None:
        """Stop all running checks."""
        for check in self._running:
            check.stop()

    def authenticate_agent(
        self, token: bytes, peer: HasPeer | None = None
    ) -> AgentIdentity | Deferred[AgentIdentity]:
        """See `IAuthenticator.authenticate_agent`."""
        sign_ins = self.sign_ins
        if sign_ins is None:
            return self._authenticate_agent(token, peer)
        try:
            answer = self._authenticate_agent(token, peer)
        except CallError as error:
            sign_ins.refused("agent", error, token, peer)
            raise
        return sign_ins.checked("agent", answer, token, peer)

    def _authenticate_agent(
        self, token: bytes, peer: HasPeer | None
    ) -> AgentIdentity | Deferred[AgentIdentity]:
        authenticator = self._of_agent(token)
        answer = authenticator.authenticate_agent(token)
        if isinstance(answer, Deferred):
            ask = partial(authenticator.authenticate_agent, token)
            return self._bounded(answer, ask, peer, _digest("", "", token))
        return answer

    def authorize_user(
        self, kind: str, agent: str, token: str, peer: HasPeer | None = None
    ) -> Access | Deferred[Access]:
        """
        See `IAuthenticator.authorize_user`.

        :param kind: empty if the credential does not name a kind.
        :param peer: the client's connection.
        """
        authenticator = self._users.get(kind)
        sign_ins = self.sign_ins
        if sign_ins is None:
            return self._authorize_user(authenticator, kind, agent, token, peer)
        method = kind
        if authenticator is None:
            named = None if kind else self._by_prefix(token)
            method = "" if named is None else next(iter(named.user_kinds), "")
        try:
            answer = self._authorize_user(authenticator, kind, agent, token, peer)
        except CallError as error:
            sign_ins.refused(method, error, token, peer)
            raise
        return sign_ins.checked(method, answer, token, peer)

    def _authorize_user(
        self,
        authenticator: IAuthenticator | None,
        kind: str,
        agent: str,
        token: str,
        peer: HasPeer | None,
    ) -> Access | Deferred[Access]:
        if authenticator is None:
            authenticator = self._of_no_kind(kind, token)
        answer = authenticator.authorize_user(agent, token)
        if isinstance(answer, Deferred):
            ask = partial(authenticator.authorize_user, agent, token)
            digest = _digest(kind, agent, token.encode("utf-8", "surrogateescape"))
            return self._bounded(answer, ask, peer, digest)
        return answer

    def reach_of_user(
        self, kind: str, token: str, peer: HasPeer | None = None
    ) -> Reach | Deferred[Reach]:
        """See `IUsers.reach`; the parameters are those of `authorize_user`."""
        authenticator = self._users.get(kind) or self._of_no_kind(kind, token)
        if not IListingAuthenticator.providedBy(authenticator):
            raise CallError(
                Status.UNIMPLEMENTED,
                "kas cannot list the agents of this kind of credential",
            )
        answer: Reach | Deferred[Reach] = authenticator.reach_of(token)
        if isinstance(answer, Deferred):
            ask = partial(authenticator.reach_of, token)
            digest = _digest(kind, "", token.encode("utf-8", "surrogateescape"))
            return self._bounded(answer, ask, peer, digest)
        return answer

    def _of_agent(self, token: bytes) -> IAuthenticator:
        found = _longest(self._agents, token.startswith)
        if found is not None:
            return found
        for authenticator in self._agents.values():
            return authenticator
        raise CallError(Status.UNAUTHENTICATED, "no agent can connect to this kas")

    def _of_no_kind(self, kind: str, token: str) -> IAuthenticator:
        found = None if kind else self._by_prefix(token)
        if found is not None:
            return found
        # No token can name the kinds of browsers.
        known = " or ".join(f"{one!r}" for one in self._users if " " not in one)
        raise CallError(
            Status.UNAUTHENTICATED,
            f"credentials of kind {kind[:20]!r} are unknown here; use {known}; if your "
            "kubeconfig contains one, get a new kubeconfig, because its token was "
            "changed",
        )

    def _by_prefix(self, token: str) -> IAuthenticator | None:
        """Return the authenticator of a credential without a kind."""
        found = _longest(self._prefixes, token.startswith)
        return found or next(iter(self._users.values()), None)

    def _bounded(
        self,
        answer: Deferred[_T],
        ask: Callable[[], _T | Deferred[_T]],
        peer: HasPeer | None,
        digest: bytes,
    ) -> Deferred[_T]:
        # A cancelled check has not sent a request yet: see `IAuthenticator`.
        if self.checks >= MAX_CHECKS:
            self._give_up(answer)
            text = "too many credentials are being checked; try again"
            raise CallError(Status.UNAVAILABLE, text)
        counted: list[Asker] = []
        if peer is not None and digest not in self._accepted:
            address = peer_network(peer.peer_address)
            refusal = self._refused.get(digest)
            if refusal is not None:
                address = f"again {address}"
            port = getattr(peer.peer_address, "port", 0)
            asker = Asker(address, port, digest)
            try:
                turn = self.failed.begin(asker)
            except NoTurn:
                self._give_up(answer)
                raise _no_turn(refusal) from None
            if turn is None:
                counted.append(asker)
            else:
                # No request was sent yet: see `IAuthenticator`.
                self._give_up(answer)

                def begin(_: None) -> _T | Deferred[_T]:
                    counted.append(asker)
                    return ask()

                def refuse(failure: Failure) -> NoReturn:
                    failure.trap(NoTurn)
                    raise _no_turn(refusal)

                answer = turn.begins.addCallbacks(begin, refuse)
        self.checks += 1
        # An authenticator of a module may survive its cancellation.
        answer = within(answer, CHECK_TIMEOUT, self._clock).addErrback(_too_late)
        return answer.addBoth(self._checked, counted, digest)

    def _give_up(self, answer: Deferred[_T]) -> None:
        answer.addErrback(self._not_needed)
        answer.cancel()

    def _not_needed(self, failure: Failure) -> None:
        # Ignore cancelled checks: the client's refusal contains the reason.
        if failure.check(CallError, CancelledError) is None:
            self._log.failure("an authenticator failed", failure)

    def _checked(
        self, result: _T | Failure, counted: list[Asker], digest: bytes
    ) -> _T | Failure:
        """
        Record the result of a check, and return it.

        :param counted: the client, if the check counts for its address; empty if the
            check does not count, or was not made.
        """
        self.checks -= 1
        self._remember(result, digest)
        for asker in counted:
            if not _counts_as_failed(result):
                self.failed.succeeded(asker)
        if isinstance(result, Failure) and not result.check(CallError, CancelledError):
            self._log.failure("an authenticator failed", result)
            text = "kas cannot check the credential; see the log of kas"
            raise CallError(Status.INTERNAL, text)
        return result

    def _remember(self, result: object, digest: bytes) -> None:
        if not isinstance(result, Failure):
            self._accepted[digest] = None
            self._refused.pop(digest, None)
        elif _counts_as_failed(result):
            self._accepted.pop(digest, None)
            error = result.value
            if isinstance(error, CallError):
                # Drop the traceback, whose frames contain the credential.
                message = error.message[:MAX_REASON]
                self._refused[digest] = CallError(error.status, message)


def _longest(
    table: Mapping[_Prefix, IAuthenticator], matches: Callable[[_Prefix], bool]
) -> IAuthenticator | None:
    """
    Return the authenticator with the longest matching prefix; None if no prefix
    matches.

    GitLab's prefix of agents is empty, but it must not receive the tokens of another
    authenticator.
    """
    found = max(filter(matches, table), key=len, default=None)
    return None if found is None else table[found]


def _no_turn(refusal: CallError | None) -> CallError:
    """
    Return the error for a credential that is not checked now.

    :param refusal: the refusal of the credential in its last check; None if it was not
        checked.
    """
    if refusal is not None:
        return CallError(refusal.status, refusal.message)
    text = (
        "too many credentials from your address were refused: wait a few seconds "
        "before trying another one"
    )
    return CallError(Status.RESOURCE_EXHAUSTED, text)


def _digest(kind: str, agent: str, token: bytes) -> bytes:
    return hashlib.sha256(f"{kind}:{agent}:".encode() + token).digest()


def _counts_as_failed(result: object) -> bool:
    if not isinstance(result, Failure):
        return False
    error = result.value
    if isinstance(error, CallError):
        return error.status in _REFUSED
    # A cancelled check counts, because its request may already have been sent.
    return isinstance(error, CancelledError)


def _too_late(failure: Failure) -> NoReturn:
    failure.trap(TimeoutError)
    text = f"the credential could not be checked within {CHECK_TIMEOUT:g} s; try again"
    raise CallError(Status.UNAVAILABLE, text)
