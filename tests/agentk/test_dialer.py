"""agentk's way to kas: it never gives up, never hammers, and never has two ways."""

from __future__ import annotations

import random
from functools import partial
from itertools import pairwise
from typing import Any

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.error import ConnectionRefusedError
from twisted.internet.interfaces import IStreamClientEndpoint
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from agentk.dialer import (
    CONNECT_TIMEOUT,
    FAREWELL,
    FORGIVEN_AFTER,
    MAX_SPREAD,
    REPLACED_SPREAD,
    UNDISPUTED,
    Dialer,
)
from tests.kas.test_registry import World
from tunnel.errors import ErrorCode, SessionClosed
from tunnel.events import EventBus
from tunnel.flusher import Flusher
from tunnel.net.keepalive import Keepalive, Timing
from tunnel.net.protocol import TunnelProtocol
from tunnel.pb import tunnel_pb2 as pb
from tunnel.rpc.dispatch import Dispatcher
from tunnel.testing import Pipe, RecordingReceiver

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


class _Case(SynchronousTestCase):
    def setUp(self) -> None:
        self.world = World(per_minute=100_000)
        self.clock: Clock = self.world.clock
        self.network = Network(self.world)
        self.token = b"7"
        self.hellos = 0
        self.jitter: Any = lambda: 1.0
        self.bus = EventBus()
        self.events: list[str] = []
        for topic in ("connected", "disconnected"):
            self.bus.subscribe("tests", f"tunnel.{topic}", self.recorder(topic))
        self.dispatcher = Dispatcher(self.clock)
        self.dialer = Dialer(
            endpoint=lambda: self.network,
            hello=self.hello,
            dispatcher=self.dispatcher,
            bus=self.bus,
            clock=self.clock,
            random=lambda: self.jitter(),
            flusher=Flusher(self.clock),
            keepalive=Keepalive(self.clock),
        )

    def recorder(self, topic: str) -> Any:
        return lambda agent_id: self.events.append(topic)

    def hello(self) -> pb.Hello:
        self.hellos += 1
        if not self.token:
            raise ValueError("the token is gone")
        return pb.Hello(role="agent", credential=self.token, instance_id=b"i")

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
        connection = self.world.registry.find("7")
        assert connection is not None
        self.assertIs(connection.tunnel, self.network.tunnel())


class ConnectTests(_Case):
    """The first connection."""

    def test_connects(self) -> None:
        """At once, and says what it answers."""
        self.dispatcher.handle_stream(
            "tests", "/a.B/C", lambda stream, open_: RecordingReceiver()
        )
        self.start()
        self.assert_up()
        self.assertEqual(self.network.attempts, [0.0])
        self.assertEqual(
            (self.dialer.agent_id, self.dialer.agent_name), ("7", "agent-7")
        )
        self.assertEqual(self.dialer.last_problem, "")
        self.assertEqual(self.events, ["connected"])
        (connection,) = self.world.registry
        self.assertEqual(connection.agent.services, {"a.B"})
        self.assertEqual(connection.agent.generation, 1)

    def test_streams(self) -> None:
        """Both ways, once there is a tunnel."""
        ours, theirs = RecordingReceiver(), RecordingReceiver()
        self.dispatcher.handle_stream("tests", "/x", lambda stream, open_: ours)
        self.world.dispatcher.handle_stream("tests", "/y", lambda stream, open_: theirs)
        error = self.assertRaises(
            SessionClosed, self.dialer.open_stream, "/y", RecordingReceiver()
        )
        self.assertIn("not connected yet", str(error))
        self.start()
        tunnel = self.network.tunnel()
        tunnel.open_stream(pb.Open(method="/x"), RecordingReceiver()).write(b"down")
        stream = self.dialer.open_stream(
            "/y", RecordingReceiver(), metadata=b"m", timeout=1.5
        )
        stream.write(b"up")
        self.network.settle()
        self.assertEqual((ours.data, theirs.data), (b"down", b"up"))

    def test_not_ready_while_kas_is_silent(self) -> None:
        """Ready means that bytes flow, not that there is a socket."""
        self.start()
        self.network.pipes[-1].cut = True
        self.later(25)
        self.assertFalse(self.dialer.ready)

    def test_greeting_fails(self) -> None:
        """Without a token nothing is said, and it is tried again."""
        self.token = b""
        self.start()
        self.later(TIMING.reconnect_min)
        self.assertEqual(self.hellos, 2)
        self.token = b"7"
        self.later(5)
        self.assert_up()

    def test_stillborn(self) -> None:
        """A connection that is gone before we are told of it does not count as one."""
        self.network.state = "stillborn"
        self.start()
        self.assertEqual(self.hellos, 0)
        self.network.state = "up"
        self.later(1)
        self.assert_up()

    def test_unusable_endpoint(self) -> None:
        """What the environment says about a proxy may change, too."""
        self.network.state = "broken"
        self.start()
        self.assertIn("a proxy nobody can use", self.dialer.last_problem)
        self.network.state = "up"
        self.later(1)
        self.assert_up()


class BackoffTests(_Case):
    """When the next attempt is made."""

    def test_doubles(self) -> None:
        """From the first wait to the longest one, which no later one exceeds."""
        self.network.state = "refused"
        self.start()
        while len(self.network.attempts) < 12:
            self.clock.advance(self.next_dial())
        self.assertEqual(self.waits(), [0.5, 1, 2, 4, 8, 16, 30, 30, 30, 30, 30])
        self.assertIn("cannot connect to kas", self.dialer.last_problem)

    def test_full_jitter(self) -> None:
        """A wait is anything between nothing and the bound of its attempt."""
        self.network.state = "refused"
        for part in (0.0, 0.25):
            self.jitter = partial(float, part)
            self.dialer._failures = 3
            self.dialer._running = True
            self.dialer._dial()
            self.assertEqual(self.next_dial(), 4 * part)
            self.dialer._cancel_plan()

    def test_spread(self) -> None:
        """A thousand agents that lost kas together do not come back together."""
        generator = random.Random(1)
        waits = []
        for _ in range(1000):
            self.dialer._running = True
            self.dialer._failures = 10
            self.jitter = generator.random
            self.dialer._plan("kas is gone")
            waits.append(self.next_dial())
            self.dialer._cancel_plan()
        self.assertTrue(all(0 <= wait <= 30 for wait in waits))
        for third in range(3):
            inside = sum(10 * third <= wait < 10 * third + 10 for wait in waits)
            self.assertGreater(inside, 250)

    def test_kas_decides(self) -> None:
        """The intervals of WELCOME apply from then on."""
        self.world.acceptor.timing = Timing(reconnect_min=2.0, reconnect_max=5.0)
        self.start()
        self.network.state = "refused"
        self.network.tunnel().abort(ErrorCode.INTERNAL, "gone")
        self.network.settle()
        while len(self.network.attempts) < 5:
            self.clock.advance(self.next_dial())
        self.assertEqual(self.waits()[1:], [4, 5, 5])

    def test_timeout(self) -> None:
        """A connection that does not come about is given up."""
        self.network.state = "hangs"
        self.start()
        self.clock.advance(CONNECT_TIMEOUT - 0.1)
        self.assertEqual(self.network.cancelled, 0)
        self.clock.advance(0.1)
        self.assertEqual(self.network.cancelled, 1)
        self.network.state = "up"
        self.later(1)
        self.assert_up()

    def test_silent_kas(self) -> None:
        """One that accepts and says nothing, too."""
        self.network.state = "silent"
        self.start()
        self.later(20)
        self.network.state = "up"
        self.later(20)
        self.assert_up()

    def test_clean_closes_are_no_reason_to_hurry(self) -> None:
        """A kas, or a load balancer, that welcomes us and closes: no hot loop."""
        self.start()
        for _ in range(10):
            self.assert_up()
            self.network.tunnel().end(ErrorCode.NONE, "")
            self.network.settle()
            self.clock.advance(self.next_dial())
            self.network.settle()
        self.assertEqual(self.waits(), [0.5, 1, 2, 4, 8, 16, 30, 30, 30, 30])

    def test_accepts_and_drops(self) -> None:
        """The same without a greeting."""
        self.network.state = "drops"
        self.start()
        self.later(600)
        self.assertLess(len(self.network.attempts), 30)

    def test_going_away_again_and_again(self) -> None:
        """A kas that is always about to leave is not called twice a second."""
        self.start()
        for _ in range(10):
            self.network.tunnel().go_away(pb.GoAway(deadline_ms=1000))
            self.network.settle()
            self.later(self.next_dial(), step=100)
        self.assertEqual(self.waits()[:7], [0.5, 1, 2, 4, 8, 16, 30])

    def test_steady_connections_start_anew(self) -> None:
        """After one that lived, the first wait is short again."""
        self.network.state = "refused"
        self.start()
        self.later(200)
        self.network.state = "up"
        self.later(31)
        self.assert_up()
        self.later(6 * FORGIVEN_AFTER)
        self.network.tunnel().end(ErrorCode.NONE, "")
        self.network.settle()
        self.assertEqual(self.next_dial(), TIMING.reconnect_min)

    def test_short_connections_take_some_of_it_back(self) -> None:
        """One doubling for each while that they lived."""
        self.network.state = "refused"
        self.start()
        self.later(200)
        self.network.state = "up"
        self.clock.advance(self.next_dial())
        self.network.settle()
        self.assert_up()
        self.later(2 * FORGIVEN_AFTER)
        self.network.tunnel().end(ErrorCode.NONE, "")
        self.network.settle()
        self.assertEqual(self.next_dial(), TIMING.reconnect_min * 2 ** (6 - 2))

    def test_cut_again_and_again(self) -> None:
        """A path that lasts for seconds keeps the agent away for less than that."""
        self.start()
        waits = []
        for _ in range(20):
            self.later(FORGIVEN_AFTER)
            self.assert_up()
            self.network.tunnel().end(ErrorCode.NONE, "")
            self.network.settle()
            waits.append(self.next_dial())
            self.clock.advance(waits[-1])
            self.network.settle()
        self.assertEqual(waits, [TIMING.reconnect_min] * 20)


class OutageTests(_Case):
    """It never stops trying."""

    def outage(self, state: str, seconds: float) -> None:
        generator = random.Random(seconds)
        self.jitter = generator.random
        self.start()
        self.network.state = state
        self.network.pipes[-1].cut = True
        self.network.tunnel().abort(ErrorCode.INTERNAL, "gone")
        end = self.clock.seconds() + seconds
        while self.clock.seconds() < end:
            calls = self.clock.getDelayedCalls()
            step = min(call.getTime() for call in calls) - self.clock.seconds()
            self.clock.advance(min(max(step, 0.0), end - self.clock.seconds()))
            for pipe in tuple(self.network.open_pipes()):
                pipe.step()
        self.assertFalse(self.dialer.ready)
        self.network.state = "up"
        self.later(TIMING.reconnect_max + CONNECT_TIMEOUT)
        self.assert_up_again()

    def assert_up_again(self) -> None:
        self.assertTrue(self.dialer.ready, self.dialer.last_problem)
        for pipe in self.network.pipes[:-1]:
            self.assertTrue(pipe.transports[0].disconnected)
        connection = self.world.registry.find("7")
        assert connection is not None
        self.assertIs(connection.tunnel, self.network.tunnel())

    def test_refused(self) -> None:
        """One second, a minute, an hour, a day: back within the longest wait."""
        for seconds in (60, 3600, 86400):
            self.setUp()
            self.outage("refused", seconds)

    def test_hangs(self) -> None:
        """The same when every attempt runs into its timeout."""
        for seconds in (60, 3600, 86400):
            self.setUp()
            self.outage("hangs", seconds)

    def test_drops(self) -> None:
        """The same behind a load balancer that accepts for a kas that is not there."""
        for seconds in (60, 3600, 86400):
            self.setUp()
            self.outage("drops", seconds)

    def test_one_second(self) -> None:
        """A short one is noticed as soon as it can be, and is over soon."""
        self.start()
        self.network.state = "refused"
        self.network.tunnel().abort(ErrorCode.INTERNAL, "gone")
        self.network.settle()
        self.later(1)
        self.network.state = "up"
        self.later(2)
        self.assert_up()

    def test_cable(self) -> None:
        """Nobody says that the path is dead: silence does."""
        self.start()
        self.network.pipes[-1].cut = True
        self.later(TIMING.dead_after + 3)
        self.later(1)
        self.assertTrue(self.dialer.ready)
        self.assertEqual(len(self.network.attempts), 2)
        self.assertEqual(self.events, ["connected", "disconnected", "connected"])


class ReasonTests(_Case):
    """Why a connection ended, and what follows from it."""

    def end(self, code: ErrorCode, message: str = "because") -> None:
        self.network.tunnel().end(code, message)
        self.network.settle()

    def test_token_is_refused(self) -> None:
        """It goes on, with the token as it is then: tokens are rotated."""
        self.token = b"old"
        self.start()
        self.assertIn("kas does not accept the token", self.dialer.last_problem)
        self.later(120)
        self.assertFalse(self.dialer.ready)
        attempts = len(self.network.attempts)
        self.assertGreater(attempts, 5)
        self.assertEqual(self.hellos, attempts)
        self.token = b"7"
        self.later(TIMING.reconnect_max)
        self.assert_up()
        self.assertEqual(self.dialer.last_problem, "")

    def test_another_took_our_place(self) -> None:
        """Longer each time: only a person can tell them apart."""
        self.start()
        waits = []
        for _ in range(6):
            self.end(ErrorCode.SUPERSEDED, "give each a POD_NAME of its own")
            self.assertIn("took our place", self.dialer.last_problem)
            self.assertIn("POD_NAME", self.dialer.last_problem)
            waits.append(self.next_dial())
            self.later(self.next_dial() + 30, step=100)
            self.assert_up()
        self.assertEqual(waits, [30, 60, 120, 240, MAX_SPREAD, MAX_SPREAD])
        self.later(UNDISPUTED + 1, step=10)
        self.end(ErrorCode.SUPERSEDED)
        self.assertEqual(self.next_dial(), REPLACED_SPREAD)

    def test_token_is_revoked(self) -> None:
        """The same for one that was good when the connection was made."""
        self.start()
        self.token = b"revoked"
        self.world.registry.revoke("agent:7:t")
        self.network.settle()
        self.assertIn("kas does not accept the token", self.dialer.last_problem)
        self.token = b"7"
        self.later(1)
        self.assert_up()

    def test_something_else_answers(self) -> None:
        """A connection that ends without a word of ours says what that may be."""
        self.network.state = "drops"
        self.start()
        self.assertIn("write tls://", self.dialer.last_problem)
        self.network.state = "up"
        self.later(1)
        self.end(ErrorCode.NONE)
        self.assertNotIn("write tls://", self.dialer.last_problem)

    def test_other_version(self) -> None:
        """The operator is told what does not fit."""
        self.start()
        self.end(ErrorCode.VERSION, "no common version")
        self.assertIn("another version of the protocol", self.dialer.last_problem)

    def test_any_code(self) -> None:
        """Whatever kas says, another attempt follows."""
        for code in ErrorCode:
            self.setUp()
            self.start()
            self.end(code)
            replaced = code is ErrorCode.SUPERSEDED
            wait = REPLACED_SPREAD if replaced else TIMING.reconnect_min
            self.assertEqual(self.next_dial(), wait)
            self.later(wait)
            self.assert_up()

    def test_problem_is_told(self) -> None:
        """A module that calls meanwhile learns why it cannot."""
        self.start()
        self.end(ErrorCode.INTERNAL, "out of memory")
        error = self.assertRaises(
            SessionClosed, self.dialer.open_stream, "/y", RecordingReceiver()
        )
        self.assertIn("out of memory", str(error))


class DrainTests(_Case):
    """Kas leaves, and another one takes over."""

    def go_away(self, deadline: float = 60, within: float = 0) -> None:
        self.network.tunnel().go_away(
            pb.GoAway(
                code=ErrorCode.SHUTDOWN,
                message="kas stops",
                deadline_ms=round(deadline * 1000),
                reconnect_within_ms=round(within * 1000),
                elsewhere=True,
            )
        )
        self.network.settle()

    def other_kas(self) -> World:
        """Where connections lead from now on."""
        other = World(clock=self.clock)
        self.network.world = other
        return other

    def test_new_before_old(self) -> None:
        """A new connection first; what runs on the old one finishes there."""
        received = RecordingReceiver()
        self.dispatcher.handle_stream("tests", "/x", lambda stream, open_: received)
        self.start()
        stream = self.network.tunnel().open_stream(
            pb.Open(method="/x"), RecordingReceiver()
        )
        self.network.settle()
        other = self.other_kas()
        self.go_away()
        self.assertEqual(self.events, ["connected", "disconnected"])
        self.later(1)
        self.assertEqual(len(self.network.open_pipes()), 2)
        self.assertTrue(self.dialer.ready)
        self.assertIsNotNone(other.registry.find("7"))
        stream.write(b"still here")
        self.network.settle()
        self.assertEqual(received.data, b"still here")
        self.network.tunnel(0).end(ErrorCode.SHUTDOWN, "kas stops")
        self.network.settle()
        self.later(60)
        self.assertEqual(len(self.network.attempts), 2)
        self.assertEqual(len(self.network.open_pipes()), 1)
        self.assertTrue(self.dialer.ready)
        self.assertEqual(self.events[2:], ["connected"])

    def test_superseded_by_ourselves(self) -> None:
        """The same kas again: it ends the older connection, and that is all."""
        self.start()
        self.go_away()
        self.later(1)
        self.network.settle()
        self.assert_up()
        self.later(60)
        self.assertEqual(len(self.network.attempts), 2)
        self.assert_up()

    def test_old_one_ends_while_the_new_one_greets(self) -> None:
        """There is a plan already: a third connection would stay for ever."""
        self.start()
        self.go_away()
        self.other_kas()
        self.clock.advance(self.next_dial())
        self.assertEqual(len(self.network.attempts), 2)
        first = self.network.pipes[0]
        self.network.tunnel(0).end(ErrorCode.SHUTDOWN, "kas stops")
        first.flush()
        self.network.settle()
        self.later(100)
        self.assertEqual(len(self.network.attempts), 2)
        self.assertEqual(len(self.network.open_pipes()), 1)

    def test_old_one_ends_while_dialling(self) -> None:
        """The same while the new connection is not there yet."""
        self.start()
        self.go_away()
        self.network.state = "hangs"
        self.later(1)
        self.network.tunnel(0).end(ErrorCode.SHUTDOWN, "kas stops")
        self.network.settle()
        self.network.state = "up"
        self.later(CONNECT_TIMEOUT + 5)
        self.assert_up()

    def test_kas_forgets_to_close(self) -> None:
        """At the deadline the old connection is closed from this side."""
        self.start()
        self.dispatcher.handle_stream(
            "tests", "/x", lambda stream, open_: RecordingReceiver()
        )
        self.network.tunnel().open_stream(pb.Open(method="/x"), RecordingReceiver())
        self.later(1)
        self.other_kas()
        self.go_away(deadline=30)
        self.later(29)
        self.assertEqual(len(self.network.open_pipes()), 2)
        self.later(2)
        self.assertEqual(len(self.network.open_pipes()), 1)
        self.assertTrue(self.dialer.ready)

    def test_spread(self) -> None:
        """Evenly over the time that kas asks for, within reason."""
        for within, most in ((5, 5), (120, 120), (0, 0.5), (100_000, MAX_SPREAD)):
            self.setUp()
            self.start()
            self.go_away(within=within)
            self.assertEqual(self.next_dial(), most)

    def test_said_twice(self) -> None:
        """One more GO_AWAY makes no second plan."""
        self.start()
        self.go_away()
        self.go_away()
        self.next_dial()
        self.later(1)
        self.assertEqual(len(self.network.attempts), 2)

    def test_before_the_welcome(self) -> None:
        """A kas that leaves before it took us is not waited for."""
        self.dialer.start()
        self.network.tunnel().go_away(pb.GoAway(deadline_ms=60_000))
        self.clock.advance(0)
        self.network.pipes[0].step()
        self.network.settle()
        self.assertFalse(self.dialer.ready)
        self.assertEqual(self.next_dial(), TIMING.reconnect_min)


class ReconnectTests(_Case):
    """What is left after many connections."""

    def test_thousand(self) -> None:
        """One tunnel, one entry in kas, and no timer but those of one tunnel."""
        self.start()
        calls = len(self.clock.getDelayedCalls())
        for number in range(1000):
            tunnel = self.network.tunnel()
            if number % 3 == 0:
                tunnel.go_away(pb.GoAway(deadline_ms=3_600_000))
            elif number % 3 == 1:
                tunnel.end(ErrorCode.SHUTDOWN, "bye")
            else:
                tunnel.abort(ErrorCode.INTERNAL, "gone")
            self.network.settle()
            self.clock.advance(self.next_dial())
            self.network.settle()
            self.assertTrue(self.dialer.ready)
        self.later(10)
        self.assert_up()
        self.assertEqual(len(self.network.attempts), 1001)
        self.assertEqual((len(self.world.registry), self.world.registry.agents), (1, 1))
        self.assertEqual(len(self.dialer._tunnels), 1)
        self.assertEqual(self.dialer._deadlines, {})
        self.assertEqual(len(self.clock.getDelayedCalls()), calls)


class StopTests(_Case):
    """agentk stops: offers nothing more, serves what it accepted, closes last."""

    def stop(self, grace: float = 20) -> Deferred[None]:
        stopping = Deferred.fromCoroutine(self.dialer.stop(grace))
        self.network.settle()
        return stopping

    def assert_nothing_left(self) -> None:
        self.clock.advance(60)
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.assertEqual(self.network.open_pipes(), [])

    def test_serves_what_it_accepted(self) -> None:
        """Kas sends nothing new here, and the open stream ends as it should."""
        streams: list[Any] = []
        received = RecordingReceiver()

        def accept(stream: Any, open_: pb.Open) -> RecordingReceiver:
            streams.append(stream)
            return received

        self.dispatcher.handle_stream("tests", "/x", accept)
        self.start()
        client = RecordingReceiver()
        stream = self.network.tunnel().open_stream(pb.Open(method="/x"), client)
        self.network.settle()
        stopping = self.stop()
        self.assertIsNone(self.world.registry.find("7"))
        late = RecordingReceiver()
        self.world.router.open_stream("7", pb.Open(method="/x"), late, False)
        self.later(5)
        self.assertNoResult(stopping)
        stream.write(b"question")
        stream.finish()
        self.network.settle()
        streams[0].write(b"answer")
        streams[0].finish()
        self.network.settle()
        self.assertEqual((received.data, client.data), (b"question", b"answer"))
        self.assertEqual((client.closed, late.closed), ([None], []))
        self.later(1)
        self.successResultOf(stopping)
        self.assertEqual(len(streams), 1)
        self.later(60)
        self.assert_nothing_left()

    def test_grace_is_over(self) -> None:
        """A stream that does not end is told, and ended."""
        received = RecordingReceiver()
        self.dispatcher.handle_stream("tests", "/x", lambda stream, open_: received)
        self.start()
        client = RecordingReceiver()
        self.network.tunnel().open_stream(pb.Open(method="/x"), client)
        self.network.settle()
        stopping = self.stop(grace=3)
        self.later(2.5, step=0.1)
        self.assertNoResult(stopping)
        self.later(1, step=0.1)
        self.successResultOf(stopping)
        (reason,) = client.closed
        assert isinstance(reason, SessionClosed)
        self.assertEqual(reason.code, ErrorCode.SHUTDOWN)
        self.assert_nothing_left()

    def test_idle(self) -> None:
        """With nothing under way it is over at once."""
        self.start()
        stopping = self.stop()
        self.later(FAREWELL, step=0.1)
        self.successResultOf(stopping)
        self.assertEqual(len(self.world.registry), 0)
        self.assert_nothing_left()

    def test_kas_is_silent(self) -> None:
        """One that does not answer is not waited for long."""
        self.start()
        self.network.pipes[-1].cut = True
        stopping = self.stop()
        self.clock.pump([0.1] * int(FAREWELL * 10 + 2))
        self.clock.advance(2)
        self.successResultOf(stopping)
        self.clock.advance(5)
        self.network.settle()
        self.assertTrue(self.network.pipes[-1].transports[0].disconnected)

    def test_while_dialling(self) -> None:
        """The attempt is given up, and none follows."""
        self.network.state = "hangs"
        self.start()
        self.successResultOf(self.stop())
        self.assertEqual(self.network.cancelled, 1)
        self.assert_nothing_left()

    def test_while_waiting(self) -> None:
        """The next attempt is not made."""
        self.network.state = "refused"
        self.start()
        self.successResultOf(self.stop())
        self.assert_nothing_left()
        self.assertEqual(len(self.network.attempts), 1)

    def test_connection_ends_meanwhile(self) -> None:
        """No new one is made then."""
        self.start()
        self.network.tunnel().end(ErrorCode.SHUTDOWN, "bye")
        stopping = self.stop()
        self.later(1)
        self.successResultOf(stopping)
        self.later(60)
        self.assertEqual(len(self.network.attempts), 1)
