"""
The authenticator for agents that GitLab knows.

What GitLab said of a token serves for a while, and for longer while GitLab says
nothing.  Tokens of agents that are connected are asked about again, so that one that
was revoked ends its tunnels.
"""

from __future__ import annotations

import hashlib
import re
from collections import deque
from collections.abc import Callable, Collection
from datetime import UTC, datetime
from typing import Any

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import LoopingCall
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from kas.gitlab.cache import AnswerCache, Lifetimes
from kas.gitlab.client import GitLabClient
from tunnel.errors import CallError, Status
from tunnel.interfaces import Access, AgentIdentity, IAuthenticator
from tunnel.util.for_each import for_each

__all__ = ["GitLabAgents", "OfGitLab"]

#: Bytes of a token: GitLab's have 50 to 64; what is longer is not even asked about.
MAX_TOKEN = 1024

#: What is in one.  A blank at its end would reach GitLab as the token without it, so
#: that one token could be any number of credentials here.
_TOKEN = re.compile(rb"[!-~]+")

#: Tokens that are asked about again at the same time: half of what may be under way,
#: and half a second's worth of requests, so that an agent that comes does not wait for
#: thousands that are here.
MAX_RENEWING = 25

#: Characters of a name: a label of RFC 1123.
MAX_NAME = 63

#: The part of an answer's lifetime after which it is asked for again while its agent is
#: connected; the rest is for the question, and for those before it.
RENEW_AT = 0.8

#: The part of a lifetime between two looks at which answers are that old.
LOOK_EVERY = 0.05

_REFUSED = (
    "GitLab does not know this agent token, or it was revoked: make a new one in the "
    "project of the agent, under Operate > Kubernetes clusters"
)
_GONE = "GitLab does not have the agent of this token any more"
_FORBIDDEN = "GitLab does not let this agent connect"

_MESSAGES = {
    Status.UNAUTHENTICATED: _REFUSED,
    Status.PERMISSION_DENIED: _FORBIDDEN,
    Status.NOT_FOUND: _GONE,
}


@attrs.frozen
class _Known:
    """A token that opened something, to be asked about again."""

    token: bytes = attrs.field(repr=False)
    identity: AgentIdentity


@attrs.frozen
class OfGitLab:
    """An agent of which kas knows no more than its id: GitLab has the rest."""

    agent_id: str

    @property
    def name(self) -> str:
        """Its id, which people know it by as well."""
        return self.agent_id

    @property
    def created_at(self) -> datetime:
        """Long ago."""
        return datetime.fromtimestamp(0, UTC)


@implementer(IAuthenticator)
class GitLabAgents:
    """
    Asks GitLab which agent a token belongs to (``agent_info``).

    :param connected: ids of the credentials whose agents are connected here now.
    """

    user_kinds = ()
    #: Every token that no other authenticator knows by its beginning: old ones of
    #: GitLab begin with nothing in particular.
    agent_prefixes = (b"",)

    _log = Logger()

    def __init__(
        self,
        client: GitLabClient,
        lifetimes: Lifetimes,
        connected: Callable[[], Collection[str]],
        clock: IReactorTime,
    ) -> None:
        self._client = client
        self._lifetimes = lifetimes
        self._connected = connected
        self._clock = clock
        self.answers: AnswerCache[bytes, AgentIdentity] = AnswerCache(
            self._ask, lifetimes, clock
        )
        self._known: dict[str, _Known] = {}
        self._renewing: set[str] = set()
        #: To be asked about again, as of the last look.
        self._due: deque[str] = deque()
        self._starting = False
        self._callbacks: list[Callable[[str], object]] = []
        self._loop = LoopingCall(self._look)
        self._loop.clock = clock

    def start(self) -> None:
        """Ask about the tokens of connected agents again, now and then."""
        interval = max(1.0, self._lifetimes.success * LOOK_EVERY)
        looking: Deferred[LoopingCall] = self._loop.start(interval, now=False)
        looking.addErrback(
            lambda failure: self._log.failure("while asking GitLab again", failure)
        )

    def stop(self) -> None:
        """Ask no more."""
        self._due.clear()
        if self._loop.running:
            self._loop.stop()

    def on_revoked(self, callback: Callable[[str], object]) -> None:
        """Call *callback* with the id of each credential that GitLab took back."""
        self._callbacks.append(callback)

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
        """GitLab's users come with kinds of credentials that are not known yet."""
        raise CallError(Status.UNAUTHENTICATED, "this is no credential of a user")

    def _accept(self, identity: AgentIdentity, token: bytes) -> AgentIdentity:
        self._known[identity.credential_id] = _Known(token, identity)
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
        return _identity(said, token)

    # Tokens that were revoked.

    def _look(self) -> None:
        connected = self._connected()
        for credential_id in [one for one in self._known if one not in connected]:
            if credential_id not in self._renewing:
                del self._known[credential_id]
        old = self._lifetimes.success * RENEW_AT
        self._due = deque(
            credential_id
            for credential_id, known in self._known.items()
            if credential_id not in self._renewing
            and self.answers.age(_key(known.token)) >= old
        )
        self._renew_due()

    def _renew_due(self) -> None:
        if self._starting:
            return  # one ended as soon as it began: the loop below goes on
        self._starting = True
        while self._due and len(self._renewing) < MAX_RENEWING:
            credential_id = self._due.popleft()
            known = self._known.get(credential_id)
            if known is not None:
                self._renewing.add(credential_id)
                renewing = self.answers.renew(_key(known.token), known.token)
                renewing.addBoth(self._renewed, credential_id, known.identity)
                renewing.addBoth(lambda _: self._renew_due())
        self._starting = False

    def _renewed(
        self,
        result: AgentIdentity | Failure,
        credential_id: str,
        before: AgentIdentity,
    ) -> None:
        self._renewing.discard(credential_id)
        if isinstance(result, Failure):
            error = result.value
            if not isinstance(error, CallError):
                self._log.failure("while asking GitLab again", result)
                return
            if error.status not in (Status.UNAUTHENTICATED, Status.PERMISSION_DENIED):
                # GitLab says nothing: who is connected stays so.
                return
        elif result == before:
            return
        self._known.pop(credential_id, None)
        self._log.info("credential {id} ended: GitLab took it back", id=credential_id)
        for_each(
            tuple(self._callbacks),
            lambda end: end(credential_id),
            "ending {id}",
            id=credential_id,
        )


def _key(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()


def _identity(said: dict[str, Any], token: bytes) -> AgentIdentity:
    """
    What ``agent_info`` says, checked.

    :raises CallError: UNAVAILABLE, it is not what GitLab says.
    """
    agent_id, project_id = said.get("agent_id"), said.get("project_id")
    name = said.get("agent_name")
    # True is a number for Python.
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
            Status.UNAVAILABLE, "GitLab cannot be used: its agent_info cannot be read"
        )
    token_id = _key(token).hex()[:16]
    return AgentIdentity(
        str(agent_id), name, f"agent:{agent_id}:{token_id}", project_id
    )
