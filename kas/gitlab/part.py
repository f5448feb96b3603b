"""GitLab as a part of kas: credentials, projects of agents, and usage reports."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from twisted.internet.interfaces import IReactorTime

from kas.config.gitlab import GitLab
from kas.config.schema import KasConfiguration
from kas.gitlab.agents import GitLabAgents
from kas.gitlab.cache import Lifetimes, Refusals
from kas.gitlab.client import MAX_REQUESTS, GitLabClient
from kas.gitlab.jobs import GitLabJobs
from kas.gitlab.metrics import GitLabCollector
from kas.gitlab.module_requests import GitLabForAgents
from kas.gitlab.projects import AgentProjects
from kas.gitlab.registrations import Registrations
from kas.gitlab.usage import UsageReport
from kas.gitlab.users import PERSONAL_ACCESS_TOKENS, SESSIONS, GitLabUsers
from kas.http_client import make_agent
from kas.identity.authenticators import Authenticators
from kas.identity.failed_checks import FailedChecks
from tunnel.api import (
    AgentConnected,
    AgentMoved,
    ConnectedAgent,
)
from tunnel.config import CredentialCaching
from tunnel.hosting.modules import Prepared
from tunnel.hosting.stores import Stores
from tunnel.program.parts import Part, Phase
from tunnel.program.runtime import Runtime

__all__ = ["GitLabPart", "NoGitLab"]


class NoGitLab(Part):
    """
    Replacement for `GitLabPart` in a kas without GitLab, which refuses agents' requests
    to GitLab.
    """

    name = "gitlab"
    usage = None
    #: Origins of pages that may send requests from a user's browser.
    origins: tuple[str, ...] = ()

    def __init__(self, clock: IReactorTime) -> None:
        self.projects = AgentProjects(clock)
        self.access = GitLabForAgents(None, lambda agent: None, clock)


class GitLabPart(Part):
    """
    GitLab as the source of agents, jobs and users, in addition to the identity file.

    :param settings: the section ``gitlab``.
    :param modules: the modules, which may set the lifetimes of cached responses about
        users.
    :param credential_of: returns the id of a connected agent's credential.
    :param redis: the Redis client of the directory; None if kas is alone and shares no
        refusals.
    """

    name = "gitlab"

    def __init__(
        self,
        settings: GitLab,
        configuration: KasConfiguration,
        modules: Iterable[Prepared],
        runtime: Runtime,
        credential_of: Callable[[ConnectedAgent], str | None],
        stores: Stores,
        redis: Any,
    ) -> None:
        self._settings = settings
        self.origins = settings.origins
        self._configuration = configuration
        self._caching = _credential_caching(modules)
        self._runtime = runtime
        self._credential_of = credential_of
        self._redis = redis
        reactor = runtime.reactor
        agent = make_agent(
            settings.ca_certificate_file,
            "gitlab.ca_certificate_file",
            reactor,
            runtime.environ,
            connections=MAX_REQUESTS,
        )
        self._client = client = GitLabClient(settings, agent, reactor, runtime.now)
        self.projects = AgentProjects(
            reactor,
            client,
            moved=lambda agent_id: runtime.bus.publish(AgentMoved(agent_id)),
        )
        self._agents: GitLabAgents | None = None
        self.usage: UsageReport | None = None
        self._registrations: Registrations | None = None
        period = configuration.observability.usage_reporting_period
        if period:
            store = stores.open("kas.gitlab", "usage")
            me = runtime.instance_id.hex()
            self.usage = UsageReport(client.post, store, me, period, reactor)
            self._registrations = Registrations(client.post, period, reactor)
            runtime.bus.subscribe("kas", AgentConnected, self._registrations.connected)
        #: Implementation of agents' requests to GitLab.
        self.access = GitLabForAgents(client, self._token, reactor)
        runtime.metrics.register(GitLabCollector(client, self.access))

    def _make_agents(self, in_use: Callable[[], set[str]]) -> GitLabAgents:
        times = self._configuration.agent
        lifetimes = Lifetimes(
            success=times.info_cache_ttl,
            error=times.info_cache_error_ttl,
            outage=times.info_cache_outage_ttl,
        )
        return GitLabAgents(
            self._client,
            lifetimes,
            in_use,
            self._runtime.reactor,
            self.projects,
            self._shared_refusals(self._client.is_taken, "agent_info_errs"),
        )

    def serve(
        self,
        authenticators: Authenticators,
        agents_in_use: Callable[[], set[str]],
        in_use: Callable[[], set[str]],
    ) -> None:
        """
        Register the authenticators that ask GitLab about agents, jobs and users.

        :param agents_in_use: returns the ids of credentials of connected agents.
        :param in_use: returns the ids of users' credentials with open connections.
        """
        reactor, client = self._runtime.reactor, self._client
        authenticators.failed = FailedChecks(
            self._settings.failed_checks_per_address_per_minute,
            reactor,
            self._runtime.random,
        )
        caching = self._caching
        lifetimes = Lifetimes(
            success=caching.allowed_agent_cache_ttl,
            error=caching.allowed_agent_cache_error_ttl,
            outage=caching.allowed_agent_cache_outage_ttl,
        )
        # Treat every refusal as proven: this request contains only the job's own token,
        # and no signature of kas.
        of_jobs = self._shared_refusals(lambda: True, "allowed_agents_errs")
        jobs = GitLabJobs(client, lifetimes, in_use, reactor, of_jobs)
        users = [
            GitLabUsers(
                kind,
                client,
                lifetimes,
                in_use,
                reactor,
                self._shared_refusals(
                    client.is_taken, f"auth_proxy_user_errs:{kind.access_type}"
                ),
            )
            for kind in (PERSONAL_ACCESS_TOKENS, SESSIONS)
        ]
        checkers: list[GitLabAgents | GitLabJobs | GitLabUsers]
        self._agents = self._make_agents(agents_in_use)
        checkers = [self._agents, jobs, *users]
        for one in checkers:
            authenticators.add(one)
            authenticators.run(one.renewal)

    def _shared_refusals(
        self, proven: Callable[[], bool], family: str
    ) -> Refusals | None:
        """
        Return the store of GitLab's refusals that all kas share; None if this kas runs
        alone.
        """
        settings = self._configuration.redis
        if self._redis is None or settings is None:
            return None
        # Import the class here, because importing it installs a reactor.
        from kas.gitlab.refusals import SharedRefusals

        prefix, clock = settings.key_prefix, self._runtime.reactor
        return SharedRefusals(self._redis, prefix, family, clock, proven)

    def _token(self, agent: ConnectedAgent) -> bytes | None:
        """Return the GitLab token of a connected agent."""
        credential_id = self._credential_of(agent)
        if credential_id is None or self._agents is None:
            return None
        return self._agents.renewal.subject(credential_id)

    async def start(self) -> None:
        """Start to report usage and registrations."""
        if self.usage is not None:
            self.usage.start()
        if self._registrations is not None:
            self._registrations.start()

    async def drain(self, phase: Phase) -> None:
        """Send the last reports after the modules have stopped."""
        if phase is not Phase.STORES:
            return
        if self._registrations is not None:
            self._registrations.stop()
        if self.usage is not None:
            await self.usage.stop()


def _credential_caching(modules: Iterable[Prepared]) -> CredentialCaching:
    """
    Return the lifetimes of cached credentials, as set by the module for users'
    connections.
    """
    for module in modules:
        if isinstance(module.configuration, CredentialCaching):
            return module.configuration
    return CredentialCaching()
