"""
kas' half: returns the connected agents, which it gets from `IServerModuleApi.agents`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import attrs
from google.protobuf.timestamp_pb2 import Timestamp
from twisted.logger import Logger
from zope.interface import implementer, provider

from modules.agent_tracker import list_pb2, rpc_pb2
from modules.agent_tracker.entity_pb2 import AgentMeta, KubernetesVersion
from tunnel.api import (
    ConnectedAgent,
    IServerModule,
    IServerModuleApi,
    IServerModuleFactory,
)
from tunnel.details import bad_request
from tunnel.errors import CallError, Status

__all__ = ["AgentTrackerConfiguration", "AgentTrackerServer"]

TRACKER = rpc_pb2.DESCRIPTOR.services_by_name["AgentTracker"]
AGENTS = list_pb2.DESCRIPTOR.services_by_name["Agents"]

#: Maximum number of agents in one request: each agent may need a lookup, and a page of
#: GitLab shows a hundred agents.
MAX_IDS = 1000

#: Maximum bytes of a response about several agents, which kas reads one by one: clients
#: accept no larger message.
MAX_RESPONSE = 4 * 1024 * 1024

_INT63 = 2**63 - 1


@attrs.frozen(kw_only=True)
class AgentTrackerConfiguration:
    """``modules.agent_tracker``: the section has no settings."""


@provider(IServerModuleFactory)
@implementer(IServerModule)
class AgentTrackerServer:
    """
    Implementation of `AgentTracker`, for GitLab, and `Agents`, for all other clients.
    """

    _log = Logger()
    configuration = AgentTrackerConfiguration

    def __init__(self, api: IServerModuleApi) -> None:
        self.name = api.name
        self._api = api
        self._complained = False
        api.calls.handle_external(TRACKER, self)
        api.calls.handle_external(AGENTS, self)

    async def start(self) -> None:
        """Do nothing: the module needs no preparation."""

    async def stop(self) -> None:
        """Do nothing: the module holds no resources."""

    async def get_connected_agents(
        self, request: rpc_pb2.GetConnectedAgentsRequest, call: Any
    ) -> rpc_pb2.GetConnectedAgentsResponse:
        """Return the connections of one agent, or of the agents of one project."""
        which = request.WhichOneof("request")
        if which is None:
            raise _invalid("request", "needs either project_id or agent_id")
        number = getattr(request, which)
        if number <= 0:
            raise _invalid(which, "must be above 0")
        if which == "agent_id":
            found = await self._api.agents.find(agent_id=str(number))
        else:
            found = await self._api.agents.find(project_id=number)
        return rpc_pb2.GetConnectedAgentsResponse(agents=self._infos(found))

    async def get_connected_agents_by_agent_ids(
        self, request: rpc_pb2.GetConnectedAgentsByAgentIDsRequest, call: Any
    ) -> rpc_pb2.GetConnectedAgentsByAgentIDsResponse:
        """Return the connections of several agents."""
        if len(request.agent_ids) > MAX_IDS:
            raise _invalid("agent_ids", f"may name at most {MAX_IDS} agents")
        for index, number in enumerate(request.agent_ids):
            if number <= 0:
                raise _invalid(f"agent_ids[{index}]", "must be above 0")
        infos: list[rpc_pb2.ConnectedAgentInfo] = []
        size = 0
        for number in dict.fromkeys(request.agent_ids):
            found = await self._api.agents.find(agent_id=str(number))
            for info in self._infos(found):
                size += info.ByteSize()
                if size > MAX_RESPONSE:
                    text = (
                        "the connections of these agents have more than "
                        f"{MAX_RESPONSE // 1024**2} MiB: request fewer agents"
                    )
                    raise CallError(Status.RESOURCE_EXHAUSTED, text)
                infos.append(info)
        return rpc_pb2.GetConnectedAgentsByAgentIDsResponse(agents=infos)

    async def list(
        self, request: list_pb2.ListRequest, call: Any
    ) -> list_pb2.ListResponse:
        """Return the connections of all agents."""
        found = sorted(
            await self._api.agents.find(),
            key=lambda one: (one.agent_name, one.connected_at),
        )
        return list_pb2.ListResponse(
            agents=[
                list_pb2.Agent(
                    agent_id=agent.agent_id,
                    agent_name=agent.agent_name,
                    project_id=agent.project_id,
                    instance_id=agent.instance_id,
                    connected_at=_timestamp(agent.connected_at),
                    meta=_meta(agent),
                    cluster_problem=agent.cluster_problem,
                )
                for agent in found
            ]
        )

    def _infos(
        self, agents: Iterable[ConnectedAgent]
    ) -> Iterable[rpc_pb2.ConnectedAgentInfo]:
        for agent in agents:
            number = _number(agent.agent_id)
            if number is None:
                if not self._complained:
                    self._log.warn(
                        "agent {agent_id} is left out of responses to GitLab, which "
                        "accepts only numeric agent ids",
                        agent_id=agent.agent_id,
                    )
                self._complained = True
                continue
            yield rpc_pb2.ConnectedAgentInfo(
                agent_meta=_meta(agent),
                connected_at=_timestamp(agent.connected_at),
                connection_id=connection_id(agent.instance_id),
                agent_id=number,
                project_id=agent.project_id,
            )


def _invalid(field: str, why: str) -> CallError:
    details = [bad_request({field: why})]
    return CallError(Status.INVALID_ARGUMENT, f"{field} {why}", details)


def connection_id(instance_id: bytes) -> int:
    """Return a positive number that identifies an agentk process."""
    return int.from_bytes(instance_id[:8], "big") & _INT63 or 1


def _number(agent_id: str) -> int | None:
    if not (agent_id.isascii() and agent_id.isdecimal() and len(agent_id) < 20):
        return None
    number = int(agent_id)
    return number if 0 < number <= _INT63 else None


def _timestamp(seconds: float) -> Timestamp:
    stamp = Timestamp()
    stamp.FromMilliseconds(round(seconds * 1000))
    return stamp


def _meta(agent: ConnectedAgent) -> AgentMeta:
    kubernetes = agent.kubernetes_version
    return AgentMeta(
        version=agent.version,
        commit_id=agent.commit_id,
        pod_namespace=agent.pod_namespace,
        pod_name=agent.pod_name,
        kubernetes_version=KubernetesVersion(
            major=kubernetes.major,
            minor=kubernetes.minor,
            git_version=kubernetes.git_version,
            platform=kubernetes.platform,
        ),
    )
