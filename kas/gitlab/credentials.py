"""Common part of the authenticators of CI jobs and users."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Generic, NoReturn, Protocol, TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.python.failure import Failure

from kas.gitlab.cache import AnswerCache, Lifetimes, Refusals
from kas.gitlab.client import GitLabClient
from kas.gitlab.json_object import is_id
from kas.gitlab.renewal import Renewal
from tunnel.api import Access, AgentIdentity
from tunnel.errors import CallError, Status

__all__ = ["EXTRA", "ONE_ANSWER", "CredentialAnswer", "GitLabCredentials", "key_of"]

#: Prefix of the additional attributes of a user that kas sends to the cluster.
EXTRA = "agent.gitlab.com/"

#: Number of characters of a response that count as one of
#: `kas.gitlab.cache.MAX_ANSWERS`.
ONE_ANSWER = 600


class CredentialAnswer(Protocol):
    """Interface of GitLab's response about a credential."""

    @property
    def weight(self) -> int:
        """Share of the response in `kas.gitlab.cache.MAX_ANSWERS`."""

    def access(self, agent_id: str) -> Access | None:
        """
        Return the credential's access to an agent; None if the credential has no
        access.
        """

    def problem(self, agent_id: str) -> str:
        """Return why the credential has no access to an agent."""


S = TypeVar("S")
A = TypeVar("A", bound=CredentialAnswer)


class GitLabCredentials(Generic[S, A]):
    """
    Authenticator that asks GitLab about users' credentials, and asks again while the
    credentials are in use.

    Each kind of request to GitLab has a subclass.

    :param in_use: returns the ids of credentials with open requests.
    :param refusals: the refusals that all kas share.
    """

    user_kinds: Sequence[str] = ()
    agent_prefixes = ()
    #: Message for a client that names an agent in another way than by its id.
    naming = "agents of GitLab must be named by their id"

    def __init__(
        self,
        client: GitLabClient,
        lifetimes: Lifetimes,
        in_use: Callable[[], Collection[str]],
        clock: IReactorTime,
        refusals: Refusals | None = None,
    ) -> None:
        self._client = client
        self.answers: AnswerCache[S, A] = AnswerCache(
            self.ask,
            lifetimes,
            clock,
            weigh=lambda answer: answer.weight,
            refusals=refusals,
        )
        self.renewal: Renewal[S, A] = Renewal(self.answers, lifetimes, in_use, clock)

    async def ask(self, subject: S) -> A:
        """
        Return GitLab's response about a credential.

        :raises CallError: if GitLab refuses the credential, or does not respond.
        """
        raise NotImplementedError

    def subject(self, agent: str, token: str) -> tuple[bytes, S]:
        """
        Return the key of a response in the cache, and the subject of the request to
        GitLab.
        """
        raise NotImplementedError

    def authenticate_agent(self, token: bytes) -> AgentIdentity:
        """Refuse: these prefixes do not belong to tokens of agents."""
        raise CallError(Status.UNAUTHENTICATED, "this is not an agent's token")

    def authorize_user(self, agent: str, token: str) -> Access | Deferred[Access]:
        """See `IAuthenticator.authorize_user`."""
        if not is_id(agent):
            raise CallError(Status.UNAUTHENTICATED, self.naming)
        key, subject = self.subject(agent, token)
        answer = self.answers.get(key, subject)
        if isinstance(answer, Deferred):
            return answer.addCallbacks(
                self._found, _as_answered, callbackArgs=(agent, key, subject)
            )
        return self._found(answer, agent, key, subject)

    def _found(self, answer: A, agent: str, key: bytes, subject: S) -> Access:
        access = answer.access(agent)
        if access is None:
            raise CallError(Status.PERMISSION_DENIED, answer.problem(agent))
        if access.credential_id not in self.renewal:
            meaning_of = partial(_access_of, agent)
            self.renewal.add(access.credential_id, key, subject, access, meaning_of)
        return access


def key_of(text: str) -> bytes:
    """Return a key for the cache that does not reveal the secret in *text*."""
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).digest()


def _access_of(agent: str, answer: CredentialAnswer) -> Access | None:
    return answer.access(agent)


def _as_answered(failure: Failure) -> NoReturn:
    """
    Convert UNAVAILABLE to INTERNAL, because GitLab's own kas also responds with 500 if
    GitLab does not respond.
    """
    error = failure.value
    if isinstance(error, CallError) and error.status is Status.UNAVAILABLE:
        raise CallError(Status.INTERNAL, error.message)
    failure.raiseException()
