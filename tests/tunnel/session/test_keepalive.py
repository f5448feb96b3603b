"""Silence: asking, giving up, and what does not count as silence."""

from __future__ import annotations

from typing import Any

from twisted.internet.task import Clock
from twisted.logger import ILogObserver, LogEvent, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from tests.tunnel.asserts import assert_session_ends
from tunnel.api import IPathReceiver
from tunnel.errors import ErrorCode
from tunnel.pb import tunnel_pb2 as pb
from tunnel.session.keepalive import (
    BUDGET_INTERVAL,
    DOUBTED,
    GREETING_TIMEOUT,
    LOOK,
    LOOKS_TO_DOUBT,
    LOOKS_TO_END,
    SWEEP,
    Keepalive,
    Liveness,
    Timing,
)
from tunnel.session.protocol import CLOSE_TIMEOUT
from tunnel.testing import MemoryTransport, RecordingReceiver, connected
from tunnel.testing.ends import End
from tunnel.wire.framing import FrameDecoder, FrameType
from tunnel.wire.limits import DEFAULT_LIMITS


@implementer(IPathReceiver)
class _Doubting(RecordingReceiver):
    """A request, and what it was told of its path."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[str] = []

    def path_in_doubt(self) -> None:
        self.told.append("in doubt")

    def path_missing(self) -> None:
        self.told.append("missing")


class _Watched:
    """A silent connection of which only pings are asked."""

    greeted = settled = True

    def __init__(self, fails: bool = False) -> None:
        timing = Timing(ping_interval=14, dead_after=1000)
        self.liveness = Liveness(timing, dialler=True)
        self.fails = fails
        self.pings = 0

    def send_ping(self) -> None:
        if self.fails:
            raise ZeroDivisionError
        self.pings += 1

    def renew_budget(self) -> None:
        pass

    peer_is_doubted = peer_is_dead = greeting_is_late = renew_budget


class KeepaliveTests(SynchronousTestCase):
    """Two tunnels and a clock."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.agent, self.kas, self.pipe = connected(self.clock)

    def pass_time(self, seconds: float) -> None:
        for _ in range(int(seconds)):
            self.clock.advance(1.0)
            self.pipe.flush()

    def test_quiet_connection_stays(self) -> None:
        """Pings of the dialler are enough for both sides."""
        self.pass_time(3600)
        self.assertEqual((self.agent.closed, self.kas.closed), ([], []))
        self.assertTrue(self.agent.tunnel.alive and self.kas.tunnel.alive)

    def test_one_that_fails(self) -> None:
        """The others are looked at all the same, each time."""
        keepalive = Keepalive(self.clock)
        broken, other = _Watched(fails=True), _Watched()
        for one in (broken, other):
            keepalive.watch(one)
        for _ in range(10):
            self.clock.advance(SWEEP)
        self.assertEqual(other.liveness.silence, 10 * SWEEP)
        self.assertEqual(other.pings, 1)
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        for one in (broken, other):
            keepalive.forget(one)

    def test_dead_peer_is_given_up_by_both_sides(self) -> None:
        """Within two ping intervals and a sweep, though writes still succeed."""
        timing = Timing()
        self.pipe.cut = True
        stream = self.kas.tunnel.open_stream(pb.Open(), RecordingReceiver())
        stream.write(b"into the dark")
        self.pass_time(2 * timing.ping_interval + 3)
        for end in (self.agent, self.kas):
            assert_session_ends(end.closed, ErrorCode.DEAD_PEER)

    def test_silent_peer_gets_no_new_requests_before_it_is_given_up(self) -> None:
        """Routing asks `alive`."""
        self.pipe.cut = True
        self.pass_time(25)
        self.assertEqual(self.kas.closed, [])
        self.assertFalse(self.kas.tunnel.alive)

    def test_silence_after_a_request_is_doubted_at_once(self) -> None:
        """The next request must not hang until the peer is given up."""
        self.pass_time(3)
        self.pipe.cut = True
        self.kas.tunnel.open_stream(pb.Open(), RecordingReceiver())
        self.pass_time(int(DOUBTED + SWEEP))
        self.assertFalse(self.kas.tunnel.alive)
        self.assertEqual(self.kas.closed, [])

    def test_slow_answer_is_no_silence(self) -> None:
        """A peer that answers pings may think as long as it likes."""
        self.kas.tunnel.open_stream(pb.Open(), RecordingReceiver())
        for _ in range(60):
            self.pass_time(1)
            self.assertTrue(self.kas.tunnel.alive)

    def test_doubt_ends_with_the_answer(self) -> None:
        """The path was away for a while, and is back."""
        agent = self.agent.tunnel
        hears = agent.dataReceived
        late: list[bytes] = []
        agent.dataReceived = late.append  # type: ignore[method-assign,assignment]
        self.kas.tunnel.open_stream(pb.Open(), RecordingReceiver())
        self.pass_time(int(DOUBTED + SWEEP))
        self.assertFalse(self.kas.tunnel.alive)
        # It asks whether we are there, and so does not hear us.
        agent.send_ping()
        self.pass_time(1)
        self.assertFalse(self.kas.tunnel.alive)
        agent.dataReceived = hears  # type: ignore[method-assign]
        for data in late:
            hears(data)
        self.pass_time(1)
        self.assertTrue(self.kas.tunnel.alive)

    def test_peer_that_speaks_and_does_not_hear(self) -> None:
        """Is as dead as one that is silent."""
        agent = self.agent.tunnel
        agent.dataReceived = lambda data: None  # type: ignore[method-assign]
        self.kas.tunnel.open_stream(pb.Open(), RecordingReceiver())
        agent.liveness.set_timing(Timing(dead_after=1e9))
        for _ in range(5):
            self.pass_time(8)
            agent.send_ping()
        assert_session_ends(self.kas.closed, ErrorCode.DEAD_PEER)

    def test_one_direction_is_enough_to_be_dead(self) -> None:
        """A peer that hears us and is not heard."""
        self.kas.tunnel.dataReceived = lambda data: None  # type: ignore[method-assign]
        self.pass_time(31)
        assert_session_ends(self.kas.closed, ErrorCode.DEAD_PEER)

    def test_clock_that_jumps_ends_nothing(self) -> None:
        """A process that was stopped for an hour gives its peer the whole time."""
        self.clock.advance(3600)
        for end in (self.agent, self.kas):
            self.assertEqual(end.closed, [])
            self.assertLessEqual(end.tunnel.liveness.silence, SWEEP)
        self.pipe.flush()
        self.pass_time(60)
        self.assertEqual((self.agent.closed, self.kas.closed), ([], []))

    def test_listener_sets_the_pace(self) -> None:
        """What WELCOME says is what the dialler does."""
        timing = Timing(ping_interval=5.0, dead_after=9.0, reconnect_max=77.0)
        self.agent.tunnel.liveness.set_timing(Timing.from_message(timing.message()))
        self.pipe.cut = True
        self.pass_time(13)
        self.assertEqual(len(self.agent.closed), 1)
        self.assertEqual(self.agent.tunnel.liveness.timing.reconnect_max, 77.0)

    def test_absurd_pace_is_not_followed(self) -> None:
        """A ping every millisecond is not, and what is left out has a default."""
        timing = Timing.from_message(pb.Timing(ping_interval_ms=1, dead_after_ms=1))
        self.assertEqual((timing.ping_interval, timing.dead_after), (1.0, 2.0))
        self.assertEqual(Timing.from_message(pb.Timing()), Timing())

    def test_budgets_are_renewed(self) -> None:
        """Every ten seconds; of one that rests, before its next bytes count."""
        budget = self.kas.tunnel.session.budget
        for seconds, greater in (BUDGET_INTERVAL - SWEEP, False), (SWEEP, True):
            budget.pings = 1
            self.pass_time(seconds)
            self.agent.tunnel.send_ping()
            self.pipe.flush()
            self.assertEqual(budget.pings > 0, greater)
        self.assertEqual(self.kas.closed, [])

    def test_sweep_ends_with_the_last_connection(self) -> None:
        """No timer is left behind."""
        self.agent.tunnel.end(ErrorCode.NONE)
        self.pipe.flush()
        self.assertEqual(self.clock.getDelayedCalls(), [])


class AskTests(SynchronousTestCase):
    """A request has reason to think that the agent is gone."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.agent, self.kas, self.pipe = connected(self.clock)
        self.tunnel = self.kas.tunnel
        self.pings: list[bytes] = []
        transport: Any = self.tunnel.transport
        decoder, write = FrameDecoder(), transport.write

        def counted(data: bytes) -> None:
            for kind, _, _, payload in decoder.feed(data):
                if kind == FrameType.PING:
                    self.pings.append(payload)
            write(data)

        self.patch(transport, "write", counted)

    def looks(self, count: int) -> None:
        for _ in range(count):
            self.clock.advance(LOOK)
            self.pipe.flush()

    def test_lives(self) -> None:
        """One ping, and nothing else happens; no timer is left behind."""
        timers = len(self.clock.getDelayedCalls())
        self.tunnel.ask()
        self.pipe.flush()
        for _ in range(LOOKS_TO_END):
            self.looks(1)
            self.assertTrue(self.tunnel.alive)
        self.assertEqual((len(self.pings), self.kas.closed), (1, []))
        self.assertEqual(len(self.clock.getDelayedCalls()), timers)

    def test_is_dead(self) -> None:
        """It is avoided at once, and closed after a while."""
        self.pipe.cut = True
        self.tunnel.ask()
        self.looks(LOOKS_TO_DOUBT - 1)
        self.assertTrue(self.tunnel.alive)
        self.looks(1)
        self.assertFalse(self.tunnel.alive)
        self.assertLess(LOOKS_TO_DOUBT * LOOK, 0.7)
        self.looks(LOOKS_TO_END - LOOKS_TO_DOUBT - 1)
        self.assertEqual(self.kas.closed, [])
        self.looks(1)
        assert_session_ends(self.kas.closed, ErrorCode.DEAD_PEER)

    def test_streams_are_told(self) -> None:
        """Those that may go elsewhere do so before it is closed."""
        self.pipe.cut = True
        receiver = _Doubting()
        self.tunnel.open_stream(pb.Open(), receiver)
        self.tunnel.ask()
        self.looks(LOOKS_TO_END - 1)
        self.assertEqual(receiver.told, ["in doubt"])

    def test_doubt_in_the_log(self) -> None:
        """It is news where a request waits for the peer, not a call of its own."""
        said: list[str] = []

        @implementer(ILogObserver)
        def note(event: LogEvent) -> None:
            if "did not respond" in str(event["log_format"]):
                said.append(event["log_level"].name)

        globalLogPublisher.addObserver(note)
        self.addCleanup(globalLogPublisher.removeObserver, note)
        for receiver in (None, RecordingReceiver(), _Doubting()):
            if receiver is not None:
                self.tunnel.open_stream(pb.Open(), receiver)
            self.pipe.cut = True
            self.tunnel.ask()
            self.looks(LOOKS_TO_DOUBT)
            self.pipe.cut = False
            self.looks(LOOKS_TO_DOUBT)
        self.assertEqual(said, ["debug", "debug", "info"])

    def test_long_path(self) -> None:
        """Around the world and back is no silence, nor is an answer behind bulk."""
        self.pipe.cut = True
        self.tunnel.ask()
        self.clock.advance(0.3)
        self.pipe.cut = False
        self.looks(LOOKS_TO_END)
        self.assertTrue(self.tunnel.alive)
        agent = self.agent.tunnel
        agent.dataReceived = lambda data: None  # type: ignore[method-assign]
        self.tunnel.ask()
        agent.send_ping()
        self.looks(LOOKS_TO_DOUBT)
        self.assertTrue(self.tunnel.alive)

    def test_speaks_again(self) -> None:
        """One that was away for a moment keeps its connection."""
        self.pipe.cut = True
        self.tunnel.ask()
        self.looks(LOOKS_TO_DOUBT + 1)
        self.assertFalse(self.tunnel.alive)
        self.pipe.cut = False
        self.looks(LOOKS_TO_END)
        self.assertTrue(self.tunnel.alive)
        self.assertEqual(self.kas.closed, [])

    def test_asked_by_many(self) -> None:
        """It is no storm; yet the last one gets an answer of its own."""
        for _ in range(256):
            self.tunnel.ask()
        self.pipe.flush()
        self.assertEqual(len(self.pings), 1)
        self.pipe.cut = True
        self.looks(LOOKS_TO_DOUBT)
        self.assertEqual(len(self.pings), 2)
        self.assertTrue(self.tunnel.alive)
        self.looks(LOOKS_TO_DOUBT)
        self.assertFalse(self.tunnel.alive)

    def test_process_was_stopped(self) -> None:
        """What came meanwhile is read before anybody is doubted."""
        self.tunnel.ask()
        self.clock.advance(60)
        self.pipe.flush()
        self.looks(LOOKS_TO_DOUBT)
        self.assertTrue(self.tunnel.alive)

    def test_connection_that_ended(self) -> None:
        """Nothing of the question stays, and no other is asked."""
        self.tunnel.ask()
        self.tunnel.end(ErrorCode.NONE)
        self.pipe.flush()
        self.tunnel.ask()
        self.assertEqual(self.clock.getDelayedCalls(), [])


class GreetingTests(SynchronousTestCase):
    """Strangers."""

    def test_stranger_that_says_nothing_is_cut(self) -> None:
        """After the greeting timeout, politely, and then for good."""
        clock = Clock()
        end = End(clock, dialler=False, limits=DEFAULT_LIMITS)
        transport = StuckTransport()
        end.tunnel.makeConnection(transport)
        clock.pump([1.0] * int(GREETING_TIMEOUT + 2))
        self.assertTrue(transport.disconnecting)
        self.assertFalse(transport.aborted)
        clock.advance(CLOSE_TIMEOUT)
        self.assertTrue(transport.aborted)

    def test_protocol_fault_is_told_before_the_connection_closes(self) -> None:
        """GO_AWAY with the code, then the end."""
        clock = Clock()
        agent, kas, pipe = connected(clock)
        assert agent.tunnel.transport is not None
        agent.tunnel.transport.write(b"\xff" * 10)
        pipe.flush()
        assert_session_ends(agent.closed, ErrorCode.FRAME_SIZE)
        self.assertEqual(len(kas.closed), 1)


class StuckTransport(MemoryTransport):
    """Never gets rid of what is written."""

    def __init__(self) -> None:
        super().__init__(None, 65536, 1)  # type: ignore[arg-type]
        self.aborted = False

    def abortConnection(self) -> None:
        self.aborted = True


class _Noted(_Watched):
    """Notes what it is told to do."""

    def __init__(self, timing: Timing, *, dialler: bool = True) -> None:
        super().__init__()
        self.liveness = Liveness(timing, dialler=dialler)
        self.told: list[str] = []

    def send_ping(self) -> None:
        self.told.append("ping")

    def renew_budget(self) -> None:
        self.told.append("renew")

    def peer_is_doubted(self) -> None:
        self.told.append("doubted")

    def peer_is_dead(self) -> None:
        self.told.append("dead")

    def greeting_is_late(self) -> None:
        self.told.append("late")

    def sweeps(self, count: int) -> list[str]:
        """What *count* sweeps lead to."""
        before = len(self.told)
        for _ in range(count):
            self.liveness.swept(self)
        return self.told[before:]


def _woken(keepalive: Keepalive, one: _Noted, clock: Clock, sweeps: int) -> list[str]:
    """What one that heard something before is told within so many sweeps, and then."""
    one.told.clear()
    one.liveness.bytes_came()
    clock.pump([SWEEP] * sweeps)
    if one.liveness.wheel_slot is not None:
        keepalive.wake(one)
    return [what for what in one.told if what == "renew"]


class LivenessTests(SynchronousTestCase):
    """One connection, sweep by sweep."""

    timing = Timing(ping_interval=8.0, dead_after=16.0)

    def test_timing_travels(self) -> None:
        timing = Timing(3.0, 7.0, 0.25, 11.0, 1.5)
        self.assertEqual(Timing.from_message(timing.message()), timing)
        absurd = pb.Timing(reconnect_min_ms=1, reconnect_max_ms=1)
        least = Timing.from_message(absurd)
        self.assertEqual((least.reconnect_min, least.reconnect_max), (0.01, 0.1))

    def test_who_asks_first(self) -> None:
        """The side that dialled, after the interval; the other a quarter later."""
        for dialler, sweeps in (True, 4), (False, 5):
            one = _Noted(self.timing, dialler=dialler)
            self.assertEqual(one.sweeps(sweeps - 1), [])
            self.assertEqual(one.sweeps(1), ["ping"])
            self.assertEqual(one.sweeps(7 - sweeps), [])
            self.assertEqual(one.sweeps(1), ["dead"])

    def test_lately(self) -> None:
        """Within one interval and a half, the end of it included."""
        one = _Noted(self.timing)
        one.sweeps(6)
        self.assertEqual(one.liveness.silence, 12.0)
        self.assertTrue(one.liveness.heard_lately and one.liveness.alive)
        one.sweeps(1)
        self.assertFalse(one.liveness.heard_lately or one.liveness.alive)
        one.liveness.bytes_came()
        one.sweeps(1)
        self.assertEqual(one.liveness.silence, 0.0)
        self.assertTrue(one.liveness.heard_lately and one.liveness.alive)

    def test_a_request_that_is_not_answered(self) -> None:
        """Asked with the next sweep, doubted with the second; only PONG ends that."""
        one = _Noted(self.timing)
        one.liveness.expecting = True
        self.assertEqual(one.sweeps(1), ["ping"])
        self.assertTrue(one.liveness.alive)
        self.assertEqual(one.sweeps(1), ["doubted"])
        self.assertFalse(one.liveness.alive)
        one.liveness.bytes_came()
        self.assertEqual(one.sweeps(1), [])
        self.assertEqual((one.liveness.doubt, one.liveness.expecting), (6.0, True))
        one.liveness.pong_came()
        self.assertEqual((one.liveness.doubt, one.liveness.expecting), (0.0, False))
        self.assertTrue(one.liveness.alive)

    def test_bytes_answer_a_request(self) -> None:
        one = _Noted(self.timing)
        one.liveness.expecting = True
        one.liveness.bytes_came()
        self.assertFalse(one.liveness.expecting)
        self.assertEqual(one.sweeps(3), [])
        self.assertEqual(one.liveness.doubt, 0.0)

    def test_speaks_and_does_not_hear(self) -> None:
        """It is dead once it was doubted for as long as it may be silent."""
        one = _Noted(self.timing)
        one.liveness.expecting = True
        one.sweeps(1)
        for _ in range(6):
            one.liveness.bytes_came()
            one.sweeps(1)
        self.assertEqual((one.liveness.doubt, one.told[-1]), (14.0, "doubted"))
        one.liveness.bytes_came()
        self.assertEqual(one.sweeps(1), ["dead"])

    def test_a_question_that_failed(self) -> None:
        """Told once; doubt that grew meanwhile stays."""
        one = _Noted(self.timing)
        one.liveness.question_failed(one)
        self.assertEqual((one.liveness.doubt, one.told), (DOUBTED, ["doubted"]))
        self.assertFalse(one.liveness.alive)
        one.liveness.question_failed(one)
        self.assertEqual(one.told, ["doubted"])
        one.sweeps(1)
        one.liveness.question_failed(one)
        self.assertEqual((one.liveness.doubt, one.told), (DOUBTED, ["doubted"]))
        one.liveness.doubt = DOUBTED + SWEEP
        one.liveness.question_failed(one)
        self.assertEqual(one.liveness.doubt, DOUBTED + SWEEP)

    def test_late_greeting(self) -> None:
        """After ten seconds, whether bytes came or not."""
        one = _Noted(self.timing)
        one.greeted = False
        one.liveness.bytes_came()
        self.assertEqual(one.sweeps(int(GREETING_TIMEOUT / SWEEP) - 1), [])
        self.assertEqual(one.sweeps(1), ["late"])

    def test_budgets(self) -> None:
        """Each fifth sweep; one that rests through it has a new one when it wakes."""
        clock = Clock()
        keepalive, one = Keepalive(clock), _Noted(Timing(dead_after=1e6))
        keepalive.watch(one)
        for _ in range(3):
            self.assertEqual(_woken(keepalive, one, clock, 4), [])
            self.assertEqual(_woken(keepalive, one, clock, 1), ["renew"])
        self.assertEqual(_woken(keepalive, one, clock, 1), [])
        keepalive.forget(one)
        self.assertEqual(clock.getDelayedCalls(), [])

    def test_budget_of_one_that_never_rests(self) -> None:
        clock = Clock()
        keepalive, one = Keepalive(clock), _Noted(Timing(dead_after=1e6))
        one.settled = False
        keepalive.watch(one)
        for _ in range(3):
            for renewed in (*[[]] * 4, ["renew"]):
                one.told.clear()
                one.liveness.bytes_came()
                clock.advance(SWEEP)
                self.assertEqual(one.told, renewed)
        keepalive.forget(one)

    def test_rest(self) -> None:
        """A silent one is looked at when it has to be asked, and from then on."""
        clock = Clock()
        for interval, looks in (8.0, [1, 4, 5]), (60.0, [1, 16, 30, 31]):
            keepalive, one = Keepalive(clock), _Noted(Timing(interval, 1e6))
            keepalive.watch(one)
            seen = []
            for sweep in range(1, looks[-1] + 1):
                clock.advance(SWEEP)
                if one.liveness.looked == sweep:
                    seen.append(sweep)
            self.assertEqual(seen, looks)
            self.assertEqual(one.told.count("ping"), 1)
            self.assertEqual(one.liveness.silence, looks[-1] * SWEEP)
            keepalive.forget(one)

    def test_woken(self) -> None:
        """The next sweep looks; silence counts from the last byte."""
        clock = Clock()
        keepalive, one = Keepalive(clock), _Noted(self.timing)
        keepalive.watch(one)
        clock.pump([SWEEP] * 2)
        self.assertIsNotNone(one.liveness.wheel_slot)
        keepalive.wake(one)
        one.liveness.expecting = True
        clock.advance(SWEEP)
        self.assertEqual((one.told, one.liveness.silence), (["ping"], 3 * SWEEP))
        keepalive.forget(one)

    def test_forgotten_while_it_rests(self) -> None:
        clock = Clock()
        keepalive, one = Keepalive(clock), _Noted(self.timing)
        keepalive.watch(one)
        clock.pump([SWEEP] * 2)
        keepalive.forget(one)
        self.assertEqual(clock.getDelayedCalls(), [])

    def test_unsettled(self) -> None:
        """What no peer greeted, or who owes us credit, is looked at by each sweep."""
        clock = Clock()
        keepalive, one = Keepalive(clock), _Noted(self.timing)
        one.settled = False
        keepalive.watch(one)
        for sweep in range(1, 4):
            clock.advance(SWEEP)
            self.assertEqual(one.liveness.looked, sweep)
        keepalive.forget(one)

    def test_asked_once(self) -> None:
        """Without another question meanwhile, an answer ends it."""
        clock = Clock()
        keepalive, one = Keepalive(clock), _Noted(self.timing)
        keepalive.ask(one)
        self.assertEqual(one.told, [])
        keepalive.watch(one)
        keepalive.ask(one)
        one.liveness.bytes_came()
        clock.pump([LOOK] * (LOOKS_TO_DOUBT + 2))
        self.assertEqual(one.told, ["ping"])
        keepalive.forget(one)
        self.assertEqual(clock.getDelayedCalls(), [])
