"""Reports of connected agents about themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
from twisted.logger import Logger

from kas.agents.registry import Registry
from tunnel.api import (
    AgentChanged,
    ConnectedAgent,
)
from tunnel.errors import CallError, Status
from tunnel.pb import reports_pb2
from tunnel.program.runtime import Runtime
from tunnel.rpc.dispatch import Dispatcher
from tunnel.toolkit.texts import clean

__all__ = ["AgentReports"]

_SERVICE = reports_pb2.DESCRIPTOR.services_by_name["AgentReports"]

#: Maximum characters of a stored problem.
MAX_PROBLEM = 400

#: Maximum number of modules of one agent that are remembered as restarting; an agent
#: has at most a dozen modules.
MAX_MODULES = 32

#: Maximum characters of the stored name of a module.
MAX_NAME = 64

#: Minimum seconds between two changes of one connection, because each change is sent to
#: all kas.
MIN_INTERVAL = 2.0


@attrs.define(eq=False)
class AgentReports:
    """
    Implementation of the service ``AgentReports``, which connected agents call.

    A change of an agent's cluster problem is published as `AgentChanged`.
    """

    _registry: Registry
    _runtime: Runtime
    _log = Logger()

    def serve(self, dispatcher: Dispatcher) -> None:
        """Register the service."""
        dispatcher.handle("kas", _SERVICE, self)

    async def cluster(
        self, report: reports_pb2.ClusterReport, call: Any
    ) -> reports_pb2.ClusterReported:
        """Record whether the agent reaches its cluster."""
        problem = clean(report.problem, MAX_PROBLEM)
        agent: ConnectedAgent | None = call.agent
        connection = None if agent is None else self._registry.connection(agent)
        if connection is None:
            raise CallError(Status.FAILED_PRECONDITION, "the agent is not connected")
        before = connection.agent.cluster_problem
        if problem == before:
            return reports_pb2.ClusterReported()
        now = self._runtime.reactor.seconds()
        if now - connection.reported_at < MIN_INTERVAL:
            raise CallError(Status.RESOURCE_EXHAUSTED, "the state changes too often")
        connection.reported_at = now
        changed = attrs.evolve(connection.agent, cluster_problem=problem)
        connection.agent = connection.tunnel.agent = changed
        if bool(problem) != bool(before):
            self._tell(changed)
        self._runtime.bus.publish(AgentChanged(changed))
        return reports_pb2.ClusterReported()

    async def modules(
        self, report: reports_pb2.ModulesReport, call: Any
    ) -> reports_pb2.ModulesReported:
        """
        Record the modules of agentk that failed, for ``kasctl status`` of this kas.
        """
        agent: ConnectedAgent | None = call.agent
        connection = None if agent is None else self._registry.connection(agent)
        if connection is None:
            raise CallError(Status.FAILED_PRECONDITION, "the agent is not connected")
        connection.restarting = {
            clean(one.module, MAX_NAME): clean(one.problem, MAX_PROBLEM)
            for one in report.restarting[:MAX_MODULES]
        }
        return reports_pb2.ModulesReported()

    def _tell(self, agent: ConnectedAgent) -> None:
        say: Callable[..., None] = self._log.info
        text = "agentk {agent_name} ({agent_id}) can reach the Kubernetes API again"
        if agent.cluster_problem:
            say, text = self._log.warn, "agentk {agent_name} ({agent_id}): {problem}"
        say(
            text,
            agent_name=agent.agent_name,
            agent_id=agent.agent_id,
            problem=agent.cluster_problem,
        )
