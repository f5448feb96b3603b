"""
Authenticator of users who sign in with an identity provider.

A credential is an ID token: ``oidc:<agent>:<token>``, or only the token if the path of
the request names the agent.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Protocol

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger
from zope.interface import implementer

from kas.config.oidc import OpenIdConnect
from kas.identity.file import ALL_AGENTS, SYSTEM
from kas.oidc.keys import ProviderKeys, VerificationKey
from kas.oidc.verifier import TokenVerifier, VerifiedToken, refused
from tunnel.api import (
    Access,
    AgentIdentity,
    IListingAuthenticator,
    Impersonation,
    Reach,
    ReachableAgent,
)
from tunnel.errors import CallError, Status
from tunnel.program.runtime import Runtime
from tunnel.toolkit.for_each import for_each
from tunnel.toolkit.recent import Recent
from tunnel.toolkit.repeated import Repeated
from tunnel.toolkit.texts import is_subject

__all__ = ["TOKEN_PREFIX", "OidcAuthenticator"]

#: Prefix of every JSON Web Token: the characters ``{"`` in base64.
TOKEN_PREFIX = "eyJ"  # noqa: S105

#: Maximum number of groups of a user, because each group is a header of every request.
MAX_GROUPS = 500

#: Maximum number of verified tokens that are remembered; a forgotten token is verified
#: again.
MAX_VERIFIED = 10_000

#: Maximum number of cached results for one token, by agent: if kas uses GitLab, a
#: client may name any number of agents.
MAX_ANSWERS = 1_000

#: Seconds between two searches for expired tokens: this is the maximum delay until
#: their connections end.
LOOK_INTERVAL = 5.0

#: Number of characters of the token's digest in its credential id.
_SHOWN_DIGITS = 8


@attrs.frozen
class _Limits:
    """Permissions of a user at one agent, from entries of ``oidc.access``."""

    read_only: bool
    secrets: bool

    def widest(self, other: _Limits) -> _Limits:
        """Return the permissions that either of two entries grants."""
        return _Limits(
            self.read_only and other.read_only, self.secrets or other.secrets
        )


@attrs.frozen
class _Reach:
    """
    Permissions from all entries of ``oidc.access`` that match a user.

    :ivar agents: the permissions by the name or id of the agent in the entry.
    """

    agents: Mapping[str, _Limits]

    def limits(self, *names: str) -> _Limits | None:
        """
        Return the permissions at the agent with *names*; None if the user has no
        permissions there.
        """
        found = [
            self.agents[name] for name in (*names, ALL_AGENTS) if name in self.agents
        ]
        return functools.reduce(_Limits.widest, found) if found else None


@attrs.frozen(eq=False)
class _Verified:
    """Token whose signature and claims were verified."""

    credential_id: str
    impersonation: Impersonation
    reach: _Reach
    expires_at: float
    key: VerificationKey
    answers: dict[str, Access] = attrs.field(factory=dict)


class KnownAgents(Protocol):
    """The agents of this kas."""

    def find_agent(self, agent: str) -> tuple[str, str] | None:
        """Return the id and name of the agent with this id or name."""

    def reachable(self) -> Sequence[ReachableAgent] | None:
        """Return all agents; None if this kas does not know them."""


@implementer(IListingAuthenticator)
class OidcAuthenticator:
    """
    Authenticator that checks ID tokens of an identity provider.

    When a token expires, or the provider withdraws its key, the connections of the
    token end within `LOOK_INTERVAL`.

    :param agents: the agents of this kas.
    :param in_use: returns the ids of credentials with open requests.
    """

    user_kinds = ("oidc",)
    agent_prefixes = ()

    _log = Logger()

    def __init__(
        self,
        settings: OpenIdConnect,
        keys: ProviderKeys,
        agents: KnownAgents,
        in_use: Callable[[], Collection[str]],
        runtime: Runtime,
    ) -> None:
        self._settings = settings
        self._keys = keys
        self._agents = agents
        self._in_use = in_use
        self._clock: IReactorTime = runtime.reactor
        self._now = runtime.now
        self.verifier = TokenVerifier(settings, keys, runtime.now)
        #: Verified tokens, by the digest of the token.
        self._verified: Recent[bytes, _Verified] = Recent(MAX_VERIFIED)
        #: Verified tokens of credentials with connections, by the id of the credential.
        self._opened: dict[str, _Verified] = {}
        self._callbacks: list[Callable[[str], object]] = []
        self._loop = Repeated(runtime.reactor, "ending expired credentials", self._look)

    def start(self) -> None:
        """Start the search for expired tokens."""
        self._keys.start()
        self._loop.start(LOOK_INTERVAL)

    def stop(self) -> None:
        """Stop the search for expired tokens."""
        self._keys.stop()
        self._loop.stop()

    def on_revoked(self, callback: Callable[[str], object]) -> None:
        """Call *callback* with the id of each credential that ended."""
        self._callbacks.append(callback)

    def authenticate_agent(self, token: bytes) -> AgentIdentity:
        """Refuse: ID tokens are not tokens of agents."""
        raise CallError(Status.UNAUTHENTICATED, "this is not an agent's token")

    def authorize_user(self, agent: str, token: str) -> Access | Deferred[Access]:
        """See `IAuthenticator.authorize_user`."""
        digest = _digest(token)
        verified = self._verified.get(digest)
        if verified is not None and self._holds(verified):
            return self._access(verified, agent)
        return Deferred.fromCoroutine(self._check(agent, token, digest))

    def reach_of(self, token: str) -> Reach | Deferred[Reach]:
        """See `IListingAuthenticator`."""
        verified = self._verified.get(_digest(token))
        if verified is not None and self._holds(verified):
            return self._reach(verified)
        return Deferred.fromCoroutine(self._check_reach(token))

    async def _check_reach(self, token: str) -> Reach:
        await deferLater(self._clock, 0)
        await self.verify(token)
        return self._reach(self._verified[_digest(token)])

    def _reach(self, verified: _Verified) -> Reach:
        known = self._agents.reachable()
        limits = verified.reach.limits
        return Reach(
            verified.credential_id,
            _owner(verified),
            tuple(
                one
                for one in known or ()
                if limits(one.agent_id, one.agent_name) is not None
            ),
            is_complete=known is not None,
        )

    def _holds(self, verified: _Verified) -> bool:
        return (
            self._now() < verified.expires_at
            and self._keys.usable
            and verified.key in self._keys
        )

    async def _check(self, agent: str, token: str, digest: bytes) -> Access:
        await deferLater(self._clock, 0)
        verified = self._user_of(await self.verifier.id_token(token))
        self._verified[digest] = verified
        return self._access(verified, agent)

    async def verify(self, token: str) -> Mapping[str, Any]:
        """
        Verify a token of a new sign-in as `authorize_user` does, and return its claims.

        :raises CallError: UNAUTHENTICATED or UNAVAILABLE, see `TokenVerifier.id_token`.
        """
        found = await self.verifier.id_token(token)
        self._verified[_digest(token)] = self._user_of(found)
        return found.claims

    def _user_of(self, found: VerifiedToken) -> _Verified:
        settings = self._settings
        impersonation = _user(found.claims, settings)
        return _Verified(
            f"oidc_user:{impersonation.username}:{found.digest[:_SHOWN_DIGITS]}",
            impersonation,
            _reach(impersonation, settings),
            float(found.claims["exp"]) + settings.clock_skew,
            found.key,
        )

    def _missing_groups(self, user: Impersonation) -> str:
        """Return the reason why a user has no groups, as the end of a message."""
        settings = self._settings
        if user.groups or not any(entry.groups for entry in settings.access):
            return ""
        if not settings.groups_claim:
            return "; kas reads no groups, because oidc.groups_claim is empty"
        return (
            f"; the token has no groups (claim {settings.groups_claim!r}); request "
            "them with --oidc-scope groups of 'kasctl kubeconfig'"
        )

    def _access(self, verified: _Verified, agent: str) -> Access:
        found = self._agents.find_agent(agent)
        limits = None if found is None else verified.reach.limits(*found)
        # Use one message for both cases, so that a client cannot find out which agents
        # exist.
        if found is None or limits is None:
            raise CallError(
                Status.PERMISSION_DENIED,
                f"{verified.impersonation.username} has no access to an agent "
                f"{agent[:63]!r}: no entry of oidc.access matches this user or its "
                f"groups{self._missing_groups(verified.impersonation)}",
            )
        agent_id, agent_name = found
        known = verified.answers.get(agent_id)
        if known is None or known.agent_name != agent_name:
            if len(verified.answers) >= MAX_ANSWERS:
                verified.answers.clear()
            known = verified.answers[agent_id] = Access(
                credential_id=verified.credential_id,
                agent_id=agent_id,
                agent_name=agent_name,
                impersonation=verified.impersonation,
                read_only=limits.read_only,
                secrets=limits.secrets,
                owner=_owner(verified),
            )
        self._opened[verified.credential_id] = verified
        return known

    def _look(self) -> None:
        now = self._now()
        in_use = self._in_use()
        for credential_id, verified in list(self._opened.items()):
            if credential_id not in in_use:
                del self._opened[credential_id]
            elif now >= verified.expires_at:
                self._end(credential_id, f"it expired at {_shown(verified.expires_at)}")
            elif verified.key not in self._keys:
                self._end(
                    credential_id,
                    "the identity provider has withdrawn the key of the token",
                )

    def _end(self, credential_id: str, why: str) -> None:
        del self._opened[credential_id]
        self._log.info("credential {id} ended: {why}", id=credential_id, why=why)
        for_each(
            tuple(self._callbacks),
            lambda end: end(credential_id),
            "ending {id}",
            id=credential_id,
        )


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


def _user(claims: Mapping[str, Any], settings: OpenIdConnect) -> Impersonation:
    claim = settings.username_claim
    name = claims.get(claim)
    if not isinstance(name, str) or not name:
        raise refused(f"its claim {claim!r} does not name a user")
    if claim == "email" and claims.get("email_verified") is not True:
        raise refused("the identity provider did not verify its e-mail address")
    username = settings.username_prefix + name
    if not is_subject(username):
        raise refused(f"its claim {claim!r} cannot be a name in a cluster")
    if username.startswith(SYSTEM) and not settings.allow_system_names:
        raise refused(f"names that begin with {SYSTEM} are Kubernetes' own")
    return Impersonation(username, _groups(claims, settings))


def _groups(claims: Mapping[str, Any], settings: OpenIdConnect) -> tuple[str, ...]:
    claim = settings.groups_claim
    said = claims.get(claim) if claim else None
    if said is None:
        return ()
    names = [said] if isinstance(said, str) else said
    if not isinstance(names, list) or not all(isinstance(one, str) for one in names):
        raise refused(f"its claim {claim!r} is not a list of texts")
    if len(names) > MAX_GROUPS:
        raise refused(f"its claim {claim!r} has more than {MAX_GROUPS} groups")
    groups = [settings.groups_prefix + one for one in names if one]
    # Omit invalid groups: a group can only grant permissions.
    return tuple(
        dict.fromkeys(
            one
            for one in groups
            if is_subject(one)
            and (settings.allow_system_names or not one.startswith(SYSTEM))
        )
    )


def _owner(verified: _Verified) -> str:
    return f"oidc_user:{verified.impersonation.username}"


def _reach(user: Impersonation, settings: OpenIdConnect) -> _Reach:
    agents: dict[str, _Limits] = {}
    for entry in settings.access:
        if user.username in entry.users or not set(user.groups).isdisjoint(
            entry.groups
        ):
            for name in entry.agents:
                given = _Limits(entry.read_only, entry.secrets)
                agents[name] = agents.get(name, given).widest(given)
    return _Reach(agents)


def _shown(time: float) -> str:
    return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
