"""A stream on its way: what breaks under it, and what its user does meanwhile."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import attrs
from twisted.internet.defer import Deferred

from kas.directory.directory import Directory
from kas.fleet.peers import Peers
from kas.routing.router import LOOK_AGAIN, ROUTING_TIMEOUT
from kas.routing.stream import MAX_BUFFERED, MAX_LOST, Resumption
from tests.kas.many import GRACE, Agentk, Kas, ManyCase
from tests.kas.routing.test_router import Sought
from tests.tunnel.producers import Producer
from tunnel.api import ConnectedAgent
from tunnel.errors import (
    NOT_LEADING,
    AgentUnavailable,
    ErrorCode,
    SessionClosed,
    StreamReset,
)
from tunnel.pb import tunnel_pb2 as pb
from tunnel.session.keepalive import LOOK, LOOKS_TO_DOUBT
from tunnel.testing import Pipe, RecordingReceiver


class RepeatTests(ManyCase):
    """Requests that may be done again, and those that may not."""

    def break_and_return(self, agent: Agentk) -> None:
        """Its connection is lost, and it comes back."""
        self.many.network.cut(agent.at.agents_url)
        self.many.later(3)

    def test_a_watch_without_an_answer(self) -> None:
        """It begins anew at the same instance, which still holds the first attempt."""
        agent = self.many.agent(self.two)
        self.one.open(self.client, fin=True, resumable=True, idempotent=True)
        self.many.settle()
        self.break_and_return(agent)
        self.assertEqual((len(agent.streams), self.client.closed), (2, []))
        self.answer(agent)
        self.assert_answered()
        self.many.later(GRACE + 5)
        self.assertEqual(len(agent.dialer.keeper), 0)

    def test_what_breaks_everything_it_touches(self) -> None:
        agent = self.many.agent(self.two)
        self.one.open(self.client, fin=True, idempotent=True)
        self.many.settle()
        for _ in range(MAX_LOST + 1):
            self.assertEqual(self.client.closed, [])
            self.break_and_return(agent)
        self.assertEqual(len(agent.streams), MAX_LOST + 1)
        self.assertEqual(len(self.client.closed), 1)

    def test_a_watch_whose_paths_break(self) -> None:
        """On the last path that it may take, it goes on where it was."""
        agent = self.many.agent(self.two)
        self.one.open(self.client, fin=True, resumable=True, idempotent=True)
        self.many.settle()
        for _ in range(2 * MAX_LOST):
            self.break_and_return(agent)
        self.assertEqual((self.client.closed, len(agent.streams)), ([], MAX_LOST + 1))
        self.answer(agent)
        self.assert_answered()

    def test_an_answer_without_a_head(self) -> None:
        """With its first byte a request was answered, and is not done again."""
        agent = self.many.agent(self.one)
        self.one.open(self.client, fin=True, idempotent=True)
        self.many.settle()
        agent.streams[0][0].write(b"one")
        self.many.settle()
        self.break_and_return(agent)
        self.assertEqual((self.client.data, len(agent.streams)), (b"one", 1))
        self.assertEqual(len(self.client.closed), 1)

    def test_steps_aside(self) -> None:
        """From the first byte on, what an agent here answers goes to the user alone."""
        agent = self.many.agent(self.one)
        stream: Any = self.one.open(self.client)
        self.many.settle()
        self.assertIs(stream._stream.receiver, stream)
        agent.streams[0][0].send_headers(b"head")
        self.many.settle()
        self.assertIs(stream._stream.receiver, self.client)

    def test_an_answer_without_a_byte(self) -> None:
        """Its end is an answer, too, though the request is still being written."""
        agent = self.many.agent(self.one)
        self.one.open(self.client, idempotent=True)
        self.many.settle()
        agent.streams[0][0].finish()
        self.many.settle()
        self.break_and_return(agent)
        self.assertEqual((self.client.finished, len(agent.streams)), (True, 1))
        self.assertEqual(len(self.client.closed), 1)

    def doubt(self, **options: Any) -> Agentk:
        """A request to an instance that falls silent, and is not given up yet."""
        silent = self.many.agent(self.one)
        self.one.open(self.client, fin=True, **options)
        self.many.settle()
        self.assertEqual(len(silent.streams), 1)
        ((_, pipe),) = self.many.network.pipes
        pipe.cut = True
        other = self.many.agent(self.one, instance=b"j" * 16)
        (path, _) = self.one.router.paths("7")
        self.assertEqual(path.agent.instance_id, b"j" * 16)
        ask, _ = self.one.registry.instances("7")
        ask.tunnel.ask()
        self.many.clock.pump([LOOK] * (LOOKS_TO_DOUBT + 1))
        self.many.settle()
        self.assertEqual(len(self.one.registry.instances("7")), 2)
        return other

    def test_in_doubt(self) -> None:
        """What may be done again goes elsewhere before its connection is given up."""
        other = self.doubt(idempotent=True)
        self.assertEqual(len(other.streams), 1)
        self.answer(other)
        self.assert_answered()

    def fall_silent(self, at: Kas) -> Pipe:
        """The path of the agent at a kas carries nothing, and kas doubts it."""
        (pipe,) = [p for url, p in self.many.network.pipes if url == at.agents_url]
        pipe.cut = True
        (connection,) = at.registry.instances("7")
        connection.tunnel.ask()
        self.many.clock.pump([LOOK] * (LOOKS_TO_DOUBT + 1))
        self.many.settle()
        self.assertFalse(connection.tunnel.alive)
        return pipe

    def check_slow(self, at: Kas) -> None:
        """
        Where it left as many paths as it may, it waits for what is silent.

        :param at: who has the agent.
        """
        agent = self.many.agent(at)
        self.one.open(self.client, fin=True, idempotent=True)
        self.many.settle()
        for _ in range(MAX_LOST):
            self.break_and_return(agent)
        pipe = self.fall_silent(at)
        self.assertEqual(self.client.closed, [])
        pipe.cut = False
        self.many.settle()
        self.assertEqual(len(agent.streams), MAX_LOST + 1)
        self.answer(agent)
        self.assert_answered()

    def test_in_doubt_again_and_again(self) -> None:
        self.check_slow(self.one)

    def test_in_doubt_again_and_again_elsewhere(self) -> None:
        self.check_slow(self.two)

    def test_in_doubt_after_bytes_without_a_head(self) -> None:
        """Through another kas, too, they are an answer."""
        agent = self.many.agent(self.two)
        self.one.open(self.client, fin=True, idempotent=True)
        self.many.settle()
        agent.streams[0][0].write(b"one")
        self.many.settle()
        self.fall_silent(self.two)
        self.assertEqual((self.client.data, self.client.closed), (b"one", []))

    def test_in_doubt_and_may_not_be_done_twice(self) -> None:
        """It waits: the silent agent may be doing it."""
        other = self.doubt()
        self.assertEqual((other.streams, self.client.closed), ([], []))

    def test_what_may_not_be_done_twice(self) -> None:
        agent = self.many.agent(self.one)
        self.one.open(self.client, fin=True)
        self.many.settle()
        self.break_and_return(agent)
        (reason,) = self.client.closed
        self.assertIsInstance(reason, SessionClosed)
        self.assertEqual(len(agent.streams), 1)

    def test_revoked_here(self) -> None:
        """Whoever may not be asked any more is not asked again."""
        agent = self.many.agent(self.one)
        self.one.open(self.client, fin=True, idempotent=True)
        self.many.settle()
        self.one.registry.revoke("agent:7:t")
        self.many.settle()
        (reason,) = self.client.closed
        assert isinstance(reason, SessionClosed)
        self.assertEqual(reason.code, ErrorCode.UNAUTHENTICATED)
        agent.dialer._running = False

    def test_revoked_meanwhile(self) -> None:
        """Nobody waits for an agent that may not come any more."""
        allowed = {"7"}
        self.one.router.may_connect = allowed.__contains__
        self.one.open(self.client, fin=True)
        other = RecordingReceiver()
        self.one.open(other, fin=True)
        self.many.later(LOOK_AGAIN * 3)
        self.assertEqual((self.client.closed, other.closed), ([], []))
        allowed.clear()
        self.many.later(LOOK_AGAIN + 0.1)
        for receiver in self.client, other:
            (reason,) = receiver.closed
            self.assertIsInstance(reason, AgentUnavailable)
            self.assertIn("was revoked", str(reason))
        self.assertEqual(self.one.router.waiting, 0)
        # Of one that was never heard of, the news may only be late.
        late = RecordingReceiver()
        self.one.open(late, fin=True)
        self.many.later(ROUTING_TIMEOUT - 1)
        self.assertEqual(late.closed, [])
        self.many.agent(self.two)
        self.many.settle()
        self.assertEqual(self.one.router.waiting, 0)

    def test_revoked_soon_after_it_was_added(self) -> None:
        """Those that wait longer than it exists need not wait it out either."""
        allowed: set[str] = set()
        self.one.router.may_connect = allowed.__contains__
        self.one.open(self.client, fin=True)
        self.many.later(LOOK_AGAIN * 2)
        allowed.add("7")
        other = RecordingReceiver()
        self.one.open(other, fin=True)
        allowed.clear()
        self.many.later(LOOK_AGAIN + 0.1)
        for receiver in self.client, other:
            (reason,) = receiver.closed
            self.assertIn("was revoked", str(reason))
        # The same where nobody came between.
        self.client = RecordingReceiver()
        self.one.open(self.client, fin=True)
        self.many.later(LOOK_AGAIN * 2)
        allowed.add("7")
        self.many.later(LOOK_AGAIN * 2)
        self.assertEqual(self.client.closed, [])
        allowed.clear()
        self.many.later(LOOK_AGAIN + 0.1)
        self.assertEqual(len(self.client.closed), 1)

    def test_why_is_said(self) -> None:
        """Who was reached at first, and not again, is not only "not connected"."""
        agent = self.many.agent(self.two)
        self.one.open(self.client, fin=True, idempotent=True)
        self.many.settle()
        agent.dialer._running = False
        self.many.network.cut(self.two.agents_url)
        self.many.later(ROUTING_TIMEOUT + 1)
        (reason,) = self.client.closed
        self.assertIsInstance(reason, AgentUnavailable)
        self.assertIn("agent 7 could not be reached (", str(reason))

    def test_no_agentk_leads(self) -> None:
        """The client learns the reason at once if no instance reaches its cluster."""
        sought = Sought([])
        self.one.router.absences = sought
        agents = [self.many.agent(self.one, instance=one * 16) for one in (b"a", b"b")]
        self.one.open(self.client, fin=True)
        self.many.settle()
        problem = "cannot reach the Kubernetes API at api (refused); check it."
        connections = list(self.one.registry.instances("7"))
        self.refuse(agents, NOT_LEADING)
        # One that reaches its cluster may lead soon.
        self.assertEqual(self.client.closed, [])
        for one in connections:
            changed = attrs.evolve(one.agent, cluster_problem=problem)
            one.agent = one.tunnel.agent = changed
        self.many.later(LOOK_AGAIN)
        self.refuse(agents, NOT_LEADING)
        (reason,) = self.client.closed
        self.assertIsInstance(reason, AgentUnavailable)
        self.assertEqual(
            str(reason),
            "agent name-of-7: no agentk leads, because none has access to its "
            "Kubernetes API: see 'kasctl status'",
        )

    def refuse(self, agents: list[Any], why: str) -> None:
        """Have agents refuse the streams that they have."""
        for _ in agents:
            for agent in agents:
                for stream, *_ in agent.streams:
                    stream.reset(ErrorCode.REFUSED, why)
                agent.streams.clear()
            self.many.settle()


class UserTests(ManyCase):
    """The user of a stream writes, waits, reads slowly, and leaves."""

    def test_writes_before_there_is_a_way(self) -> None:
        stream = self.one.open(self.client)
        producer = Producer()
        stream.registerProducer(producer, True)
        self.assertEqual(producer.told, ["pause"])
        stream.send_headers(b"head")
        stream.write(b"x" * MAX_BUFFERED)
        agent = self.many.agent(self.two)
        self.many.settle()
        self.assertEqual(len(agent.streams[0][1].data), MAX_BUFFERED)
        self.assertEqual(producer.told[-1], "resume")

    def test_writes_more_than_can_wait(self) -> None:
        stream = self.one.open(self.client)
        stream.write(b"x" * (2 * MAX_BUFFERED))
        self.assertEqual(self.client.closed, [])
        stream.write(b"x")
        (reason,) = self.client.closed
        assert isinstance(reason, StreamReset)
        self.assertEqual((reason.code, reason.by_peer), (ErrorCode.MEMORY, False))
        self.assertEqual(self.one.router.waiting, 0)
        late = Producer()
        stream.registerProducer(late, True)
        self.assertEqual(late.told, ["stop"])

    def test_leaves_while_it_waits(self) -> None:
        stream: Any = self.one.open(self.client)
        stream.stopProducing()
        self.assertEqual((len(self.client.closed), self.one.router.waiting), (1, 0))
        agent = self.many.agent(self.two)
        self.assertEqual(agent.streams, [])

    def test_producer_of_a_path_that_breaks(self) -> None:
        """Once nothing can be sent again, the producer ends with its path."""
        agent = self.many.agent(self.two)
        stream = self.one.open(self.client, idempotent=True)
        producer = Producer()
        stream.registerProducer(producer, True)
        self.many.settle()
        stream.write(b"x" * (MAX_BUFFERED + 1))
        self.many.settle()
        self.assertEqual(len(agent.streams[0][1].data), MAX_BUFFERED + 1)
        self.assertNotIn("stop", producer.told)
        self.many.network.cut(self.two.agents_url)
        self.many.settle()
        self.assertEqual(producer.told.count("stop"), 1)
        self.assertEqual((len(self.client.closed), len(agent.streams)), (1, 1))
        # The same for one that comes after the answer.
        agent = self.many.agent(self.three, instance=b"j" * 16)
        self.client = RecordingReceiver()
        stream = self.one.open(self.client, idempotent=True)
        self.many.settle()
        agent.streams[0][0].send_headers(b"head")
        self.many.settle()
        late = Producer()
        stream.registerProducer(late, True)
        self.many.network.cut(self.three.agents_url)
        self.many.settle()
        self.assertEqual(late.told, ["stop"])

    def test_gives_one_piece_at_a_time(self) -> None:
        """A producer that has to be asked, which a path asks by itself."""
        left = [b"a", b"b", b"c"]

        class Pull:
            def resumeProducing(self) -> None:
                if left:
                    stream.write(left.pop(0))
                else:
                    stream.unregisterProducer()

            def stopProducing(self) -> None:
                pass

        stream: Any = self.one.open(self.client)
        stream.registerProducer(Pull(), False)
        agent = self.many.agent(self.two)
        self.many.settle()
        self.assertEqual(agent.streams[0][1].data, b"abc")

    def test_reads_slowly_from_the_beginning(self) -> None:
        stream = self.one.open(self.client)
        stream.pauseProducing()
        agent = self.many.agent(self.two)
        self.many.settle()
        self.answer(agent)
        self.assertEqual(self.client.data, b"")
        stream.resumeProducing()
        self.assert_answered()

    def test_whose_agent_it_is(self) -> None:
        stream = self.one.open(self.client)
        self.assertIsNone(stream.agent)
        self.many.agent(self.two)
        self.many.settle()
        assert stream.agent is not None
        self.assertEqual(stream.agent.agent_id, "7")


class WaitTests(ManyCase):
    """What a stream that waits leaves behind."""

    def test_one_wait_at_a_time(self) -> None:
        """However often it is refused and woken, it has one timer and one callback."""
        agent = self.many.agent(self.one)
        self.one.open(self.client, fin=True, idempotent=True)
        self.many.settle()
        agent.dialer._running = False
        self.many.network.cut(self.one.agents_url)
        router, waiting = self.one.router, self.one.registry.waiting
        timers = len(self.many.clock.getDelayedCalls())
        self.assertEqual((router.waiting, waiting), (1, 1))
        for _ in range(5):
            self.one.registry.wake("7")
        self.assertEqual(self.one.registry.waiting, 1)
        self.assertEqual(len(self.many.clock.getDelayedCalls()), timers)
        self.many.later(ROUTING_TIMEOUT + 1)
        self.assertEqual((router.waiting, self.one.registry.waiting), (0, 0))

    def test_paused_and_resumed_once(self) -> None:
        """A user's producer hears of each change once, whichever path says it."""
        stream: Any = self.one.open(self.client)
        producer = Producer()
        stream.registerProducer(producer, True)
        held = stream._producer
        for told in (held.pauseProducing, held.pauseProducing, held.stopProducing):
            told()
        self.assertEqual(producer.told, ["pause"])
        for told in (held.resumeProducing, held.resumeProducing):
            told()
        self.assertEqual(producer.told, ["pause", "resume"])
        held.pauseProducing()
        self.assertEqual(producer.told, ["pause", "resume", "pause"])

    def test_an_answer_that_comes_at_once(self) -> None:
        """Nobody is woken before he holds what ends his waiting."""
        directory = self.one.directory
        told: list[int] = []

        def routes(directory: Directory, agent_id: str) -> list[Any]:
            directory._waiters.wake(agent_id)
            return []

        self.patch(Directory, "routes", routes)
        give_up = self.one.router.wait("7", lambda: told.append(1))
        self.assertEqual(told, [])
        for one in give_up:
            one()
        waiting = directory._waiters.waiting
        self.assertEqual((waiting, self.one.registry.waiting), ({}, 0))


class ResumptionTests(ManyCase):
    """Attempts to go on that fail themselves."""

    def begin(self, **options: Any) -> Agentk:
        agent = self.many.agent(self.two)
        self.stream = self.one.open(self.client, resumable=True, **options)
        self.many.settle()
        agent.streams[0][0].send_headers(b"head")
        agent.streams[0][0].write(b"one ")
        self.many.settle()
        return agent

    def test_attempts_that_cannot_begin(self) -> None:
        """The session to the gateway is going; another one is found."""
        agent = self.begin()
        tries: list[int] = []
        find, here = Peers.at, self.two.router.only_path("7")
        assert here is not None
        gone = here.tunnel

        def going(peers: Peers, url: str) -> Any:
            peer = find(peers, url)
            if peer is not None and peer.alive and len(tries) < 2:
                tries.append(1)
                return SimpleNamespace(alive=True, tunnel=gone)
            return peer

        self.patch(Peers, "at", going)
        self.many.network.cut(self.two.agents_url)
        with self.assertRaises(SessionClosed):
            gone.open_stream(pb.Resume(), self.client)
        agent.streams[0][0].write(b"two")
        self.many.later(5)
        self.assertEqual((len(tries), self.client.data), (2, b"one two"))

    def test_counted_where_it_goes(self) -> None:
        """A stream that goes on through another kas makes that instance busy."""
        agent = self.begin()
        self.assertEqual(self.one.router.remote, 1)
        agent.at = self.three
        self.two.kill()
        self.assertEqual(self.one.router.remote, 0)
        self.many.later(3)
        self.assertEqual(self.one.router.remote, 1)
        self.stream.reset()
        self.many.settle()
        self.assertEqual(self.one.router.remote, 0)

    def test_instance_without_the_stream(self) -> None:
        """It says so, and nothing waits for the end of the grace."""
        agent = self.begin()
        agent.dialer.keeper._accepted.clear()
        self.many.network.cut(self.two.agents_url)
        self.many.later(3)
        (reason,) = self.client.closed
        assert isinstance(reason, StreamReset)
        self.assertEqual(reason.code, ErrorCode.NOT_RESUMABLE)

    def test_an_answer_to_what_may_be_done_again(self) -> None:
        """Once it began it goes on; it is not done again from the beginning."""
        agent = self.begin(idempotent=True)
        self.many.network.cut(self.two.agents_url)
        agent.streams[0][0].write(b"two")
        self.many.later(3)
        self.assertEqual((self.client.data, len(agent.streams)), (b"one two", 1))

    def test_the_user_leaves_while_there_is_no_path(self) -> None:
        """Nobody looks for one any more, though the instance comes back."""
        agent = self.begin()
        agent.at = self.three
        self.two.kill()
        self.stream.reset()
        self.many.later(GRACE / 2)
        self.assertEqual(len(self.three.registry.instances("7")), 1)
        self.assertEqual(agent.dialer.keeper.resumed, 0)

    def test_two_losses_in_a_row(self) -> None:
        agent = self.begin()
        for word in (b"two ", b"three "):
            self.many.network.cut(self.two.agents_url)
            agent.streams[0][0].write(word)
            self.many.later(3)
        self.assertEqual(self.client.data, b"one two three ")
        self.assertEqual(len(agent.streams), 1)

    def test_the_attempt_itself_breaks(self) -> None:
        """While RESUME is on its way, the path breaks again."""
        agent = self.begin()
        self.many.network.cut(self.two.agents_url)
        for _ in range(40):
            self.many.clock.advance(0.25)
            for url, pipe in tuple(self.many.network.pipes):
                pipe.step()
                if url == self.two.agents_url and len(self.two.registry):
                    pipe.transports[0].loseConnection()
        self.many.later(40)
        agent.streams[0][0].write(b"two")
        self.many.later(1)
        self.assertEqual(self.client.data, b"one two")
        # What the other kas knows of the agent is not wrong because of that.
        self.assertEqual(self.one.router.rerouted, 0)

    def test_the_user_leaves_during_an_attempt(self) -> None:
        """The instance is told as soon as it answers; nothing is left of it."""
        agent = self.begin()
        self.many.network.cut(self.two.agents_url)
        for _ in range(100):
            self.many.clock.advance(0.05)
            for _, pipe in tuple(self.many.network.pipes):
                pipe.step()
            path = self.one.router.keeper
            if path.lost and len(self.two.registry):
                break
        self.stream.reset()
        self.many.later(GRACE + 5)
        self.assertEqual(len(self.client.closed), 1)
        self.assertEqual(len(agent.streams[0][1].closed), 1)
        self.assertEqual(self.one.router.remote, 0)

    def test_agentk_stops(self) -> None:
        """Nobody waits for a process that said goodbye."""
        agent = self.begin()
        stopped = Deferred.fromCoroutine(agent.dialer.stop(1.0))
        self.many.later(3, 0.1)
        self.successResultOf(stopped)
        (reason,) = self.client.closed
        assert isinstance(reason, StreamReset)
        self.assertEqual(reason.code, ErrorCode.SHUTDOWN)

    def test_bytes_before_the_answer(self) -> None:
        """A peer that sends something else than RESUMED ends its own attempt."""
        stream: Any = RecordingReceiver()
        agent = ConnectedAgent("7", "agent-7", b"i", 1, 0.0)
        attempt = Resumption(self.one.router, agent, stream, lambda path: None)
        attempt.acked(3)
        attempt.fin_received()
        for wrong in (attempt.headers_received, attempt.data_received):
            with self.assertRaises(Exception) as caught:
                wrong(b"x")
            self.assertIn("before RESUMED", str(caught.exception))
