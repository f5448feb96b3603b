"""
The authenticator for CI jobs of GitLab: ``ci:<agent id>:<CI_JOB_TOKEN>``.

GitLab says which agents a job may use and as whom, from ``ci_access`` in the
configuration of each agent: its projects and groups, environments, protected branches.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection
from functools import partial
from typing import Any, NoReturn

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.python.failure import Failure
from zope.interface import implementer

from kas.gitlab.cache import AnswerCache, Lifetimes
from kas.gitlab.client import GitLabClient
from kas.gitlab.reading import Said, is_id
from kas.gitlab.renewal import Renewal
from kas.gitlab.usage import used_via
from tunnel.errors import CallError, Status
from tunnel.interfaces import Access, AgentIdentity, IAuthenticator, Impersonation

__all__ = ["EXTRA", "GitLabJobs", "as_answered"]

#: Begins the names of what kas says of a user besides name and groups.
EXTRA = "agent.gitlab.com/"

#: Characters of a token: those that are signed (JWT) have about a thousand.
MAX_TOKEN = 8 * 1024

_TOKEN = re.compile("[!-~]+")

#: Characters of an answer that count as one of `kas.gitlab.cache.MAX_ANSWERS`.
_ONE_ANSWER = 600

_MESSAGES = {
    Status.UNAUTHENTICATED: "GitLab does not know this CI job token, or it ended",
    Status.PERMISSION_DENIED: "GitLab does not let this job use agents",
    Status.NOT_FOUND: "GitLab says that this is not the token of a CI job",
}


@attrs.frozen
class _Environment:
    slug: str
    tier: str


@attrs.frozen
class _Job:
    """What a job is, for the API server."""

    id: int
    pipeline_id: int
    project_id: int
    group_ids: tuple[int, ...]
    user_id: int
    username: str
    environment: _Environment | None


@attrs.frozen
class _Allowed:
    """An agent that a job may use."""

    config_project_id: int
    #: As the job; otherwise as *impersonation*, or with the rights of the agent.
    as_job: bool
    impersonation: Impersonation | None
    #: Why it cannot be used; empty: it can.
    problem: str = ""


@attrs.define(eq=False)
class _Answer:
    """What GitLab said of one token."""

    job: _Job
    token_id: str
    allowed: dict[str, _Allowed]
    weight: int
    #: By agent, made when it is asked for first: every request needs it.
    accesses: dict[str, Access] = attrs.field(factory=dict)

    def access(self, agent_id: str) -> Access | None:
        """What the job may do at an agent; None: nothing."""
        access = self.accesses.get(agent_id)
        if access is None:
            allowed = self.allowed.get(agent_id)
            if allowed is None or allowed.problem:
                return None
            impersonation = allowed.impersonation
            if allowed.as_job:
                impersonation = _of_job(self.job, agent_id, allowed.config_project_id)
            access = self.accesses[agent_id] = Access(
                credential_id=f"ci_job:{self.job.id}:{agent_id}:{self.token_id}",
                agent_id=agent_id,
                agent_name=agent_id,
                impersonation=impersonation,
                usage=used_via("ci", self.job.user_id, int(agent_id)),
            )
        return access


@implementer(IAuthenticator)
class GitLabJobs:
    """
    Asks GitLab which agents a job may use (``allowed_agents``).

    :param in_use: ids of the credentials that hold a request open now.
    """

    user_kinds = ("ci",)
    agent_prefixes = ()

    def __init__(
        self,
        client: GitLabClient,
        lifetimes: Lifetimes,
        in_use: Callable[[], Collection[str]],
        clock: IReactorTime,
    ) -> None:
        self._client = client
        self.answers: AnswerCache[str, _Answer] = AnswerCache(
            self._ask, lifetimes, clock, weigh=lambda answer: answer.weight
        )
        self.renewal = Renewal(self.answers, lifetimes, in_use, clock)

    def authenticate_agent(self, token: bytes) -> AgentIdentity:
        """No token of an agent begins like one of these."""
        raise CallError(Status.UNAUTHENTICATED, "this is no token of an agent")

    def authorize_user(self, agent: str, token: str) -> Access | Deferred[Access]:
        """See `IAuthenticator.authorize_user`."""
        if not is_id(agent):
            text = "agents of GitLab are named by their id: ci:<agent id>:<token>"
            raise CallError(Status.UNAUTHENTICATED, text)
        answer = self.answers.get(_key(token), token)
        if isinstance(answer, Deferred):
            return answer.addCallbacks(
                self._found, as_answered, callbackArgs=(agent, token)
            )
        return self._found(answer, agent, token)

    def _found(self, answer: _Answer, agent: str, token: str) -> Access:
        access = answer.access(agent)
        if access is None:
            allowed = answer.allowed.get(agent)
            problem = "Forbidden: agentId is not allowed"
            if allowed is not None:
                problem = allowed.problem
            raise CallError(Status.PERMISSION_DENIED, problem)
        if access.credential_id not in self.renewal:
            means = partial(_access_of, agent)
            self.renewal.add(access.credential_id, _key(token), token, access, means)
        return access

    async def _ask(self, token: str) -> _Answer:
        if len(token) > MAX_TOKEN or _TOKEN.fullmatch(token) is None:
            text = _MESSAGES[Status.UNAUTHENTICATED]
            raise CallError(Status.UNAUTHENTICATED, text)
        try:
            said = await self._client.allowed_agents(token)
        except CallError as error:
            message = _MESSAGES.get(error.status)
            if message is None:
                raise
            raise CallError(error.status, message) from None
        return _read(said, _key(token).hex()[:8])


def as_answered(failure: Failure) -> NoReturn:
    """GitLab's own kas answers 500 where GitLab says nothing; so does this one."""
    error = failure.value
    if isinstance(error, CallError) and error.status is Status.UNAVAILABLE:
        raise CallError(Status.INTERNAL, error.message)
    failure.raiseException()


def _key(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


def _access_of(agent: str, answer: _Answer) -> Access | None:
    return answer.access(agent)


def _of_job(job: _Job, agent_id: str, config_project_id: int) -> Impersonation:
    environment = job.environment
    groups = ["gitlab:ci_job"]
    for group in job.group_ids:
        groups.append(f"gitlab:group:{group}")
        if environment is not None:
            groups.append(f"gitlab:group_env_tier:{group}:{environment.tier}")
    project = job.project_id
    groups.append(f"gitlab:project:{project}")
    extra = {
        "id": agent_id,
        "config_project_id": str(config_project_id),
        "project_id": str(project),
        "ci_pipeline_id": str(job.pipeline_id),
        "ci_job_id": str(job.id),
        "username": job.username,
    }
    if environment is not None:
        groups.append(f"gitlab:project_env:{project}:{environment.slug}")
        groups.append(f"gitlab:project_env_tier:{project}:{environment.tier}")
        extra["environment_slug"] = environment.slug
        extra["environment_tier"] = environment.tier
    return Impersonation(
        username=f"gitlab:ci_job:{job.id}",
        groups=tuple(groups),
        extra={EXTRA + name: (value,) for name, value in extra.items()},
    )


# What GitLab says.


def _read(raw: dict[str, Any], token_id: str) -> _Answer:
    """
    An answer, checked.

    :raises CallError: UNAVAILABLE, it is not what GitLab says.
    """
    said = Said(raw, "allowed_agents")
    project = said.object("project")
    user = said.object("user")
    job = _Job(
        id=said.object("job").id("id"),
        pipeline_id=said.object("pipeline").id("id"),
        project_id=project.id("id"),
        group_ids=project.objects("groups", lambda group: group.id("id")),
        user_id=user.id("id"),
        username=user.text("username"),
        environment=_environment(said.optional("environment")),
    )
    user.id("id")
    allowed = dict(said.objects("allowed_agents", _read_allowed))
    return _Answer(job, token_id, allowed, 1 + len(str(raw)) // _ONE_ANSWER)


def _environment(said: Said | None) -> _Environment | None:
    if said is None:
        return None
    return _Environment(said.text("slug"), said.text("tier", optional=True))


def _read_allowed(said: Said) -> tuple[str, _Allowed]:
    agent_id = str(said.id("id"))
    config_project_id = said.object("config_project").id("id")
    configuration = said.optional("configuration")
    access_as = None
    if configuration is not None:
        access_as = configuration.optional("access_as")
    names = () if access_as is None else access_as.names
    impersonation = None
    problem = ""
    if access_as is None or names in ((), ("agent",), ("ci_job",)):
        pass
    elif names == ("impersonate",):
        try:
            impersonation = _impersonate(access_as.object("impersonate"))
        except CallError:
            # The other agents do not suffer from it.
            problem = "kas cannot read 'impersonate' of the agent's configuration"
    else:
        # To take an unknown one for the default would be to give the agent's rights.
        problem = "kas does not know the access_as of the agent's configuration"
    allowed = _Allowed(config_project_id, names == ("ci_job",), impersonation, problem)
    return agent_id, allowed


def _impersonate(said: Said) -> Impersonation:
    extra: dict[str, tuple[str, ...]] = {}
    entries = said.objects("extra", lambda one: (one.text("key"), one.texts("val")))
    for key, values in entries:
        extra[key] = (*extra.get(key, ()), *values)
    return Impersonation(
        username=said.text("username"),
        groups=said.texts("groups"),
        uid=said.text("uid", optional=True),
        extra=extra,
    )
