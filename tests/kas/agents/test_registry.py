"""The agents of one kas: who replaces whom, and who is chosen."""

from __future__ import annotations

from functools import partial

import attrs

from kas.agents.registry import FRESH, MAX_INSTANCES
from kas.routing.stream import RoutedStream
from tests.kas.world import Agent, RegistryCase, reason
from tunnel.api import (
    AgentConnected,
    AgentDisconnected,
)
from tunnel.errors import ErrorCode, SessionClosed
from tunnel.pb import tunnel_pb2 as pb
from tunnel.session.protocol import CLOSE_TIMEOUT, TunnelProtocol
from tunnel.testing import RecordingReceiver


class GenerationTests(RegistryCase):
    """Connections of one instance."""

    def test_newer_replaces_older(self) -> None:
        """At once, though the older one seems to be alive."""
        older = self.world.agent(generation=1)
        newer = self.world.agent(generation=2)
        self.assertIs(self.held("7"), newer.there)
        self.assertEqual((len(self.registry), self.registry.agents), (1, 1))
        older.pipe.flush()
        self.assertEqual(reason(older).code, ErrorCode.SUPERSEDED)
        self.assertEqual(newer.closed, [])
        self.assertIs(self.held("7"), newer.there)

    def test_path_of_the_older_is_dead(self) -> None:
        """The older one is cut within seconds, though it cannot be told."""
        older = self.world.agent(generation=1)
        older.pipe.cut = True
        newer = self.world.agent(generation=2)
        self.assertIs(self.held("7"), newer.there)
        self.world.clock.advance(CLOSE_TIMEOUT)
        older.pipe.flush()
        self.assertTrue(older.pipe.transports[1].disconnected)

    def test_streams_of_the_older_end(self) -> None:
        """Whoever used it is told, and not left to wait."""
        self.world.agent(generation=1)
        receiver = RecordingReceiver()
        RoutedStream.open(self.world.router, "7", "/x", receiver)
        self.world.agent(generation=2)
        (closed,) = receiver.closed
        assert isinstance(closed, SessionClosed)
        self.assertEqual(closed.code, ErrorCode.SUPERSEDED)

    def test_older_newcomer_is_refused(self) -> None:
        """A connection that was long on its way does not replace a newer one."""
        newer = self.world.agent(generation=2)
        older = self.world.agent(generation=1)
        older.pipe.flush()
        self.assertEqual(reason(older).code, ErrorCode.SUPERSEDED)
        self.assertIs(self.held("7"), newer.there)
        self.assertEqual(newer.closed, [])
        self.assertEqual(len(self.registry), 1)

    def test_same_generation(self) -> None:
        """Two that claim to be the same: the later one, which surely is alive."""
        first = self.world.agent()
        second = self.world.agent()
        first.pipe.flush()
        self.assertEqual(reason(first).code, ErrorCode.SUPERSEDED)
        self.assertIs(self.held("7"), second.there)

    def test_killed_and_restarted(self) -> None:
        """1,000 times without a goodbye: one connection stays, and no timer."""
        agents = []
        for generation in range(1, 1001):
            agents.append(self.world.agent(generation=generation))
            agents[-1].pipe.cut = True
        agents[-1].pipe.cut = False
        self.assertEqual((len(self.registry), self.registry.agents), (1, 1))
        self.assertIs(self.held("7"), agents[-1].there)
        self.world.clock.advance(CLOSE_TIMEOUT)
        for agent in agents:
            agent.pipe.flush()
        self.assertEqual(sum(a.pipe.transports[1].disconnected for a in agents), 999)
        agents[-1].there.end(ErrorCode.SHUTDOWN)
        agents[-1].pipe.cut = False
        agents[-1].pipe.flush()
        self.assertEqual((len(self.registry), self.registry.agents), (0, 0))
        self.assertEqual(self.registry.serving, {})

    def test_instances_are_apart(self) -> None:
        """Several pods of one agent, and several agents."""
        connections = [
            self.world.agent("7", b"i"),
            self.world.agent("7", b"j"),
            self.world.agent("8", b"i"),
        ]
        self.assertEqual((len(self.registry), self.registry.agents), (3, 2))
        self.assertEqual(
            {c.tunnel for c in self.registry}, {c.there for c in connections}
        )

    def test_leaves(self) -> None:
        """Nothing of an agent that is gone stays."""
        agent = self.world.agent()
        agent.tunnel.end(ErrorCode.SHUTDOWN)
        agent.pipe.flush()
        self.assertIsNone(self.world.router.only_path("7"))
        self.assertEqual((len(self.registry), self.registry.agents), (0, 0))
        self.assertIsNone(self.registry.remove(agent.there))
        self.world.clock.advance(60)
        self.assertEqual(self.world.clock.getDelayedCalls(), [])


class OthersTests(RegistryCase):
    """An instance comes: do the others of the agent live?"""

    def later(self, seconds: float, *agents: Agent) -> None:
        # In steps that sum up exactly: a look is late by less than one of them.
        for _ in range(round(seconds * 16)):
            self.world.clock.advance(1 / 16)
            for agent in agents:
                agent.pipe.flush()

    def test_dead(self) -> None:
        """It is avoided within a second, and closed within six."""
        dead = self.world.agent(instance=b"a")
        self.later(FRESH + 1, dead)
        dead.pipe.cut = True
        new = self.world.agent(instance=b"b")
        other = self.world.agent("8", instance=b"c")
        self.later(1, dead, new, other)
        self.assertFalse(dead.there.alive)
        self.assertTrue(new.there.alive and other.there.alive)
        self.assertEqual(len(self.registry), 3)
        self.later(5, dead, new, other)
        self.assertEqual(len(self.registry), 2)
        self.assertIs(self.held("7"), new.there)

    def test_that_came_just_now(self) -> None:
        """It is not asked: where many come at once, each would be for many others."""
        first = self.world.agent(instance=b"a")
        self.later(FRESH - 1, first)
        self.world.agent(instance=b"b")
        self.assertTrue(first.there.liveness.answered)
        self.later(2, first)
        self.world.agent(instance=b"c")
        self.assertFalse(first.there.liveness.answered)

    def test_clock_that_is_behind(self) -> None:
        """By the clock of another kas it came before the one here, which is asked."""
        held = self.world.agent(instance=b"a")
        (here,) = self.registry
        at = here.agent.connected_at - 60
        newer = attrs.evolve(here.agent, instance_id=b"b", connected_at=at)
        self.registry.replaced(newer)
        self.assertFalse(held.there.liveness.answered)

    def test_dead_and_asked_to_leave(self) -> None:
        """What it left may finish, if it lives."""
        older = self.world.agent(generation=1)
        (connection,) = self.registry
        self.registry.send_away(connection, pb.GoAway(deadline_ms=60_000))
        older.there.open_stream(pb.Open(), RecordingReceiver())
        older.pipe.flush()
        older.pipe.cut = True
        newer = self.world.agent(generation=2)
        self.assertEqual(len(self.registry), 2)
        self.later(6, older, newer)
        self.assertEqual(len(self.registry), 1)

    def test_silent_and_asked_to_leave(self) -> None:
        """It does not even hear that it may finish."""
        older = self.world.agent(generation=1)
        (connection,) = self.registry
        self.registry.send_away(connection, pb.GoAway(deadline_ms=60_000))
        older.pipe.cut = True
        receiver = RecordingReceiver()
        older.there.open_stream(pb.Open(), receiver)
        self.later(7, older)
        self.assertFalse(older.there.alive)
        self.world.agent(generation=2)
        self.assertEqual((len(self.registry), len(receiver.closed)), (1, 1))

    def test_news_of_another_kas(self) -> None:
        """They are asked there, too, whatever the clocks of both say."""
        dead, alive = self.world.agent(instance=b"a"), self.world.agent(instance=b"b")
        dead.pipe.cut = True
        self.later(1, dead, alive)
        held = next(iter(self.registry)).agent
        self.registry.replaced(
            attrs.evolve(held, instance_id=b"c", connected_at=held.connected_at - 5)
        )
        self.later(1, dead, alive)
        self.assertFalse(dead.there.alive)
        self.assertTrue(alive.there.alive)

    def test_many_at_once(self) -> None:
        """As many as there may be come back at once: a ping or two for each."""
        pings = []
        ask = TunnelProtocol.send_ping

        def counted(tunnel: TunnelProtocol) -> None:
            pings.append(tunnel)
            ask(tunnel)

        self.patch(TunnelProtocol, "send_ping", counted)
        agents = []
        for number in range(MAX_INSTANCES):
            agents.append(self.world.agent(instance=b"%d" % number))
        for _ in range(20):
            self.world.clock.advance(0.1)
            for agent in agents:
                agent.pipe.flush()
        self.assertTrue(all(agent.there.alive for agent in agents))
        self.assertLessEqual(len(pings), 2 * MAX_INSTANCES)


class InstanceTests(RegistryCase):
    """How many instances one agent may have here."""

    def test_too_many(self) -> None:
        """One token cannot fill the table; those that are in it may come again."""
        names = [b"%d" % number for number in range(MAX_INSTANCES)]
        agents = [self.world.agent(instance=name) for name in names]
        one_more = self.world.agent(instance=b"x")
        self.assertEqual(reason(one_more).code, ErrorCode.FLOOD)
        self.world.agent(instance=names[0], generation=2)
        agents[0].pipe.flush()
        self.assertEqual(reason(agents[0]).code, ErrorCode.SUPERSEDED)
        self.assertEqual(len(self.registry), MAX_INSTANCES)
        self.assertEqual(self.world.agent("8").closed, [])

    def test_too_many_leave(self) -> None:
        """Saying goodbye again and again fills it neither; room comes with each end."""
        agents = []
        for generation in range(1, MAX_INSTANCES + 1):
            agents.append(agent := self.world.agent(generation=generation))
            self.held("7").open_stream(pb.Open(method="/x"), RecordingReceiver())
            agent.pipe.flush()
            agent.tunnel.go_away(pb.GoAway(deadline_ms=1000))
            agent.pipe.flush()
        self.assertEqual(len(self.registry), MAX_INSTANCES)
        self.assertEqual(reason(self.world.agent()).code, ErrorCode.FLOOD)
        self.assertEqual(self.world.agent("8").closed, [])
        for gone in agents[:2]:
            gone.tunnel.end(ErrorCode.SHUTDOWN)
            gone.pipe.flush()
        back = self.world.agent(generation=MAX_INSTANCES + 1)
        self.assertEqual((back.closed, self.held("7")), ([], back.there))


class ExtraTests(RegistryCase):
    """Extra tunnels of agents whose connection is elsewhere."""

    def extra(
        self, instance: bytes = b"i", generation: int = 2, pod: str = ""
    ) -> Agent:
        return self.world.agent("7", instance, generation, role="agent-extra", pod=pod)

    def test_is_a_path_and_nothing_else(self) -> None:
        """Nobody counts it as an agent that is here, or hears of it."""
        heard: list[object] = []
        self.world.bus.subscribe("tests", AgentConnected, heard.append)
        self.world.bus.subscribe("tests", AgentDisconnected, heard.append)
        extra = self.extra()
        self.assertIs(self.held("7"), extra.there)
        self.assertEqual((len(self.registry), self.registry.agents), (0, 0))
        self.assertEqual((list(self.registry), self.registry.extra), ([], 1))
        (connection,) = self.registry.tunnels()
        self.assertIs(self.registry.instance("7", b"i"), connection)
        self.assertIsNone(self.registry.connection(connection.agent))
        extra.tunnel.end(ErrorCode.SHUTDOWN)
        extra.pipe.flush()
        self.assertEqual(
            (self.registry.extra, self.world.router.only_path("7")), (0, None)
        )
        self.assertEqual(heard, [])

    def test_leaves(self) -> None:
        """What runs may finish, and nobody hears of it."""
        heard: list[object] = []
        self.world.bus.subscribe("tests", AgentDisconnected, heard.append)
        extra = self.extra()
        extra.there.open_stream(pb.Open(method="/x"), RecordingReceiver())
        extra.pipe.flush()
        extra.tunnel.go_away(pb.GoAway(deadline_ms=1000))
        extra.pipe.flush()
        self.assertIsNone(self.world.router.only_path("7"))
        self.assertEqual((self.registry.extra, extra.closed), (0, []))
        self.assertEqual(len(list(self.registry.tunnels())), 1)
        ((stream, _, _),) = extra.streams
        stream.reset(ErrorCode.CANCELLED, "done")
        extra.pipe.flush()
        self.world.clock.advance(0)
        extra.pipe.flush()
        self.assertEqual((self.registry.extra, len(extra.closed)), (0, 1))
        self.assertEqual(heard, [])

    def test_connection_is_here(self) -> None:
        """It would be no shorter path."""
        agent = self.world.agent()
        extra = self.extra()
        extra.pipe.flush()
        self.assertEqual(reason(extra).code, ErrorCode.SUPERSEDED)
        self.assertEqual((agent.closed, self.registry.extra), ([], 0))
        self.assertEqual(self.world.acceptor.refusals["already-here"], 1)

    def test_one_for_each_instance(self) -> None:
        """A second one is refused while the first is heard of, and else replaces it."""
        first, other = self.extra(), self.extra(b"j")
        second = self.extra(generation=3)
        self.assertEqual(reason(second).code, ErrorCode.SUPERSEDED)
        self.assertEqual((first.closed, self.registry.extra), ([], 2))
        first.pipe.cut = True
        while first.there.alive:
            self.world.clock.advance(0.1)
            other.pipe.flush()
        third = self.extra(generation=4)
        self.assertEqual((third.closed, self.registry.extra), ([], 2))
        self.assertEqual(
            {one.tunnel for one in self.registry.tunnels()}, {third.there, other.there}
        )

    def test_connection_comes(self) -> None:
        """Both are there until the agent ends one: no request is lost."""
        extra = self.extra()
        agent = self.world.agent(generation=3)
        self.assertEqual((extra.closed, agent.closed), ([], []))
        self.assertEqual((len(self.registry), self.registry.extra), (1, 1))
        agent.tunnel.end(ErrorCode.SHUTDOWN)
        agent.pipe.flush()
        self.assertIs(self.held("7"), extra.there)

    def test_revoked(self) -> None:
        """It ends with the credential that it was accepted for."""
        extra = self.extra()
        self.registry.revoke("agent:7:t")
        extra.pipe.flush()
        self.assertEqual(reason(extra).code, ErrorCode.UNAUTHENTICATED)
        self.assertEqual(self.registry.extra, 0)

    def test_restarted(self) -> None:
        """A later run in the same pod is connected elsewhere: this one is dead."""
        extra = self.extra(pod="agentk-0")
        (held,) = self.registry.tunnels()
        self.world.clock.advance(1)
        self.registry.replaced(
            attrs.evolve(held.agent, instance_id=b"new", connected_at=1.0)
        )
        extra.pipe.flush()
        self.assertEqual(reason(extra).code, ErrorCode.SUPERSEDED)

    def test_many(self) -> None:
        """They count as instances do: one token cannot fill the table."""
        self.extra(b"a")
        for number in range(1, MAX_INSTANCES):
            self.world.agent(instance=b"%d" % number)
        self.assertEqual(reason(self.extra(b"c")).code, ErrorCode.FLOOD)


class FindTests(RegistryCase):
    """Which instance a stream goes to."""

    def test_least_busy(self) -> None:
        """The one with the fewest streams."""
        agents = [self.world.agent(instance=i) for i in (b"a", b"b", b"c")]
        for _ in range(30):
            tunnel = self.held("7")
            assert tunnel is not None
            tunnel.open_stream(pb.Open(method="/x"), RecordingReceiver())
        for agent in agents:
            agent.pipe.flush()
            self.assertEqual(len(agent.streams), 10)

    def test_silent_ones_are_not_chosen(self) -> None:
        """A cable was pulled: nobody is sent there, long before it counts as dead."""
        silent = self.world.agent(instance=b"a")
        other = self.world.agent(instance=b"b")
        self.assertIs(self.held("7"), silent.there)
        silent.pipe.cut = True
        for _ in range(25):
            self.world.clock.advance(1)
            other.pipe.flush()
        self.assertEqual(silent.closed, [])
        self.assertIs(self.held("7"), other.there)
        self.assertEqual(len(self.registry), 2)

    def test_all_are_silent(self) -> None:
        """Then there is nobody, until one speaks again."""
        agent = self.world.agent()
        agent.pipe.cut = True
        self.world.clock.pump([1] * 25)
        self.assertIsNone(self.world.router.only_path("7"))
        agent.pipe.cut = False
        agent.pipe.flush()
        self.world.clock.advance(2)
        self.assertIs(self.held("7"), agent.there)

    def test_those_that_leave_are_not_chosen(self) -> None:
        """An agent that drains gets nothing new, and keeps what it has."""
        agent = self.world.agent(instance=b"a")
        self.held("7").open_stream(pb.Open(method="/x"), RecordingReceiver())
        agent.pipe.flush()
        agent.tunnel.go_away(pb.GoAway(code=ErrorCode.SHUTDOWN, deadline_ms=5000))
        agent.pipe.flush()
        self.assertIsNone(self.world.router.only_path("7"))
        self.assertEqual(len(self.registry), 1)

    def test_unknown(self) -> None:
        """An agent that never came."""
        self.assertIsNone(self.world.router.only_path("99"))


class WaitTests(RegistryCase):
    """Waiting for an agent."""

    def test_woken_once(self) -> None:
        """Everyone who waits for it, and nobody else."""
        woken: list[str] = []
        for agent_id in ("7", "7", "8"):
            self.registry.wait(agent_id, partial(woken.append, agent_id))
        self.assertEqual(self.registry.waiting, 3)
        self.world.agent("7")
        self.world.agent("7", b"j")
        self.assertEqual(woken, ["7", "7"])
        self.assertEqual(self.registry.waiting, 1)

    def test_gives_up(self) -> None:
        """Nothing is kept of those who do not wait any longer."""
        woken: list[int] = []
        give_up = [self.registry.wait("7", partial(woken.append, n)) for n in range(3)]
        give_up[1]()
        give_up[1]()
        self.assertEqual(self.registry.waiting, 2)
        self.world.agent("7")
        self.assertEqual(woken, [0, 2])
        give_up[0]()
        self.assertEqual(
            (self.registry.waiting, self.registry._waiters.waiting), (0, {})
        )

    def test_one_fails(self) -> None:
        """What a waiter does with the news harms neither the others nor the agent."""
        woken: list[int] = []

        def fail() -> None:
            raise ZeroDivisionError

        self.registry.wait("7", fail)
        self.registry.wait("7", lambda: woken.append(1))
        agent = self.world.agent("7")
        self.assertEqual(woken, [1])
        self.assertEqual(agent.closed, [])
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)


class RevokeTests(RegistryCase):
    """A credential ends, and with it what it opened."""

    def test_revoke(self) -> None:
        """Every tunnel of that credential, in the same moment; no other."""
        revoked = [self.world.agent("7", instance) for instance in (b"a", b"b")]
        other = self.world.agent("8")
        receiver = RecordingReceiver()
        RoutedStream.open(self.world.router, "7", "/x", receiver)
        self.registry.revoke("agent:7:t")
        self.assertIsNone(self.world.router.only_path("7"))
        self.assertEqual(len(receiver.closed), 1)
        for agent in (*revoked, other):
            agent.pipe.flush()
        for agent in revoked:
            self.assertEqual(reason(agent).code, ErrorCode.UNAUTHENTICATED)
        self.assertEqual(other.closed, [])
        self.assertEqual(len(self.registry), 1)
