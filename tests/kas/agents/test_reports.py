"""What agents tell kas of themselves."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.testing import EventLoggingObserver
from twisted.logger import formatEvent, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from kas.agents.reports import (
    MAX_MODULES,
    MAX_PROBLEM,
    MIN_INTERVAL,
    AgentReports,
)
from kas.observability.site import Health
from tests.kas.world import Agent, World
from tests.tunnel.hostile import HOSTILE
from tunnel.api import (
    AgentChanged,
    ConnectedAgent,
)
from tunnel.errors import CallError
from tunnel.pb import reports_pb2
from tunnel.rpc.client import ServiceClient

SERVICE = reports_pb2.DESCRIPTOR.services_by_name["AgentReports"]


class ReportTests(SynchronousTestCase):
    """Its cluster, and whether it is reached."""

    def setUp(self) -> None:
        self.world = World()
        AgentReports(self.world.registry, self.world.runtime).serve(
            self.world.dispatcher
        )
        self.changes: list[ConnectedAgent] = []
        self.world.bus.subscribe("tests", AgentChanged, self._note)
        self.agent = self.world.agent()

    def _note(self, event: AgentChanged) -> None:
        self.changes.append(event.agent)

    def report(self, problem: str, agent: Agent | None = None) -> Any:
        """The failure, or None."""
        agent = agent or self.agent
        client = ServiceClient(SERVICE, agent.open_stream, self.world.clock)
        call = client.call("Cluster", reports_pb2.ClusterReport(problem=problem))
        done = Deferred.fromCoroutine(call)
        outcome: list[Any] = []
        done.addCallbacks(lambda _: outcome.append(None), outcome.append)
        for _ in range(4):
            self.world.clock.advance(0)
            agent.pipe.flush()
        return outcome[0].value if outcome[0] is not None else None

    def shown(self) -> list[str]:
        health = Health(self.world.registry, self.world.router, dict)
        return [one["cluster_problem"] for one in health.status()["agents"]]

    def test_announced(self) -> None:
        """An agent asks only who says that it answers."""
        (welcome,) = self.agent.welcomes
        self.assertIn("txkas.tunnel.v1.AgentReports", welcome.services)

    def test_changes(self) -> None:
        """Each is told once: to the log, the status, and the other kas."""
        observer = EventLoggingObserver()
        globalLogPublisher.addObserver(observer)
        self.addCleanup(globalLogPublisher.removeObserver, observer)
        for problem in ("cannot reach it", "cannot reach it", "still cannot", ""):
            self.assertIsNone(self.report(problem))
            self.assertEqual(self.shown(), [problem])
            self.world.clock.advance(MIN_INTERVAL)
        self.assertEqual(
            [formatEvent(one) for one in observer],
            [
                "agentk agent-7 (7): cannot reach it",
                "agentk agent-7 (7) can reach the Kubernetes API again",
            ],
        )
        told = [one.cluster_problem for one in self.changes]
        self.assertEqual(told, ["cannot reach it", "still cannot", ""])

    def test_modules(self) -> None:
        """The status of this kas names those that restart, with a bound."""
        client = ServiceClient(SERVICE, self.agent.open_stream, self.world.clock)
        for names in (["gitops", "echo"], [], [str(number) for number in range(99)]):
            report = reports_pb2.ModulesReport(
                restarting=[
                    reports_pb2.ModuleProblem(module=name, problem="ValueError: \x1b")
                    for name in names
                ]
            )
            done = Deferred.fromCoroutine(client.call("Modules", report))
            for _ in range(4):
                self.world.clock.advance(0)
                self.agent.pipe.flush()
            self.successResultOf(done)
            (connection,) = self.world.registry
            self.assertEqual([*connection.restarting], names[:MAX_MODULES])
            self.assertNotIn("\x1b", str([*connection.restarting.values()]))

    def test_too_often(self) -> None:
        """All kas would have to hear of it."""
        self.assertIsNone(self.report("one"))
        for number in range(50):
            self.assertIsInstance(self.report(f"problem {number}"), CallError)
        self.assertEqual(len(self.changes), 1)

    def test_hostile_texts(self) -> None:
        """One line, and not too long."""
        for problem in (*HOSTILE, "x" * 10_000):
            self.world.clock.advance(MIN_INTERVAL)
            self.assertIsNone(self.report(problem))
            (shown,) = self.shown()
            self.assertTrue(shown.isprintable() and len(shown) <= MAX_PROBLEM)

    def test_a_connection_that_was_replaced(self) -> None:
        """It does not speak for the agent any more."""
        old = self.agent
        self.world.registry._take_out(self.world.registry._by_tunnel[old.there])
        self.assertIsInstance(self.report("nonsense", old), CallError)
        self.assertEqual(self.changes, [])
