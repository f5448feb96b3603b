"""Credentials of users and agents, and the rights that they give."""

from __future__ import annotations

import re
from collections.abc import (
    Callable,
    Collection,
    Hashable,
    Mapping,
    Sequence,
)
from typing import Final, Protocol

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import (
    IAddress,
)
from zope.interface import Attribute, Interface

from tunnel.api.sign_in import ISignInProvider

__all__ = [
    "PAGE_SESSION",
    "SESSION_COOKIE",
    "Access",
    "AgentIdentity",
    "HasPeer",
    "IAuthenticator",
    "IListingAuthenticator",
    "IUsers",
    "Impersonation",
    "Reach",
    "ReachableAgent",
    "Usage",
    "program_of",
]


#: Kind of a credential from a browser.  Its token consists of the CSRF token of a
#: GitLab session, a space, and the cookie of that session.  No bearer token can name
#: this kind.
SESSION_COOKIE = "session cookie"

#: Kind of a session of kas' own page.  Its token is the value of the cookie
#: `tunnel.api.page_callers.PAGE_COOKIE`.  No bearer token can name this kind.
PAGE_SESSION = "page session"


@attrs.frozen
class Impersonation:
    """
    User that a request to the Kubernetes API server impersonates (`Impersonate-*`).
    """

    username: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = attrs.field(factory=dict)


#: Format of the names of counters, as in GitLab's usage reports.
_USAGE_NAME = re.compile("[a-z][a-z0-9_]{0,99}")


def _are_names(instance: object, attribute: object, names: tuple[str, ...]) -> None:
    for name in names:
        if _USAGE_NAME.fullmatch(name) is None:
            raise ValueError(f"{name!r} cannot be counted: 1 to 100 of a-z, 0-9 and _")


@attrs.frozen
class Usage:
    """
    Counters that one use of a credential increments, for usage reports.

    :ivar counters: names of counters that increase by one.
    :ivar unique: names, each with the id of a user: kas counts the different ids.
    """

    counters: tuple[str, ...] = attrs.field(default=(), validator=_are_names)
    unique: tuple[tuple[str, int], ...] = ()

    def __attrs_post_init__(self) -> None:
        _are_names(self, None, tuple(name for name, _ in self.unique))


#: Kinds of owners that have another name in messages.
_KINDS: Final = {"oidc_user": "user", "gitlab_user": "user of GitLab"}


@attrs.frozen
class Access:
    """An accepted credential: its user, its agent, and the user to impersonate."""

    #: Stable id that is safe to log, never the token itself: ``user:alice``.
    credential_id: str
    #: Id of the agent that the credential gives access to.
    agent_id: str
    agent_name: str
    #: User that requests impersonate; None: requests run as agentk's own account, and
    #: may themselves impersonate a user.
    impersonation: Impersonation | None = None
    #: Whether requests that change something are refused: writing verbs, and exec,
    #: attach, port-forward and proxy.
    read_only: bool = False
    #: Whether a read-only credential may read Secrets.
    secrets: bool = False
    #: Counters that one use of the credential increments.
    usage: Usage | None = None
    #: Weight of the owner's requests, compared with other owners, when kas or an agent
    #: is busy: 4 for users, 2 for CI jobs.
    weight: int = 4
    #: Owner of the credential.  Limits on concurrent requests count by owner, so that
    #: several credentials of one user, concurrent or successive, share one limit.
    owner: str = attrs.field(
        default=attrs.Factory(lambda self: self.credential_id, takes_self=True)
    )
    #: Owner of the budget of work that requests use: the project for CI jobs, because a
    #: project has any number of jobs, and otherwise `owner`.
    budget_owner: str = attrs.field(
        default=attrs.Factory(lambda self: self.owner, takes_self=True)
    )

    @property
    def impersonated(self) -> Hashable:
        """
        Return everything of the user that the API server sees, as a key; None for
        agentk's own account.

        The groups of one credential may change, so a table of answers of the API server
        needs this key in addition to the credential.
        """
        user = self.impersonation
        if user is None:
            return None
        extra = tuple(sorted((name, tuple(one)) for name, one in user.extra.items()))
        return user.username, user.groups, user.uid, extra

    @property
    def who(self) -> str:
        """Return the owner as part of a sentence: ``user alice``."""
        kind, _, name = self.owner.partition(":")
        return f"{_KINDS.get(kind, kind)} {name}"


@attrs.frozen
class ReachableAgent:
    """
    An agent that a credential gives access to.

    :ivar labels: the labels that an administrator of kas gave to the agent.
    """

    agent_id: str
    agent_name: str
    labels: Mapping[str, str] = attrs.field(factory=dict, hash=False)


@attrs.frozen
class Reach:
    """
    All agents that a credential gives access to.

    :ivar credential_id: as in `Access`.
    :ivar owner: as in `Access`.
    :ivar agents: sorted by name.
    :ivar is_complete: False if the credential may give access to further agents, which
        kas cannot list.
    """

    credential_id: str
    owner: str
    agents: tuple[ReachableAgent, ...]
    is_complete: bool = True

    def only(self, agent: str) -> Reach:
        """Return the reach of a credential that itself names its agent."""
        found = (one for one in self.agents if agent in (one.agent_id, one.agent_name))
        return attrs.evolve(self, agents=tuple(found))


@attrs.frozen
class AgentIdentity:
    """Agent that an accepted token belongs to."""

    agent_id: str
    agent_name: str
    #: Stable id that is safe to log, never the token itself: ``agent:<agent id>:<token
    #: id>``.
    credential_id: str
    #: ID of the GitLab project that the agent belongs to; 0 without a project.
    project_id: int = 0


class HasPeer(Protocol):
    """A connection with a known address of its peer."""

    @property
    def peer_address(self) -> IAddress:
        """Return the address of the peer."""


def program_of(peer: HasPeer | None) -> str:
    """
    Return the name and version of a client's program, as the client states it.

    A `HasPeer` states it in its attribute ``program``; the result is empty without this
    attribute.
    """
    program = getattr(peer, "program", "")
    return program if isinstance(program, str) else ""


class IAuthenticator(Interface):
    """
    Checker of some kinds of credentials.

    Its methods return a known result at once, so that the request need not wait, and
    otherwise a Deferred.  If the client leaves, kas cancels the Deferred, which must
    release its resources.  kas also cancels a Deferred that takes too long, and limits
    the number of checks and of refusals for each address.  kas may cancel a Deferred as
    soon as it is returned: send the query in the next turn of the reactor, so that such
    a check costs the queried server nothing.

    A refusal is a `tunnel.errors.CallError` with status UNAUTHENTICATED,
    PERMISSION_DENIED or NOT_FOUND, whose message the client sees.  Status UNAVAILABLE
    means that the credential cannot be checked now.
    """

    user_kinds: Sequence[str] = Attribute(
        "Kinds of users' credentials: the first part of <kind>:<agent>:<token>."
    )
    agent_prefixes: Sequence[bytes] = Attribute("Prefixes of agents' tokens.")

    def authenticate_agent(token: bytes) -> AgentIdentity | Deferred[AgentIdentity]:
        """Return the agent that a token belongs to."""

    def authorize_user(agent: str, token: str) -> Access | Deferred[Access]:
        """
        Return the rights of a token at an agent.

        :param agent: the agent's id or name.
        """


class IListingAuthenticator(IAuthenticator):
    """Authenticator that can list the agents of a credential: see `IUsers.reach`."""

    def reach_of(token: str) -> Reach | Deferred[Reach]:
        """Return the agents that a token gives access to, as `authorize_user` does."""


class IUsers(Interface):
    """Credentials of users: `IServerModuleApi.users`."""

    count_usage: Callable[[Usage], None] | None = Attribute(
        "Function that counts a use for reports to GitLab; None if kas sends no "
        "reports."
    )
    sign_in_providers: Sequence[ISignInProvider] = Attribute(
        "Providers that sign users in with a browser; none without the section oidc."
    )

    def authorize(
        kind: str, agent: str, token: str, peer: HasPeer | None = None
    ) -> Access | Deferred[Access]:
        """
        Check a credential of a user.

        Returns a known result at once, and otherwise a Deferred, which the caller
        should cancel when the client leaves.  ``await
        maybeDeferred(api.users.authorize, …)`` handles both.

        :param kind: the kind of the credential, which selects the authenticator:
            ``user`` for the identity file; empty if the client named none.
        :param agent: id or name of the requested agent.
        :param peer: the client's connection.  kas limits the number of refused
            credentials for each address of clients; above the limit, a check fails with
            RESOURCE_EXHAUSTED.
        :raises tunnel.errors.CallError: UNAUTHENTICATED or PERMISSION_DENIED, whose
            message may be shown, or UNAVAILABLE; raised at once, or the failure of the
            Deferred.
        """

    def reach(
        kind: str, token: str, peer: HasPeer | None = None
    ) -> Reach | Deferred[Reach]:
        """
        Return the agents that a credential gives access to.

        :param kind: as in `authorize`.
        :param peer: as in `authorize`.
        :raises tunnel.errors.CallError: as `authorize`, or UNIMPLEMENTED if the agents
            of this kind of credential cannot be listed.
        """

    def add_authenticator(authenticator: IAuthenticator) -> None:
        """
        Check credentials of further kinds with *authenticator*, until the module stops.

        :raises ValueError: another authenticator checks one of its kinds.
        """

    def recheck(held: Callable[[], Collection[str]]) -> None:
        """
        Repeat the checks of the credentials in use, until the module stops.

        If a credential is not valid any more, kas publishes
        `tunnel.api.events.CredentialRevoked`.

        :param held: returns the ids of the credentials in use (`Access.credential_id`).
        """
