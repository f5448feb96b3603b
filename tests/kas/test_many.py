"""Requests that reach any kas find their agent, wherever that is and goes."""

from __future__ import annotations

from functools import partial

import attrs
from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from kas.fleet import gateway, peers
from kas.fleet.peers import PEER_LIMITS, PEER_TIMING, RETRY_MOST
from kas.fleet.tokens import PeerToken
from kas.routing.router import ROUTING_TIMEOUT
from kas.routing.stream import RoutedStream
from tests.kas.many import Kas, Many, ManyCase
from tests.proto.echo_pb2 import Text
from tests.tunnel.producers import Producer
from tests.tunnel.rpc.echo import ECHO
from tunnel.api import IStream, IStreamReceiver
from tunnel.errors import AgentUnavailable, ErrorCode, StreamReset
from tunnel.pb import tunnel_pb2 as pb
from tunnel.rpc.client import ServiceClient
from tunnel.testing import RecordingReceiver


class RouteTests(ManyCase):
    """The way through another kas."""

    def test_through_another(self) -> None:
        """Head, bytes and the end pass both ways."""
        agent = self.many.agent(self.two)
        stream = self.one.open(self.client)
        stream.send_headers(b"request")
        stream.write(b"body")
        stream.finish()
        self.many.settle()
        ((_, request),) = agent.streams
        self.assertEqual(
            (request.headers, request.data, request.finished),
            ([b"request"], b"body", True),
        )
        self.answer(agent)
        self.assert_answered()
        self.assertEqual(self.client.closed, [None])
        self.assertEqual((self.one.router.remote, self.two.gateway.load), (0, 0))

    def test_agentk_sees_no_target(self) -> None:
        """What a gateway is told is not for agents."""
        agent = self.many.agent(self.two)
        seen: list[pb.Open] = []
        accept = agent.dialer.dispatcher.accept
        agent.dialer.dispatcher.accept = (  # type: ignore[method-assign]
            lambda stream, open_: seen.append(open_) or accept(stream, open_)  # type: ignore[func-returns-value]
        )
        self.one.open(self.client, fin=True)
        self.many.settle()
        (open_,) = seen
        self.assertFalse(open_.HasField("target"))
        self.assertEqual(agent.streams[0][1].finished, True)

    def test_gateway_looks_no_further(self) -> None:
        """A wrong answer of the directory leads to one more look, never to a circle."""
        agent = self.many.agent(self.two)
        wrong = self.three._record(next(iter(self.two.registry.instances("7"))).agent)
        self.one.directory.routes("7")
        self.many.settle()
        self.two.registry.retire(agent.tunnel)  # unknown there: nothing happens
        self.one.directory.events([wrong], [])
        self.one.open(self.client, fin=True)
        self.many.later(3)
        self.assertEqual(self.three.gateway.relayed, 0)
        self.answer(agent)
        self.assert_answered()

    def test_agent_arrives_elsewhere(self) -> None:
        """Who waits is woken by the news, at whichever kas the agent connects."""
        self.one.open(self.client, fin=True)
        self.many.later(5)
        agent = self.many.agent(self.three)
        self.many.settle()
        self.answer(agent)
        self.assert_answered()

    def test_gateway_answers_again(self) -> None:
        """A kas that could not be reached is tried again while somebody waits."""
        agent = self.many.agent(self.two)
        listening = self.many.network.listeners
        there = listening.pop(self.two.me.url)
        self.one.open(self.client, fin=True)
        self.many.later(3)
        self.assertEqual(agent.streams, [])
        listening[self.two.me.url] = there
        self.many.later(RETRY_MOST)
        self.answer(agent)
        self.assert_answered()

    def test_gateway_is_silent(self) -> None:
        """... and so is one whose session ends for its silence."""
        agent = self.many.agent(self.two)
        self.one.open(RecordingReceiver(), fin=True)
        self.many.settle()
        (pipe,) = (pipe for url, pipe in self.many.network.pipes if "8155" in url)
        pipe.cut = True
        self.many.later(PEER_TIMING.ping_interval + PEER_TIMING.dead_after / 2)
        self.one.open(self.client, fin=True)
        self.many.later(PEER_TIMING.dead_after)
        self.answer(agent)
        self.assert_answered()

    def test_thousands_wait(self) -> None:
        """They share one look, and all are served."""
        clients = [RecordingReceiver() for _ in range(1000)]
        for client in clients:
            self.one.open(client, fin=True)
        self.many.settle()
        self.assertEqual(self.many.hub.finds, ["7"])
        agent = self.many.agent(self.two)
        self.many.settle()
        self.assertEqual(len(agent.streams), 1000)

    def test_nobody_comes(self) -> None:
        """The client hears when the time is over."""
        self.one.open(self.client, fin=True)
        self.many.later(ROUTING_TIMEOUT + 1)
        (reason,) = self.client.closed
        self.assertIsInstance(reason, AgentUnavailable)
        self.assertEqual(self.one.router.waiting, 0)

    def test_least_load(self) -> None:
        """Two pods at two kas share the requests evenly."""
        pods = [
            self.many.agent(self.one, instance=b"a" * 16),
            self.many.agent(self.two, instance=b"b" * 16),
        ]
        for _ in range(10):
            self.one.open(RecordingReceiver(), fin=True)
            self.many.settle()
        self.assertEqual([len(pod.streams) for pod in pods], [5, 5])

    def test_wrong_secret(self) -> None:
        """A peer that cannot prove itself is refused, and is no peer."""
        self.many.agent(self.two)
        self.one.peers.sign = lambda _: PeerToken(b"guess", b"proof")
        self.one.open(self.client, fin=True)
        self.many.later(ROUTING_TIMEOUT + 1)
        reason = self.client.closed[0]
        assert isinstance(reason, AgentUnavailable)
        # The agent is well, and nobody is to restart it because of this.
        self.assertEqual(reason.reason, "AGENT_NOT_REACHABLE")
        self.assertRegex(
            str(reason),
            "agent 7 is connected to another kas, which refused this kas$",
        )
        self.assertEqual(self.two.gateway.tunnels, set())

    def test_empty_blocks(self) -> None:
        """They cost no credit, and must not fill a gateway beside a slow client."""
        agent = self.many.agent(self.two)
        stream = self.one.open(self.client)
        self.many.settle()
        stream.pauseProducing()
        answer, _ = agent.streams[0]
        for _ in range(5):
            answer.write(b"x" * 65_536)
            self.many.settle()
        for _ in range(60):
            for _ in range(200):
                answer.send_headers(b"")
            self.many.settle()
        (far,) = self.two.gateway.tunnels
        queued = [len(one.queue) for one in far.session._by_id.values()]
        self.assertLess(sum(queued), 3_000)
        self.assertEqual(len(self.client.closed), 1)

    def test_back_pressure(self) -> None:
        """A reader that stops stops its writer through both hops."""
        agent = self.many.agent(self.two)
        stream = self.one.open(self.client)
        self.many.settle()
        stream.pauseProducing()
        answer, _ = agent.streams[0]
        producer = Producer()
        told = producer.told
        answer.registerProducer(producer, True)
        while not told:
            answer.write(b"x" * 65536)
            self.many.settle()
        self.assertEqual(told, ["pause"])
        self.assertEqual(self.client.data, b"")
        stream.resumeProducing()
        self.many.settle()
        self.assertEqual(told[1:], ["resume"])
        self.assertGreater(len(self.client.data), 256 * 1024)


class ShedTests(SynchronousTestCase):
    """A session between kas that holds too much sheds from who holds most."""

    LIMITS = attrs.evolve(PEER_LIMITS, session_bytes=400 * 1024)

    def setUp(self) -> None:
        self.patch(peers, "PEER_LIMITS", self.LIMITS)
        self.patch(gateway, "PEER_LIMITS", self.LIMITS)
        self.many = Many()
        self.one, self.two, _ = self.many.kas
        self.greedy = self.many.agent(self.two, "7")
        self.modest = self.many.agent(self.two, "8", b"n" * 16)

    def open(self, agent_id: str) -> tuple[RecordingReceiver, IStream]:
        client = RecordingReceiver()
        stream = self.one.open(client, agent_id)
        self.many.later(1)
        return client, stream

    def test_answers_that_are_not_read(self) -> None:
        """One large stream of an agent survives many smaller ones of another."""
        large, stream = self.open("8")
        stream.pauseProducing()
        self.modest.streams[-1][0].write(b"l" * 150_000)
        self.many.later(1)
        small = [self.open("7") for _ in range(6)]
        for (_, paused), (answering, _) in zip(small, self.greedy.streams, strict=True):
            paused.pauseProducing()
            answering.write(b"s" * 100_000)
            self.many.later(1)
        reset = [client for client, _ in small if client.closed]
        self.assertEqual(len(reset), 4)
        for client in reset:
            (reason,) = client.closed
            assert isinstance(reason, StreamReset)
            self.assertEqual(reason.code, ErrorCode.MEMORY)
        stream.resumeProducing()
        self.many.later(1)
        self.assertEqual((len(large.data), large.closed), (150_000, []))

    def test_bodies_that_are_not_read(self) -> None:
        """The same the other way, where the gateway holds them."""
        large, stream = self.open("8")
        for streams in (self.modest.streams, self.greedy.streams):
            self.assertLessEqual(len(streams), 1)
        self.modest.streams[-1][0].pauseProducing()
        small = [self.open("7") for _ in range(6)]
        for one, _ in self.greedy.streams:
            one.pauseProducing()
        (tunnel,) = self.two.gateway.tunnels
        for near in tuple(tunnel._streams.values()):
            # As if the way to the agents took nothing.
            near.pauseProducing()
        stream.write(b"l" * 150_000)
        self.many.later(1)
        for _, sending in small:
            sending.write(b"s" * 100_000)
            self.many.later(1)
        self.assertEqual(sum(bool(client.closed) for client, _ in small), 4)
        self.assertEqual(large.closed, [])


class CallTests(ManyCase):
    """Calls of modules, whoever wrote them."""

    def test_routed_by_agent_id(self) -> None:
        """A service of an agent's module answers through any kas."""
        self.many.agent(self.two)
        for kas in self.many.kas:
            client = ServiceClient(ECHO, partial(self.opener, kas), self.many.clock)
            answer = Deferred.fromCoroutine(client.call("Say", Text(text="hello")))
            self.many.settle()
            self.assertEqual(self.successResultOf(answer).text, "HELLO")

    def test_waits_for_its_agent(self) -> None:
        """As any other request does."""
        client = ServiceClient(ECHO, partial(self.opener, self.one), self.many.clock)
        answer = Deferred.fromCoroutine(client.call("Say", Text(text="hello")))
        self.many.later(5)
        self.assertNoResult(answer)
        self.many.agent(self.three)
        self.many.later(3)
        self.assertEqual(self.successResultOf(answer).text, "HELLO")

    @staticmethod
    def opener(
        kas: Kas,
        method: str,
        receiver: IStreamReceiver,
        *,
        metadata: bytes = b"",
        timeout: float = 0,
    ) -> IStream:
        return RoutedStream.open(kas.router, "7", method, receiver, metadata)


class MoveTests(ManyCase):
    """Agents that are asked to leave."""

    def test_drain(self) -> None:
        """At no time is the agent out of reach, and what runs finishes."""
        agent = self.many.agent(self.two)
        running = RecordingReceiver()
        self.one.open(running, fin=True)
        self.many.settle()
        agent.at = self.three
        self.two.balance.send_away(self.two.registry, "kas stops")
        self.many.settle()
        before = RecordingReceiver()
        self.one.open(before, fin=True)
        self.many.settle()
        self.assertEqual(len(agent.streams), 2)
        self.many.later(6)
        self.assertEqual((self.two.registry.agents, self.three.registry.agents), (0, 1))
        self.one.open(self.client, fin=True)
        self.many.settle()
        self.assertEqual(self.three.gateway.relayed, 1)
        self.assertEqual(len(self.two.registry), 1)
        for stream, _ in agent.streams:
            stream.finish()
        self.many.later(1)
        self.assertEqual((running.closed, before.closed), ([None], [None]))
        self.assertEqual(len(self.two.registry), 0)

    def test_agentk_stops(self) -> None:
        """A request that crosses its farewell goes to the other pod."""
        leaving = self.many.agent(self.two, instance=b"a" * 16)
        other = self.many.agent(self.two, instance=b"b" * 16)
        # Make the other one the busier, so that the first is chosen.
        self.two.open(RecordingReceiver())
        self.many.settle()
        busy = other if other.streams else leaving
        idle = leaving if busy is other else other
        stream = self.two.open(self.client)
        stream.write(b"body")
        stream.finish()
        stopping = idle.dialer.stop(10)
        done = Deferred.fromCoroutine(stopping)
        self.many.later(2)
        self.assertEqual(busy.streams[-1][1].data, b"body")
        self.successResultOf(done)
        self.answer(busy)
        self.assert_answered()

    def test_rebalance(self) -> None:
        """What is above the mean is asked to choose again."""
        agents = [
            self.many.agent(self.one, instance=bytes([number]) * 16)
            for number in range(30)
        ]
        for kas in self.many.kas:
            kas.store.update(kas.me)
        for number, agent in enumerate(agents):
            agent.at = self.many.kas[number % 3]
        self.one.directory.update(self.one.me)
        for store in self.many.hub.stores:
            store.tell_leases()
        self.assertEqual(self.one.balance.rebalance(), 15)
        self.many.later(6)
        # A third of them came back.
        self.assertEqual([len(kas.registry) for kas in self.many.kas], [20, 5, 5])
        for agent in agents:
            self.assertTrue(agent.dialer.ready)

    def test_alone(self) -> None:
        """There is nobody to send agents to."""
        many = Many(1)
        many.agent(many.kas[0])
        self.assertEqual(many.kas[0].balance.rebalance(), 0)
