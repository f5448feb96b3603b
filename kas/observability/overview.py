"""Every agent, as `kasctl` shows it: connected, and where, or when it was last."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kas.agents.last_seen import LastSeen
from kas.directory.directory import Directory
from kas.directory.records import AgentRecord
from kas.identity.file import Agent
from tunnel.errors import CallError

__all__ = ["overview"]


async def overview(
    agents: Sequence[Agent], directory: Directory, last_seen: LastSeen
) -> dict[str, Any]:
    """
    Every agent of the identity file, as JSON; times are seconds since 1970.

    ``problem`` says why those of other kas may be missing; empty: they are not.
    """
    problem = ""
    records: Sequence[AgentRecord]
    try:
        records = await directory.agents()
    except CallError as error:
        problem = error.message
        records = directory.own()
    connections: dict[str, list[AgentRecord]] = {}
    for record in records:
        connections.setdefault(record.agent.agent_id, []).append(record)
    away = [agent.id for agent in agents if agent.id not in connections]
    seen = await last_seen.of(away)
    return {
        "problem": problem,
        "agents": [
            {
                "agent_id": agent.id,
                "agent_name": agent.name,
                "connected": agent.id in connections,
                "last_seen": seen.get(agent.id),
                "connections": [
                    _connection(record)
                    for record in sorted(
                        connections.get(agent.id, []),
                        key=lambda one: one.agent.connected_at,
                    )
                ],
            }
            for agent in agents
        ],
    }


def _connection(record: AgentRecord) -> dict[str, Any]:
    agent = record.agent
    return {
        "instance_id": agent.instance_id.hex(),
        "connected_at": agent.connected_at,
        "version": agent.version,
        "pod_namespace": agent.pod_namespace,
        "pod_name": agent.pod_name,
        "cluster_problem": agent.cluster_problem,
        "kubernetes_version": agent.kubernetes_version.git_version,
        "kas_id": record.kas_id.hex(),
        "kas_url": record.kas_url,
    }
