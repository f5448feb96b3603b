"""A dialer between a network that can fail and a kas, in memory."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.error import ConnectionRefusedError
from twisted.internet.interfaces import IStreamClientEndpoint
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from agentk.dialer import Dialer
from tests.kas.world import World
from tunnel.api import TunnelConnected, TunnelDisconnected
from tunnel.hosting.events import EventBus
from tunnel.pb import tunnel_pb2 as pb
from tunnel.program.runtime import Runtime
from tunnel.rpc.dispatch import Dispatcher
from tunnel.session.keepalive import Timing
from tunnel.session.protocol import TunnelProtocol
from tunnel.testing import Pipe

TIMING = Timing()


@implementer(IStreamClientEndpoint)
class Network:
    """What lies between agentk and kas, and everything that can go wrong there."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.clock = world.clock
        #: ``up``; or ``broken`` (no endpoint), ``refused``, ``hangs``, ``silent``,
        #: ``drops`` (accepts, and closes at once), ``stillborn`` (even sooner).
        self.state = "up"
        #: When each attempt began.
        self.attempts: list[float] = []
        self.cancelled = 0
        self.pipes: list[Pipe] = []
        self._open: list[Pipe] = []

    def connect(self, factory: Any) -> Deferred[Any]:
        self.attempts.append(self.clock.seconds())
        if self.state == "broken":
            raise ValueError("a proxy nobody can use")
        if self.state == "refused":
            return fail(ConnectionRefusedError())
        if self.state == "hangs":
            return Deferred(self._cancelled)
        protocol = factory.buildProtocol(None)
        there = self.world.factory.buildProtocol(None)
        pipe = Pipe(self.clock, protocol, there)
        self.pipes.append(pipe)
        self._open.append(pipe)
        if self.state == "stillborn":
            pipe.transports[1].loseConnection()
            pipe.step()
        elif self.state == "drops":
            pipe.transports[1].loseConnection()
        elif self.state == "silent":
            pipe.cut = True
        return succeed(protocol)

    def _cancelled(self, deferred: Deferred[Any]) -> None:
        self.cancelled += 1

    def settle(self) -> None:
        """Deliver everything that is on its way now."""
        for pipe in tuple(self.open_pipes()):
            pipe.flush()

    def open_pipes(self) -> list[Pipe]:
        self._open = [
            pipe
            for pipe in self._open
            if not all(transport.disconnected for transport in pipe.transports)
        ]
        return self._open

    def tunnel(self, index: int = -1) -> TunnelProtocol:
        """The end in kas of a connection."""
        tunnel = self.pipes[index].protocols[1]
        assert isinstance(tunnel, TunnelProtocol)
        return tunnel


class DialCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.world = World(per_minute=100_000)
        self.clock: Clock = self.world.clock
        self.network = Network(self.world)
        self.token = b"7"
        self.hellos = 0
        self.jitter: Any = lambda: 1.0
        self.bus = EventBus()
        self.events: list[str] = []
        connected, disconnected = map(self.recorder, ("connected", "disconnected"))
        self.bus.subscribe("tests", TunnelConnected, connected)
        self.bus.subscribe("tests", TunnelDisconnected, disconnected)
        self.dispatcher = Dispatcher(self.clock)
        self.dialer = Dialer(
            endpoint=lambda: self.network,
            hello=self.hello,
            dispatcher=self.dispatcher,
            runtime=Runtime(
                reactor=self.clock, random=lambda: self.jitter(), bus=self.bus
            ),
            credential_from="/run/token",
        )

    def recorder(self, topic: str) -> Any:
        return lambda agent_id: self.events.append(topic)

    def hello(self) -> pb.Hello:
        self.hellos += 1
        if not self.token:
            raise ValueError("the token is gone")
        return pb.Hello(credential=self.token, instance_id=b"i")

    def start(self) -> None:
        self.dialer.start()
        self.network.settle()

    def later(self, seconds: float, step: float = 1.0) -> None:
        """Let time pass, and bytes flow."""
        end = self.clock.seconds() + seconds
        while (left := end - self.clock.seconds()) > 1e-9:
            self.clock.advance(min(step, left))
            self.network.settle()

    def waits(self) -> list[float]:
        """The time between attempts."""
        times = self.network.attempts
        return [after - before for before, after in pairwise(times)]

    def next_dial(self) -> float:
        """Seconds until the next attempt."""
        calls: Any = self.clock.getDelayedCalls()
        (dial,) = [call for call in calls if call.func == self.dialer._dial]
        wait: float = dial.getTime() - self.clock.seconds()
        return wait

    def assert_up(self) -> None:
        self.assertTrue(self.dialer.ready, self.dialer.last_problem)
        self.assertEqual(len(self.network.open_pipes()), 1)
        connection = self.world.router.only_path("7")
        assert connection is not None
        self.assertIs(connection.tunnel, self.network.tunnel())
