"""Requests that reach any kas find their agent, whatever breaks on the way."""

from __future__ import annotations

from functools import partial
from typing import Any

import attrs
from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from kas import gateway, peers
from kas.directory.peers import LAPSED_SECONDS
from kas.peers import PEER_LIMITS, PEER_TIMING, RETRY_MOST
from kas.routing import ROUTING_TIMEOUT
from tests.kas.many import GRACE, Agentk, Kas, Many
from tests.proto.echo_pb2 import Text
from tests.tunnel.rpc.echo import ECHO
from tunnel.errors import AgentUnavailable, ErrorCode, StreamReset
from tunnel.interfaces import IStream, IStreamReceiver
from tunnel.pb import tunnel_pb2 as pb
from tunnel.rpc.client import ServiceClient
from tunnel.testing import RecordingReceiver


class _Case(SynchronousTestCase):
    def setUp(self) -> None:
        self.many = Many()
        self.one, self.two, self.three = self.many.kas
        self.client = RecordingReceiver()

    def answer(self, agent: Agentk, data: bytes = b"answer") -> None:
        """Answer the last request of an agent, and end it."""
        stream, _ = agent.streams[-1]
        stream.send_headers(b"head")
        stream.write(data)
        stream.finish()
        self.many.settle()

    def assert_answered(self, data: bytes = b"answer") -> None:
        self.assertEqual((self.client.headers, self.client.data), ([b"head"], data))
        self.assertTrue(self.client.finished)


class RouteTests(_Case):
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
        self.one.directory.news([wrong], [])
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
        self.one.peers.hello = lambda: pb.Hello(role="kas", credential=b"guess")
        self.one.open(self.client, fin=True)
        self.many.later(ROUTING_TIMEOUT + 1)
        reason = self.client.closed[0]
        assert isinstance(reason, AgentUnavailable)
        # The agent is well, and nobody is to restart it because of this.
        self.assertEqual(reason.reason, "AGENT_NOT_REACHABLE")
        self.assertRegex(
            str(reason),
            "agent 7 is connected to another kas, and the kas at tcp://kas-2:8155 "
            "did not take us: not one of us",
        )
        self.assertEqual(self.two.gateway.tunnels, set())

    def test_agents_are_no_peers(self) -> None:
        """The private port takes nobody but kas."""
        self.one.peers.hello = lambda: pb.Hello(role="agent", credential=b"7")
        self.many.agent(self.two)
        self.one.open(self.client, fin=True)
        self.many.later(ROUTING_TIMEOUT + 1)
        self.assertIsInstance(self.client.closed[0], AgentUnavailable)

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
        queued = [len(one.queue) for one in far.session._streams.values()]
        self.assertLess(sum(queued), 3_000)
        self.assertEqual(len(self.client.closed), 1)

    def test_back_pressure(self) -> None:
        """A reader that stops stops its writer through both hops."""
        agent = self.many.agent(self.two)
        stream = self.one.open(self.client)
        self.many.settle()
        stream.pauseProducing()
        answer, _ = agent.streams[0]
        told: list[str] = []

        class Producer:
            def pauseProducing(self) -> None:
                told.append("pause")

            def resumeProducing(self) -> None:
                told.append("resume")

            def stopProducing(self) -> None:
                told.append("stop")

        answer.registerProducer(Producer(), True)
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


class CallTests(_Case):
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
        open_ = pb.Open(method=method, metadata=metadata)
        return kas.router.open_stream("7", open_, receiver, False)


class LossTests(_Case):
    """What breaks before an answer."""

    def test_gateway_dies(self) -> None:
        """A request that may be repeated is, once the agent is elsewhere."""
        agent = self.many.agent(self.two)
        self.one.open(self.client, fin=True, repeatable=True)
        self.many.settle()
        agent.at = self.three
        self.two.kill()
        self.many.later(3)
        self.assertEqual(len(agent.streams), 2)
        self.answer(agent)
        self.assert_answered()

    def test_not_repeatable(self) -> None:
        """Anything else fails clearly, and nothing happens twice."""
        agent = self.many.agent(self.two)
        self.one.open(self.client, fin=True)
        self.many.settle()
        agent.at = self.three
        self.two.kill()
        self.many.later(30)
        self.assertEqual(len(agent.streams), 1)
        self.assertEqual(len(self.client.closed), 1)

    def test_after_the_first_byte(self) -> None:
        """Nothing is repeated once something came back."""
        agent = self.many.agent(self.two)
        self.one.open(self.client, fin=True, repeatable=True)
        self.many.settle()
        agent.streams[0][0].send_headers(b"head")
        self.many.settle()
        agent.at = self.three
        self.two.kill()
        self.many.later(3)
        self.assertEqual((len(agent.streams), len(self.client.closed)), (1, 1))

    def test_refused_is_never_lost(self) -> None:
        """A refusal means that nothing was done: the body goes again, whole."""
        agent = self.many.agent(self.two)
        stale = self.two._record(next(iter(self.two.registry.instances("7"))).agent)
        self.one.directory.routes("7")
        self.many.settle()
        # It moves, and the news of it do not arrive here.
        self.many.hub.stores.remove(self.one.store)
        agent.at = self.three
        self.many.network.cut(self.two.agents_url)
        self.many.later(1)
        self.many.hub.stores.append(self.one.store)
        self.assertEqual(list(self.one.directory.routes("7")), [stale])
        stream = self.one.open(self.client)
        stream.write(b"body")
        stream.finish()
        self.many.later(3)
        ((_, request),) = agent.streams
        self.assertEqual((request.data, request.finished), (b"body", True))
        self.answer(agent)
        self.assert_answered()

    def test_refused_again_and_again(self) -> None:
        """Patience is counted from the first refusal, and not anew after each."""
        self.many.agent(self.two)
        ((_, pipe),) = self.many.network.pipes
        pipe.cut = True
        self.two.open(RecordingReceiver(), fin=True)
        self.many.later(8)
        self.one.open(self.client, fin=True)
        self.many.later(ROUTING_TIMEOUT + 1)
        self.assertGreater(self.one.router.rerouted, 3)
        ((reason,),) = (self.client.closed,)
        self.assertIsInstance(reason, AgentUnavailable)

    def test_breaks_long_after_a_wait(self) -> None:
        """What was waited for before does not count against the next way."""
        self.one.open(self.client, fin=True, repeatable=True)
        self.many.later(5)
        agent = self.many.agent(self.two)
        self.many.later(ROUTING_TIMEOUT * 2)
        self.assertEqual(len(agent.streams), 1)
        for at in (self.three, self.one):
            before, agent.at = agent.at, at
            before.kill()
            self.many.later(ROUTING_TIMEOUT * 2)
        self.assertEqual((len(agent.streams), self.client.closed), (3, []))
        self.answer(agent)
        self.assert_answered()

    def test_hub_is_down(self) -> None:
        """Agents are found by asking the other kas themselves."""
        self.many.hub.fail()
        agent = self.many.agent(self.two)
        self.one.open(self.client, fin=True)
        self.many.later(2)
        self.answer(agent)
        self.assert_answered()

    def test_newer_generation_wins(self) -> None:
        """A half-open connection elsewhere is closed as soon as it is known."""
        agent = self.many.agent(self.two)
        ((_, pipe),) = self.many.network.pipes
        pipe.cut = True
        agent.at = self.three
        agent.tunnel.abort(ErrorCode.DEAD_PEER, "the network is gone")
        pipe.protocols[0].connectionLost()
        self.many.later(2)
        self.assertEqual(len(self.three.registry), 1)
        self.assertEqual(self.two.registry.agents, 0)


class CutOffTests(_Case):
    """One kas alone has no way to the hub, and its lease is over."""

    def setUp(self) -> None:
        super().setUp()
        self.known = self.many.agent(self.two, "7")
        self.many.hub.cut_off(self.two.store)
        self.new = self.many.agent(self.two, "8", b"n" * 16)

    def test_from_the_others(self) -> None:
        """Their agents are found there, those that came meanwhile too."""
        for kas in (self.one, self.three):
            for agent_id, agent in (("7", self.known), ("8", self.new)):
                self.client = RecordingReceiver()
                kas.open(self.client, agent_id, fin=True)
                self.many.later(2)
                self.answer(agent)
                self.assert_answered()

    def test_for_long(self) -> None:
        """Once a session is up, nobody waits for it."""
        self.many.later(2 * LAPSED_SECONDS, 2.0)
        for _ in range(3):
            self.client = RecordingReceiver()
            self.one.open(self.client, "7", fin=True)
            self.many.later(2)
            self.answer(self.known)
            self.assert_answered()
            self.many.later(60, 2.0)
            self.many.hub.tell_leases()

    def test_from_there(self) -> None:
        """It asks the others, as it does when the hub is down for all."""
        agent = self.many.agent(self.three, "9", b"o" * 16)
        self.two.open(self.client, "9", fin=True)
        self.many.later(2)
        self.answer(agent)
        self.assert_answered()

    def test_who_waits_there_already(self) -> None:
        """An agent that comes while somebody waits for it elsewhere."""
        self.one.open(self.client, "9", fin=True)
        self.many.later(5)
        agent = self.many.agent(self.two, "9", b"o" * 16)
        self.many.later(2)
        self.answer(agent)
        self.assert_answered()


class DoubtTests(_Case):
    """Agents that are silent, and nobody said that they are gone."""

    def silent(self, at: Kas) -> tuple[Agentk, Agentk]:
        """The instance that is asked first, on a dark path, and another one."""
        agents = [self.many.agent(at, instance=bytes([n]) * 16) for n in (1, 2)]
        self.one.open(RecordingReceiver(), fin=True)
        self.many.settle()
        asked = 0 if agents[0].streams else 1
        self.answer(agents[asked])
        pipes = [p for url, p in self.many.network.pipes if url == at.agents_url]
        pipes[asked].cut = True
        return agents[asked], agents[1 - asked]

    def test_here(self) -> None:
        """What may be done twice goes to another instance, long before it is dead."""
        self.silent_then_other(self.one)

    def test_through_another(self) -> None:
        """The gateway notices, and the routing kas asks another instance."""
        self.silent_then_other(self.two)

    def silent_then_other(self, at: Kas) -> None:
        dark, other = self.silent(at)
        self.one.open(self.client, fin=True, repeatable=True)
        self.many.later(1)
        self.assertEqual(other.streams, [])
        self.many.later(8)
        self.assertEqual(len(other.streams), 1)
        self.answer(other)
        self.assert_answered()
        self.assertEqual(len(at.registry), 2)
        # Those that come now do not even try.
        self.one.open(RecordingReceiver(), fin=True)
        self.many.settle()
        self.assertEqual((len(dark.streams), len(other.streams)), (1, 2))

    def test_another_process_here(self) -> None:
        """The agent runs anew, and its former connection is dead."""
        self.dead_then_new(self.one, self.one)

    def test_another_process_elsewhere(self) -> None:
        """The same where only the directory knows of both."""
        self.dead_then_new(self.two, self.three)

    def dead_then_new(self, at: Kas, then: Kas) -> None:
        self.many.agent(at)
        self.one.open(RecordingReceiver(), fin=True)
        self.many.settle()
        pipes = [p for url, p in self.many.network.pipes if url == at.agents_url]
        pipes[0].cut = True
        # One hangs there already, and one comes when nobody knows better.
        self.one.open(self.client, fin=True, repeatable=True)
        new = self.many.agent(then, instance=b"j" * 16)
        self.many.later(1)
        self.assertEqual(len(new.streams), 1)
        self.answer(new)
        self.assert_answered()
        self.many.later(5, step=0.1)
        self.assertEqual(sum(len(kas.registry) for kas in self.many.kas), 1)

    def test_not_repeatable(self) -> None:
        """Anything else waits: it may be under way, and must not be done twice."""
        _, other = self.silent(self.two)
        self.one.open(self.client, fin=True)
        self.many.later(10)
        self.assertEqual((other.streams, self.client.closed), ([], []))
        self.many.later(25)
        self.assertEqual((other.streams, len(self.client.closed)), ([], 1))

    def test_answer_that_has_begun(self) -> None:
        """A silent path is not given up while the answer is on it."""
        agents = [self.many.agent(self.two, instance=bytes([n]) * 16) for n in (1, 2)]
        self.one.open(self.client, fin=True, repeatable=True)
        self.many.settle()
        asked = 0 if agents[0].streams else 1
        agents[asked].streams[0][0].send_headers(b"head")
        self.many.settle()
        pipes = [p for url, p in self.many.network.pipes if url == self.two.agents_url]
        pipes[asked].cut = True
        self.two.open(RecordingReceiver(), fin=True)
        self.two.open(RecordingReceiver(), fin=True)
        self.many.later(12)
        self.assertEqual(self.client.closed, [])

    def test_it_comes_back(self) -> None:
        """What waits gets its answer then, and the tunnel is used again."""
        agent = self.many.agent(self.two)
        self.one.open(RecordingReceiver(), fin=True)
        self.many.settle()
        pipes = [p for url, p in self.many.network.pipes if url == self.two.agents_url]
        pipes[0].cut = True
        self.one.open(self.client, fin=True)
        self.many.later(10)
        (connection,) = self.two.registry
        self.assertFalse(connection.tunnel.alive)
        pipes[0].cut = False
        self.many.later(1)
        self.answer(agent)
        self.assert_answered()
        self.assertTrue(connection.tunnel.alive)

    def test_quiet_is_not_silent(self) -> None:
        """An agent that answers pings may take as long as it likes for the rest."""
        agent = self.many.agent(self.two)
        self.two.open(self.client, fin=True, repeatable=True)
        self.many.later(120)
        self.assertEqual(len(agent.streams), 1)
        self.answer(agent)
        self.assert_answered()


class ResumeTests(_Case):
    """Streams that survive their path."""

    def begin(self, at: Kas) -> tuple[Agentk, RecordingReceiver]:
        agent = self.many.agent(at)
        self.stream = self.one.open(self.client, resumable=True)
        self.many.settle()
        answer, request = agent.streams[0]
        self.answer_stream = answer
        answer.send_headers(b"head")
        answer.write(b"one ")
        self.stream.write(b"eins ")
        self.many.settle()
        self.assertEqual((self.client.data, request.data), (b"one ", b"eins "))
        return agent, request

    def test_gateway_dies(self) -> None:
        """Both ends go on where they were, though the path is another."""
        agent, request = self.begin(self.two)
        agent.at = self.three
        self.answer_stream.write(b"two ")
        self.stream.write(b"zwei ")
        self.two.kill()
        self.answer_stream.write(b"three ")
        self.stream.write(b"drei ")
        self.many.later(3)
        self.assertEqual(self.client.data, b"one two three ")
        self.assertEqual(request.data, b"eins zwei drei ")
        self.answer_stream.finish()
        self.stream.finish()
        self.many.settle()
        self.assertEqual((self.client.closed, request.closed), ([None], [None]))
        self.assertEqual(len(agent.streams), 1)

    def test_agent_roams_away_from_us(self) -> None:
        """It was here, and comes back through another kas."""
        agent, request = self.begin(self.one)
        agent.at = self.three
        self.many.network.cut(self.one.agents_url)
        self.stream.write(b"zwei ")
        self.answer_stream.write(b"two ")
        self.many.later(3)
        self.assertEqual(self.client.data, b"one two ")
        self.assertEqual(request.data, b"eins zwei ")

    def test_agent_comes_back_here(self) -> None:
        """The connection was cut, and made anew."""
        agent, request = self.begin(self.one)
        self.many.network.cut(self.one.agents_url)
        self.stream.write(b"zwei ")
        self.many.later(3)
        self.assertEqual(request.data, b"eins zwei ")
        self.assertEqual(self.one.router.keeper.resumed, 1)
        self.assertEqual(agent.dialer.keeper.resumed, 1)

    def test_nobody_comes_back(self) -> None:
        """When the grace is over both ends are told, and nothing is kept."""
        agent, request = self.begin(self.two)
        agent.dialer._running = False
        self.many.network.cut(self.two.agents_url)
        self.many.later(GRACE + 3)
        self.assertEqual((len(self.client.closed), len(request.closed)), (1, 1))
        self.assertEqual(
            (self.one.router.keeper.held, agent.dialer.keeper.held), (0, 0)
        )
        self.assertEqual(len(agent.dialer.keeper), 0)

    def test_new_run_of_agentk(self) -> None:
        """Another run knows nothing of the stream: it fails, and is not done again."""
        agent, _ = self.begin(self.two)
        agent.dialer._running = False
        self.many.network.cut(self.two.agents_url)
        other = self.many.agent(self.three, instance=b"j" * 16)
        self.many.later(GRACE + 3)
        self.assertEqual((len(other.streams), len(self.client.closed)), (0, 1))

    def test_revoked(self) -> None:
        """A credential that is revoked ends the stream at once, not after a grace."""
        _, request = self.begin(self.two)
        self.two.registry.revoke("agent:7:t")
        self.many.later(1)
        (reason,) = self.client.closed
        assert isinstance(reason, StreamReset)
        self.assertEqual(reason.code, ErrorCode.UNAUTHENTICATED)
        self.assertEqual(len(request.closed), 1)

    def test_finished_and_not_read(self) -> None:
        """The end that was on its way when the path broke arrives by the next one."""
        agent, request = self.begin(self.two)
        self.stream.finish()
        self.many.settle()
        agent.at = self.three
        self.answer_stream.write(b"last")
        self.answer_stream.finish()
        # It left agentk, and not the gateway.
        self.two.kill()
        self.assertEqual(request.closed, [None])
        self.many.later(3)
        self.assertEqual((self.client.data, self.client.closed), (b"one last", [None]))

    def test_client_leaves_meanwhile(self) -> None:
        """Without a path, too; agentk keeps nothing beyond the grace."""
        agent, request = self.begin(self.two)
        agent.at = self.three
        self.two.kill()
        self.stream.reset()
        self.assertEqual(len(self.client.closed), 1)
        self.many.later(GRACE + 5)
        self.assertEqual(len(request.closed), 1)
        self.assertEqual(len(agent.dialer.keeper), 0)

    def test_acknowledged_again_and_again(self) -> None:
        """A gateway passes only what says something new."""
        agent, _ = self.begin(self.two)
        self.many.later(2)
        (stream,) = agent.tunnel._streams.values()
        received = stream.resumable.received  # type: ignore[union-attr]
        session = next(iter(self.two.gateway.tunnels)).session
        before = session._outbox.waiting_control
        for _ in range(1000):
            stream.ack(received)
        for _, pipe in self.many.network.pipes:
            if pipe.protocols[0] is agent.tunnel:
                pipe.flush()
        self.assertEqual(session._outbox.waiting_control, before)

    def test_revoked_without_a_path(self) -> None:
        """Nobody waits for the return of an agent that may not."""
        agent, _ = self.begin(self.two)
        agent.dialer._running = False
        self.many.network.cut(self.two.agents_url)
        self.many.later(2)
        self.assertEqual(self.client.closed, [])
        self.one.router.may_connect = lambda agent_id: False
        self.many.later(2)
        self.assertEqual(len(self.client.closed), 1)

    def test_resume_is_never_answered(self) -> None:
        """Attempts end, and leave nothing behind in any session."""
        agent, _ = self.begin(self.two)
        agent.dialer.stream_resumed = (  # type: ignore[method-assign]
            lambda stream, resume: RecordingReceiver()
        )
        self.many.network.cut(self.two.agents_url)
        self.many.later(GRACE + 20)
        self.assertEqual(len(self.client.closed), 1)
        (peer,) = self.one.peers._peers.values()
        assert peer.tunnel is not None
        self.assertEqual((peer.tunnel.load, self.two.gateway.load), (0, 0))

    def test_resumed_with_an_impossible_count(self) -> None:
        """It is refused, and counted nowhere as a stream that is there."""
        agent, _ = self.begin(self.two)

        def resumed(stream: Any, resume: pb.Resume) -> IStreamReceiver:
            stream.accept_resume(10**9)
            return RecordingReceiver()

        agent.dialer.stream_resumed = resumed  # type: ignore[method-assign]
        self.many.network.cut(self.two.agents_url)
        self.many.later(GRACE + 20)
        self.assertEqual(len(self.client.closed), 1)
        self.assertEqual((self.one.router.remote, self.two.gateway.load), (0, 0))

    def test_acknowledged(self) -> None:
        """What arrived is kept no longer than a moment."""
        agent, _ = self.begin(self.two)
        self.many.later(3)
        self.assertEqual(
            (self.one.router.keeper.held, agent.dialer.keeper.held), (0, 0)
        )


class MoveTests(_Case):
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
