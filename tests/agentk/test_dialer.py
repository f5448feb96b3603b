"""agentk's way to kas: it never gives up, never hammers, and never has two ways."""

from __future__ import annotations

import random
from functools import partial

from agentk.dialer import CONNECT_TIMEOUT, FORGIVEN_AFTER, RECENT, SOON, STEADY
from tests.agentk.dialling import TIMING, DialCase
from tunnel.errors import ErrorCode, SessionClosed
from tunnel.pb import tunnel_pb2 as pb
from tunnel.session.keepalive import Timing
from tunnel.testing import RecordingReceiver


class ConnectTests(DialCase):
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


class BackoffTests(DialCase):
    """When the next attempt is made."""

    def test_doubles(self) -> None:
        """From the first wait to the longest one, which no later one exceeds."""
        self.network.state = "refused"
        self.start()
        while len(self.network.attempts) < 12:
            self.clock.advance(self.next_dial())
        self.assertEqual(self.waits(), [0.5, 1, 2, 4, 8, 16, 30, 30, 30, 30, 30])
        self.assertIn("cannot connect to kas", self.dialer.last_problem)

    def test_several_addresses(self) -> None:
        """Only a failed round of all addresses lengthens the backoff."""
        self.network.state = "refused"
        self.dialer.addresses = 3
        self.start()
        while len(self.network.attempts) < 10:
            self.clock.advance(self.next_dial())
        self.assertEqual(self.waits(), [0.5] * 5 + [1, 0.5, 0.5, 2])

    def test_full_jitter(self) -> None:
        """A wait is anything between nothing and the bound of its attempt."""
        self.network.state = "refused"
        for part in (0.0, 0.25):
            self.jitter = partial(float, part)
            self.dialer._backoff.doublings = 3
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
            self.dialer._backoff.doublings = 10
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
        for _ in range(2):
            self.network.state = "hangs"
            self.network.cancelled = 0
            if not self.network.attempts:
                self.start()
            # A kas that is frozen first, a slow path at last.
            for number, timeout in enumerate((5, 10, CONNECT_TIMEOUT, CONNECT_TIMEOUT)):
                self.clock.advance(timeout - 0.1)
                self.assertEqual(self.network.cancelled, number)
                self.clock.advance(0.1)
                self.assertEqual(self.network.cancelled, number + 1)
                self.clock.advance(self.next_dial())
            self.network.state = "up"
            self.later(CONNECT_TIMEOUT + TIMING.reconnect_max + 1)
            self.assert_up()
            # What was learned there says nothing of the next time.
            self.network.state = "hangs"
            self.network.tunnel().abort(ErrorCode.INTERNAL, "gone")
            self.network.settle()
            self.clock.advance(self.next_dial())

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

    def test_soon_after_a_cut(self) -> None:
        """A path that comes back within two minutes is noticed within seconds."""
        self.start()
        self.later(STEADY)
        self.assert_up()
        self.network.state = "refused"
        self.network.tunnel().end(ErrorCode.NONE, "")
        self.network.settle()
        waits = []
        since = self.clock.seconds()
        while self.clock.seconds() - since < RECENT:
            waits.append(self.next_dial())
            self.clock.advance(waits[-1])
        self.assertEqual(waits[:6], [0.5, 1, 2, 4, SOON, SOON])
        self.assertEqual(max(waits), SOON)
        # Whoever is away for longer is called less often.
        self.assertEqual(self.next_dial(), TIMING.reconnect_max)

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


class OutageTests(DialCase):
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
        connection = self.world.router.only_path("7")
        assert connection is not None
        self.assertIs(connection.tunnel, self.network.tunnel())

    def test_refused(self) -> None:
        """A minute, an hour, a day: back within the longest wait and one timeout."""
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


class ReconnectTests(DialCase):
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
