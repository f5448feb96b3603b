"""How agentk's connections to kas end, and what follows from it."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred

from agentk.dialer import (
    CONNECT_TIMEOUT,
    FAREWELL,
    MAX_SPREAD,
    REPLACED_SPREAD,
    UNDISPUTED,
)
from kas.routing.stream import RoutedStream
from tests.agentk.dialling import TIMING, DialCase
from tests.kas.world import World
from tunnel.errors import ErrorCode, SessionClosed
from tunnel.pb import tunnel_pb2 as pb
from tunnel.testing import RecordingReceiver


class ReasonTests(DialCase):
    """Why a connection ended, and what follows from it."""

    def end(self, code: ErrorCode, message: str = "because") -> None:
        self.network.tunnel().end(code, message)
        self.network.settle()

    def test_token_is_refused(self) -> None:
        """It goes on, with the token as it is then: tokens are rotated."""
        self.token = b"old"
        self.start()
        self.assertIn(
            "does not accept the token in /run/token: ", self.dialer.last_problem
        )
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
            self.end(ErrorCode.SUPERSEDED, "give each its own POD_NAME")
            self.assertIn("replaced this one", self.dialer.last_problem)
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
        self.assertIn(
            "does not accept the token in /run/token: ", self.dialer.last_problem
        )
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


class DrainTests(DialCase):
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
        self.assertIsNotNone(other.router.only_path("7"))
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


class StopTests(DialCase):
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
        self.assertIsNone(self.world.router.only_path("7"))
        late = RecordingReceiver()
        RoutedStream.open(self.world.router, "7", "/x", late)
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
