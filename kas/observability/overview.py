"""Every agent, as `kasctl` shows it: its connections, or when it was last connected."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tunnel.errors import CallError

if TYPE_CHECKING:
    # Do not import this class for `kasctl`, which starts faster without this import.
    from kas.agents.last_seen import LastSeen
    from kas.directory.directory import Directory
    from kas.directory.records import AgentRecord
    from kas.identity.file import Agent

__all__ = ["joined", "overview"]


async def overview(
    agents: Sequence[Agent], directory: Directory, last_seen: LastSeen
) -> dict[str, Any]:
    """
    Return every agent of the identity file, and every other connected agent.

    The result is JSON data; times are seconds since 1970. ``problem`` is the reason why
    agents of other kas may be missing; empty if no agents are missing. ``connected`` is
    null for an agent that may be connected to a kas whose agents are missing.
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
                "connected": _is_connected(connections.get(agent_id), problem),
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


def joined(
    overviews: Iterable[Mapping[str, Any]], problems: Sequence[str]
) -> dict[str, Any]:
    """
    Combine the overviews of several processes.

    :param problems: reasons why further connections may exist.
    """
    problem = "; ".join(problems)
    agents: dict[str, dict[str, Any]] = {}
    connections: dict[str, dict[str, Any]] = {}
    for said in overviews:
        for one in said["agents"]:
            agent_id, seen = one["agent_id"], one["last_seen"]
            agent = agents.setdefault(agent_id, {**one})
            agent["last_seen"] = max(
                (time for time in (agent["last_seen"], seen) if time is not None),
                default=None,
            )
            of_instances = connections.setdefault(agent_id, {})
            for connection in one["connections"]:
                before = of_instances.setdefault(connection["instance_id"], connection)
                if connection["connected_at"] > before["connected_at"]:
                    of_instances[connection["instance_id"]] = connection
    for agent_id, agent in agents.items():
        agent["connections"] = list(connections[agent_id].values())
        agent["connected"] = _is_connected(agent["connections"], problem)
    return {"problem": problem, "agents": list(agents.values())}


def _is_connected(connections: Sequence[object] | None, problem: str) -> bool | None:
    """Return whether an agent is connected; None if this is unknown."""
    if connections:
        return True
    return None if problem else False


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
