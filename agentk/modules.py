"""API of a module's agent half."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import attrs
from zope.interface import implementer

from agentk.dialer import Dialer
from agentk.leader_election import LeaderElection
from tunnel.api import Access, IAgentModuleApi, ICluster, IOwnNamespace
from tunnel.errors import NOT_LEADING, CallError, Status
from tunnel.hosting.context import ModuleApi, ModuleContext
from tunnel.hosting.gitlab_access import SERVICE as GITLAB_ACCESS
from tunnel.hosting.gitlab_access import GitLabAccess
from tunnel.hosting.modules import Prepared
from tunnel.hosting.sections import Sections
from tunnel.http1 import UpstreamPool
from tunnel.kubernetes import KubernetesClient, KubernetesClients
from tunnel.rpc.client import ServiceClient


@attrs.define(eq=False)
class AgentContext(ModuleContext):
    """State that all modules of the process share."""

    kubernetes: KubernetesClients
    dialer: Dialer
    sections: Sections
    election: LeaderElection

    def release(self, name: str) -> None:
        """Take back what a module registered."""
        # Not super(): attrs makes the class again for its slots.
        ModuleContext.release(self, name)
        self.sections.withdraw(name)
        self.election.withdraw(name)


@implementer(IAgentModuleApi)
class AgentModuleApi(ModuleApi):
    """See `tunnel.api.IAgentModuleApi`."""

    def __init__(
        self,
        context: AgentContext,
        module: Prepared,
        fail: Callable[[str, Exception], None],
    ) -> None:
        super().__init__(context, module, fail)
        self._kubernetes = context.kubernetes
        self._dialer = context.dialer
        self._sections = context.sections
        self._election = context.election
        #: Puts a configuration from Git into effect.
        self.apply_sections = context.sections.apply
        #: Requests of this module to GitLab.
        self.gitlab = GitLabAccess(self._client(GITLAB_ACCESS), self.name)

    def follow_section(
        self, section: str, schema: type[Any], apply: Callable[[Any], None]
    ) -> None:
        """Call *apply* with a section of the agent's configuration."""
        self._sections.follow(self.name, section, schema, apply)

    @property
    def agent_id(self) -> str:
        """Our id, as kas said it."""
        return self._dialer.agent_id

    @property
    def agent_name(self) -> str:
        """Our name, as kas said it."""
        return self._dialer.agent_name

    @property
    def cluster_as_agentk(self) -> ICluster:
        """The API server with agentk's own credential."""
        cluster: ICluster = self._kubernetes.cluster
        return cluster

    @property
    def upstream(self) -> UpstreamPool:
        """The connections to it."""
        return self._kubernetes.pool

    def kubernetes_for(self, access: Access | None) -> KubernetesClient:
        """Return a client with the rights of a caller."""
        return self._kubernetes.acting_for(access)

    def kubernetes_as_service_account(
        self, namespace: str, name: str
    ) -> KubernetesClient:
        """Return a client with the rights of a ServiceAccount."""
        return self._kubernetes.as_service_account(namespace, name)

    def kubernetes_as_agentk(self) -> KubernetesClient:
        """Return a client with all rights of agentk."""
        return self._kubernetes.as_agentk()

    def client(self, service: Any) -> ServiceClient:
        """Return a client for *service* at kas."""
        if service.full_name == GITLAB_ACCESS.full_name:
            raise ValueError("GitLab is asked by api.gitlab, as this module alone")
        return self._client(service)

    def _client(self, service: Any) -> ServiceClient:
        return ServiceClient(service, self._dialer.open_stream, self.clock)

    def handle_as_leader(self, service: Any, implementation: object) -> None:
        """Answer calls of kas where this agentk leads."""
        self._dispatcher.handle(self.name, service, implementation, self._must_lead)

    def _must_lead(self) -> None:
        if not self.leads:
            raise CallError(Status.UNAVAILABLE, NOT_LEADING)

    @property
    def own_namespace(self) -> IOwnNamespace:
        """agentk's own namespace."""
        found = self._kubernetes.own_namespace
        assert found is not None
        return found

    @property
    def leads(self) -> bool:
        """Whether this agentk leads now."""
        return self._election.leading

    @property
    def lease(self) -> str:
        """Of all agentk that connect as this agent, and are in this namespace."""
        return self._election.lease

    def lead(self, run: Callable[[], Awaitable[None]]) -> None:
        """Run *run* whenever this agentk leads."""
        self._election.add(self.name, run)
