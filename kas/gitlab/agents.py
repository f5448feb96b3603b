"""
Authenticator of GitLab's agents.

GitLab's response about a token stays valid for a while, and longer while GitLab does
not respond.  kas repeats the check of connected agents' tokens, so that an agent with a
revoked token loses its tunnels.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection
from datetime import UTC, datetime
from typing import Any

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from zope.interface import implementer

from kas.gitlab.cache import AnswerCache, Lifetimes, Refusals
from kas.gitlab.client import GitLabClient
from kas.gitlab.projects import AgentProjects
from kas.gitlab.renewal import Renewal
from tunnel.api import Access, AgentIdentity, IAuthenticator
from tunnel.errors import CallError, Status

__all__ = ["GitLabAgents", "OfGitLab"]

#: Maximum bytes of a token: GitLab's tokens have 50 to 64; kas refuses longer tokens
#: without a request.
MAX_TOKEN = 1024

#: Valid characters of a token.  GitLab would ignore a blank at its end, so that kas
#: would treat one token as any number of credentials.
_TOKEN = re.compile(rb"[!-~]+")

#: Maximum characters of an agent's name: the limit for a label of RFC 1123.
MAX_NAME = 63

_REFUSED = (
    "GitLab does not know this agent token, or it was revoked: create a new one in "
    "the project of the agent, under Operate > Kubernetes clusters"
)
_GONE = "GitLab does not have the agent of this token any more"
_FORBIDDEN = "GitLab does not permit this agent to connect"

_MESSAGES = {
    Status.UNAUTHENTICATED: _REFUSED,
    Status.PERMISSION_DENIED: _FORBIDDEN,
    Status.NOT_FOUND: _GONE,
}


@attrs.frozen
class OfGitLab:
    """Agent in GitLab; kas knows only its id."""

    agent_id: str

    @property
    def name(self) -> str:
        """Id of the agent, in place of its name; users know this id, too."""
        return self.agent_id

    @property
    def created_at(self) -> datetime:
        """A time long ago, because the real time of creation is unknown."""
        return datetime.fromtimestamp(0, UTC)


@implementer(IAuthenticator)
class GitLabAgents:
    """
    Authenticator that asks GitLab for the agent of a token (``agent_info``).

    :param connected: returns the ids of the credentials of agents that are connected to
        this kas.
    :param projects: receives the other information in GitLab's response.
    :param refusals: the refusals that all kas share.
    """

    user_kinds = ()
    #: Prefix of every token that no other authenticator recognizes: old tokens of
    #: GitLab have no prefix.
    agent_prefixes = (b"",)

    def __init__(
        self,
        client: GitLabClient,
        lifetimes: Lifetimes,
        connected: Callable[[], Collection[str]],
        clock: IReactorTime,
        projects: AgentProjects | None = None,
        refusals: Refusals | None = None,
    ) -> None:
        self._client = client
        self._projects = AgentProjects(clock) if projects is None else projects
        self.answers: AnswerCache[bytes, AgentIdentity] = AnswerCache(
            self._ask, lifetimes, clock, refusals=refusals
        )
        self.renewal = Renewal(self.answers, lifetimes, connected, clock)

    def authenticate_agent(
        self, token: bytes
    ) -> AgentIdentity | Deferred[AgentIdentity]:
        """See `IAuthenticator.authenticate_agent`."""
        if len(token) > MAX_TOKEN or _TOKEN.fullmatch(token) is None:
            raise CallError(Status.UNAUTHENTICATED, _REFUSED)
        answer = self.answers.get(_key(token), token)
        if isinstance(answer, Deferred):
            return answer.addCallback(self._accept, token)
        return self._accept(answer, token)

    def authorize_user(self, agent: str, token: str) -> Access:
        """Refuse: users and jobs of GitLab have separate authenticators."""
        raise CallError(Status.UNAUTHENTICATED, "this is not a user's credential")

    def _accept(self, identity: AgentIdentity, token: bytes) -> AgentIdentity:
        self.renewal.add(identity.credential_id, _key(token), token, identity, _itself)
        return identity

    async def _ask(self, token: bytes) -> AgentIdentity:
        try:
            said = await self._client.get("agent_info", agent_token=token, retry=False)
        except CallError as error:
            message = _MESSAGES.get(error.status)
            if message is None:
                raise
            raise CallError(
                Status.PERMISSION_DENIED
                if error.status is Status.PERMISSION_DENIED
                else Status.UNAUTHENTICATED,
                message,
            ) from None
        identity = _identity(said, token)
        self._projects.update(identity.agent_id, said)
        return identity


def _itself(identity: AgentIdentity) -> AgentIdentity:
    return identity


def _key(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()


def _identity(said: dict[str, Any], token: bytes) -> AgentIdentity:
    """
    Check and return the content of ``agent_info``.

    :raises CallError: UNAVAILABLE if the response has another format.
    """
    agent_id, project_id = said.get("agent_id"), said.get("project_id")
    name = said.get("agent_name")
    # Compare the type, because True is a number in Python.
    if (
        type(agent_id) is not int
        or type(project_id) is not int
        or not isinstance(name, str)
        or min(agent_id, project_id) <= 0
        or max(agent_id, project_id) >= 2**63
        or not 0 < len(name) <= MAX_NAME
        or not name.isprintable()
    ):
        raise CallError(
            Status.UNAVAILABLE, "cannot use GitLab: its agent_info is malformed"
        )
    token_id = _key(token).hex()[:16]
    return AgentIdentity(
        str(agent_id), name, f"agent:{agent_id}:{token_id}", project_id
    )
