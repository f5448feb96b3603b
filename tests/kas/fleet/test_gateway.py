"""What other kas may ask of this one, and how two streams become one."""

from __future__ import annotations

import gc
from typing import Any

import attrs
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from kas.fleet.gateway import Gateway, GatewayFactory, Relay
from kas.fleet.tokens import PeerToken
from tests.kas.world import Agent, World
from tunnel.errors import CallError, ErrorCode, SessionClosed, Status, StreamReset
from tunnel.pb import tunnel_pb2 as pb
from tunnel.program.runtime import Runtime
from tunnel.rpc.dispatch import Dispatcher
from tunnel.testing import FakeTracer, Pipe, RecordingReceiver
from tunnel.testing.ends import End
from tunnel.wire.limits import DEFAULT_LIMITS

TARGET = pb.Target(agent_id="7", instance_id=b"i", generation=1)


def _relays() -> int:
    """How many there are, also those that nothing refers to any more."""
    return sum(isinstance(one, Relay) for one in gc.get_objects())


class _Case(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.world = World(clock=self.clock)
        self.dispatcher = Dispatcher(self.clock)
        self.gateway = Gateway(
            self._verify,
            self.world.registry,
            self.dispatcher,
            Runtime(reactor=self.clock),
        )
        self.client = RecordingReceiver()

    @staticmethod
    def _verify(credential: bytes) -> PeerToken:
        if credential != b"secret":
            raise CallError(Status.UNAUTHENTICATED, "not one of us")
        return PeerToken(credential, b"proof")

    def dial(self, role: str = "kas", credential: bytes = b"secret") -> End:
        """Another kas comes."""
        factory = GatewayFactory(self.gateway)
        peer = End(self.clock, dialler=True, limits=DEFAULT_LIMITS)
        self.pipe = Pipe(self.clock, peer.tunnel, factory.buildProtocol(None))
        peer.tunnel.hello(pb.Hello(role=role, credential=credential, instance_id=b"o"))
        self.pipe.flush()
        return peer

    def open(self, peer: End, target: pb.Target | None = TARGET, **more: Any) -> Any:
        """A stream of that kas."""
        stream = peer.tunnel.open_stream(
            pb.Open(method="/test", target=target, **more), self.client
        )
        self.pipe.flush()
        return stream

    def settle(self, agent: Agent) -> None:
        for _ in range(4):
            agent.pipe.flush()
            self.pipe.flush()

    def code(self) -> ErrorCode:
        """Of the reset that the client got."""
        (reason,) = self.client.closed
        assert isinstance(reason, StreamReset)
        return reason.code


class PeerTests(_Case):
    """Who may come."""

    def test_one_of_us(self) -> None:
        peer = self.dial()
        self.assertEqual((len(self.gateway.tunnels), peer.closed), (1, []))
        peer.tunnel.go_away(pb.GoAway(code=ErrorCode.SHUTDOWN))
        self.pipe.flush()
        peer.tunnel.end(ErrorCode.SHUTDOWN, "it stops")
        self.pipe.flush()
        self.assertEqual(len(self.gateway.tunnels), 0)

    def test_others(self) -> None:
        for role, credential, code in (
            ("agent", b"secret", ErrorCode.PROTOCOL),
            ("kas", b"guess", ErrorCode.UNAUTHENTICATED),
        ):
            peer = self.dial(role, credential)
            self.assertEqual([one.code for one in peer.closed], [code])
        self.assertEqual(len(self.gateway.tunnels), 0)

    def test_the_end(self) -> None:
        peer = self.dial()
        self.gateway.end()
        self.pipe.flush()
        self.assertEqual([one.code for one in peer.closed], [ErrorCode.SHUTDOWN])


class OpenTests(_Case):
    """Where a stream goes: to an agent here, to us, or nowhere."""

    def test_a_call_to_us(self) -> None:
        seen: list[str] = []

        def accept(stream: Any, open_: pb.Open) -> RecordingReceiver:
            seen.append(open_.method)
            return RecordingReceiver()

        self.dispatcher.handle_stream("kas", "/test", accept)
        self.open(self.dial(), target=None)
        self.assertEqual((seen, self.gateway.relayed), (["/test"], 0))

    def test_traced(self) -> None:
        """A span as long as the stream, of what is on a trace; no other begins one."""
        tracer = self.gateway.tracer = FakeTracer()
        agent = self.world.agent()
        parent = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"
        metadata = f"GET / HTTP/1.1\r\nTraceparent: {parent}\r\n".encode()
        peer = self.dial()
        stream = self.open(peer, metadata=metadata)
        self.settle(agent)
        (span,) = tracer.spans
        self.assertEqual((span.name, span.parent), ("relay", parent))
        self.assertFalse(span.ended)
        stream.reset()
        self.settle(agent)
        self.assertTrue(span.ended)
        self.open(peer, metadata=b"GET / HTTP/1.1\r\nHost: a\r\n")
        self.assertEqual(len(tracer.spans), 1)

    def test_traced_and_refused(self) -> None:
        """The span says why the stream went no further."""
        tracer = self.gateway.tracer = FakeTracer()
        self.one_stream_only()
        peer = self.dial()
        parent = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"
        metadata = f"GET / HTTP/1.1\r\nTraceparent: {parent}\r\n".encode()
        for _ in range(2):
            self.open(peer, metadata=metadata)
        self.assertEqual(
            [(span.ended, span.problem) for span in tracer.spans],
            [(False, ""), (True, "too many streams")],
        )

    def one_stream_only(self) -> None:
        """An agent that takes no more."""
        self.world.limits = attrs.evolve(DEFAULT_LIMITS, max_streams=1)
        self.world.agent()

    def test_an_agent_here(self) -> None:
        agent = self.world.agent()
        stream = self.open(self.dial())
        stream.send_headers(b"head")
        stream.finish()
        self.settle(agent)
        ((answer, open_, request),) = agent.streams
        self.assertEqual((request.headers, request.finished), ([b"head"], True))
        self.assertFalse(open_.HasField("target"))
        self.assertEqual(open_.relayed_by, b"o")
        self.assertEqual((self.gateway.relayed, self.gateway.load), (1, 1))
        answer.write(b"answer")
        answer.finish()
        self.settle(agent)
        self.assertEqual((self.client.data, self.client.closed), (b"answer", [None]))
        self.assertEqual(self.gateway.load, 0)

    def test_what_is_over_is_freed(self) -> None:
        """At once, however many there are: the collector has nothing to look for."""
        agent = self.world.agent()
        peer = self.dial()
        gc.collect()
        gc.disable()
        self.addCleanup(gc.enable)
        others = _relays()
        for number in range(3):
            stream = self.open(peer)
            if number:
                stream.finish()
                self.settle(agent)
                agent.streams[-1][0].finish()
            else:
                stream.reset()
            self.settle(agent)
        self.assertEqual(len(agent.streams), 3)
        self.assertEqual(_relays(), others)

    def test_an_agent_that_is_not_here(self) -> None:
        self.world.agent()
        peer = self.dial()
        for wrong in (
            pb.Target(agent_id="8", instance_id=b"i"),
            pb.Target(agent_id="7", instance_id=b"j"),
            pb.Target(agent_id="7", instance_id=b"i", generation=2),
        ):
            self.client = RecordingReceiver()
            self.open(peer, wrong)
            self.assertEqual(self.code(), ErrorCode.REFUSED)
        self.assertEqual((self.gateway.refused, self.gateway.relayed), (3, 0))

    def test_a_newer_connection_will_do(self) -> None:
        """It is the same instance: what was asked for came back."""
        self.world.agent(generation=5)
        self.open(self.dial())
        self.assertEqual(self.gateway.relayed, 1)

    def test_an_agent_that_begins_to_leave(self) -> None:
        agent = self.world.agent()
        peer = self.dial()
        agent.tunnel.go_away(pb.GoAway(code=ErrorCode.SHUTDOWN))
        self.settle(agent)
        self.open(peer)
        self.assertEqual(self.code(), ErrorCode.REFUSED)
        self.assertEqual((self.gateway.refused, agent.streams), (1, []))

    def test_an_agent_that_takes_no_more(self) -> None:
        self.one_stream_only()
        peer = self.dial()
        self.open(peer)
        self.assertEqual((self.client.closed, self.gateway.relayed), ([], 1))
        self.open(peer)
        self.assertEqual(self.code(), ErrorCode.REFUSED)
        self.assertEqual(self.gateway.relayed, 1)

    def test_a_stream_to_go_on_with(self) -> None:
        """RESUME is held against the registry as OPEN is."""
        peer = self.dial()
        peer.tunnel.open_stream(
            pb.Resume(resume_id=b"r" * 16, target=TARGET), self.client
        )
        self.pipe.flush()
        self.assertEqual(self.code(), ErrorCode.REFUSED)


class RelayTests(_Case):
    """How the end of one half becomes the end of the other, and what else passes."""

    def setUp(self) -> None:
        super().setUp()
        self.halves: list[Any] = []

        def accept(stream: Any, open_: pb.Open) -> RecordingReceiver:
            self.halves.append(stream)
            return RecordingReceiver()

        self.dispatcher.handle_stream("kas", "/test", accept)
        self.peer = self.dial()

    def relay(self) -> Relay:
        """One half, whose other one goes to the client."""
        self.client = RecordingReceiver()
        self.stream = self.open(self.peer, target=None)
        return Relay(self.halves[-1])

    def closed(self, reason: Exception | None) -> StreamReset:
        """What the client is told when the stream at the agent ends so."""
        self.relay().stream_closed(reason)
        self.pipe.flush()
        (told,) = self.client.closed
        assert isinstance(told, StreamReset)
        return told

    def test_ends(self) -> None:
        ends = (
            (StreamReset(ErrorCode.CANCELLED, "enough"), ErrorCode.CANCELLED),
            (SessionClosed(ErrorCode.DEAD_PEER, "gone"), ErrorCode.PATH_LOST),
            (SessionClosed(ErrorCode.NONE, "cut"), ErrorCode.PATH_LOST),
            (
                SessionClosed(ErrorCode.UNAUTHENTICATED, "revoked"),
                ErrorCode.UNAUTHENTICATED,
            ),
        )
        for reason, code in ends:
            told = self.closed(reason)
            self.assertEqual((told.code, str(told)), (code, str(reason)))

    def test_the_end_of_a_connection_that_was_closed(self) -> None:
        """The other kas learns that it was, and not silent."""
        for closed in (True, False):
            told = self.closed(SessionClosed(ErrorCode.NONE, peer_closed=closed))
            self.assertEqual(told.peer_closed, closed)

    def test_the_end_of_both(self) -> None:
        relay = self.relay()
        relay.stream_closed(None)
        relay.stopProducing()
        self.pipe.flush()
        self.assertEqual(self.client.closed, [])

    def test_counts_pass(self) -> None:
        """An ACK that says nothing new goes no further."""
        told: list[tuple[str, int]] = []

        class Resumable:
            def acked(self, received: int) -> None:
                told.append(("ack", received))

        relay = self.relay()
        self.stream.resumable = Resumable()
        for received in (7, 7, 6, 8):
            relay.acked(received)
        self.pipe.flush()
        self.assertEqual(told, [("ack", 7), ("ack", 8)])
