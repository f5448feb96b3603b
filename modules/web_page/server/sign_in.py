"""Sign-in of users, and the end of their sessions."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import attrs
from twisted.internet.defer import maybeDeferred
from twisted.logger import Logger

from modules.web_page.server.authenticator import (
    SessionAuthenticator,
    SessionCredential,
)
from modules.web_page.server.browser import Browser
from modules.web_page.server.secret import SessionSecret
from modules.web_page.server.sessions import UserSession, UserSessions
from tunnel.api import IServerModuleApi, ISignInProvider, Reach, SignedIn
from tunnel.errors import CallError, Status
from tunnel.toolkit.addresses import peer_network
from tunnel.toolkit.token_buckets import TokenBuckets

__all__ = [
    "BEGUN_SECONDS",
    "HOME",
    "TOKEN",
    "BegunSignIn",
    "PageSignIn",
    "is_own_path",
]

#: The page that opens after sign-in.
HOME: Final = "/ui/"

#: `UserSession.method` of a sign-in by token.
TOKEN: Final = "token"  # noqa: S105

#: Number of sign-ins at a provider, from one network, that may fail or run at once, and
#: per second after that: an office whose provider is down may try again, and no
#: stranger keeps the provider busy.
FAILED_AT_ONCE: Final = 30
FAILED_PER_SECOND: Final = 0.5

#: Maximum number of networks that are remembered, with 200 bytes each.
MAX_NETWORKS: Final = 10_000

#: Seconds for a sign-in at a provider.
BEGUN_SECONDS: Final = 600

#: Maximum characters of a token, and of a path to return to.
MAX_TOKEN: Final = 20_000
MAX_PATH: Final = 1000

#: Time of the end of tokens that kas knows no end of: a session ends earlier.
_NO_END: Final = 1e12

_REFUSALS: Final = (Status.UNAUTHENTICATED, Status.PERMISSION_DENIED)

#: A token in a header field, or in a kubeconfig.
_PASTED: Final = re.compile(r"""(?:\bBearer |\btoken["']?: ?)["']?([!#-&(-~]+)""")

_OWN_PATH: Final = re.compile(r"/ui(?:[/?][!-\[\]-~]*)?")


def is_own_path(path: str) -> bool:
    """Return whether *path* is a path of the page, and of no other host."""
    return len(path) <= MAX_PATH and _OWN_PATH.fullmatch(path) is not None


def _token_in(text: str) -> str:
    """Return the token in pasted text: a token, a header field or a kubeconfig."""
    found = _PASTED.search(text)
    return (found[1] if found else text).strip()


@attrs.frozen
class BegunSignIn:
    """
    A sign-in at a provider that has begun.

    Only the browser keeps it, in a cookie, so no flood of sign-ins fills a table.
    """

    provider: str
    state: str = attrs.field(repr=False)
    secret: bytes = attrs.field(repr=False)
    after: str

    def to_text(self) -> str:
        """Return the value of the cookie."""
        secret = base64.b64encode(self.secret).decode()
        content = json.dumps([self.provider, self.state, secret, self.after])
        return base64.urlsafe_b64encode(content.encode()).rstrip(b"=").decode()

    @classmethod
    def from_text(cls, text: str) -> BegunSignIn:
        """
        Return the sign-in of a cookie.

        :raises CallError: UNAUTHENTICATED if the cookie contains none.
        """
        try:
            padded = text + "=" * (-len(text) % 4)
            found = json.loads(base64.b64decode(padded, b"-_", validate=True))
            provider, state, secret, after = (str(one) for one in found)
            return cls(provider, state, base64.b64decode(secret), after)
        except (ValueError, TypeError, RecursionError):
            raise CallError(
                Status.UNAUTHENTICATED,
                "this browser has begun no sign-in within the last ten minutes; try "
                "again",
            ) from None


class PageSignIn:
    """
    Creation and end of sessions.

    :param now: returns the time of day.
    :param count: counts a sign-in by its method and result.
    """

    _log = Logger()

    def __init__(
        self,
        api: IServerModuleApi,
        sessions: UserSessions,
        authenticator: SessionAuthenticator,
        now: Callable[[], float],
        count: Callable[[str, str], object],
    ) -> None:
        self._users: Any = api.users
        self._sessions = sessions
        self._authenticator = authenticator
        self._now = now
        self._count = count
        self._clock = api.clock
        # One for each: whoever invents messages of the provider stops no sign-ins.
        self._sign_ins, self._sign_outs = (
            TokenBuckets[str](MAX_NETWORKS, FAILED_AT_ONCE, FAILED_PER_SECOND)
            for _ in range(2)
        )

    @property
    def providers(self) -> list[ISignInProvider]:
        """The providers that a user may select."""
        return list(self._users.sign_in_providers)

    def provider(self, name: str) -> ISignInProvider:
        """
        Return a provider by its name.

        :raises CallError: NOT_FOUND.
        """
        for one in self.providers:
            if one.name == name:
                return one
        raise CallError(Status.NOT_FOUND, "kas has no such way to sign in")

    @contextmanager
    def _counted(self, method: str) -> Iterator[None]:
        """Count a sign-in."""
        try:
            yield
        except CallError as error:
            is_refused = error.status in _REFUSALS
            self._count(method, "refused" if is_refused else "failed")
            raise
        self._count(method, "accepted")

    @contextmanager
    def _attempt(self, of: TokenBuckets[str], client: Browser) -> Iterator[None]:
        """
        Limit the failed attempts of one network: each may be requests to the provider,
        and takes one of the places of all users.

        :raises CallError: RESOURCE_EXHAUSTED.
        """
        now = self._clock.seconds()
        bucket = of.used(peer_network(client.peer_address), now)
        if not bucket.spend(now):
            raise CallError(
                Status.RESOURCE_EXHAUSTED,
                "too many sign-ins from your network failed; try again in a minute",
            )
        yield
        bucket.earn()

    async def by_token(self, text: str, browser: Browser) -> SessionSecret:
        """
        Create a session for a token: ``<kind>:<agent>:<token>`` or ``<token>``.

        :raises CallError: UNAUTHENTICATED with a reason for the user, or another status
            if the token cannot be checked now.
        """
        with self._counted(TOKEN):
            return await self._by_token(text, browser)

    async def _by_token(self, text: str, browser: Browser) -> SessionSecret:
        kind, agent, token = "", "", _token_in(text)
        if len(token) > MAX_TOKEN or not token.isascii() or not token.isprintable():
            raise CallError(Status.UNAUTHENTICATED, "this is not a token")
        if token.count(":") > 1:
            kind, agent, token = token.split(":", 2)
        if not token or " " in kind:
            raise CallError(Status.UNAUTHENTICATED, "this is not a token")
        owner, credential_id = await self._owner(kind, agent, token, browser)
        name = owner.partition(":")[2] or owner
        signed_in = SignedIn(
            kind=kind, token=token, expires_at=_NO_END, name=name, subject=""
        )
        credential = SessionCredential(agent, "", signed_in)
        return await self._create(credential, owner, credential_id, browser)

    async def begin(
        self, name: str, redirect_uri: str, after: str
    ) -> tuple[str, BegunSignIn]:
        """
        Begin a sign-in at a provider, and return the provider's URL.

        :param after: path of the page to open afterwards.
        """
        begun = await self.provider(name).begin(redirect_uri)
        return begun.url, BegunSignIn(name, begun.state, begun.secret, after)

    async def finish(
        self,
        begun: BegunSignIn,
        answer: Mapping[str, str],
        redirect_uri: str,
        browser: Browser,
    ) -> SessionSecret:
        """
        Create a session for a user whom a provider has signed in.

        :param answer: the parameters of the provider's redirect.
        """
        provider = self.provider(begun.provider)
        with self._counted(provider.name), self._attempt(self._sign_ins, browser):
            signed_in = await provider.finish(
                begun.secret, begun.state, answer, redirect_uri
            )
            owner, credential_id = await self._owner(
                signed_in.kind, "", signed_in.token, browser
            )
            credential = SessionCredential("", begun.provider, signed_in)
            return await self._create(credential, owner, credential_id, browser)

    async def _owner(
        self, kind: str, agent: str, token: str, browser: Browser
    ) -> tuple[str, str]:
        """Check a credential; return its owner and id, as in `tunnel.api.Access`."""
        try:
            reach: Reach = await maybeDeferred(self._users.reach, kind, token, browser)
        except CallError as error:
            if error.status is not Status.UNIMPLEMENTED:
                raise
        else:
            if not agent or not reach.is_complete or reach.only(agent).agents:
                return reach.owner, reach.credential_id
        if not agent:
            raise CallError(
                Status.UNAUTHENTICATED,
                "this kind of token must name its agent: KIND:AGENT:TOKEN, as in a "
                "kubeconfig",
            )
        access = await maybeDeferred(self._users.authorize, kind, agent, token, browser)
        return access.owner, access.credential_id

    async def _create(
        self,
        credential: SessionCredential,
        owner: str,
        credential_id: str,
        browser: Browser,
    ) -> SessionSecret:
        secret = SessionSecret.new()
        now = self._now()
        signed_in = credential.signed_in
        session = UserSession(
            key=secret.key,
            owner=owner,
            name=signed_in.name,
            method=credential.provider or TOKEN,
            credential_id=credential_id,
            created_at=now,
            used_at=now,
            address=str(getattr(browser.peer_address, "host", "")),
            program=browser.program,
            sealed=secret.seal(credential.to_bytes()),
            subject=signed_in.subject,
            session=signed_in.session,
        )
        await self._sessions.add(session)
        self._log.info("{owner} signed in: session {id}", owner=owner, id=session.id)
        return secret

    async def end(self, secret: SessionSecret, back: str) -> str:
        """
        End a session, and return the URL that signs the user out at the provider; empty
        without one.

        :param back: URL of the page that the provider returns to.
        """
        session, credential = await self._authenticator.held(secret)
        # End the session first: the provider may not respond.
        await self._sessions.end(secret.key)
        self._log.info("session {id} was ended by its user", id=session.id)
        if not credential.provider:
            return ""
        try:
            return await self.provider(credential.provider).end_url(
                credential.signed_in, back
            )
        except CallError as error:
            self._log.warn("signing out at the provider: {why}", why=error.message)
            return ""

    async def logged_out(self, name: str, logout_token: str, client: Browser) -> int:
        """
        End the sessions of a user who signed out at the provider; return their number.

        :param client: the provider, or whoever claims to be.
        :raises CallError: UNAUTHENTICATED if the message is not the provider's.
        """
        provider = self.provider(name)
        with self._attempt(self._sign_outs, client):
            found = await provider.logged_out(logout_token)
        ended = 0
        for one in self._sessions.all():
            if one.method != name or one.created_at > found.issued_at:
                continue
            if found.ends(one):
                await self._sessions.end(one.key)
                ended += 1
        return ended
