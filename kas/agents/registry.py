"""The agents that are connected to this process."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar, Final

from twisted.logger import Logger

from kas.agents.conflicts import Conflicts
from kas.agents.waiters import Waiters
from tunnel.api import ConnectedAgent
from tunnel.errors import ErrorCode
from tunnel.pb import tunnel_pb2 as pb
from tunnel.session.keepalive import LOOK, LOOKS_TO_END
from tunnel.session.protocol import TunnelProtocol
from tunnel.toolkit.counts import one_less

#: Maximum number of instances (pods) of one agent at this kas.  Two or three are usual;
#: kas examines each instance for every request, and a client with a stolen token must
#: not fill the table.  The same number of instances may be retired in addition: a
#: retired instance stays until its streams have ended.
MAX_INSTANCES: Final = 256

#: Seconds after its HELLO for which an instance counts as alive when another one
#: connects: the maximum time of a ping.  Without this limit, each of thousands of
#: agents that connect at the same time would be pinged many times.
FRESH: Final = LOOK * LOOKS_TO_END


def is_restart(newer: ConnectedAgent, older: ConnectedAgent) -> bool:
    """
    Return whether *newer* is a later run of agentk in the same pod, so that *older* has
    ended.
    """
    return (
        newer.instance_id != older.instance_id
        and bool(newer.pod_name)
        and older.pod_name == newer.pod_name
        and older.pod_namespace == newer.pod_namespace
        and older.connected_at < newer.connected_at
    )


class AgentConnection:
    """
    One tunnel, and the agent that is connected through it.

    :ivar credential_id: the credential of the agent; the tunnel ends when the
        credential is revoked.
    :ivar leaving: whether kas asked the agent to leave: the tunnel accepts streams
        until the agent is connected elsewhere.
    :ivar retired: whether the tunnel accepts no new streams; running streams may
        finish.
    :ivar extra: whether this is an extra tunnel of an instance that is connected to
        another kas.
    :ivar restarting: the modules of agentk that failed, with the reasons.
    :ivar reported_at: when the agent last reported a change; see `kas.agents.reports`.
    """

    __slots__ = (
        "agent",
        "credential_id",
        "extra",
        "leaving",
        "reported_at",
        "restarting",
        "retired",
        "tunnel",
    )

    def __init__(
        self,
        tunnel: TunnelProtocol,
        agent: ConnectedAgent,
        credential_id: str,
        extra: bool = False,
    ) -> None:
        self.tunnel = tunnel
        self.agent = agent
        self.credential_id = credential_id
        self.restarting: dict[str, str] = {}
        self.extra = extra
        self.leaving = False
        self.retired = False
        self.reported_at = -math.inf


class Registry:
    """
    Registry of the connected agents, their instances (pods), and the newest connection
    of each instance.

    As soon as a connection is added, the registry calls the waiters for its agent.

    An agent that is connected to another kas may have an extra tunnel here.  Extra
    tunnels are only additional paths for streams: kas counts only connections and
    publishes only connections to other kas, so iterating yields only connections.
    """

    _log: ClassVar = Logger()

    def __init__(self) -> None:
        self._agents: dict[str, dict[bytes, AgentConnection]] = {}
        self._by_tunnel: dict[TunnelProtocol, AgentConnection] = {}
        #: Extra tunnels, by agent and instance.
        self._extra: dict[str, dict[bytes, AgentConnection]] = {}
        self._extra_by_tunnel: dict[TunnelProtocol, AgentConnection] = {}
        #: Connections and extra tunnels that accept streams, by agent.  Callers must
        #: not modify this table.
        self.serving: dict[str, tuple[AgentConnection, ...]] = {}
        #: Number of retired connections and extra tunnels that still exist, by agent.
        self._retired: Counter[str] = Counter()
        self._waiters = Waiters()
        self._conflicts = Conflicts()
        #: Callback with the id of each agent that connects, here or at another kas.
        self.on_connected: Callable[[str], None] = lambda agent_id: None

    def __len__(self) -> int:
        return len(self._by_tunnel)

    def __iter__(self) -> Iterator[AgentConnection]:
        return iter(tuple(self._by_tunnel.values()))

    def tunnels(self) -> Iterator[AgentConnection]:
        """Yield connections and extra tunnels."""
        return iter((*self._by_tunnel.values(), *self._extra_by_tunnel.values()))

    @property
    def extra(self) -> int:
        """Number of extra tunnels that accept streams."""
        return sum(len(instances) for instances in self._extra.values())

    @property
    def agents(self) -> int:
        """Number of agents with at least one connection."""
        return len(self._agents)

    def add(self, connection: AgentConnection) -> bool:
        """
        Add a connection, and close an older connection of the same instance at once.

        :returns: False if the instance already has a *newer* connection.
        """
        agent = connection.agent
        instances = self._agents.setdefault(agent.agent_id, {})
        older = instances.get(agent.instance_id)
        if older is not None:
            if older.agent.generation > agent.generation:
                return False
            self._log.info(
                "agent {agent_name}: a newer connection replaces the one from {peer}",
                agent_name=agent.agent_name,
                peer=older.tunnel.peer,
            )
            self._supersede(older)
            instances = self._agents.setdefault(agent.agent_id, {})
        self.replaced(agent)
        instances = self._agents.setdefault(agent.agent_id, {})
        instances[agent.instance_id] = connection
        self._by_tunnel[connection.tunnel] = connection
        self._changed(agent.agent_id)
        self.wake(agent.agent_id)
        return True

    def add_extra(self, connection: AgentConnection) -> None:
        """Add an extra tunnel, in place of an older extra tunnel of the same agentk."""
        agent = connection.agent
        older = self._extra.get(agent.agent_id, {}).get(agent.instance_id)
        if older is not None:
            self._supersede(older)
        self._extra.setdefault(agent.agent_id, {})[agent.instance_id] = connection
        self._extra_by_tunnel[connection.tunnel] = connection
        self._changed(agent.agent_id)
        self.wake(agent.agent_id)

    def _supersede(self, older: AgentConnection) -> None:
        if older.leaving and older.tunnel.alive:
            # kas itself requested the newer tunnel: streams on the older one may
            # finish.
            self.retire(older.tunnel)
            older.tunnel.ask()
            return
        self.remove(older.tunnel)
        # Cut the older tunnel instead of closing it, because its path may be dead, and
        # the agent has given it up.
        older.tunnel.end(ErrorCode.SUPERSEDED, "a newer connection took over")

    def superseded(self, agent: ConnectedAgent) -> None:
        """
        Close the connection of an instance that has a newer connection at another kas.
        """
        held = self.connection(agent)
        if held is not None:
            self._supersede(held)

    def replaced(self, newer: ConnectedAgent) -> None:
        """
        Check older connections when an agent connects, here or at another kas.

        A pod runs one agentk, so the connection of its earlier run is dead, even if it
        seems alive for a while. Other connections may be dead, too: ping all
        connections except the ones with a recent HELLO.
        """
        self.on_connected(newer.agent_id)
        for held in self.instances(newer.agent_id):
            agent = held.agent
            if agent.instance_id == newer.instance_id:
                continue
            if is_restart(newer, agent):
                why = self._conflicts.replaced(agent, newer)
                self._log.info(
                    "agent {agent_name}: replacing pod {pod}: {why}",
                    agent_name=agent.agent_name,
                    pod=agent.pod_name,
                    why=why,
                )
                # When the tunnel ends, the connection is removed here and all kas are
                # notified.
                held.tunnel.end(ErrorCode.SUPERSEDED, why)
            elif not 0 <= newer.connected_at - agent.connected_at < FRESH:
                held.tunnel.ask()

    def send_away(self, connection: AgentConnection, go_away: pb.GoAway) -> None:
        """
        Ask an agent to connect elsewhere; the connection accepts streams until then.
        """
        connection.leaving = True
        connection.tunnel.go_away(go_away)

    def retire(self, tunnel: TunnelProtocol) -> AgentConnection | None:
        """
        Stop sending new streams to a tunnel.

        :returns: the connection; None if it was retired or replaced before.
        """
        connection = self._by_tunnel.get(tunnel) or self._extra_by_tunnel.get(tunnel)
        if connection is None or connection.retired:
            return None
        connection.retired = True
        self._retired[connection.agent.agent_id] += 1
        self._take_out(connection)
        return connection

    def is_full(self, agent_id: str, instance_id: bytes) -> bool:
        """Return whether the agent has the maximum number of tunnels."""
        if self._retired[agent_id] >= MAX_INSTANCES:
            return True
        held = self.instances(agent_id)
        return len(held) >= MAX_INSTANCES and not any(
            one.agent.instance_id == instance_id for one in held
        )

    def wake(self, agent_id: str) -> None:
        """Notify all waiters that the agent is here or accepts more streams."""
        self._waiters.wake(agent_id)

    def remove(self, tunnel: TunnelProtocol) -> AgentConnection | None:
        """
        Forget a tunnel and return its connection; None if the tunnel was replaced
        before.
        """
        connection = self._by_tunnel.pop(tunnel, None)
        if connection is None:
            connection = self._extra_by_tunnel.pop(tunnel, None)
        if connection is not None:
            self._take_out(connection)
            if connection.retired:
                one_less(self._retired, connection.agent.agent_id)
        return connection

    def _take_out(self, connection: AgentConnection) -> None:
        agent = connection.agent
        agents = self._extra if connection.extra else self._agents
        instances = agents.get(agent.agent_id, {})
        if instances.get(agent.instance_id) is connection:
            del instances[agent.instance_id]
            if not instances:
                del agents[agent.agent_id]
            self._changed(agent.agent_id)

    def _changed(self, agent_id: str) -> None:
        """Update `serving` for an agent."""
        both = (self._agents.get(agent_id), self._extra.get(agent_id))
        serving = tuple(one for some in both if some for one in some.values())
        if serving:
            self.serving[agent_id] = serving
        else:
            self.serving.pop(agent_id, None)

    def connection(self, agent: ConnectedAgent) -> AgentConnection | None:
        """
        Return the current connection of the instance *agent*; None if *agent* is not
        current.
        """
        held = self._agents.get(agent.agent_id, {}).get(agent.instance_id)
        if held is None or held.agent.generation != agent.generation:
            return None
        return held

    def credential_id(self, agent: ConnectedAgent) -> str | None:
        """Return the id of the credential that *agent* uses."""
        connection = self.connection(agent)
        return None if connection is None else connection.credential_id

    def instance(self, agent_id: str, instance_id: bytes) -> AgentConnection | None:
        """
        Return the connection of one instance; None if no connection accepts streams.
        """
        for agents in (self._agents, self._extra):
            connection = agents.get(agent_id, {}).get(instance_id)
            if connection is not None and connection.tunnel.alive:
                return connection
        return None

    def instances(self, agent_id: str) -> Sequence[AgentConnection]:
        """
        Return the connections that can carry streams to an agent, including extra
        tunnels.
        """
        return self.serving.get(agent_id, ())

    def wait(self, agent_id: str, wake: Callable[[], None]) -> Callable[[], None]:
        """
        Call *wake* once when the agent connects; return a function that cancels this.
        """
        return self._waiters.add(agent_id, wake)

    @property
    def waiting(self) -> int:
        """Number of waiters for an agent."""
        return len(self._waiters)

    def revoke(self, credential_id: str) -> None:
        """End every tunnel that was accepted for a credential."""
        for connection in self.tunnels():
            if connection.credential_id == credential_id:
                connection.tunnel.end(
                    ErrorCode.UNAUTHENTICATED, "the credential was revoked"
                )
