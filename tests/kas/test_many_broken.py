"""Requests find their agent although ways break under them."""

from __future__ import annotations

from kas.agents.registry import FRESH
from kas.directory.known_kas import LAPSED_SECONDS
from kas.routing.router import ROUTING_TIMEOUT
from tests.kas.many import Agentk, Kas, ManyCase
from tunnel.errors import AgentUnavailable, ErrorCode
from tunnel.testing import RecordingReceiver


class LossTests(ManyCase):
    """What breaks before an answer."""

    def test_gateway_dies(self) -> None:
        """A request that may be repeated is, once the agent is elsewhere."""
        agent = self.many.agent(self.two)
        self.one.open(self.client, fin=True, idempotent=True)
        self.many.settle()
        agent.at = self.three
        self.two.kill()
        self.many.later(3)
        self.assertEqual(len(agent.streams), 2)
        self.answer(agent)
        self.assert_answered()

    def test_not_idempotent(self) -> None:
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
        self.one.open(self.client, fin=True, idempotent=True)
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
        self.one.open(self.client, fin=True, idempotent=True)
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


class CutOffTests(ManyCase):
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


class DoubtTests(ManyCase):
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
        self.one.open(self.client, fin=True, idempotent=True)
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
        """The agent runs again, and its former connection is dead."""
        self.dead_then_new(self.one, self.one)

    def test_another_process_elsewhere(self) -> None:
        """The same where only the directory knows of both."""
        self.dead_then_new(self.two, self.three)

    def dead_then_new(self, at: Kas, then: Kas) -> None:
        self.many.agent(at)
        self.one.open(RecordingReceiver(), fin=True)
        self.many.later(FRESH + 1)
        pipes = [p for url, p in self.many.network.pipes if url == at.agents_url]
        pipes[0].cut = True
        # One hangs there already, and one comes when nobody knows better.
        self.one.open(self.client, fin=True, idempotent=True)
        new = self.many.agent(then, instance=b"j" * 16)
        self.many.later(1)
        self.assertEqual(len(new.streams), 1)
        self.answer(new)
        self.assert_answered()
        self.many.later(5, step=1 / 16)
        self.assertEqual(sum(len(kas.registry) for kas in self.many.kas), 1)

    def test_not_idempotent(self) -> None:
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
        self.one.open(self.client, fin=True, idempotent=True)
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
        self.two.open(self.client, fin=True, idempotent=True)
        self.many.later(120)
        self.assertEqual(len(agent.streams), 1)
        self.answer(agent)
        self.assert_answered()
