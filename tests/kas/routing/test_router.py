"""Streams to agents that are here, and to those that are not yet."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IPushProducer
from twisted.logger import capturedLogs
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer
from zope.interface.verify import verifyObject

from kas.routing.router import (
    LOOK_AGAIN,
    MAX_MISSED,
    MAX_WAITING,
    MISSED_SECONDS,
    NEVER_SHORT_TIMEOUT,
    ROUTING_TIMEOUT,
    SHORT_TIMEOUT,
    Router,
)
from kas.routing.stream import MAX_BUFFERED, RoutedStream
from tests.builds import sources_only
from tests.kas.directory.memory import MemoryStore
from tests.kas.many import ManyCase
from tests.kas.world import World
from tests.proto.echo_pb2 import DESCRIPTOR, Text
from tunnel.api import ConnectedAgent, IStream, StreamOptions
from tunnel.errors import (
    AgentUnavailable,
    CallError,
    ErrorCode,
    Status,
    StreamReset,
)
from tunnel.pb import tunnel_pb2 as pb
from tunnel.rpc.client import ServiceClient
from tunnel.testing import RecordingReceiver
from tunnel.wire.limits import DEFAULT_LIMITS, Limits

ECHO = DESCRIPTOR.services_by_name["Echo"]


@implementer(IPushProducer)
class Producer:
    """Writes a piece whenever it may; notes what it is told."""

    def __init__(self, stream: IStream, pieces: int = 0, size: int = 16384) -> None:
        self.stream = stream
        self.told: list[str] = []
        self.pieces = pieces
        self.size = size
        self.running = True

    def pauseProducing(self) -> None:
        self.told.append("pause")
        self.running = False

    def resumeProducing(self) -> None:
        self.told.append("resume")
        self.running = True
        while self.running and self.pieces:
            self.pieces -= 1
            self.stream.write(b"x" * self.size)

    def stopProducing(self) -> None:
        self.told.append("stop")
        self.running = False


class _Case(SynchronousTestCase):
    limits: Limits = DEFAULT_LIMITS

    def setUp(self) -> None:
        self.world = World(limits=self.limits)
        self.clock = self.world.clock
        self.router = self.world.router
        self.receiver = RecordingReceiver()

    def open(self, agent_id: str = "7", fin: bool = False, **more: Any) -> Any:
        receiver = more.pop("receiver", self.receiver)
        options = StreamOptions(fin=fin)
        return RoutedStream.open(
            self.router, agent_id, "/x", receiver, options=options, **more
        )

    def reason(self, receiver: RecordingReceiver | None = None) -> Any:
        (reason,) = (receiver or self.receiver).closed
        return reason

    def assert_nothing_left(self) -> None:
        """Neither timers nor entries of streams that are over."""
        self.assertEqual(self.router.waiting, 0)
        self.assertEqual(self.world.registry.waiting, 0)
        self.assertEqual(self.clock.getDelayedCalls(), [])


class AtOnceTests(_Case):
    """The agent is here."""

    def test_opens(self) -> None:
        """The stream is a real one at once."""
        agent = self.world.agent()
        stream = self.open(metadata=b"fields")
        stream.write(b"hello")
        agent.pipe.flush()
        ((_, open_, receiver),) = agent.streams
        self.assertEqual((open_.metadata, receiver.data), (b"fields", b"hello"))
        self.assertEqual(self.router.waiting, 0)

    def test_time_limit_of_a_request(self) -> None:
        """The agent is told, in whole milliseconds, and never that there is no time."""
        agent = self.world.agent()
        for timeout in (1.5, 0.0001, 0.0):
            RoutedStream.open(
                *(self.router, "7", "/x", RecordingReceiver()),
                options=StreamOptions(timeout=timeout),
            )
        agent.pipe.flush()
        told = [open_.timeout_ms for _, open_, _ in agent.streams]
        self.assertEqual(told, [1500, 1, 0])

    def test_without_a_grace(self) -> None:
        """Where no path that broke is waited for, the agent keeps nothing for it."""
        agent = self.world.agent()
        RoutedStream.open(
            *(self.router, "7", "/x", self.receiver),
            options=StreamOptions(resumable=True),
        )
        agent.pipe.flush()
        ((_, open_, _),) = agent.streams
        self.assertEqual(open_.resume_id, b"")

    def test_next_instance(self) -> None:
        """Where one takes no more streams, another one gets them at once."""
        full, other = self.world.agent(instance=b"a"), self.world.agent(instance=b"b")
        first = next(self.router.paths("7"))
        self.assertIs(first.tunnel, full.there)
        full.there.session.peer = attrs.evolve(full.there.session.peer, max_streams=0)
        for _ in range(3):
            self.open(receiver=RecordingReceiver())
        other.pipe.flush()
        self.assertEqual((len(full.streams), len(other.streams)), (0, 3))
        self.assertEqual(self.router.waiting, 0)


class WaitTests(_Case):
    """The agent is not here."""

    def test_interface(self) -> None:
        """A stream that waits is a stream."""
        verifyObject(IStream, self.open())

    def test_agent_connects(self) -> None:
        """What was written meanwhile arrives, in order."""
        stream = self.open()
        stream.send_headers(b"head")
        stream.write(b"one ")
        stream.write(b"two")
        stream.finish()
        stream.write(b"too late")
        self.assertEqual(self.router.waiting, 1)
        self.clock.advance(ROUTING_TIMEOUT - 1)
        agent = self.world.agent()
        agent.pipe.flush()
        ((real, _, receiver),) = agent.streams
        self.assertEqual(receiver.headers, [b"head"])
        self.assertEqual((receiver.data, receiver.finished), (b"one two", True))
        real.write(b"answer")
        real.finish()
        agent.pipe.flush()
        self.assertEqual(self.receiver.data, b"answer")
        self.assertEqual(self.receiver.closed, [None])
        self.assertEqual(self.router.waiting, 0)

    def test_everything_passes_through_afterwards(self) -> None:
        """Once it is real, the stream that was handed out stands for the real one."""
        stream = self.open()
        agent = self.world.agent()
        ((real, _, receiver),) = agent.streams
        stream.send_headers(b"late", False)
        stream.write(b"data")
        stream.pauseProducing()
        producer = Producer(stream)
        stream.registerProducer(producer, True)
        stream.unregisterProducer()
        real.write(b"held")
        agent.pipe.flush()
        self.assertEqual((receiver.headers, receiver.data), ([b"late"], b"data"))
        self.assertEqual(self.receiver.data, b"")
        stream.resumeProducing()
        self.assertEqual(self.receiver.data, b"held")
        stream.finish()
        agent.pipe.flush()
        self.assertTrue(receiver.finished)
        stream.reset(ErrorCode.CANCELLED, "enough")
        agent.pipe.flush()
        self.assertEqual(self.reason(receiver).code, ErrorCode.CANCELLED)
        self.assertEqual(producer.told, [])

    def test_paused_before_it_is_real(self) -> None:
        """A reader that wants nothing gets nothing."""
        stream = self.open()
        stream.pauseProducing()
        stream.resumeProducing()
        stream.pauseProducing()
        agent = self.world.agent()
        agent.streams[0][0].write(b"x")
        agent.pipe.flush()
        self.assertEqual(self.receiver.data, b"")
        stream.resumeProducing()
        self.assertEqual(self.receiver.data, b"x")

    def test_opened_finished(self) -> None:
        """With ``fin`` nothing follows, also when it had to wait."""
        stream = self.open(fin=True)
        stream.write(b"ignored")
        agent = self.world.agent()
        agent.pipe.flush()
        ((_, _, receiver),) = agent.streams
        self.assertEqual((receiver.data, receiver.finished), (b"", True))

    def test_headers_that_finish(self) -> None:
        """Headers with ``fin``, too."""
        self.open().send_headers(b"all", fin=True)
        agent = self.world.agent()
        agent.pipe.flush()
        ((_, _, receiver),) = agent.streams
        self.assertEqual((receiver.headers, receiver.finished), ([b"all"], True))

    def test_time_limit(self) -> None:
        """The receiver is told which agent, and for how long it waited."""
        self.open()
        self.clock.pump([1] * int(ROUTING_TIMEOUT - 1))
        self.assertEqual(self.receiver.closed, [])
        self.clock.advance(1)
        reason = self.reason()
        self.assertIsInstance(reason, AgentUnavailable)
        self.assertEqual(reason.agent, "7")
        self.assertEqual(reason.reason, "AGENT_NOT_CONNECTED")
        self.assertEqual(
            str(reason),
            "agent 7 is not connected; it did not connect while kas waited; "
            "check that agentk runs and reaches kas",
        )
        self.assertTrue(reason.waited)
        self.assert_nothing_left()
        self.world.agent()
        self.assertEqual(len(self.receiver.closed), 1)

    def test_waits_once(self) -> None:
        """Those that follow one that waited in vain wait for a short time only."""
        self.open()
        self.clock.pump([1] * int(ROUTING_TIMEOUT))
        for _ in range(3):
            following = RecordingReceiver()
            self.open(receiver=following)
            self.clock.advance(SHORT_TIMEOUT - 0.1)
            self.assertEqual(following.closed, [])
            self.clock.advance(0.1)
            (reason,) = following.closed
            self.assertIn("it did not connect while kas waited", str(reason))
        self.assert_nothing_left()

    def test_never_connected(self) -> None:
        """Streams for an agent that has never connected end soon, and then at once."""
        absences = self.router.absences = Sought([])
        absences.nevers.add("7")
        self.open()
        self.clock.pump([0.1] * 19)
        self.assertEqual(self.receiver.closed, [])
        self.clock.advance(0.1)
        self.assertEqual(len(self.receiver.closed), 1)
        for _ in range(3):
            following = RecordingReceiver()
            self.open(receiver=following)
            self.clock.advance(NEVER_SHORT_TIMEOUT)
            self.assertEqual(len(following.closed), 1)
        self.assert_nothing_left()

    def test_never_connected_is_heard_later(self) -> None:
        """What the store says only after a stream began to wait counts as well."""
        absences = self.router.absences = Sought([])
        self.open()
        self.clock.advance(0.5)
        absences.nevers.add("7")
        self.clock.pump([0.1] * 45)
        self.assertEqual(len(self.receiver.closed), 1)
        self.assert_nothing_left()

    def waited_long(self) -> bool:
        """Whether a stream that waits in vain does so for the whole time."""
        receiver = RecordingReceiver()
        self.open(receiver=receiver)
        self.clock.advance(SHORT_TIMEOUT + 1)
        long = not receiver.closed
        self.clock.pump([1] * int(ROUTING_TIMEOUT))
        self.assertEqual(len(receiver.closed), 1)
        return long

    def test_waits_again(self) -> None:
        """One waits for the whole time a minute later, and once the agent was there."""
        self.assertTrue(self.waited_long())
        self.assertFalse(self.waited_long())
        self.clock.advance(MISSED_SECONDS)
        self.assertTrue(self.waited_long())
        agent = self.world.agent()
        agent.pipe.transports[0].loseConnection()
        agent.pipe.flush()
        self.assertTrue(self.waited_long())
        # At another kas.
        self.assertFalse(self.waited_long())
        self.world.registry.replaced(ConnectedAgent("7", "agent-7", b"j", 1, 0.0))
        self.assertTrue(self.waited_long())

    def test_deadline_of_a_call(self) -> None:
        """One that is shorter than the wait says what it waited for."""

        def opener(method: str, receiver: Any, **options: Any) -> Any:
            return self.open(receiver=receiver)

        def fails() -> CallError:
            client = ServiceClient(ECHO, opener, self.clock)
            call = Deferred.fromCoroutine(client.call("Say", Text(), timeout=5))
            self.clock.advance(5)
            error: CallError = self.failureResultOf(call, CallError).value
            return error

        error = fails()
        self.assertIn("agent 7 is not connected", error.message)
        self.assertEqual(error.status, Status.UNAVAILABLE)
        self.assertEqual(self.router.waiting, 0)
        self.world.agent()
        error = fails()
        self.assertEqual(error.message, "no response within the given time")
        self.assertEqual(error.status, Status.DEADLINE_EXCEEDED)

    def test_another_agent_connects(self) -> None:
        """That changes nothing."""
        self.open("7")
        self.world.agent("8")
        self.assertEqual(self.router.waiting, 1)

    def test_client_leaves(self) -> None:
        """Everything is freed at once, and the agent never hears of it."""
        stream = self.open()
        producer = Producer(stream)
        stream.registerProducer(producer, True)
        stream.write(b"x")
        stream.stopProducing()
        reason = self.reason()
        assert isinstance(reason, StreamReset)
        self.assertEqual((reason.code, reason.by_peer), (ErrorCode.CANCELLED, False))
        self.assertEqual(producer.told, ["pause", "stop"])
        self.assert_nothing_left()
        stream.reset()
        stream.write(b"x")
        late = Producer(stream)
        stream.registerProducer(late, True)
        self.assertEqual(late.told, ["stop"])
        self.assertEqual(self.world.agent().streams, [])
        self.assertEqual(len(self.receiver.closed), 1)

    def test_many(self) -> None:
        """1,000 wait, all of them are served in the moment that the agent comes."""
        receivers = [RecordingReceiver() for _ in range(1000)]
        for receiver in receivers:
            self.open(receiver=receiver)
        timers = len(self.clock.getDelayedCalls())
        self.assertEqual((self.router.waiting, timers), (1000, 1001))
        agent = self.world.agent()
        self.assertEqual(len(agent.streams), 1000)
        for stream, _, _ in agent.streams:
            stream.write(b"x")
            stream.finish()
        agent.pipe.flush()
        self.assertEqual({bytes(r.data) for r in receivers}, {b"x"})
        self.assertEqual((self.router.waiting, self.world.registry.waiting), (0, 0))

    def test_many_give_up(self) -> None:
        """The same when nobody comes."""
        receivers = [RecordingReceiver() for _ in range(1000)]
        for receiver in receivers:
            self.open(receiver=receiver)
        self.clock.advance(ROUTING_TIMEOUT)
        for receiver in receivers:
            self.assertIsInstance(self.reason(receiver), AgentUnavailable)
        self.assert_nothing_left()

    def test_too_many(self) -> None:
        """Beyond `MAX_WAITING` for one agent a stream ends at once; others wait."""
        for _ in range(MAX_WAITING):
            self.open(receiver=RecordingReceiver())
        self.open()
        self.assertIn(
            "too many requests are already waiting for it", str(self.reason())
        )
        self.assertFalse(self.reason().waited)
        self.open("8", receiver=RecordingReceiver())
        self.assertEqual(self.router.waiting, MAX_WAITING + 1)

    def test_room_again(self) -> None:
        """Who gives up makes room."""
        router = Router(self.world.registry, self.world.directory, self.world.runtime)
        router.timeout, router.max_waiting = 5, 1
        first = RoutedStream.open(router, "7", "/x", RecordingReceiver())
        RoutedStream.open(router, "7", "/x", self.receiver)
        self.assertEqual(len(self.receiver.closed), 1)
        first.reset()
        later = RecordingReceiver()
        RoutedStream.open(router, "7", "/x", later)
        self.assertEqual(later.closed, [])
        self.clock.advance(5)
        self.assertIn("while kas waited", str(self.reason(later)))

    def test_streams_that_cannot_be_opened(self) -> None:
        """One OPEN beyond all bounds does not keep the agent and the others out."""
        self.open(metadata=b"x" * 100_000)
        other = RecordingReceiver()
        self.open(receiver=other)
        agent = self.world.agent()
        self.assertEqual(agent.closed, [])
        self.assertEqual(self.reason().code, ErrorCode.INTERNAL)
        self.assertFalse(self.reason().by_peer)
        self.assertEqual((len(agent.streams), other.closed), (1, []))
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 1)


class AvailableAgainTests(_Case):
    """The agent was here all the time, and could not take the stream."""

    limits = Limits(max_streams=1)

    def test_silent(self) -> None:
        """A path that heals serves those who waited, without a new connection."""
        agent = self.world.agent()
        agent.pipe.cut = True
        self.clock.pump([1] * 25)
        self.open()
        self.assertEqual(self.router.waiting, 1)
        agent.pipe.cut = False
        agent.pipe.flush()
        for _ in range(3):
            self.clock.advance(1)
        agent.pipe.flush()
        self.assertEqual(len(agent.streams), 1)
        self.assertEqual(self.router.waiting, 0)

    def test_full(self) -> None:
        """A stream beyond what the agent takes waits for one that ends."""
        agent = self.world.agent()
        first = self.open(receiver=RecordingReceiver())
        self.open()
        self.clock.advance(LOOK_AGAIN)
        agent.pipe.flush()
        self.assertEqual((len(agent.streams), self.router.waiting), (1, 1))
        first.reset()
        self.clock.advance(LOOK_AGAIN)
        agent.pipe.flush()
        self.assertEqual((len(agent.streams), self.router.waiting), (2, 0))


class BackPressureTests(_Case):
    """Little is kept of a stream that waits."""

    def test_producer_is_paused(self) -> None:
        """From the start; it goes on once the stream is real."""
        stream = self.open()
        producer = Producer(stream, pieces=1)
        stream.registerProducer(producer, True)
        self.assertEqual(producer.told, ["pause"])
        agent = self.world.agent()
        agent.pipe.flush()
        self.assertEqual(producer.told, ["pause", "resume"])
        self.assertEqual(len(agent.streams[0][2].data), producer.size)

    def test_producer_leaves(self) -> None:
        """Who unregistered is not asked for anything."""
        stream = self.open()
        producer = Producer(stream, pieces=1)
        stream.registerProducer(producer, True)
        stream.unregisterProducer()
        self.world.agent()
        self.assertEqual(producer.told, ["pause"])

    def test_producer_is_done_when_resumed(self) -> None:
        """One whose last piece comes with the first resume is not registered again."""
        stream = self.open()
        producer = Producer(stream)

        def last() -> None:
            stream.write(b"all")
            stream.unregisterProducer()
            stream.finish()

        producer.resumeProducing = last  # type: ignore[method-assign]
        stream.registerProducer(producer, True)
        agent = self.world.agent()
        agent.pipe.flush()
        receiver = agent.streams[0][2]
        self.assertEqual((receiver.data, receiver.finished), (b"all", True))
        stream.registerProducer(Producer(stream), True)

    def test_pull_producer(self) -> None:
        """One that gives a piece at a time is asked only once the stream is real."""
        stream = self.open()
        producer = Producer(stream)
        producer.running = False
        stream.registerProducer(producer, False)
        self.assertEqual(producer.told, [])
        self.world.agent()
        self.assertIn("resume", producer.told)

    def test_full_from_the_start(self) -> None:
        """Held bytes that fill the real stream keep its producer paused."""
        stream = self.open()
        stream.write(b"x" * MAX_BUFFERED)
        stream.write(b"x" * MAX_BUFFERED)
        producer = Producer(stream, pieces=1000)
        stream.registerProducer(producer, True)
        self.world.slow = True
        agent = self.world.agent()
        self.assertEqual(producer.told[-1], "pause")
        self.assertGreater(producer.pieces, 900)
        real, _, receiver = agent.streams[0]
        real.resumeProducing()
        agent.pipe.flush()
        self.assertEqual(producer.pieces, 0)
        self.assertEqual(len(receiver.data), 2 * MAX_BUFFERED + 1000 * producer.size)

    def test_more_than_can_be_held(self) -> None:
        """Who writes on though paused loses the stream, not our memory."""
        stream = self.open()
        stream.write(b"x" * MAX_BUFFERED)
        stream.write(b"x" * MAX_BUFFERED)
        self.assertEqual(self.receiver.closed, [])
        stream.write(b"x")
        self.assertEqual(self.reason().code, ErrorCode.MEMORY)
        self.assert_nothing_left()


class PathTests(_Case):
    """Which paths a kas without others offers, and what it counts of them."""

    def test_least_busy_first(self) -> None:
        """... and of equals the one that connected first."""
        first, second = (self.world.agent(instance=name) for name in (b"a", b"b"))
        busy = [first, second, second]
        self.assertEqual(
            [path.tunnel for path in self.router.paths("7")],
            [first.there, second.there],
        )
        for agent in busy[:1]:
            agent.there.open_stream(pb.Open(), RecordingReceiver())
        self.assertEqual(
            [path.tunnel for path in self.router.paths("7")],
            [second.there, first.there],
        )

    def test_streams_here_are_not_counted_as_remote(self) -> None:
        self.world.agent()
        stream = self.open()
        self.assertEqual(self.router.remote, 0)
        stream.reset()
        self.assertEqual(self.router.remote, 0)

    def test_refusals_are_counted(self) -> None:
        agent = self.world.agent()
        self.open()
        agent.pipe.flush()
        agent.streams[0][0].reset(ErrorCode.REFUSED, "busy")
        agent.pipe.flush()
        self.assertEqual(self.router.rerouted, 1)

    def test_waiting_is_heard_of(self) -> None:
        """Each stream that begins to wait is noted; none that finds its agent is."""
        sought: list[str] = []
        self.router.absences = Sought(sought)
        self.open()
        self.assertEqual(sought, ["7"])
        self.world.agent()
        self.open(receiver=RecordingReceiver())
        self.assertEqual(sought, ["7"])

    def test_patience(self) -> None:
        """Within a minute of one that waited in vain, others wait two seconds."""
        router = self.router
        self.assertEqual(router.patience("7"), ROUTING_TIMEOUT)
        self.clock.advance(5)
        router.missed("7")
        self.clock.advance(MISSED_SECONDS - 1)
        self.assertEqual(router.patience("7"), SHORT_TIMEOUT)
        # One that waited for a short time changes nothing.
        router.missed("7")
        self.clock.advance(1)
        self.assertEqual(router.patience("7"), ROUTING_TIMEOUT)
        router.missed("7")
        self.assertEqual(router.patience("7"), SHORT_TIMEOUT)
        self.assertEqual(router.patience("8"), ROUTING_TIMEOUT)

    def test_what_was_missed_is_bounded(self) -> None:
        """The agent that was missed longest ago is forgotten first."""
        router = self.router
        for number in range(MAX_MISSED - 1):
            router.missed(str(number))
        self.clock.advance(MISSED_SECONDS)
        router.missed("0")
        router.missed("new")
        router.missed("newer")
        self.assertEqual(len(router._missed), MAX_MISSED)
        self.assertEqual(router.patience("0"), SHORT_TIMEOUT)
        self.assertNotIn("1", router._missed)

    def test_looks_while_a_stream_waits(self) -> None:
        """And not longer: one timer at most."""
        self.open()
        other = self.open(agent_id="8", receiver=RecordingReceiver())
        self.assertEqual(self.router.waiting, 2)
        self.clock.advance(LOOK_AGAIN)
        self.world.agent("8")
        self.world.agent()
        self.clock.advance(LOOK_AGAIN)
        self.assertEqual(self.receiver.closed, [])
        self.assertIsNotNone(other.agent)
        self.assertEqual(self.router.waiting, 0)
        self.assertIsNone(self.router._look)

    def test_a_look_that_finds_nothing(self) -> None:
        """It wakes nobody: thousands may wait for an agent that is away for long."""
        self.open()
        told: list[None] = []
        self.world.registry.wait("7", lambda: told.append(None))
        self.clock.advance(LOOK_AGAIN)
        self.assertEqual(told, [])


class RevokedTests(_Case):
    """An agent that may not come any more."""

    def test_no_look_after_the_last(self) -> None:
        """The look that ends the last stream that waits is the last one, too."""
        allowed = {"7"}
        self.router.may_connect = allowed.__contains__
        self.open()
        allowed.clear()
        self.clock.advance(LOOK_AGAIN)
        self.assertIn("was revoked", str(self.reason()))
        self.assert_nothing_left()


class Sought:
    """Notes for which agents streams begin to wait."""

    def __init__(self, sought: list[str]) -> None:
        self._sought = sought
        self.nevers: set[str] = set()

    def sought(self, agent_id: str) -> None:
        self._sought.append(agent_id)

    def never(self, agent_id: str) -> bool:
        return agent_id in self.nevers

    def absence(self, agent_id: str) -> str:
        return f"agent {agent_id} is not connected"

    def name(self, agent_id: str) -> str:
        return f"name-of-{agent_id}"


class OtherKasTests(ManyCase):
    """Paths through the kas that has the agent."""

    def kinds(self) -> list[tuple[bytes, bool]]:
        """The paths of the first kas: instance, and whether another kas has it."""
        return [
            (path.agent.instance_id, path.record is not None)
            for path in self.one.router.paths("7")
        ]

    def test_busy_here(self) -> None:
        """What is less busy at another kas comes first; of equals what is here."""
        here, there = b"h" * 16, b"t" * 16
        self.many.agent(self.one, instance=here)
        self.many.agent(self.two, instance=there)
        self.many.later(3)
        for _ in range(2):
            # The first has the directory look, the next has the other kas dialled.
            self.kinds()
            self.many.later(3)
        self.assertEqual(self.kinds(), [(here, False), (there, True)])
        self.assertIsNone(self.one.router.only_path("7"))
        clients = [RecordingReceiver() for _ in range(4)]
        streams = [self.one.open(client) for client in clients]
        self.many.settle()
        self.assertEqual(self.one.router.remote, 2)
        self.assertEqual(self.kinds(), [(here, False), (there, True)])
        streams[0].reset()
        streams[2].reset()
        self.many.settle()
        remote = self.one.router.remote
        self.assertEqual(self.kinds()[0], (here, False) if remote else (there, True))
        for stream in streams:
            stream.reset()
        self.many.settle()
        self.assertEqual(self.one.router.remote, 0)

    def test_counts_down_one_by_one(self) -> None:
        self.many.agent(self.two)
        streams = [self.one.open(RecordingReceiver()) for _ in range(3)]
        self.many.later(3)
        for left in (3, 2, 1, 0):
            self.assertEqual(self.one.router.remote, left)
            if streams:
                streams.pop().reset()
                self.many.settle()
        self.assertEqual(self.one.router._remote, {})

    def test_without_sessions_to_others(self) -> None:
        """Where this kas has none, only what is here is a path."""
        agent = self.many.agent(self.two)
        self.many.later(3)
        self.assertEqual(self.one.router.obstacle("7"), "")
        self.one.router._peers = None
        self.assertEqual(self.kinds(), [])
        self.assertEqual(self.one.router.obstacle("7"), "")
        self.assertEqual(self.one.router.wait("7", lambda: None)[2:], [])
        instance = b"i" * 16
        self.assertIsNone(self.one.router.path_to("7", instance))
        self.assertEqual(len(agent.streams), 0)

    def test_obstacle(self) -> None:
        """Why the kas that has the agent cannot be asked, without an address."""
        self.many.agent(self.two)
        self.many.later(3)
        router = self.one.router
        list(router.paths("7"))
        peer = self.one.peers.at(self.two.me.url)
        self.assertFalse(peer.alive)
        self.assertEqual(router.obstacle("7"), "does not respond")
        peer.problem = "cannot be reached: no host kas-2.example.org"
        self.assertEqual(router.obstacle("7"), "cannot be reached")
        self.one.open(self.client)
        self.many.later(3)
        self.assertTrue(peer.alive)
        self.assertEqual(router.obstacle("7"), "")

    def test_a_refusal_there_is_looked_into(self) -> None:
        """The directory looks again for what refused elsewhere, and only for it."""
        looks: list[str] = []
        router = self.one.router
        agents = [self.many.agent(self.two), self.many.agent(self.one, "8")]
        for id_ in ("7", "8"):
            self.one.directory.routes(id_)
        self.many.later(3)
        find = MemoryStore.find

        def look(store: MemoryStore, agent_id: str) -> Any:
            looks.append(agent_id)
            return find(store, agent_id)

        self.patch(MemoryStore, "find", look)
        for agent, id_ in zip(agents, ("7", "8"), strict=True):
            self.one.open(RecordingReceiver(), id_)
            self.many.later(1)
            agent.streams[-1][0].reset(ErrorCode.REFUSED, "busy")
            self.many.settle()
        self.assertEqual((looks, router.rerouted), (["7"], 2))


@sources_only
def test_an_agent_whose_look_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams for other agents are woken, and there is another look."""
    world = World()
    router: Any = world.router
    woken: list[str] = []

    def revoked(agent_id: str) -> bool:
        if agent_id == "bad":
            raise ValueError
        return True

    monkeypatch.setattr(router, "revoked", revoked)
    monkeypatch.setattr(router.registry, "wake", woken.append)
    router._waiting.update({"bad": 1, "good": 1})
    with capturedLogs() as events:
        router._look_again()
    assert (woken, len(events)) == (["good"], 1)
    assert router._look.active()
