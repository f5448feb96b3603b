"""The greeting of agents, and what is made of their streams."""

from __future__ import annotations

from collections import Counter
from typing import Any

import attrs
import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.internet.testing import EventLoggingObserver
from twisted.logger import formatEvent, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from kas.agents import acceptor
from kas.agents.acceptor import (
    MAX_INSTANCE_ID,
    MAX_META,
    PINGS_PER_SECOND,
    REFUSALS,
    ConnectionRate,
    paced,
)
from kas.agents.stream_rate import (
    REFUSED_AT_ONCE,
    REFUSED_PER_SECOND,
    STREAMS_AT_ONCE,
    STREAMS_PER_SECOND,
    StreamRate,
)
from kas.observability.site import Health
from tests.kas.world import Agent, World, reason
from tests.proto.echo_pb2 import DESCRIPTOR, Text
from tests.tunnel.hostile import HOSTILE
from tests.tunnel.rpc import echo
from tunnel.api import (
    AgentConnected,
    AgentDisconnected,
    AgentIdentity,
    ConnectedAgent,
    HasPeer,
    IStream,
    program_of,
)
from tunnel.errors import CallError, ErrorCode, ProtocolError, Status, StreamReset
from tunnel.pb import tunnel_pb2 as pb
from tunnel.rpc.held_requests import CALL_SIZE, MAX_HELD
from tunnel.rpc.messages import MAX_MESSAGE
from tunnel.session.keepalive import GREETING_TIMEOUT, Timing
from tunnel.testing import Pipe, RecordingReceiver
from tunnel.toolkit.log_budget import LINES_AT_ONCE
from tunnel.wire.framing import FrameType

ECHO = DESCRIPTOR.services_by_name["Echo"]


class Echo:
    """Answers what agents ask."""

    async def say(self, request: Text, call: Any) -> Text:
        return Text(text=request.text.upper())

    async def spell(self, request: Text, call: Any) -> None: ...
    async def join(self, requests: Any, call: Any) -> None: ...
    async def chat(self, requests: Any, call: Any) -> None: ...


def hello(**fields: Any) -> pb.Hello:
    """A good greeting of agent 7, apart from *fields*."""
    good: dict[str, Any] = {"role": "agent", "credential": b"7", "instance_id": b"i"}
    return pb.Hello(**{**good, **fields})


class _Case(SynchronousTestCase):
    def setUp(self) -> None:
        self.world = World()
        self.events: list[tuple[str, ConnectedAgent]] = []
        bus = self.world.bus
        bus.subscribe("tests", AgentConnected, self.recorder("agent.connected"))
        bus.subscribe("tests", AgentDisconnected, self.recorder("agent.disconnected"))

    def recorder(self, name: str) -> Any:
        return lambda event: self.events.append((name, event.agent))


class WelcomeTests(_Case):
    """An agent whose token is good."""

    def test_welcome(self) -> None:
        """It learns who it is, what kas answers, and its pace."""
        self.world.dispatcher.handle("tests", ECHO, Echo())
        agent = self.world.dial(hello())
        (welcome,) = agent.welcomes
        self.assertEqual(
            (welcome.agent_id, welcome.agent_name, welcome.kas_id),
            ("7", "agent-7", b"kas"),
        )
        self.assertEqual(list(welcome.services), ["tests.proto.Echo"])
        self.assertEqual(Timing.from_message(welcome.timing), Timing())

    def test_alike(self) -> None:
        """What agents say alike is kept once."""
        for number in (b"7", b"8"):
            meta = pb.AgentMeta(version="v18.11.0", commit_id="1" * 40)
            meta.kubernetes_version.git_version = "v1.36.3"
            meta.helm_chart_version = "2.1.0"
            services = ["tests.proto.Echo"]
            self.world.dial(hello(credential=number, agent=meta, services=services))
        one, other = (held.agent for held in self.world.registry)
        self.assertIsNot(one, other)
        for name in (
            "version",
            "commit_id",
            "kubernetes_version",
            "services",
            "telemetry",
        ):
            self.assertIs(getattr(one, name), getattr(other, name), name)
        self.assertEqual(one.services, {"tests.proto.Echo"})

    def test_many(self) -> None:
        """They ask more rarely, so that all of them ask so often and no more."""
        many = Timing(ping_interval=6.0, dead_after=12.0, reconnect_max=9.0)
        for agents, interval in ((0, 6.0), (6_000, 6.0), (9_000, 9.0), (10**6, 24.0)):
            found = paced(many, agents)
            self.assertEqual(
                (found.ping_interval, found.dead_after), (interval, 2 * interval)
            )
            self.assertLessEqual(min(agents, 24_000) / interval, PINGS_PER_SECOND)
            self.assertEqual(found.reconnect_max, 9.0)
        self.assertIs(paced(many, 8_500), paced(many, 8_501))
        self.patch(acceptor, "PINGS_PER_SECOND", 0.05)
        self.world.dial(hello())
        other = self.world.dial(hello(credential=b"8"))
        (welcome,) = other.welcomes
        self.assertEqual(Timing.from_message(welcome.timing).ping_interval, 20.0)
        (tunnel,) = [
            one.tunnel for one in self.world.registry if one.agent.agent_id == "8"
        ]
        self.assertEqual(tunnel.liveness.timing.dead_after, 40.0)

    def test_many_at_several_workers(self) -> None:
        """The pace is that of all of them: 3 times as many as are here."""
        self.patch(acceptor, "PINGS_PER_SECOND", 0.15)
        self.world.acceptor.workers = 3
        self.world.dial(hello())
        (welcome,) = self.world.dial(hello(credential=b"8")).welcomes
        self.assertEqual(Timing.from_message(welcome.timing).ping_interval, 20.0)

    def test_connected_agent(self) -> None:
        """What modules are told about it."""
        self.world.clock.advance(5)
        meta = pb.AgentMeta(version="1.2", pod_namespace="ns", pod_name="pod-1")
        self.world.dial(hello(agent=meta, generation=3, services=["a.B", "a.C"]))
        expected = ConnectedAgent(
            "7",
            "agent-7",
            b"i",
            3,
            5.0,
            version="1.2",
            pod_namespace="ns",
            pod_name="pod-1",
            services=frozenset(["a.B", "a.C"]),
        )
        self.assertEqual(self.events, [("agent.connected", expected)])
        (connection,) = self.world.registry
        self.assertEqual(connection.agent, expected)
        self.assertEqual(connection.credential_id, "agent:7:t")

    def test_hostile_texts(self) -> None:
        """In no log, status or metric, and in nothing that modules are given."""
        observer = EventLoggingObserver()
        globalLogPublisher.addObserver(observer)
        self.addCleanup(globalLogPublisher.removeObserver, observer)
        for number, text in enumerate(HOSTILE):
            kubernetes = pb.KubernetesVersion(
                major=text, minor=text, git_version=text, platform=text
            )
            meta = pb.AgentMeta(
                version=text,
                commit_id=text,
                pod_namespace=text,
                pod_name=text,
                kubernetes_version=kubernetes,
            )
            agent = self.world.dial(
                hello(agent=meta, instance_id=bytes([number]), services=[text])
            )
            # The same pod once more: that is logged, too.
            self.world.clock.advance(1)
            self.world.dial(hello(agent=meta, instance_id=bytes([100 + number])))
            agent.pipe.flush()
            (reason,) = agent.closed
            self.assertTrue(str(reason).isprintable())
        shown = [formatEvent(event) for event in observer]
        self.assertGreaterEqual(len(shown), 3 * len(HOSTILE))
        for event in observer:
            shown += [one for one in event.values() if isinstance(one, str)]
        for _, connected in self.events:
            shown += [connected.version, connected.commit_id, *connected.services]
            shown += [connected.pod_namespace, connected.pod_name]
            shown += attrs.astuple(connected.kubernetes_version)
        health = Health(self.world.registry, self.world.router, dict)
        for one in health.status()["agents"]:
            shown += [value for value in one.values() if isinstance(value, str)]
        self.assertEqual([one for one in shown if not one.isprintable()], [])

    def test_long_texts(self) -> None:
        """What an agent says about itself is bounded."""
        meta = pb.AgentMeta(
            version="v" * 999, pod_namespace="n" * 999, pod_name="p" * 999
        )
        self.world.dial(hello(agent=meta))
        ((_, agent),) = self.events
        for text in (agent.version, agent.pod_namespace, agent.pod_name):
            self.assertEqual(len(text), MAX_META)

    def test_disconnected(self) -> None:
        """The end is told once, with the same agent."""
        agent = self.world.dial(hello())
        agent.tunnel.end(ErrorCode.SHUTDOWN)
        agent.pipe.flush()
        (_, came), (topic, went) = self.events
        self.assertEqual((topic, went), ("agent.disconnected", came))

    def test_replaced(self) -> None:
        """A newer connection is no end of the instance: who counts them keeps it."""
        first = self.world.dial(hello(generation=1))
        second = self.world.dial(hello(generation=2))
        first.pipe.flush()
        self.assertEqual([topic for topic, _ in self.events], ["agent.connected"] * 2)
        second.tunnel.end(ErrorCode.SHUTDOWN)
        second.pipe.flush()
        self.assertEqual(self.events[-1][0], "agent.disconnected")
        self.assertEqual(self.events[-1][1].generation, 2)

    def test_calls_of_agents(self) -> None:
        """They reach the module that answers them, as far as there is one."""
        agent = self.world.dial(hello())
        receiver = RecordingReceiver()
        agent.open_stream("/tests.proto.Echo/Say", receiver)
        agent.pipe.flush()
        (refused,) = receiver.closed
        assert isinstance(refused, StreamReset)
        self.assertEqual(refused.code, ErrorCode.UNKNOWN_METHOD)
        self.world.dispatcher.handle("tests", ECHO, Echo())
        self.assertEqual(self.say(agent, "hi"), "HI")

    def say(self, agent: Agent, text: str) -> str:
        calling = Deferred.fromCoroutine(
            agent.client(ECHO).call("Say", Text(text=text))
        )
        agent.pipe.flush()
        answer: str = self.successResultOf(calling).text
        return answer


class RefusalTests(_Case):
    """An agent that cannot be taken is told why, and nobody else hears of it."""

    def refused(self, said: pb.Hello) -> tuple[ErrorCode, str]:
        agent = self.world.dial(said)
        agent.pipe.flush()
        closed = reason(agent)
        self.assertEqual(agent.welcomes, [])
        self.assertEqual(self.events, [])
        self.assertEqual(len(self.world.registry), 0)
        return closed.code, str(closed)

    def test_bad_token(self) -> None:
        """The reason is for the agent's operator; neither it nor the log shows it."""
        observer = EventLoggingObserver()
        globalLogPublisher.addObserver(observer)
        self.addCleanup(globalLogPublisher.removeObserver, observer)
        code, message = self.refused(hello(credential=b"s3cret-t0ken"))
        self.assertEqual(code, ErrorCode.UNAUTHENTICATED)
        self.assertEqual(message, "the agent token is not valid")
        self.assertIn("was refused", str([e["log_format"] for e in observer]))
        self.assertNotIn("s3cret", message + repr(list(observer)))

    def test_role(self) -> None:
        """Only agents connect here."""
        for role in ("kas", "", "Agent"):
            self.assertEqual(self.refused(hello(role=role))[0], ErrorCode.PROTOCOL)

    def test_instance_id(self) -> None:
        """None, and one that cannot be one."""
        for instance in (b"", b"x" * (MAX_INSTANCE_ID + 1)):
            code, message = self.refused(hello(instance_id=instance))
            self.assertEqual(code, ErrorCode.PROTOCOL)
            self.assertIn("instance id", message)

    def test_counted(self) -> None:
        """By the reason, which is one of a fixed set."""
        self.refused(hello(credential=b"unknown"))
        self.refused(hello(role="kas"))
        self.refused(hello(instance_id=b""))
        self.world.acceptor.draining = True
        self.refused(hello())
        refusals = self.world.acceptor.refusals
        self.assertEqual(
            refusals, {"credential": 1, "role": 1, "instance-id": 1, "draining": 1}
        )
        self.assertLessEqual(set(refusals), set(REFUSALS))

    def test_longest_instance_id(self) -> None:
        """The longest that is taken."""
        agent = self.world.dial(hello(instance_id=b"x" * MAX_INSTANCE_ID))
        self.assertEqual(len(agent.welcomes), 1)

    def test_says_nothing(self) -> None:
        """Whoever connects and is silent does not stay."""
        agent = Agent(self.world.clock, self.world.limits)
        tunnel = self.world.factory.buildProtocol(None)
        pipe = Pipe(self.world.clock, agent.tunnel, tunnel)
        self.world.clock.pump([1] * int(GREETING_TIMEOUT + 2))
        pipe.flush()
        self.assertEqual(reason(agent).code, ErrorCode.PROTOCOL)
        self.world.clock.advance(60)
        self.assertEqual(self.world.clock.getDelayedCalls(), [])

    def test_greets_twice(self) -> None:
        """A second HELLO ends the connection."""
        agent = self.world.dial(hello())
        agent.tunnel.session._outbox.message(FrameType.HELLO, 0, hello())
        agent.tunnel.has_output()
        agent.pipe.flush()
        self.assertEqual(reason(agent).code, ErrorCode.PROTOCOL)
        self.assertEqual(len(self.world.registry), 0)
        self.assertEqual(self.events[-1][0], "agent.disconnected")


class GoAwayTests(_Case):
    """An agent that leaves."""

    def test_idle(self) -> None:
        """However often it says so, it costs one timer, and its tunnel ends."""
        agent = self.world.dial(hello())
        for _ in range(1000):
            agent.tunnel.go_away(
                pb.GoAway(deadline_ms=1000, message="agentk was stopped")
            )
        agent.tunnel.flush()
        before = len(self.world.clock.getDelayedCalls())
        agent.pipe.step()
        self.assertEqual(len(self.world.clock.getDelayedCalls()), before + 1)
        agent.pipe.flush()
        self.assertEqual(str(reason(agent)), "agentk was stopped")
        self.assertEqual(self.world.acceptor._ending, set())
        self.assertEqual(self.world.acceptor._leaving, {})

    def test_without_a_reason(self) -> None:
        """An agent need not give one."""
        agent = self.world.dial(hello())
        agent.tunnel.go_away(pb.GoAway(deadline_ms=1000))
        agent.pipe.flush()
        self.assertEqual(str(reason(agent)), "the agent left")


class RateTests(_Case):
    """How often one credential may connect."""

    def test_bound(self) -> None:
        """The next one is refused, until a minute after the first."""
        clock = Clock()
        rate = ConnectionRate(3, clock)
        answers = []
        for _ in range(4):
            answers.append(rate.allows("a"))
            clock.advance(10)
        self.assertEqual(answers, [True, True, True, False])
        self.assertTrue(rate.allows("b"))
        clock.advance(19)
        self.assertFalse(rate.allows("a"))
        clock.advance(1)
        self.assertTrue(rate.allows("a"))
        self.assertFalse(rate.allows("a"))

    def test_memory(self) -> None:
        """The table is bounded; the one that was seen first is forgotten."""
        self.patch(acceptor, "MAX_CREDENTIALS", 3)
        rate = ConnectionRate(1, Clock())
        for name in "abcd":
            self.assertTrue(rate.allows(name))
        self.assertEqual(len(rate._seen), 3)
        self.assertFalse(rate.allows("d"))
        self.assertTrue(rate.allows("a"))

    def test_flood(self) -> None:
        """The agent is told; one with another token does not notice."""
        self.world = World(per_minute=2)
        for generation in (1, 2):
            self.world.dial(hello(generation=generation))
        agent = self.world.dial(hello(generation=3))
        agent.pipe.flush()
        self.assertEqual(reason(agent).code, ErrorCode.FLOOD)
        self.assertEqual(len(self.world.dial(hello(credential=b"8")).welcomes), 1)

    def test_bad_tokens_are_not_counted(self) -> None:
        """Somebody without the token cannot use up what its owner may do."""
        self.world = World(per_minute=1)
        for _ in range(5):
            self.world.dial(hello(credential=b"x"))
        self.assertEqual(len(self.world.dial(hello()).welcomes), 1)


class SlowTests(_Case):
    """Agents whose token is checked by another server."""

    def setUp(self) -> None:
        super().setUp()
        self.cancelled: list[object] = []
        self.answer: Deferred[AgentIdentity] = Deferred(self.cancelled.append)
        peers: list[HasPeer] = []

        def authenticate(token: bytes, peer: HasPeer) -> Deferred[AgentIdentity]:
            peers.append(peer)
            return self.answer

        self.world.acceptor.authenticate = authenticate
        self.agent = self.world.dial(hello())
        # Whose refusals are counted, by its address.
        (peer,) = peers
        self.assertEqual(peer.peer_address, self.agent.there.peer_address)
        self.assertEqual(program_of(peer), "agentk/")
        self.assertEqual((self.agent.welcomes, self.agent.closed), ([], []))

    def accept(self) -> None:
        self.answer.callback(AgentIdentity("7", "agent-7", "agent:7:t"))
        self.agent.pipe.flush()

    def test_accepted(self) -> None:
        self.accept()
        (welcome,) = self.agent.welcomes
        self.assertEqual(welcome.agent_id, "7")
        self.assertEqual(len(self.world.registry), 1)
        self.assertEqual(self.world.acceptor._checking, {})

    def test_refused(self) -> None:
        self.answer.errback(CallError(Status.UNAUTHENTICATED, "no such token"))
        self.agent.pipe.flush()
        self.assertEqual(reason(self.agent).code, ErrorCode.UNAUTHENTICATED)
        self.assertIn("no such token", str(reason(self.agent)))
        self.assertEqual(self.world.acceptor.refusals["credential"], 1)
        self.assertEqual(len(self.world.registry), 0)

    def test_no_answer(self) -> None:
        """That is no refusal: agentk tries again as after any other failure."""
        self.answer.errback(CallError(Status.UNAVAILABLE, "try again"))
        self.agent.pipe.flush()
        self.assertEqual(reason(self.agent).code, ErrorCode.INTERNAL)

    def test_agent_leaves(self) -> None:
        """The check is cancelled, and nothing is kept."""
        self.agent.pipe.transports[0].loseConnection()
        self.agent.pipe.flush()
        self.assertEqual(self.cancelled, [self.answer])
        self.assertEqual(self.world.acceptor._checking, {})
        self.assertEqual(len(self.world.registry), 0)
        self.assertEqual(self.world.acceptor.refusals.total(), 0)

    def test_drained_meanwhile(self) -> None:
        self.world.acceptor.draining = True
        self.accept()
        self.assertEqual(reason(self.agent).code, ErrorCode.SHUTDOWN)
        self.assertEqual(self.agent.welcomes, [])

    def test_says_that_it_leaves(self) -> None:
        self.agent.tunnel.go_away(pb.GoAway())
        self.agent.pipe.flush()
        self.world.clock.advance(0)
        self.agent.pipe.flush()
        self.assertEqual(self.cancelled, [self.answer])
        self.assertEqual(len(self.world.registry), 0)


def _asking(world: World) -> list[IStream]:
    """Have kas answer ``/test/Call``; return the streams that it accepts."""
    served: list[IStream] = []

    def serve(stream: IStream, open_: pb.Open) -> RecordingReceiver:
        served.append(stream)
        return RecordingReceiver()

    world.dispatcher.handle_stream("test", "/test/Call", serve)
    return served


def _opened(agent: Agent, message: pb.Open | pb.Resume) -> RecordingReceiver:
    receiver = RecordingReceiver()
    agent.tunnel.open_stream(message, receiver)
    return receiver


def test_an_agent_that_opens_too_many_streams() -> None:
    """kas refuses streams of this agent above the rate, and none of another agent."""
    world = World()
    world.acceptor.streams.at_once = 3
    agents = [world.dial(hello(credential=one)) for one in (b"7", b"8")]
    served = _asking(world)

    def begin(agent: Agent) -> RecordingReceiver:
        receiver = _opened(agent, pb.Open(method="/test/Call"))
        agent.pipe.flush()
        return receiver

    for _ in range(3):
        begin(agents[0])
    refused = begin(agents[0])
    assert len(served) == 3
    assert "too many streams" in str(refused.closed[0])
    begin(agents[1])
    world.clock.advance(1 / STREAMS_PER_SECOND)
    begin(agents[0])
    assert len(served) == 5


@pytest.mark.parametrize("message", [pb.Open(method="/test/Call"), pb.Resume()])
def test_an_agent_that_floods_streams(message: pb.Open | pb.Resume) -> None:
    """kas ends all tunnels of the agent, and reads no more of their streams."""
    world = World()
    world.acceptor.streams = rate = CountingRate(
        world.clock, at_once=2, refused_at_once=3
    )
    served = _asking(world)
    tunnels = [
        world.dial(hello(credential=b"7", instance_id=one)) for one in (b"1", b"2")
    ]
    other = world.dial(hello(credential=b"8"))
    # They arrive in one read.
    opened = [_opened(tunnels[0], message) for _ in range(20)]
    tunnels[0].pipe.flush()
    assert reason(tunnels[0]).code is ErrorCode.FLOOD
    assert rate.checked == 6
    assert all(one.closed for one in opened)
    _opened(tunnels[1], message)
    tunnels[1].pipe.flush()
    assert reason(tunnels[1]).code is ErrorCode.FLOOD
    assert reason(world.dial(hello(credential=b"7"))).code is ErrorCode.FLOOD
    assert world.acceptor.refusals == {"flood": 1}
    before = len(served)
    _opened(other, pb.Open(method="/test/Call"))
    other.pipe.flush()
    assert len(served) == before + 1
    assert not other.closed
    world.clock.advance(1 / REFUSED_PER_SECOND)
    assert not world.dial(hello(credential=b"7")).closed


class CountingRate(StreamRate):
    """A rate that counts its checks."""

    checked = 0

    def check(self, agent_id: str) -> None:
        self.checked += 1
        super().check(agent_id)


def _codes(rate: StreamRate, agent_id: str, count: int) -> Counter[ErrorCode]:
    found: Counter[ErrorCode] = Counter()
    for _ in range(count):
        try:
            rate.check(agent_id)
        except ProtocolError as error:
            found[error.code] += 1
    return found


def test_rate_of_streams() -> None:
    clock = Clock()
    rate = StreamRate(clock)
    assert not _codes(rate, "7", STREAMS_AT_ONCE)
    assert _codes(rate, "7", 1) == {ErrorCode.REFUSED: 1}
    assert not _codes(rate, "8", 1)
    clock.advance(1)
    assert _codes(rate, "7", STREAMS_PER_SECOND + 1) == {ErrorCode.REFUSED: 1}
    found = _codes(rate, "7", REFUSED_AT_ONCE + 10)
    assert found == {ErrorCode.REFUSED: REFUSED_AT_ONCE - 1, ErrorCode.FLOOD: 11}


def test_requests_that_fill_memory() -> None:
    """
    Unanswered requests of one agent take at most `MAX_HELD` bytes, on all its tunnels.
    """
    world = World()
    world.dispatcher.handle("test", ECHO, echo.Echo())
    tunnels = [
        world.dial(hello(credential=b"7", instance_id=one)) for one in (b"1", b"2")
    ]
    other = world.dial(hello(credential=b"8"))
    memory = world.dispatcher._memory

    def send(agent: Agent, size: int) -> tuple[Any, RecordingReceiver]:
        """Begin a request of MAX_MESSAGE bytes, and send the first *size* of them."""
        receiver = RecordingReceiver()
        method = f"/{ECHO.full_name}/Say"
        stream = agent.tunnel.open_stream(pb.Open(method=method), receiver)
        stream.write(MAX_MESSAGE.to_bytes(4, "big") + b"x" * (size - 4))
        agent.pipe.flush()
        return stream, receiver

    half = MAX_MESSAGE // 2
    call_size = CALL_SIZE + half
    sent = [send(tunnels[number % 2], half) for number in range(MAX_HELD // call_size)]
    rest = MAX_HELD - len(sent) * call_size - 2 * CALL_SIZE - 50
    sent.append(send(tunnels[0], rest))
    assert memory.held("7") == MAX_HELD - CALL_SIZE - 50
    over, refused = send(tunnels[0], 100)
    assert b"take more than 64 MiB" in refused.headers[-1]
    # kas drops what follows, though the agent may send on.
    over.write(b"x" * 100_000)
    tunnels[0].pipe.flush()
    call: Any = tunnels[0].there._streams[over.stream_id].receiver
    assert not call._inbox._buffer
    assert memory.held("7") == MAX_HELD - 50
    over.reset(ErrorCode.CANCELLED, "")
    send(other, 100)
    assert memory.held("8") == CALL_SIZE + 100
    for stream, _ in sent:
        stream.reset(ErrorCode.CANCELLED, "")
    for agent in tunnels:
        agent.pipe.flush()
    assert memory.held("7") == 0


def test_lines_that_strangers_cause() -> None:
    """Refused peers fill no disk; a proven agent that breaks the protocol is named."""
    world = World()
    observer = EventLoggingObserver()
    globalLogPublisher.addObserver(observer)
    try:
        for _ in range(2 * LINES_AT_ONCE):
            world.dial(hello(credential=b"unknown"))
    finally:
        globalLogPublisher.removeObserver(observer)
    lines = [one for one in observer if "was refused" in one["log_format"]]
    assert len(lines) == LINES_AT_ONCE
    agent = world.dial(hello(credential=b"7"))
    assert agent.there.log_budget is None


def test_calls_without_requests() -> None:
    """Open calls of an agent count with their metadata, and have few bytes of it."""
    world = World()
    world.dispatcher.handle("test", ECHO, echo.Echo())
    agent = world.dial(hello(credential=b"7"))
    memory = world.dispatcher._memory

    def begin(metadata: bytes) -> tuple[Any, RecordingReceiver]:
        receiver = RecordingReceiver()
        open_ = pb.Open(method=f"/{ECHO.full_name}/Say", metadata=metadata)
        stream = agent.tunnel.open_stream(open_, receiver)
        agent.pipe.flush()
        return stream, receiver

    stream, _ = begin(b"a: b\r\n" * 10)
    assert memory.held("7") == CALL_SIZE + 60
    _, refused = begin(b"a: b\r\n" * 2000)
    assert "metadata of an agent may have at most 8192 bytes" in str(refused.closed[-1])
    memory.take("7", MAX_HELD - memory.held("7"))
    _, refused = begin(b"")
    assert "take more than 64 MiB" in str(refused.closed[-1])
    # Nothing is left of the refused calls, though their callers did not finish.
    assert len(agent.there._streams) == 1
    before = memory.held("7")
    stream.reset(ErrorCode.CANCELLED, "")
    agent.pipe.flush()
    assert memory.held("7") == before - CALL_SIZE - 60


def test_answered_calls_that_their_callers_keep() -> None:
    """They count until the agent finishes them."""
    world = World()
    world.dispatcher.handle("test", ECHO, echo.Echo())
    agent = world.dial(hello(credential=b"7"))
    memory = world.dispatcher._memory
    receiver = RecordingReceiver()
    open_ = pb.Open(method=f"/{ECHO.full_name}/Say")
    stream = agent.tunnel.open_stream(open_, receiver)
    request = Text(text="x").SerializeToString()
    stream.write(len(request).to_bytes(4, "big") + request)
    for _ in range(3):
        agent.pipe.flush()
    assert b"status: 0" in receiver.headers[-1]
    assert memory.held("7") == CALL_SIZE
    stream.finish()
    agent.pipe.flush()
    assert memory.held("7") == 0


def test_requests_that_were_answered() -> None:
    """Answered requests, and messages of a stream that were read, count no more."""
    world = World()
    world.dispatcher.handle("test", ECHO, echo.Echo())
    agent = world.dial(hello(credential=b"7"))
    memory = world.dispatcher._memory
    client = agent.client(ECHO)

    async def calls() -> None:
        await client.call("Say", Text(text="x" * 1000))
        chat = client.open("Chat")
        for _ in range(3):
            await chat.send(Text(text="x" * 1000))
        chat.finish()
        async for _ in chat:
            pass

    done = Deferred.fromCoroutine(calls())
    for _ in range(10):
        agent.pipe.flush()
    assert done.called
    assert memory.held("7") == 0
