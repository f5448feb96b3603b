"""
The rights of a session: those of the credential that its user signed in with.

kas checks that credential again for each request, so a session never gives more rights
than the credential has now, and ends with it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

import attrs
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from zope.interface import implementer

from modules.web_page.server.browser import Browser
from modules.web_page.server.secret import SessionSecret
from modules.web_page.server.sessions import UserSession, UserSessions
from tunnel.api import (
    PAGE_SESSION,
    Access,
    AgentIdentity,
    IListingAuthenticator,
    ISignInProvider,
    IUsers,
    Reach,
    SignedIn,
)
from tunnel.errors import CallError, Status
from tunnel.toolkit.parallel import in_parallel
from tunnel.toolkit.recent import Recent
from tunnel.toolkit.repeated import Repeated
from tunnel.toolkit.single_flight import SingleFlight

__all__ = [
    "CHECKS_AT_ONCE",
    "LOOK_SECONDS",
    "RENEW_SECONDS",
    "SessionAuthenticator",
    "SessionCredential",
    "secret_of",
]

#: Seconds before the end of a credential at which kas renews it.
RENEW_SECONDS: Final = 60.0

#: Seconds between two looks for credentials that are due.
LOOK_SECONDS: Final = 5.0

#: Maximum number of sessions whose rights are checked at the same time, so that a
#: provider that does not respond delays only these.
CHECKS_AT_ONCE: Final = 20

#: Maximum number of sessions whose credentials this process keeps in memory, with up to
#: 20 KB each.
MAX_OPEN: Final = 2000

#: Seconds that one kas has for a renewal before another one tries: longer than a
#: provider may take to respond.
_RENEWAL_SECONDS: Final = 30.0

#: Seconds between two looks whether another kas has renewed a credential.
_LOOK_SECONDS: Final = 0.5

_T = TypeVar("_T", Access, Reach)


@attrs.frozen
class SessionCredential:
    """
    What a session stands for.

    :ivar agent: the agent that the credential itself names; empty if it names none.
    :ivar provider: name of the identity provider; empty for a token.
    :ivar signed_in: the credential.
    """

    agent: str
    provider: str
    signed_in: SignedIn

    def to_bytes(self) -> bytes:
        """Return everything, including the secrets, to be encrypted."""
        text = self.signed_in.to_bytes().decode()
        return json.dumps([self.agent, self.provider, text]).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> SessionCredential:
        """
        Return the credential of `to_bytes`.

        :raises ValueError: *data* is none.
        """
        try:
            agent, provider, text = json.loads(data)
            return cls(agent, provider, SignedIn.from_bytes(text.encode()))
        except (TypeError, AttributeError):
            raise ValueError("these bytes are not a credential") from None


@attrs.define(eq=False)
class _Given:
    """
    Rights that one session was given; connections with them may be open.

    :ivar rights: the rights by the id of the agent.
    :ivar checked_token: the token that has given all of them; empty before a check.
    """

    secret: SessionSecret
    rights: dict[str, Access] = attrs.Factory(dict)
    checked_token: str = attrs.field(default="", repr=False)


@implementer(IListingAuthenticator)
class SessionAuthenticator:
    """
    Authenticator of `tunnel.api.PAGE_SESSION`.

    :param now: returns the time of day.
    :param revoked: called with a session whose open connections must end.
    """

    user_kinds: Sequence[str] = (PAGE_SESSION,)
    agent_prefixes: Sequence[bytes] = ()

    def __init__(
        self,
        api: Any,
        sessions: UserSessions,
        now: Callable[[], float],
        revoked: Callable[[UserSession], object],
    ) -> None:
        self._users: IUsers = api.users
        self._clock: IReactorTime = api.clock
        self._sessions = sessions
        self._now = now
        self._open: Recent[str, SessionCredential] = Recent(MAX_OPEN)
        self._renewals: dict[str, SingleFlight[SessionCredential]] = {}
        #: Rights that credentials of providers gave, by the key of the session.
        self._given: dict[str, _Given] = {}
        self._revoked = revoked
        self._looks = Repeated(api.clock, "renewing credentials", self._look)
        self._expiries = Repeated(api.clock, "ending connections", self._expire)

    def credential_ids(self) -> set[str]:
        """
        Return the ids of the tokens behind the sessions in use.

        Credentials of identity providers are not among them: they expire and are
        renewed, and a session ends only if that fails.
        """
        return {
            session.credential_id
            for key, credential in tuple(self._open.items())
            if not credential.provider
            and (session := self._sessions.get(key)) is not None
        }

    def start(self) -> None:
        """Renew the credentials behind open connections, until `stop`."""
        self._looks.start(LOOK_SECONDS)
        self._expiries.start(LOOK_SECONDS)

    def stop(self) -> None:
        """End that."""
        self._looks.stop()
        self._expiries.stop()

    def forget(self, session: UserSession) -> None:
        """Forget the credential of a session that has ended."""
        self._open.pop(session.key, None)
        self._given.pop(session.key, None)

    def _expire(self) -> None:
        """
        End connections whose credential has expired.

        A look may wait for a provider that does not respond; this does not.
        """
        for key, given in tuple(self._given.items()):
            credential = self._behind(given)
            if credential is None:
                self._given.pop(key, None)
            elif self._now() >= credential.signed_in.expires_at:
                self._end_connections(given)

    async def _look(self) -> None:
        """
        Renew credentials that are due, and end connections whose rights have changed.

        Requests renew a credential as well, but a connection that stays open makes
        none, and must not outlive the credential.
        """
        checks = [
            partial(self._check, given, credential)
            for given in tuple(self._given.values())
            if (credential := self._behind(given)) is not None
            and (
                self._is_due(credential)
                or credential.signed_in.token != given.checked_token
            )
        ]
        await in_parallel(checks, CHECKS_AT_ONCE)

    async def _check(self, given: _Given, credential: SessionCredential) -> None:
        """Request the rights of a session again; `_note` compares them."""
        secret = given.secret
        try:
            for agent_id in tuple(given.rights):
                await maybeDeferred(self.authorize_user, agent_id, secret.text)
        except CallError as error:
            # If the provider is away, the credential counts until `_expire`.
            if error.status is not Status.UNAVAILABLE:
                self._end_connections(given)
        else:
            # If the check has renewed the token, the next look checks the new one.
            given.checked_token = credential.signed_in.token

    def _behind(self, given: _Given) -> SessionCredential | None:
        """Return the credential of given rights; None if the session has ended."""
        session = self._sessions.get(given.secret.key)
        if session is None:
            return None
        try:
            return self._known(given.secret, session)
        except CallError:
            return None

    def _end_connections(self, given: _Given) -> None:
        """End the connections with given rights, unless that has happened."""
        key = given.secret.key
        session = self._sessions.get(key)
        if self._given.get(key) is given:
            del self._given[key]
            if session is not None:
                self._revoked(session)

    async def opened(self, text: str) -> tuple[SessionSecret, UserSession]:
        """
        Return the session of a cookie, for a request that its user caused.

        :raises CallError: UNAUTHENTICATED if it has ended, UNAVAILABLE if the store
            cannot be read.
        """
        secret = secret_of(text)
        await self._credential(secret)
        session = self._sessions.get(secret.key)
        if session is None:
            raise _ended()
        await self._sessions.touch(session)
        return secret, session

    async def held(
        self, secret: SessionSecret
    ) -> tuple[UserSession, SessionCredential]:
        """
        Return a session with its credential, whether or not that can be renewed.

        :raises CallError: as of `opened`.
        """
        session = await self._sessions.find(secret.key)
        if session is None:
            raise _ended()
        return session, self._decrypted(secret, session)

    def authenticate_agent(self, token: bytes) -> AgentIdentity:
        """Refuse: a session does not belong to an agent."""
        raise CallError(Status.UNAUTHENTICATED, "this is not an agent's token")

    def authorize_user(self, agent: str, token: str) -> Access | Deferred[Access]:
        """See `IAuthenticator.authorize_user`."""
        users: Any = self._users

        def ask(one: SessionCredential, peer: Any) -> Any:
            signed_in = one.signed_in
            answer = users.authorize(
                signed_in.kind, one.agent or agent, signed_in.token, peer
            )
            if not one.agent:
                return answer
            if isinstance(answer, Deferred):
                return answer.addCallback(partial(_only_for, agent))
            return _only_for(agent, answer)

        secret = secret_of(token)
        found: Access | Deferred[Access] = self._asked(secret, ask)
        if isinstance(found, Deferred):
            return found.addCallback(partial(self._note, secret))
        return self._note(secret, found)

    def _note(self, secret: SessionSecret, given: Access) -> Access:
        """
        Note rights that were given, and return them.

        If they differ from those that the session had at this agent, end its open
        connections, which have the other rights.
        """
        session = self._sessions.get(secret.key)
        # kas itself checks other credentials: see `credential_ids`.
        if session is None or not self._known(secret, session).provider:
            return given
        noted = self._given.setdefault(secret.key, _Given(secret))
        before = noted.rights.get(given.agent_id)
        if before != given:
            noted.rights[given.agent_id] = given
            # The credential may have been renewed since it gave these rights.
            noted.checked_token = ""
        if before not in (None, given):
            self._revoked(session)
        return given

    def reach_of(self, token: str) -> Reach | Deferred[Reach]:
        """See `IListingAuthenticator`."""
        users: Any = self._users

        def ask(one: SessionCredential, peer: Any) -> Any:
            signed_in = one.signed_in
            answer = maybeDeferred(users.reach, signed_in.kind, signed_in.token, peer)
            return answer.addCallback(
                lambda found: found.only(one.agent) if one.agent else found
            )

        found: Reach | Deferred[Reach] = self._asked(secret_of(token), ask)
        return found

    def _asked(
        self, secret: SessionSecret, ask: Callable[[SessionCredential, Any], Any]
    ) -> Any:
        session = self._sessions.get(secret.key)
        credential = self._open.get(secret.key)
        if session is None or credential is None or self._is_due(credential):
            return Deferred.fromCoroutine(self._asked_later(secret, ask))
        return self._answered(session, credential, ask)

    async def _asked_later(
        self, secret: SessionSecret, ask: Callable[[SessionCredential, Any], Any]
    ) -> Any:
        # As `IAuthenticator` demands: a check that is cancelled at once costs nothing.
        await deferLater(self._clock, 0)
        credential = await self._credential(secret)
        session = self._sessions.get(secret.key)
        if session is None:
            raise _ended()
        return await maybeDeferred(self._answered, session, credential, ask)

    def _answered(
        self,
        session: UserSession,
        credential: SessionCredential,
        ask: Callable[[SessionCredential, Any], Any],
    ) -> Any:
        try:
            answer = ask(credential, Browser.at_sign_in(session))
        except CallError as error:
            self._refused(session, error)
            raise
        if isinstance(answer, Deferred):
            return answer.addCallbacks(
                partial(_as_session, session), partial(self._failed, session)
            )
        return _as_session(session, answer)

    def _failed(self, session: UserSession, failure: Any) -> Any:
        if failure.check(CallError):
            self._refused(session, failure.value)
        return failure

    def _refused(self, session: UserSession, error: CallError) -> None:
        """End a session whose credential is not valid any more."""
        if error.status is Status.UNAUTHENTICATED:
            self._sessions.end_later(session)

    async def _credential(self, secret: SessionSecret) -> SessionCredential:
        session = await self._sessions.find(secret.key)
        if session is None:
            raise _ended()
        credential = self._known(secret, session)
        if self._is_due(credential):
            credential = await self._renewed(secret)
        return credential

    def _known(self, secret: SessionSecret, session: UserSession) -> SessionCredential:
        """
        Return the credential of a session, whether or not it is due.

        :raises CallError: UNAUTHENTICATED if the stored value cannot be decrypted.
        """
        return self._open.get(secret.key) or self._decrypted(secret, session)

    def _decrypted(
        self, secret: SessionSecret, session: UserSession
    ) -> SessionCredential:
        try:
            found = SessionCredential.from_bytes(secret.open(session.sealed))
        except ValueError:
            raise _ended() from None
        self._open[secret.key] = found
        return found

    def _is_due(self, credential: SessionCredential) -> bool:
        return (
            bool(credential.provider)
            and self._now() >= credential.signed_in.expires_at - RENEW_SECONDS
        )

    async def _renewed(self, secret: SessionSecret) -> SessionCredential:
        """Renew a credential, once at a time for each session."""
        key = secret.key
        flight = self._renewals.get(key)
        if flight is None:

            def ended() -> None:
                self._renewals.pop(key, None)

            flight = self._renewals[key] = SingleFlight(
                partial(self._renew, secret), ended=ended
            )
        return await flight.get()

    async def _renew(self, secret: SessionSecret) -> SessionCredential:
        """
        Renew the credential of a session, unless another kas has done so.

        A provider may accept a refresh token only once, and end the user's sign-in if
        it comes twice.  So a kas reserves the renewal in the store, and others wait.
        """
        while True:
            session, is_mine = await self._sessions.reserve(
                secret.key, _RENEWAL_SECONDS
            )
            if session is None:
                raise _ended()
            credential = self._decrypted(secret, session)
            if not self._is_due(credential):
                return credential
            if is_mine:
                break
            await deferLater(self._clock, _LOOK_SECONDS)
        provider = self._provider(credential.provider)
        try:
            signed_in = await provider.renew(credential.signed_in)
        except CallError as error:
            if error.status is Status.UNAUTHENTICATED:
                await self._sessions.end(secret.key)
                raise
            await self._sessions.replace(
                secret.key, lambda one: attrs.evolve(one, renewing_until=0.0)
            )
            if self._now() < credential.signed_in.expires_at:
                return credential
            raise
        renewed = attrs.evolve(credential, signed_in=signed_in)
        sealed = secret.seal(renewed.to_bytes())
        # From now on, the former refresh token may be worth nothing.
        self._open[secret.key] = renewed
        await self._sessions.replace(
            secret.key, lambda one: attrs.evolve(one, sealed=sealed, renewing_until=0.0)
        )
        return renewed

    def _provider(self, name: str) -> ISignInProvider:
        for one in self._users.sign_in_providers:
            if one.name == name:
                return one
        raise CallError(
            Status.UNAUTHENTICATED, "the way in which you signed in is not available"
        )


def _only_for(agent: str, found: Access) -> Access:
    """
    Return rights at an agent.

    :raises CallError: PERMISSION_DENIED if they are for another agent, which the
        credential itself names.
    """
    if agent not in (found.agent_id, found.agent_name):
        raise CallError(
            Status.PERMISSION_DENIED, "you have signed in with a token of another agent"
        )
    return found


def _as_session(session: UserSession, found: _T) -> _T:
    """
    Return rights with the session in place of its credential: connections must end with
    the session.
    """
    return attrs.evolve(found, credential_id=f"session:{session.id}")


def secret_of(text: str) -> SessionSecret:
    """
    Return the secret of a cookie.

    :raises CallError: UNAUTHENTICATED if the cookie contains none.
    """
    try:
        return SessionSecret(text)
    except ValueError:
        raise _ended() from None


def _ended() -> CallError:
    return CallError(Status.UNAUTHENTICATED, "the session has ended; sign in again")
