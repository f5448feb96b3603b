"""Commands and queries of `kasctl` for a running kas."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
from twisted.logger import Logger

from kas.agents.acceptor import AgentAcceptor
from kas.agents.last_seen import LastSeen
from kas.api.listener import operators_factory
from kas.api.services import ExternalServices
from kas.audit.log import AuditLog
from kas.fleet.balance import Balance
from kas.fleet.fleet import Fleet
from kas.identity.file_authenticator import FileAuthenticator
from kas.observability.overview import overview
from kas.observability.site import Health
from kas.state.control import control_site, parse_change
from kas.state.directory import StateDirectory
from kas.state.process_socket import CALLS, CONTROL, ProcessSocket
from tunnel.api import AuditStage

__all__ = ["Operations", "kasctl_sockets"]

#: Maximum number of problems of agents that `kasctl status` shows.
SHOWN_PROBLEMS = 100

#: Maximum seconds to wait for other kas when an operator queries them.
PEERS_PATIENCE = 2.0


@attrs.frozen(eq=False)
class Operations:
    """Implementation of `kas.state.control.Controlled`."""

    acceptor: AgentAcceptor
    fleet: Fleet
    balance: Balance
    health: Health
    identity: FileAuthenticator
    last_seen: LastSeen
    audit: AuditLog
    #: Problems of agents that modules reported: the agent's name and the problem, by
    #: module and agent id.
    problems: Mapping[str, Mapping[str, tuple[str, str]]]
    _log = Logger()

    def about(self) -> dict[str, Any]:
        """Describe this process, Redis and the other kas."""
        known: dict[str, Any] = {"pid": os.getpid(), "draining": self.acceptor.draining}
        clusters = {
            one.agent.agent_name: one.agent.cluster_problem
            for one in self.acceptor.registry
            if one.agent.cluster_problem
        }
        if clusters:
            known["cluster_problems"] = clusters
        reported = [
            (f"{name}: {module}", why)
            for module, agents in self.problems.items()
            for name, why in agents.values()
        ]
        reported += [
            (f"{one.agent.agent_name}: {module}", f"restarting: {why}")
            for one in self.acceptor.registry
            for module, why in one.restarting.items()
        ]
        if reported:
            known["agent_problems"] = dict(reported[:SHOWN_PROBLEMS])
        if self.fleet.redis is not None:
            known["redis"] = {
                "up": self.fleet.redis.up,
                "news": self.fleet.redis.listening,
                "reason": self.fleet.redis.reason,
            }
        if self.fleet.peers is not None and self.fleet.siblings is None:
            others = [self.fleet.peers.at(one.url) for one in self.fleet.others()]
            known["own_url"] = self.fleet.directory.me.url
            known["peers"] = len(others)
            known["peer_sessions"] = self.fleet.peers.connected
            unreached = {peer.url: peer.problem for peer in others if peer.problem}
            if unreached:
                known["peer_problems"] = unreached
            known["unreachable_peers"] = sorted(
                peer.url for peer in others if not peer.worth_trying
            )
        if self.fleet.gateway is not None and self.fleet.gateway.refusal:
            known["refused_peer"] = self.fleet.gateway.refusal
        return known

    async def drain(self) -> dict[str, Any]:
        """
        Move all agents to other kas, accept no new agents, and report this kas as not
        ready.
        """
        self._log.info("draining on request: asking every agent to connect elsewhere")
        self.health.ready = False
        self.balance.stop()
        self.acceptor.draining = True
        self.fleet.update(draining=True)
        tunnels = self.acceptor.registry.tunnels()
        self.balance.send_away(tunnels, "this kas is draining")
        return await self.progress()

    async def undrain(self) -> dict[str, Any]:
        """Accept agents again."""
        self._log.info("drain ended: accepting agents again")
        self.acceptor.draining = False
        self.fleet.update(draining=False)
        self.balance.start()
        self.health.ready = True
        return await self.progress()

    async def rebalance(self) -> dict[str, Any]:
        """
        Move the agents above the mean to other kas; ``asked`` is the number of these
        agents.
        """
        asked = self.balance.rebalance()
        return await self.progress() | ({"asked": asked} if asked else {})

    async def record_change(self, body: bytes) -> dict[str, Any]:
        """Write a change that `kasctl` made, or begins, to the audit log."""
        event = parse_change(body)
        if event.stage is not AuditStage.BEGUN:
            self.audit.record("kasctl", event)
            return {}
        event = attrs.evolve(event, id=self.audit.new_id())
        await self.audit.commit("kasctl", event)
        return {"id": event.id}

    async def progress(self) -> dict[str, Any]:
        """Return the numbers of agents and requests that are still at this kas."""
        registry = self.acceptor.registry
        streams = sum(one.tunnel.load for one in registry.tunnels())
        return {
            **self.about(),
            "ready": self.health.ready,
            "agents": registry.agents,
            "requests": streams + self.health.router.remote,
        }

    async def agents(self) -> dict[str, Any]:
        """Return all agents; see `kas.observability.overview`."""
        agents = self.identity.agents()
        return await overview(agents, self.fleet.directory, self.last_seen)

    async def peers(self) -> dict[str, Any]:
        """
        Describe the other kas, after an attempt to connect to each kas without a
        session.
        """
        await self.fleet.dial_all(PEERS_PATIENCE)
        return self.about()


def kasctl_sockets(
    operations: Operations,
    services: ExternalServices,
    state: StateDirectory,
    sockets: Mapping[str, int],
) -> Sequence[ProcessSocket]:
    """
    Return the sockets on which kas responds to `kasctl`.

    :param services: the services of modules, which `kasctl` calls directly.
    :param sockets: see `kas.service.KasService`.
    """
    reactor = operations.fleet.runtime.reactor
    calls = operators_factory(services, reactor)
    return [
        ProcessSocket(
            state, prefix, factory, reactor, commands, sockets.get(prefix.rstrip("-"))
        )
        for prefix, factory, commands in (
            (CONTROL, control_site(operations), "drain and rebalance"),
            (CALLS, calls, "gitops"),
        )
    ]
