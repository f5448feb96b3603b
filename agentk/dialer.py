"""
The connection of agentk to kas: it reconnects with a backoff, and opens a second
connection while the first one is draining.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import attrs
from twisted.internet.defer import CancelledError, Deferred, TimeoutError
from twisted.internet.interfaces import (
    IDelayedCall,
    IStreamClientEndpoint,
)
from twisted.internet.protocol import Factory
from twisted.logger import Logger
from twisted.python.failure import Failure

from agentk.diagnosis import hint, why_ended
from tunnel.api import (
    IStream,
    IStreamReceiver,
    TunnelConnected,
    TunnelDisconnected,
)
from tunnel.errors import ErrorCode, SessionClosed
from tunnel.pb import tunnel_pb2 as pb
from tunnel.program.runtime import Runtime
from tunnel.rpc.dispatch import Dispatcher
from tunnel.session.keepalive import Timing
from tunnel.session.protocol import TunnelOwner, TunnelProtocol
from tunnel.session.resume import Keeper
from tunnel.session.roles import AGENT
from tunnel.session.stream import StreamTransport
from tunnel.toolkit.backoff import Backoff
from tunnel.toolkit.timers import cancel_call
from tunnel.toolkit.until import until
from tunnel.wire.session import Session

#: First and longest timeout in seconds of an attempt to connect (DNS, TCP, proxy, TLS
#: and WebSocket together); the timeout is doubled with each attempt that takes too
#: long.  If a kas is frozen, its system still accepts connections, and a load balancer
#: sends connections to it for a while: the next attempt finds another kas.
FIRST_CONNECT_TIMEOUT, CONNECT_TIMEOUT = 5.0, 20.0

#: Seconds of a connection's life that undo one doubling of the pause.  A kas that
#: accepts and closes connections at once must not be dialled twice a second, and a path
#: that cuts every connection after a while must not keep the agent away for long.
FORGIVEN_AFTER = 2.0

#: Minimum lifetime in seconds of a steady connection: its loss is an exception, such as
#: a restart of kas or of a load balancer, or a short fault of the path.
STEADY = 30.0

#: Seconds after the loss of a steady connection in which no pause is longer than `SOON`
#: seconds.  Without this limit, an outage of kas of a quarter of a minute could be
#: followed by half a minute without the agent; with it, the times at which agents
#: return are still spread over seconds.
RECENT, SOON = 120.0, 8.0

#: Maximum number of seconds that kas has at shutdown to close an idle connection.
FAREWELL = 1.0

#: Maximum number of seconds that agentk waits before it reconnects, if a server asks
#: for a pause.
MAX_SPREAD = 300.0

#: Seconds over which a process that was replaced at first spreads its return; doubled
#: each time, up to `MAX_SPREAD`.  The other process does the work in the meantime, and
#: only an operator can tell which of the two should run.
REPLACED_SPREAD = 30.0

#: Minimum lifetime in seconds of a connection after which earlier replacements are
#: forgotten.
UNDISPUTED = 2 * MAX_SPREAD


@attrs.define(eq=False)
class Dialer(TunnelOwner):
    """
    The owner of one connection to kas, and of a second one while the first is draining.

    At any time, exactly one step is planned: a timer for the next dial, a running dial,
    a tunnel that waits for WELCOME, or an established tunnel.  The end of each step
    starts the next one.

    :param endpoint: creates the endpoint for one attempt.
    :param hello: creates the greeting, each time, because tokens can be replaced.
    """

    endpoint: Callable[[], IStreamClientEndpoint]
    hello: Callable[[], pb.Hello]
    dispatcher: Dispatcher
    runtime: Runtime
    #: The address of kas, for messages.
    where: str = "kas"
    #: Number of addresses that *endpoint* returns in turn: the pause grows only after
    #: all of them have failed.
    addresses: int = 1
    #: The source of the greeting's token, for messages.
    credential_from: str = "the greeting"
    #: Number of connections that kas has welcomed since the start.
    connections: int = 0
    #: Streams from kas that survive the loss of their tunnel.
    keeper: Keeper = attrs.field(
        default=attrs.Factory(
            lambda self: Keeper(
                self.runtime.reactor, lambda: self._timing.resume_grace
            ),
            takes_self=True,
        )
    )
    #: The established tunnel that accepts new streams.
    tunnel: TunnelProtocol | None = None
    #: Id of the kas at the other end of the established tunnel.
    kas_id: bytes = b""
    #: Function that is called for each relayed request, with the id of the kas for
    #: which it was relayed.
    on_relayed: Callable[[bytes], None] = lambda kas_id: None
    #: Services of kas, from its WELCOME.
    services: frozenset[str] = frozenset()
    #: The agent's id, as received from kas.
    agent_id: str = ""
    agent_name: str = ""
    #: Reason why the last attempt or connection ended, for the readiness probe.
    last_problem: str = "not connected yet"
    _timing: Timing = attrs.Factory(Timing)
    _backoff: Backoff = attrs.field(
        init=False,
        default=attrs.Factory(
            lambda self: Backoff(
                self.runtime.random,
                self._timing.reconnect_min,
                self._timing.reconnect_max,
            ),
            takes_self=True,
        ),
    )
    _connect_timeout: float = FIRST_CONNECT_TIMEOUT
    #: Time at which a steady connection was lost.
    _lost_at: float | None = None
    #: Number of times that another process replaced this one.
    _replaced: int = 0
    #: Number of attempts since the last connection.
    _attempts: int = 0
    _generation: int = 0
    _running: bool = False
    _dialling: Deferred[Any] | None = None
    #: Connected tunnel that waits for WELCOME.
    _greeting: TunnelProtocol | None = None
    _timer: IDelayedCall | None = None
    #: Start times of open connections, and deadlines of draining ones.
    _tunnels: dict[TunnelProtocol, float] = attrs.Factory(dict)
    _deadlines: dict[TunnelProtocol, IDelayedCall] = attrs.Factory(dict)
    _idle: Deferred[None] | None = None
    _log = Logger()

    # Start and stop.

    def start(self) -> None:
        """Dial now."""
        self._running = True
        self._dial()

    async def stop(self, grace: float) -> None:
        """
        Accept no new requests, finish the accepted requests, and close the connection.

        :param grace: seconds for the accepted requests.
        """
        self._running = False
        self._cancel_plan()
        deadline_ms = max(1, round(grace * 1000))
        for tunnel in tuple(self._tunnels):
            tunnel.go_away(
                pb.GoAway(
                    code=ErrorCode.SHUTDOWN,
                    message="agentk was stopped",
                    deadline_ms=deadline_ms,
                )
            )
        served = await until(
            lambda: not any(tunnel.load for tunnel in self._tunnels),
            self.runtime.reactor,
            grace,
        )
        if served:
            # Only kas can know that no request is in transit, and then kas closes the
            # connection.
            await until(lambda: not self._tunnels, self.runtime.reactor, FAREWELL)
        self.keeper.stop()
        for tunnel in tuple(self._tunnels):
            # The end of resumable streams is reported first, because otherwise kas
            # would wait for agentk to resume them.
            tunnel.flush()
            tunnel.end(ErrorCode.SHUTDOWN, "agentk was stopped")
        if self._tunnels:
            self._idle = Deferred()
            self._idle.addTimeout(2.0, self.runtime.reactor)
            # If a kas does not close the tunnels in time, this is not an error.
            self._idle.addErrback(
                lambda failure: failure.trap(TimeoutError, CancelledError)
            )
            await self._idle

    @property
    def ready(self) -> bool:
        """Whether kas has welcomed agentk, and bytes arrived recently."""
        return self.tunnel is not None and self.tunnel.alive

    # Methods for modules.

    def open_stream(
        self,
        method: str,
        receiver: IStreamReceiver,
        *,
        metadata: bytes = b"",
        timeout: float = 0,
    ) -> IStream:
        """Open a stream to kas; if there is no tunnel, fail its receiver at once."""
        if self.tunnel is None:
            raise SessionClosed(ErrorCode.SHUTDOWN, f"no tunnel: {self.last_problem}")
        open_ = pb.Open(
            method=method, metadata=metadata, timeout_ms=round(timeout * 1000)
        )
        stream: IStream = self.tunnel.open_stream(open_, receiver)
        return stream

    # Connecting.

    def _dial(self) -> None:
        self._timer = None
        if not self._running or self._dialling is not None:
            return
        factory = Factory.forProtocol(partial(self.make_tunnel, self))
        factory.noisy = False
        try:
            dialling = self.endpoint().connect(factory)
        except Exception as error:
            self._failed(Failure(error))
            return
        dialling.addTimeout(self._connect_timeout, self.runtime.reactor)
        self._dialling = dialling
        dialling.addCallbacks(self._connected, self._failed)

    def make_tunnel(self, owner: TunnelOwner) -> TunnelProtocol:
        """Return a new tunnel, which is not connected yet."""
        return TunnelProtocol(
            Session(dialler=True),
            owner,
            clock=self.runtime.reactor,
            flusher=self.runtime.flusher,
            keepalive=self.runtime.keepalive,
            timing=self._timing,
        )

    def _connected(self, tunnel: TunnelProtocol) -> None:
        self._dialling = None
        ended = tunnel.session.ended
        if ended is not None:
            self._plan(f"the connection to kas ended immediately: {ended.message}")
            return
        self._greeting = tunnel
        self.greet(tunnel, AGENT)

    def greet(self, tunnel: TunnelProtocol, role: str) -> None:
        """Send HELLO, and include the tunnel in those that close when agentk stops."""
        self._tunnels[tunnel] = self.runtime.reactor.seconds()
        try:
            hello = self.hello()
        except Exception as error:
            self.last_problem = str(error)
            self._log.error("cannot greet kas: {reason}", reason=error)
            tunnel.abort(ErrorCode.INTERNAL, "no credential")
            return
        self._generation += 1
        hello.role, hello.generation = role, self._generation
        hello.services.extend(self.dispatcher.services)
        tunnel.hello(hello)

    def forget(self, tunnel: TunnelProtocol) -> float | None:
        """
        Forget a closed tunnel.

        :return: the time at which the tunnel was welcomed; None if it was not welcomed.
        """
        since = self._tunnels.pop(tunnel, None)
        if self._idle is not None and not self._tunnels:
            idle, self._idle = self._idle, None
            idle.callback(None)
        return since

    def _failed(self, failure: Failure) -> None:
        self._dialling = None
        if failure.check(CancelledError) and not self._running:
            return
        if failure.check(TimeoutError):
            text = f"no response within {self._connect_timeout:g} s"
            self._connect_timeout = min(2 * self._connect_timeout, CONNECT_TIMEOUT)
        else:
            text = failure.getErrorMessage() or type(failure.value).__name__
            text = text.removesuffix(".")
        self._plan(f"cannot connect to {self.where}: {text}{hint(failure.value)}")

    def _plan(self, problem: str, within: float = 0.0) -> None:
        """
        Schedule the next attempt.

        :param within: seconds over which the attempts of several agents are spread.
        """
        self.last_problem = problem
        if not self._running or self._timer is not None or self._dialling is not None:
            return
        timing = self._timing
        # kas sends the minimum and the maximum pause with every WELCOME.
        backoff = self._backoff
        backoff.first, backoff.most = timing.reconnect_min, timing.reconnect_max
        self._attempts += 1
        another = self._attempts % self.addresses
        longest = backoff.first if another else backoff.failed()
        lost_at = self._lost_at
        if lost_at is not None and self.runtime.reactor.seconds() - lost_at < RECENT:
            longest = min(longest, SOON)
        most = max(longest, min(within, MAX_SPREAD))
        # Full jitter: after an outage all agents return, but must not do so at once.
        delay = most * self.runtime.random()
        self._log.warn(
            "{problem}; next attempt in {delay:.1f} s", problem=problem, delay=delay
        )
        self._timer = self.runtime.reactor.callLater(delay, self._dial)

    def _cancel_plan(self) -> None:
        cancel_call(self._timer)
        self._timer = None
        if self._dialling is not None:
            self._dialling.cancel()

    # Methods of tunnel.session.protocol.TunnelOwner

    def welcome_received(self, tunnel: TunnelProtocol, welcome: pb.Welcome) -> None:
        self._timing = tunnel.liveness.timing
        self._connect_timeout = FIRST_CONNECT_TIMEOUT
        self._greeting = None
        self.connections += 1
        self._attempts = 0
        self.tunnel, self.kas_id = tunnel, welcome.kas_id
        # Tunnels that kas asked agentk to leave accept requests until now, so that no
        # request has to wait; from now on the new tunnel accepts them.
        for leaving in self._deadlines:
            leaving.go_away(
                pb.GoAway(
                    code=ErrorCode.SHUTDOWN,
                    message="agentk is connected elsewhere",
                    deadline_ms=max(1, round(MAX_SPREAD * 1000)),
                )
            )
        self.services = frozenset(welcome.services)
        self.agent_id, self.agent_name = welcome.agent_id, welcome.agent_name
        self.last_problem = ""
        self._log.info(
            "connected to kas as agent {agent_name} ({agent_id}) at {peer}",
            agent_name=welcome.agent_name,
            agent_id=welcome.agent_id,
            peer=tunnel.peer,
        )
        self.runtime.bus.publish(TunnelConnected(welcome.agent_id))

    def stream_opened(self, stream: StreamTransport, open_: pb.Open) -> IStreamReceiver:
        """Return the receiver of a request for one of our modules."""
        if open_.relayed_by:
            self.on_relayed(open_.relayed_by)
        if open_.resume_id and self._timing.resume_grace:
            return self.keeper.accept(stream, open_, self.dispatcher.accept)
        return self.dispatcher.accept(stream, open_)

    def stream_resumed(
        self, stream: StreamTransport, resume: pb.Resume
    ) -> IStreamReceiver:
        """
        Return the receiver of a request whose path was lost; kas has found another
        path.
        """
        return self.keeper.resume(stream, resume)

    def go_away_received(self, tunnel: TunnelProtocol, go_away: pb.GoAway) -> None:
        """Connect to another kas, while this one finishes running requests."""
        if not go_away.deadline_ms:
            return
        if self._greeting is tunnel:
            tunnel.end(ErrorCode.SHUTDOWN, "looking for another kas")
        if self.tunnel is not tunnel:
            return
        self._step_down()
        self._lived(self._tunnels[tunnel])
        # kas closes the tunnel when its streams have ended; if kas does not close it,
        # agentk must not wait forever.
        self._deadlines[tunnel] = self.runtime.reactor.callLater(
            go_away.deadline_ms / 1000,
            tunnel.end,
            ErrorCode.SHUTDOWN,
            "the time for leaving kas is over",
        )
        within = go_away.reconnect_within_ms / 1000
        self._plan("kas is stopping: " + go_away.message[:200], within)

    def tunnel_closed(self, tunnel: TunnelProtocol, reason: SessionClosed) -> None:
        since = self.forget(tunnel)
        deadline = self._deadlines.pop(tunnel, None)
        cancel_call(deadline)
        if since is not None and deadline is None:
            self._lived(since)
        greeting = self._greeting is tunnel
        if greeting:
            self._greeting = None
        within = 0.0
        if self.tunnel is tunnel:
            self._step_down()
            if reason.code is ErrorCode.SUPERSEDED:
                # Another process replaced this connection; this process did not.
                within = min(REPLACED_SPREAD * 2**self._replaced, MAX_SPREAD)
                if within < MAX_SPREAD:
                    self._replaced += 1
        # In all other cases the next step is already planned, because this tunnel was
        # draining or replaced.
        if self.tunnel is None and self._greeting is None:
            greeted = tunnel.transport if greeting else None
            self._plan(why_ended(reason, self.credential_from, greeted), within)

    def _step_down(self) -> None:
        self.tunnel, self.kas_id = None, b""
        self.services = frozenset()
        self.runtime.bus.publish(TunnelDisconnected(self.agent_id))

    def _lived(self, since: float) -> None:
        lived = self.runtime.reactor.seconds() - since
        if lived >= STEADY:
            self._lost_at = self.runtime.reactor.seconds()
        forgiven = int(lived // FORGIVEN_AFTER)
        self._backoff.doublings = max(0, self._backoff.doublings - forgiven)
        if lived > UNDISPUTED:
            self._replaced = 0
