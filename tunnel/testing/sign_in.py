"""Sign-in of users in a browser, in tests."""

from __future__ import annotations

from collections.abc import Mapping

import attrs
from zope.interface import implementer

from tunnel.api import ISignInProvider, LoggedOut, SignedIn, SignInBegun
from tunnel.errors import CallError, Status

__all__ = ["FakeSignInProvider"]

_ADDRESS = "https://id.example.com"


@implementer(ISignInProvider)
class FakeSignInProvider:
    """
    `ISignInProvider` whose users the test chooses.

    As at a real provider, each code and each refresh token is valid once.

    :ivar codes: the credential for each code.
    :ivar refreshed: the next credential for each refresh token.  `finish` and `renew`
        add an entry for a credential with a refresh token, unless one exists.
    :ivar logouts: the sign-out for each logout token.
    :ivar failure: error that each method raises; None if the provider responds.
    :ivar has_end: whether the provider has a URL that ends its session.
    """

    name = "oidc"
    title = "id.example.com"

    def __init__(self) -> None:
        self.codes: dict[str, SignedIn] = {}
        self.refreshed: dict[str, SignedIn] = {}
        self.logouts: dict[str, LoggedOut] = {}
        self.failure: CallError | None = None
        self.has_end = True
        self._made = 0

    async def begin(self, redirect_uri: str) -> SignInBegun:
        self._respond()
        self._made += 1
        state = f"state-{self._made}"
        url = f"{_ADDRESS}/authorize?state={state}&redirect_uri={redirect_uri}"
        return SignInBegun(url=url, state=state, secret=_secret(state, redirect_uri))

    async def finish(
        self,
        begun_secret: bytes,
        state: str,
        answer: Mapping[str, str],
        redirect_uri: str,
    ) -> SignedIn:
        self._respond()
        is_known = begun_secret == _secret(state, redirect_uri)
        if not is_known or answer.get("state") != state:
            raise _refused("this response does not belong to the current sign-in")
        if "error" in answer:
            raise _refused(f"the identity provider refused: {answer['error']}")
        return self._issued(self.codes.pop(answer.get("code", ""), None))

    async def renew(self, signed_in: SignedIn) -> SignedIn:
        self._respond()
        return self._issued(self.refreshed.pop(signed_in.refresh_token, None))

    async def end_url(self, signed_in: SignedIn, back: str) -> str:
        self._respond()
        if not self.has_end:
            return ""
        return f"{_ADDRESS}/end?post_logout_redirect_uri={back}"

    async def logged_out(self, logout_token: str) -> LoggedOut:
        self._respond()
        if logout_token not in self.logouts:
            raise _refused("the token is not valid")
        return self.logouts[logout_token]

    def _respond(self) -> None:
        if self.failure is not None:
            raise self.failure

    def _issued(self, found: SignedIn | None) -> SignedIn:
        if found is None:
            raise _refused("the identity provider refused: invalid_grant")
        if found.refresh_token:
            self._made += 1
            following = attrs.evolve(
                found,
                token=f"token-{self._made}",
                refresh_token=f"refresh-{self._made}",
                expires_at=found.expires_at + 600.0,
            )
            self.refreshed.setdefault(found.refresh_token, following)
        return found


def _secret(state: str, redirect_uri: str) -> bytes:
    return f"secret of {state} for {redirect_uri}".encode()


def _refused(why: str) -> CallError:
    return CallError(Status.UNAUTHENTICATED, why)
