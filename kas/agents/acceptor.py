"""Acceptor of agents: handles their greetings, credentials and streams."""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Callable
from typing import TypeVar

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IAddress, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from kas.agents.registry import AgentConnection, Registry
from kas.agents.stream_rate import StreamRate
from tunnel.api import (
    AgentConnected,
    AgentDisconnected,
    AgentIdentity,
    ConnectedAgent,
    HasPeer,
    IStream,
    IStreamReceiver,
    KubernetesVersion,
)
from tunnel.errors import CallError, ErrorCode, SessionClosed, Status
from tunnel.pb import tunnel_pb2 as pb
from tunnel.program.runtime import Runtime
from tunnel.rpc.dispatch import Dispatcher
from tunnel.session.factory import TunnelFactory
from tunnel.session.keepalive import Timing
from tunnel.session.protocol import TunnelOwner, TunnelProtocol
from tunnel.session.roles import AGENT, EXTRA_AGENT
from tunnel.session.stream import StreamTransport
from tunnel.toolkit.recent import Recent

#: Maximum bytes of a text that an agent sends to describe itself: kas displays and
#: counts the text without parsing it.
MAX_META = 200

#: Maximum bytes of an instance id: real ids are 16 random bytes.
MAX_INSTANCE_ID = 64

#: Reasons to refuse an agent.
REFUSALS = (
    "already-here",
    "credential",
    "draining",
    "flood",
    "instance-id",
    "role",
    "superseded",
    "too-many-connections",
    "too-many-instances",
)

#: Default keepalive of agents.  If kas is frozen or a path is broken, no request
#: reaches the agent until the agent gives up the connection: it sends a ping after 6
#: seconds of silence, and gives up after 12 seconds.  This is longer than a network
#: path needs to recover, and longer than kas or agentk is ever busy.  An agent that
#: gives up too early reconnects, and loses nothing that can be resumed.
AGENT_TIMING = Timing(ping_interval=6.0, dead_after=12.0)

#: Maximum number of pings that all agents together send to a kas per second: each costs
PINGS_PER_SECOND = 1_000

#: Maximum seconds between two pings, also with many agents: load balancers and NAT
#: forget connections that are idle for 30 seconds.
LONGEST_PING_INTERVAL = 24.0

#: Maximum number of credentials whose connections are counted; if there are more, kas
#: forgets the oldest credential, which at worst permits too many connections.
MAX_CREDENTIALS = 100_000

_T = TypeVar("_T")

#: See `tunnel.api.IAuthenticator.authenticate_agent`.
Authenticate = Callable[[bytes, HasPeer], AgentIdentity | Deferred[AgentIdentity]]


def paced(timing: Timing, agents: int) -> Timing:
    """
    Return the timing of a new agent for a kas with this number of agents.

    A longer interval only has the effect that an idle agent notices a broken path
    later, because kas sends a ping before a request uses the path. The interval is in
    whole seconds, so that most agents share one object.
    """
    wanted = min(math.ceil(agents / PINGS_PER_SECOND), LONGEST_PING_INTERVAL)
    return _slower(timing, max(wanted / timing.ping_interval, 1.0))


@functools.lru_cache(maxsize=64)
def _slower(timing: Timing, times: float) -> Timing:
    return attrs.evolve(
        timing,
        ping_interval=timing.ping_interval * times,
        dead_after=timing.dead_after * times,
    )


@functools.lru_cache(maxsize=256)
def _shared(value: _T) -> _T:
    """
    Return the first of equal values, so that they share memory: many agents describe
    themselves with equal texts.
    """
    return value


class ConnectionRate:
    """Limit on the connections of each credential within a minute."""

    def __init__(self, per_minute: int, clock: IReactorTime) -> None:
        self._per_minute = per_minute
        self._clock = clock
        #: Callback that notifies other workers of this kas of a connection; None
        #: without other workers.
        self.tell: Callable[[str, int], None] | None = None
        #: Times of the recent connections, by credential.  A list, because a deque
        #: would take 700 bytes for each agent.
        self._seen: Recent[str, list[float]] = Recent(MAX_CREDENTIALS)

    def allows(self, credential_id: str) -> bool:
        """Count a connection and return True; return False if the limit is reached."""
        seen = self._within_a_minute(credential_id)
        if len(seen) >= self._per_minute:
            return False
        seen.append(self._clock.seconds())
        if self.tell is not None:
            self.tell(credential_id, 1)
        return True

    def count(self, credential_id: str, amount: int) -> None:
        """Count connections that another worker accepted."""
        seen = self._within_a_minute(credential_id)
        room = self._per_minute - len(seen)
        seen += [self._clock.seconds()] * min(amount, room)

    def _within_a_minute(self, credential_id: str) -> list[float]:
        now = self._clock.seconds()
        seen = self._seen.get(credential_id)
        if seen is None:
            seen = self._seen[credential_id] = []
        while seen and seen[0] <= now - 60:
            seen.pop(0)
        return seen


@attrs.frozen
class _Agentk:
    """Client that greets kas, as `tunnel.api.HasPeer`."""

    peer_address: IAddress
    program: str


@attrs.define(eq=False)
class AgentAcceptor(TunnelOwner):
    """
    Acceptor of agents, which owns their tunnels.

    :ivar timing: keepalive that each WELCOME sets for an agent; slower if there are
        many agents (`paced`).
    """

    authenticate: Authenticate
    registry: Registry
    dispatcher: Dispatcher
    runtime: Runtime
    rate: ConnectionRate
    timing: Timing = attrs.Factory(Timing)
    #: Number of workers of this kas.  Each has about the same number of agents, and the
    #: ping interval depends on their total.
    workers: int = 1
    streams: StreamRate = attrs.Factory(
        lambda self: StreamRate(self.runtime.reactor), takes_self=True
    )
    #: Callback for an agent that is looking for a kas or worker other than this one.
    on_already_here: Callable[[], None] = lambda: None
    #: Whether new agents have to look for another kas.
    draining: bool = False
    #: Number of refused agents, by reason (one of `REFUSALS`).
    refusals: Counter[str] = attrs.Factory(Counter)
    #: Agents whose token is being checked.
    _checking: dict[TunnelProtocol, Deferred[AgentIdentity]] = attrs.Factory(dict)
    #: Tunnels that end in this turn of the reactor.
    _ending: set[TunnelProtocol] = attrs.Factory(set)
    #: Reasons that agents gave when they left, until their tunnel ends.
    _leaving: dict[TunnelProtocol, str] = attrs.Factory(dict)
    _log = Logger()

    # Methods of tunnel.session.protocol.TunnelOwner

    def hello_received(self, tunnel: TunnelProtocol, hello: pb.Hello) -> None:
        """Accept the agent, or refuse it and send the reason to it."""
        refuse = functools.partial(self._refuse, tunnel)
        if hello.role not in (AGENT, EXTRA_AGENT):
            refuse("role", ErrorCode.PROTOCOL, "this port is for agents")
            return
        if self.draining:
            self._refuse_while_draining(tunnel)
            return
        if not 0 < len(hello.instance_id) <= MAX_INSTANCE_ID:
            text = "HELLO without a valid instance id"
            refuse("instance-id", ErrorCode.PROTOCOL, text)
            return
        try:
            version = hello.agent.version[:MAX_META]
            client = _Agentk(tunnel.peer_address, f"agentk/{version}")
            identity = self.authenticate(hello.credential, client)
        except CallError as error:
            self._not_authenticated(tunnel, error)
            return
        if not isinstance(identity, Deferred):
            self._authenticated(tunnel, hello, identity)
            return
        self._checking[tunnel] = identity
        identity.addCallbacks(
            lambda identity: self._checked(tunnel, hello, identity),
            lambda failure: self._not_checked(tunnel, failure),
        )

    def _checked(
        self, tunnel: TunnelProtocol, hello: pb.Hello, identity: AgentIdentity
    ) -> None:
        if self._checking.pop(tunnel, None) is None:
            return  # the agent left
        if self.draining:
            self._refuse_while_draining(tunnel)
        else:
            self._authenticated(tunnel, hello, identity)

    def _not_checked(self, tunnel: TunnelProtocol, failure: Failure) -> None:
        if self._checking.pop(tunnel, None) is not None:
            error = failure.value
            assert isinstance(error, CallError)
            self._not_authenticated(tunnel, error)

    def _not_authenticated(self, tunnel: TunnelProtocol, error: CallError) -> None:
        more = tunnel.may_log()
        if more is not None:
            text = "{peer} was refused: {reason}{more}"
            self._log.info(text, peer=tunnel.peer, reason=error, more=more)
        refused = error.status in (Status.UNAUTHENTICATED, Status.PERMISSION_DENIED)
        # All other errors are unrelated to the token, so that agentk retries.
        code = ErrorCode.UNAUTHENTICATED if refused else ErrorCode.INTERNAL
        self._refuse(tunnel, "credential", code, error.message)

    def _refuse_while_draining(self, tunnel: TunnelProtocol) -> None:
        text = "this kas is draining; try another one"
        self._refuse(tunnel, "draining", ErrorCode.SHUTDOWN, text)

    def _authenticated(
        self, tunnel: TunnelProtocol, hello: pb.Hello, identity: AgentIdentity
    ) -> None:
        refuse = functools.partial(self._refuse, tunnel)
        if self.registry.is_full(identity.agent_id, hello.instance_id):
            text = (
                "this agent has too many instances at this kas, including those that "
                "are leaving"
            )
            refuse("too-many-instances", ErrorCode.FLOOD, text)
            return
        if not self.rate.allows(identity.credential_id):
            text = "this token is used for too many connections; slow down"
            refuse("too-many-connections", ErrorCode.FLOOD, text)
            return
        if self.streams.is_flooding(identity.agent_id):
            text = "this agent opened too many streams; wait a few seconds"
            refuse("flood", ErrorCode.FLOOD, text)
            return
        if hello.role == EXTRA_AGENT and self.registry.instance(
            identity.agent_id, hello.instance_id
        ):
            text = "this kas already has a tunnel to this agentk"
            refuse("already-here", ErrorCode.SUPERSEDED, text)
            self.on_already_here()
            return
        self._welcome(tunnel, hello, identity)

    def _refuse(
        self, tunnel: TunnelProtocol, reason: str, code: ErrorCode, text: str
    ) -> None:
        self.refusals[reason] += 1
        tunnel.end(code, text)

    def _welcome(
        self, tunnel: TunnelProtocol, hello: pb.Hello, identity: AgentIdentity
    ) -> None:
        meta = hello.agent
        kubernetes = meta.kubernetes_version
        agent = ConnectedAgent(
            agent_id=identity.agent_id,
            agent_name=identity.agent_name,
            instance_id=hello.instance_id,
            generation=hello.generation,
            connected_at=self.runtime.now(),
            version=_shared(meta.version[:MAX_META]),
            commit_id=_shared(meta.commit_id[:MAX_META]),
            pod_namespace=meta.pod_namespace[:MAX_META],
            pod_name=meta.pod_name[:MAX_META],
            kubernetes_version=_shared(
                KubernetesVersion(
                    major=kubernetes.major[:MAX_META],
                    minor=kubernetes.minor[:MAX_META],
                    git_version=kubernetes.git_version[:MAX_META],
                    platform=kubernetes.platform[:MAX_META],
                )
            ),
            project_id=identity.project_id,
            services=_shared(frozenset(hello.services)),
            architecture=_shared(meta.architecture[:MAX_META]),
            telemetry=_shared(
                tuple(
                    (name, value[:MAX_META])
                    for name, value in (
                        ("installation_method", meta.installation_method),
                        ("helm_chart_version", meta.helm_chart_version),
                    )
                    if value
                )
            ),
        )
        timing = paced(self.timing, len(self.registry) * self.workers)
        # Set the times here, too: otherwise kas would send pings at the agent's times.
        tunnel.liveness.set_timing(timing)
        tunnel.welcome(
            pb.Welcome(
                agent_id=identity.agent_id,
                agent_name=identity.agent_name,
                services=self.dispatcher.services,
                timing=timing.message(),
                kas_id=self.runtime.instance_id,
            )
        )
        tunnel.agent = agent
        tunnel.limit_turns(("agent", agent.agent_id), "agents")
        tunnel.log_budget = None
        connection = AgentConnection(
            tunnel, agent, identity.credential_id, extra=hello.role == EXTRA_AGENT
        )
        if connection.extra:
            self._take_extra(connection)
            return
        if not self.registry.add(connection):
            text = "a newer connection already exists"
            self._refuse(tunnel, "superseded", ErrorCode.SUPERSEDED, text)
            return
        self._log.info(
            "agent {agent_name} ({agent_id}) connected from {peer}",
            agent_name=agent.agent_name,
            agent_id=agent.agent_id,
            peer=tunnel.peer,
            pod=agent.pod_name,
            version=agent.version,
        )
        self.runtime.bus.publish(AgentConnected(agent))

    def _take_extra(self, connection: AgentConnection) -> None:
        self.registry.add_extra(connection)
        self._log.info(
            "agent {agent_name} ({agent_id}) opened an extra tunnel from {peer}",
            agent_name=connection.agent.agent_name,
            agent_id=connection.agent.agent_id,
            peer=connection.tunnel.peer,
        )

    def stream_opened(self, stream: IStream, open_: pb.Open) -> IStreamReceiver:
        """
        Let a module of kas handle a call of an agent.

        :raises ProtocolError: if no module handles the call, or the agent opens too
            many streams.
        """
        self._check_rate(stream)
        return self.dispatcher.accept(stream, open_)

    def stream_resumed(
        self, stream: StreamTransport, resume: pb.Resume
    ) -> IStreamReceiver:
        """
        Refuse to resume a stream, because kas does not keep streams that agents open.

        :raises ProtocolError: always.
        """
        self._check_rate(stream)
        return super().stream_resumed(stream, resume)

    def _check_rate(self, stream: IStream) -> None:
        agent = stream.agent
        if agent is not None:
            self.streams.check(agent.agent_id)

    def go_away_received(self, tunnel: TunnelProtocol, go_away: pb.GoAway) -> None:
        """
        Let running streams finish, because the agent stops or is connected elsewhere.
        """
        # Use the agent's own message, because only the agent knows the reason.
        self._leaving[tunnel] = go_away.message[:MAX_META]
        connection = self.registry.retire(tunnel)
        if connection is not None and not connection.extra:
            self.runtime.bus.publish(AgentDisconnected(connection.agent))
        if not tunnel.load:
            self.tunnel_idle(tunnel)

    def tunnel_idle(self, tunnel: TunnelProtocol) -> None:
        """
        End a tunnel whose streams have ended, after a moment, so that its last bytes
        can be sent.
        """
        # An agent may send GO_AWAY repeatedly.
        if tunnel not in self._ending:
            self._ending.add(tunnel)
            self.runtime.reactor.callLater(0, self._drained, tunnel)

    def _drained(self, tunnel: TunnelProtocol) -> None:
        self._ending.discard(tunnel)
        reason = self._leaving.get(tunnel) or "the agent left"
        tunnel.end(ErrorCode.SHUTDOWN, reason)

    def tunnel_closed(self, tunnel: TunnelProtocol, reason: SessionClosed) -> None:
        """Forget the connection of an agent, which has ended."""
        self._leaving.pop(tunnel, None)
        checking = self._checking.pop(tunnel, None)
        if checking is not None:
            checking.cancel()
        connection = self.registry.remove(tunnel)
        if connection is None:
            return
        agent = connection.agent
        self._log.info(
            "agent {agent_name} ({agent_id}) disconnected: {reason}"
            if not connection.extra
            else "the extra tunnel of agent {agent_name} ({agent_id}) ended: {reason}",
            agent_name=agent.agent_name,
            agent_id=agent.agent_id,
            reason=reason,
        )
        if not (connection.retired or connection.extra):
            self.runtime.bus.publish(AgentDisconnected(agent))


class AgentFactory(TunnelFactory):
    """Factory of a tunnel for each connection to the agents' port."""

    def __init__(self, acceptor: AgentAcceptor) -> None:
        runtime = acceptor.runtime
        super().__init__(
            acceptor,
            timing=acceptor.timing,
            clock=runtime.reactor,
            flusher=runtime.flusher,
            keepalive=runtime.keepalive,
        )
