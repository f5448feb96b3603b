"""Credentials of users, in tests."""

from __future__ import annotations

from collections.abc import Callable, Collection

from twisted.internet.defer import Deferred
from zope.interface import implementer
from zope.interface.verify import verifyObject

from tunnel.api import (
    Access,
    HasPeer,
    IAuthenticator,
    ISignInProvider,
    IUsers,
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
        access = self.tokens.get(token)
        if access is None:
            raise CallError(Status.UNAUTHENTICATED, "unknown token")
        return access

    def count_usage(self, usage: Usage) -> None:
        self.used.append(usage)

    def recheck(self, held: Callable[[], Collection[str]]) -> None:
        self.held.append(held)

    def add_authenticator(self, authenticator: IAuthenticator) -> None:
        verifyObject(IAuthenticator, authenticator)
        self.authenticators.append(authenticator)
