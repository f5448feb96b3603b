"""Processes of agentk that say that they are the same pod."""

from __future__ import annotations

from typing import Any

import attrs
from twisted.internet.testing import EventLoggingObserver
from twisted.logger import LogLevel, globalLogPublisher

from kas.agents import conflicts
from kas.agents.conflicts import MOST_RETURNS, WITHIN
from tests.kas.world import Agent, RegistryCase, reason
from tunnel.errors import ErrorCode
from tunnel.pb import tunnel_pb2 as pb


class PodTests(RegistryCase):
    """One agentk runs in a pod."""

    def pod(self, instance: bytes, name: str = "agentk-0", after: float = 1.0) -> Agent:
        self.world.clock.advance(after)
        return self.world.dial(
            pb.Hello(
                role="agent",
                credential=b"7",
                instance_id=instance,
                generation=1,
                agent=pb.AgentMeta(pod_namespace="ns", pod_name=name),
            )
        )

    def test_runs_anew(self) -> None:
        """The connection of its earlier run is dead, whatever it looks like."""
        earlier, later = self.pod(b"a"), self.pod(b"b")
        earlier.pipe.flush()
        self.assertEqual(reason(earlier).code, ErrorCode.SUPERSEDED)
        self.assertIs(self.held("7"), later.there)
        self.assertEqual(len(self.registry), 1)

    def test_replace_each_other(self) -> None:
        """Two honest ones with one name: kas says so once, and tells both."""
        observer = EventLoggingObserver()
        globalLogPublisher.addObserver(observer)
        self.addCleanup(globalLogPublisher.removeObserver, observer)

        def warnings() -> list[Any]:
            return [e for e in observer if e["log_level"] is LogLevel.warn]

        texts = []
        before = self.pod(b"a")
        for turn in range(20):
            self.world.clock.advance(4)
            agent = self.pod(b"ba"[turn % 2 :][:1])
            before.pipe.flush()
            texts.append(str(reason(before)))
            self.assertEqual(len(warnings()), turn >= MOST_RETURNS + 2)
            before = agent
        self.assertIn("was restarted", texts[MOST_RETURNS + 1])
        self.assertIn("its own POD_NAME", texts[MOST_RETURNS + 2])
        self.assertIn("POD_NAME", warnings()[0]["log_format"])

    def test_runs_that_fail(self) -> None:
        """A pod that starts again and again is no conflict."""
        for run in range(20):
            before = self.pod(b"%d" % run)
            self.pod(b"%d" % (run + 1))
            before.pipe.flush()
            self.assertIn("was restarted", str(reason(before)))

    def test_seldom(self) -> None:
        """A network that is away for minutes is none, either."""
        before = self.pod(b"a")
        for turn in range(20):
            self.world.clock.advance(WITHIN / MOST_RETURNS)
            agent = self.pod(b"ba"[turn % 2 :][:1])
            before.pipe.flush()
            self.assertIn("was restarted", str(reason(before)))
            before = agent

    def test_conflicts_are_bounded(self) -> None:
        self.patch(conflicts, "MAX_PODS", 3)
        self.setUp()
        for number in range(10):
            self.pod(b"a", f"pod-{number}")
            self.pod(b"b", f"pod-{number}")
        self.assertEqual(len(self.registry._conflicts._pods), 3)
        for turn in range(2 * conflicts.MAX_REPLACED):
            self.pod(b"ab"[turn % 2 :][:1], after=0.1)
        longest = max(len(one.runs) for one in self.registry._conflicts._pods.values())
        self.assertEqual(longest, conflicts.MAX_REPLACED)

    def test_other_pods(self) -> None:
        """Replicas have names of their own, and processes outside of pods none."""
        agents = [self.pod(b"a"), self.pod(b"b", "agentk-1")]
        agents += [self.pod(b"c", ""), self.pod(b"d", "")]
        for agent in agents:
            agent.pipe.flush()
        self.assertEqual([agent.closed for agent in agents], [[], [], [], []])

    def test_at_another_kas(self) -> None:
        """News of a later run end the earlier one; those of an earlier do not."""
        agent = self.pod(b"a")
        held = next(iter(self.registry)).agent
        before = attrs.evolve(
            held, instance_id=b"b", connected_at=held.connected_at - 5
        )
        self.registry.replaced(before)
        agent.pipe.flush()
        self.assertEqual(agent.closed, [])
        self.registry.replaced(attrs.evolve(before, connected_at=held.connected_at + 5))
        agent.pipe.flush()
        self.assertEqual(reason(agent).code, ErrorCode.SUPERSEDED)
