"""
Authenticator for CI jobs of GitLab: ``ci:<agent id>:<CI_JOB_TOKEN>``.

GitLab determines the agents that a job may use, and the job's user in the cluster, from
``ci_access`` in the configuration of each agent: from the projects and groups,
environments and protected branches there.
"""

from __future__ import annotations

import re
from typing import Any

import attrs
from zope.interface import implementer

from kas.gitlab.credentials import EXTRA, ONE_ANSWER, GitLabCredentials, key_of
from kas.gitlab.json_object import JsonObject
from kas.gitlab.usage import used_via
from tunnel.api import Access, IAuthenticator, Impersonation
from tunnel.errors import CallError, Status

__all__ = ["GitLabJobs"]

#: Maximum characters of a token: signed tokens (JWT) have about a thousand.
MAX_TOKEN = 8 * 1024

_TOKEN = re.compile("[!-~]+")

_MESSAGES = {
    Status.UNAUTHENTICATED: "GitLab does not know this CI job token, or its job ended",
    Status.PERMISSION_DENIED: "GitLab does not permit this job to use agents",
    Status.NOT_FOUND: "according to GitLab, this is not the token of a CI job",
}


@attrs.frozen
class _Environment:
    slug: str
    tier: str


@attrs.frozen
class _Job:
    """Identity of a CI job, for its user in the cluster."""

    id: int
    pipeline_id: int
    project_id: int
    group_ids: tuple[int, ...]
    user_id: int
    username: str
    environment: _Environment | None


@attrs.frozen
class _Allowed:
    """Agent that a job may use, with the job's permissions there."""

    config_project_id: int
    #: Whether the job acts as itself; otherwise the job acts as *impersonation*, or
    #: with the agent's permissions.
    as_job: bool
    impersonation: Impersonation | None
    #: Reason why the agent cannot be used; empty if it can be used.
    problem: str = ""


@attrs.define(eq=False)
class _Answer:
    """GitLab's response about one token."""

    job: _Job
    token_id: str
    allowed: dict[str, _Allowed]
    weight: int
    #: Accesses by agent, created when first requested, and reused, because every
    #: request needs the access.
    accesses: dict[str, Access] = attrs.field(factory=dict)

    def access(self, agent_id: str) -> Access | None:
        """Return the job's access to an agent; None if the job has no access."""
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
                weight=2,
                owner=f"ci_job:{self.job.id}",
                budget_owner=f"ci_project:{self.job.project_id}",
            )
        return access

    def problem(self, agent_id: str) -> str:
        """Return why the job has no access to an agent."""
        allowed = self.allowed.get(agent_id)
        return allowed.problem if allowed else "Forbidden: agentId is not allowed"


@implementer(IAuthenticator)
class GitLabJobs(GitLabCredentials[str, _Answer]):
    """Authenticator that asks GitLab for the agents of a job (``allowed_agents``)."""

    user_kinds = ("ci",)
    naming = "agents of GitLab must be named by their id: ci:<agent id>:<token>"

    def subject(self, agent: str, token: str) -> tuple[bytes, str]:
        """
        Return the key and the subject of a request; a single response contains all
        agents of the job.
        """
        return key_of(token), token

    async def ask(self, token: str) -> _Answer:
        """See `GitLabCredentials.ask`."""
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
        return _read(said, key_of(token).hex()[:8])


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


# Functions that parse GitLab's responses.


def _read(raw: dict[str, Any], token_id: str) -> _Answer:
    """
    Parse and check a response.

    :raises CallError: UNAVAILABLE if the response is malformed.
    """
    said = JsonObject(raw, "allowed_agents")
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
    return _Answer(job, token_id, allowed, 1 + len(str(raw)) // ONE_ANSWER)


def _environment(said: JsonObject | None) -> _Environment | None:
    if said is None:
        return None
    return _Environment(said.text("slug"), said.text("tier", optional=True))


def _read_allowed(said: JsonObject) -> tuple[str, _Allowed]:
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
            # Record the problem, so that a problem of one agent does not affect the
            # others.
            problem = (
                "kas does not understand 'impersonate' in the agent's configuration"
            )
    else:
        # Refuse an unknown kind: treating it as the default would grant the agent's
        # permissions.
        problem = (
            "kas does not support the kind of access_as in the agent's configuration"
        )
    allowed = _Allowed(config_project_id, names == ("ci_job",), impersonation, problem)
    return agent_id, allowed


def _impersonate(said: JsonObject) -> Impersonation:
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
