"""
Router that finds paths to agents, and manages the streams that wait for a path.

The kas that routes a stream chooses an instance of the agent, and the kas to which this
instance is connected, and decides (in `stream`) whether to retry.  A gateway only
follows the request (`kas.fleet.gateway`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, Protocol

from twisted.internet.interfaces import IDelayedCall, IReactorTime

from kas.agents.registry import AgentConnection, Registry, is_restart
from kas.directory.directory import Directory
from kas.directory.records import AgentRecord
from kas.fleet.peers import Peer, Peers
from tunnel.api import ConnectedAgent, IStreamReceiver
from tunnel.errors import SessionClosed, StreamReset
from tunnel.pb import tunnel_pb2 as pb
from tunnel.program.runtime import Runtime
from tunnel.session.protocol import TunnelProtocol
from tunnel.session.resume import Keeper, ResumeLimits
from tunnel.session.stream import StreamTransport
from tunnel.toolkit.counts import one_less
from tunnel.toolkit.for_each import for_each
from tunnel.toolkit.recent import Recent

__all__ = ["Absences", "AgentPath", "Router"]

#: Seconds that a stream waits for its agent: a restart of agentk, or of its node's
#: network, takes less time, and a longer wait without a message would annoy users of
#: kubectl.
ROUTING_TIMEOUT: Final = 20.0

#: Seconds that a stream waits if another stream waited `ROUTING_TIMEOUT` in vain within
#: the last `MISSED_SECONDS`: clients such as kubectl retry several times before they
#: show an error, and one long wait is enough.
SHORT_TIMEOUT: Final = 2.0

#: Seconds that a stream waits for an agent that has never connected: the agent is
#: unlikely to connect now, and its operator should soon learn that it never connected.
NEVER_TIMEOUT: Final = 2.0

#: Seconds that a stream waits for an agent that has never connected, if another stream
#: waited in vain within the last `MISSED_SECONDS`.
NEVER_SHORT_TIMEOUT: Final = 0.2

#: Seconds after a wait in vain during which streams wait for a shorter time.
MISSED_SECONDS: Final = 60.0

#: Maximum number of remembered agents whose streams waited in vain; see
#: `Router._missed`.
MAX_MISSED: Final = 10_000

#: Maximum number of streams that wait for one agent, because each stream holds a
#: client's connection.
MAX_WAITING: Final = 2_000

#: Seconds between two checks whether an agent that did not respond, or had too many
#: streams, is available again; a new connection wakes the waiting streams at once.
LOOK_AGAIN: Final = 1.0

#: Limits on retransmission buffers in kas, which carries the streams of all agents and
#: therefore has more memory than agentk.
RESUME_LIMITS: Final = ResumeLimits(kept=256 << 20, kept_per_owner=32 << 20)


class Absences(Protocol):
    """
    Interface to the times when agents that are not connected were last seen; see
    `kas.agents.last_seen`.
    """

    def sought(self, agent_id: str) -> None:
        """Record that a stream begins to wait for an agent."""

    def never(self, agent_id: str) -> bool:
        """Return whether the agent has certainly never connected."""

    def absence(self, agent_id: str) -> str:
        """
        Return the beginning of a sentence that says that the agent is not connected,
        and since when.
        """

    def name(self, agent_id: str) -> str:
        """Return the name of an agent, or its id if the name is not known."""


class _Unknown:
    """
    Implementation of `Absences` for a router without information about absent agents.
    """

    def sought(self, agent_id: str) -> None:
        pass

    def never(self, agent_id: str) -> bool:
        return False

    def absence(self, agent_id: str) -> str:
        return f"agent {agent_id} is not connected"

    def name(self, agent_id: str) -> str:
        return agent_id


class Router:
    """
    Router that finds paths to agents, and prefers the least busy instance.

    :param peers: the sessions to other kas; None if this kas runs alone.
    :param resume_grace: seconds during which a stream survives the loss of its path.
    :param absences: the times when agents were last seen.
    :param may_connect: returns False for a revoked agent, so that no stream waits for
        it.
    """

    def __init__(
        self,
        registry: Registry,
        directory: Directory,
        runtime: Runtime,
        *,
        peers: Peers | None = None,
        resume_grace: float = 0.0,
        absences: Absences | None = None,
        may_connect: Callable[[str], bool] = lambda agent_id: True,
    ) -> None:
        self.registry = registry
        self.directory = directory
        self.clock: IReactorTime = runtime.reactor
        self.keeper = Keeper(self.clock, lambda: resume_grace, RESUME_LIMITS)
        #: Function that returns a number between 0 and 1, for the jitter of retries.
        self.random = runtime.random
        self.absences = _Unknown() if absences is None else absences
        self.may_connect = may_connect
        #: Seconds during which a stream waits for its agent.
        self.timeout = ROUTING_TIMEOUT
        #: Maximum number of streams that wait for one agent.
        self.max_waiting = MAX_WAITING
        #: Number of streams that took another path after a refusal or after the loss of
        #: a path.
        self.rerouted = 0
        self._peers = peers
        self._waiting: dict[str, int] = {}
        #: Agents that streams wait for, and that were permitted to connect at some time
        #: since the wait began.
        self._expected: set[str] = set()
        #: Time when a stream last waited for an agent in vain, by agent.
        self._missed: Recent[str, float] = Recent(MAX_MISSED)
        registry.on_connected = self._connected
        self._look: IDelayedCall | None = None
        #: Number of this kas' streams to instances that are connected to other kas, by
        #: instance.
        self._remote: dict[bytes, int] = {}

    # Methods that find paths.

    def only_path(self, agent_id: str) -> AgentPath | None:
        """
        Return the path that most requests take: the best path at this kas, if this kas
        reaches all instances of the agent itself; otherwise the path through another
        kas, if it is the only path.  Return None if there is a choice.
        """
        best: AgentConnection | None = None
        # Read the table directly, because every request calls this method.
        for one in self.registry.serving.get(agent_id, ()):
            tunnel = one.tunnel
            if tunnel.alive and (best is None or tunnel.load < best.tunnel.load):
                best = one
        elsewhere: Sequence[AgentRecord] = ()
        if self.directory.is_shared:
            routes = self.directory.routes(agent_id)
            elsewhere = self._elsewhere(agent_id, routes) if routes else ()
        if best is None:
            return self._through(elsewhere[0]) if len(elsewhere) == 1 else None
        if elsewhere:
            return None
        return AgentPath(best.tunnel, best.agent)

    def paths(self, agent_id: str) -> Iterator[AgentPath]:
        """Yield the paths to all instances, the least busy instance first."""
        routes = self.directory.routes(agent_id)
        found = [
            (connection.tunnel.load, 0, AgentPath(connection.tunnel, connection.agent))
            for connection in self.registry.instances(agent_id)
            if connection.tunnel.alive
        ]
        for record in self._elsewhere(agent_id, routes):
            path = self._through(record)
            if path is not None:
                load = self._remote.get(record.agent.instance_id, 0)
                found.append((load, 1, path))
                continue
            peer = self._peer(record)
            if peer is not None and found:
                # Dial for later requests; the current request uses another path.
                peer.prepare()
        found.sort(key=lambda one: one[:2])
        for _, _, path in found:
            yield path

    def _elsewhere(
        self, agent_id: str, routes: Sequence[AgentRecord]
    ) -> list[AgentRecord]:
        """
        Return the records of instances that have no extra tunnel to this kas; an extra
        tunnel would be a shorter path.
        """
        instance = self.registry.instance
        return [
            record
            for record in routes
            if instance(agent_id, record.agent.instance_id) is None
        ]

    def path_to(self, agent_id: str, instance_id: bytes) -> AgentPath | None:
        """Return the current path to one instance; None if no path is known."""
        connection = self.registry.instance(agent_id, instance_id)
        if connection is not None:
            return AgentPath(connection.tunnel, connection.agent)
        for record in self.directory.routes(agent_id):
            if record.agent.instance_id == instance_id:
                path = self._through(record)
                if path is not None:
                    return path
        return None

    def newest(self, agent: ConnectedAgent) -> int:
        """Return the greatest known generation of an agent's instance."""
        here = (one.agent for one in self.registry.instances(agent.agent_id))
        there = (one.agent for one in self.directory.routes(agent.agent_id))
        return max(
            one.generation
            for one in (agent, *here, *there)
            if one.instance_id == agent.instance_id
        )

    def was_restarted(self, agent: ConnectedAgent) -> bool:
        """
        Return whether another run of agentk is connected from the pod of *agent*, so
        that the agentk of *agent* has ended.
        """
        here = (
            one.agent
            for one in self.registry.instances(agent.agent_id)
            # Ignore extra tunnels, because their time is unrelated to the start of the
            # process.
            if not one.extra
        )
        there = (one.agent for one in self.directory.routes(agent.agent_id))
        return any(is_restart(one, agent) for one in (*here, *there))

    def obstacle(self, agent_id: str) -> str:
        """
        Return the problem that prevents streams from reaching the agent's kas, such as
        "does not respond"; empty if none is known.

        Users see it, so it has no address; the log of kas has the address and details.
        """
        for record in self.directory.routes(agent_id):
            peer = self._peer(record)
            if peer is not None and not peer.alive:
                return peer.problem.partition(":")[0] or "does not respond"
        return ""

    def cluster_problem(self, agent_id: str) -> str:
        """
        Return why no instance of an agent reaches its cluster; empty if any instance
        does.
        """
        problems = [path.agent.cluster_problem for path in self.paths(agent_id)]
        return problems[0] if problems and all(problems) else ""

    def _through(self, record: AgentRecord) -> AgentPath | None:
        """
        Return the path through the kas of the instance; None without a session to that
        kas.
        """
        peer = self._peer(record)
        if peer is None or not peer.alive:
            return None
        assert peer.tunnel is not None
        return AgentPath(peer.tunnel, record.agent, record)

    def _peer(self, record: AgentRecord) -> Peer | None:
        return None if self._peers is None else self._peers.at(record.kas_url)

    # Methods that count the load that this kas' streams cause at agents of other kas.

    def taken(self, path: AgentPath) -> None:
        """Note that a stream was opened on *path*."""
        if path.record is not None:
            instance = path.agent.instance_id
            self._remote[instance] = self._remote.get(instance, 0) + 1

    def left(self, path: AgentPath) -> None:
        """Note that a stream on *path* has ended."""
        if path.record is not None:
            one_less(self._remote, path.agent.instance_id)

    def refused(self, path: AgentPath, reason: StreamReset | SessionClosed) -> None:
        """
        Correct information about the agent that a refusal proved wrong or outdated.
        """
        self.rerouted += 1
        if path.record is not None:
            self.directory.look_again(path.agent.agent_id, path.record)

    @property
    def remote(self) -> int:
        """Number of this kas' streams that go through other kas."""
        return sum(self._remote.values())

    # Methods for streams that wait.

    def may_wait(self, agent_id: str) -> bool:
        """
        Count one more stream that waits for this agent; return False if too many wait.
        """
        waiting = self._waiting.get(agent_id, 0)
        if waiting >= self.max_waiting:
            return False
        self._waiting[agent_id] = waiting + 1
        if self.may_connect(agent_id):
            # Check this for every stream, because the first stream may have begun to
            # wait before the agent was added.
            self._expected.add(agent_id)
        self.absences.sought(agent_id)
        if self._look is None:
            self._look = self.clock.callLater(LOOK_AGAIN, self._look_again)
        return True

    def stopped_waiting(self, agent_id: str) -> None:
        """Count one waiting stream less for an agent."""
        if not one_less(self._waiting, agent_id):
            self._expected.discard(agent_id)
        if not self._waiting and self._look is not None:
            self._look.cancel()
            self._look = None

    def wait(
        self, agent_id: str, callback: Callable[[], None]
    ) -> list[Callable[[], None]]:
        """
        Call *callback* when a path to the agent may exist, perhaps more than once, but
        never before this method returns.

        :returns: functions that cancel the wait.
        """
        # Query the directory first: an immediate response must not wake a waiter that
        # is not registered yet.
        routes = self.directory.routes(agent_id)
        give_up = [
            self.registry.wait(agent_id, callback),
            self.directory.wait(agent_id, callback),
        ]
        for record in routes:
            peer = self._peer(record)
            if peer is not None and not peer.alive:
                give_up.append(peer.connect(callback))
        return give_up

    def revoked(self, agent_id: str) -> bool:
        """
        Return whether an agent was revoked while streams waited for it, so that it
        cannot connect.
        """
        if self.may_connect(agent_id):
            if agent_id in self._waiting:
                self._expected.add(agent_id)
            return False
        return agent_id in self._expected

    def patience(self, agent_id: str) -> float:
        """Return the seconds that a stream should wait for an agent."""
        missed = self._missed.get(agent_id)
        lately = missed is not None and self.clock.seconds() - missed < MISSED_SECONDS
        if self.absences.never(agent_id):
            longest = NEVER_SHORT_TIMEOUT if lately else NEVER_TIMEOUT
        else:
            longest = SHORT_TIMEOUT if lately else self.timeout
        return min(self.timeout, longest)

    def missed(self, agent_id: str) -> None:
        """Record that a stream waited for the agent in vain."""
        now = self.clock.seconds()
        before = self._missed.get(agent_id)
        if before is not None and now - before < MISSED_SECONDS:
            # Ignore short waits: otherwise, no stream would ever wait for the full time
            # again.
            return
        self._missed[agent_id] = now

    @property
    def waiting(self) -> int:
        """Number of streams that wait for their agents."""
        return sum(self._waiting.values())

    def _connected(self, agent_id: str) -> None:
        self._missed.pop(agent_id, None)

    def _look_again(self) -> None:
        self._look = None
        for_each(tuple(self._waiting), self._look_for, "looking for an agent")
        if self._waiting:
            self._look = self.clock.callLater(LOOK_AGAIN, self._look_again)

    def _look_for(self, agent_id: str) -> None:
        """Wake the streams that wait for an agent if they need not wait any longer."""
        # Query the directory first, which causes lookups at its own rate.
        if (
            self.revoked(agent_id)
            or next(self.paths(agent_id), None) is not None
            # The store may have responded since the streams began to wait.
            or self.absences.never(agent_id)
        ):
            self.registry.wake(agent_id)


class AgentPath:
    """
    Path to one instance of an agent.

    :param record: the record of an agent that is connected to another kas, which is one
        more hop; None if the agent is connected to this kas.
    """

    def __init__(
        self,
        tunnel: TunnelProtocol,
        agent: ConnectedAgent,
        record: AgentRecord | None = None,
    ) -> None:
        self.tunnel = tunnel
        self.agent = agent
        self.record = record

    def open(
        self, open_: pb.Open, receiver: IStreamReceiver, fin: bool, repeatable: bool
    ) -> StreamTransport:
        """Open a stream; raises the errors of `TunnelProtocol.open_stream`."""
        if self.record is None:
            if open_.HasField("target"):
                open_.ClearField("target")
            return self.tunnel.open_stream(open_, receiver, fin=fin)
        self._aim(open_.target)
        open_.target.repeatable = repeatable
        return self._charge(self.tunnel.open_stream(open_, receiver, fin=fin))

    def resume(self, resume: pb.Resume, receiver: IStreamReceiver) -> StreamTransport:
        """Resume a stream; raises the errors of `TunnelProtocol.open_stream`."""
        if self.record is None:
            return self.tunnel.open_stream(resume, receiver)
        self._aim(resume.target)
        return self._charge(self.tunnel.open_stream(resume, receiver))

    def _aim(self, target: pb.Target) -> None:
        agent = self.agent
        target.agent_id = agent.agent_id
        target.instance_id = agent.instance_id
        target.generation = agent.generation

    def _charge(self, stream: StreamTransport) -> StreamTransport:
        # Charge the agent, so that no agent uses up the share of other agents in the
        # session with another kas.
        stream.charge(self.agent.agent_id)
        return stream
