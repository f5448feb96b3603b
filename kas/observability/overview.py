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
    Every agent of the identity file, and every other one that is connected.

    As JSON; times are seconds since 1970.

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
    names = {agent.id: agent.name for agent in agents}
    away = [agent_id for agent_id in names if agent_id not in connections]
    for agent_id, held in connections.items():
        names.setdefault(agent_id, held[0].agent.agent_name)
    seen = await last_seen.of(away)
    return {
        "problem": problem,
        "agents": [
            {
                "agent_id": agent_id,
                "agent_name": name,
                "connected": agent_id in connections,
                "last_seen": seen.get(agent_id),
                "connections": [
                    _connection(record)
                    for record in sorted(
                        connections.get(agent_id, []),
                        key=lambda one: one.agent.connected_at,
                    )
                ],
            }
            for agent_id, name in names.items()
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
