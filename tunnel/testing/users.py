"""Credentials of users, in tests."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from twisted.internet.defer import Deferred
from zope.interface import implementer
from zope.interface.verify import verifyObject

from tunnel.api import (
    Access,
    HasPeer,
    IAuthenticator,
    IListingAuthenticator,
    ISignInProvider,
    IUsers,
    Reach,
    Usage,
)
from tunnel.errors import CallError, Status

__all__ = ["FakeUsers"]


@implementer(IUsers)
class FakeUsers:
    """`IUsers` that knows tokens from the test."""

    def __init__(self) -> None:
        #: The `Access` of each token; other tokens are refused.
        self.tokens: dict[str, Access] = {}
        #: The agents of each token, for `reach`; those of other tokens are unknown.
        self.reaches: dict[str, Reach] = {}
        #: Functions that the module passed to `recheck`; each returns the ids of
        #: credentials with open connections.
        self.held: list[Callable[[], Collection[str]]] = []
        #: Usage that the module counted.
        self.used: list[Usage] = []
        #: Providers that sign users in with a browser: see `FakeSignInProvider`.
        self.sign_in_providers: list[ISignInProvider] = []
        #: Authenticators that the module added.
        self.authenticators: list[IAuthenticator] = []

    def authorize(
        self, kind: str, agent: str, token: str, peer: HasPeer | None = None
    ) -> Access | Deferred[Access]:
        added = self._added(kind)
        if added is not None:
            checked: Access | Deferred[Access] = added.authorize_user(agent, token)
            return checked
        access = self.tokens.get(token)
        if access is None:
            raise CallError(Status.UNAUTHENTICATED, "unknown token")
        return access

    def reach(
        self, kind: str, token: str, peer: HasPeer | None = None
    ) -> Reach | Deferred[Reach]:
        added = self._added(kind)
        if IListingAuthenticator.providedBy(added):
            listed: Reach | Deferred[Reach] = added.reach_of(token)
            return listed
        found = self.reaches.get(token)
        if found is not None:
            return found
        if token in self.tokens:
            raise CallError(Status.UNIMPLEMENTED, "these agents cannot be listed")
        raise CallError(Status.UNAUTHENTICATED, "unknown token")

    def _added(self, kind: str) -> Any:
        """Return the authenticator that the module added for a kind."""
        found = (one for one in self.authenticators if kind in one.user_kinds)
        return next(found, None)

    def count_usage(self, usage: Usage) -> None:
        self.used.append(usage)

    def recheck(self, held: Callable[[], Collection[str]]) -> None:
        self.held.append(held)

    def add_authenticator(self, authenticator: IAuthenticator) -> None:
        verifyObject(IAuthenticator, authenticator)
        self.authenticators.append(authenticator)
