"""Whether the API server answers: what the log, the metric and kas are told."""

from __future__ import annotations

from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionRefusedError
from twisted.internet.task import Clock
from twisted.internet.testing import EventLoggingObserver
from twisted.logger import formatEvent, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from agentk.kubernetes.reachability import (
    CHECK_INTERVAL,
    FAILURES,
    RETRY_INTERVAL,
    ClusterReachability,
)
from agentk.kubernetes.version import OtherAnswer
from agentk.metrics import ReachCollector
from agentk.state_reports import SERVICE, StateReports, cluster_report
from tunnel.errors import CallError, Status
from tunnel.pb import reports_pb2
from tunnel.testing import connected

WHERE = "https://kube:6443"


class _Version:
    """What the API server does."""

    def __init__(self) -> None:
        self.problem: Exception | None = None
        self.looks = 0

    async def refresh(self) -> None:
        self.looks += 1
        if self.problem is not None:
            raise self.problem


class _Kas:
    """What kas is told."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.refuses = False

    async def cluster(self, report: Any, call: Any) -> reports_pb2.ClusterReported:
        if self.refuses:
            raise CallError(Status.RESOURCE_EXHAUSTED, "too often")
        self.told.append(report.problem)
        return reports_pb2.ClusterReported()

    async def modules(self, report: Any, call: Any) -> reports_pb2.ModulesReported:
        return reports_pb2.ModulesReported()


class ReachTests(SynchronousTestCase):
    """One line for each change, however often it looks."""

    def setUp(self) -> None:
        self.clock = Clock()
        agentk, there, self.pipe = connected(self.clock)
        self.kas = _Kas()
        there.dispatcher.handle("kas", SERVICE, self.kas)
        self.services: frozenset[str] = frozenset([SERVICE.full_name])
        self.version = _Version()
        version: Any = self.version
        self.reach = ClusterReachability(
            version,
            WHERE,
            "check --kubeconfig (a context)",
            lambda: self.reports.report(),
            self.clock,
        )
        self.reports = StateReports(
            "Cluster",
            lambda: self.reach.problem,
            cluster_report,
            "",
            agentk.open_stream,
            lambda: self.services,
            self.clock,
        )
        self.observer = EventLoggingObserver()
        globalLogPublisher.addObserver(self.observer)
        self.addCleanup(globalLogPublisher.removeObserver, self.observer)

    def start(self) -> None:
        self.successResultOf(Deferred.fromCoroutine(self.reach.start()))
        self.settle()

    def settle(self) -> None:
        for _ in range(4):
            self.clock.advance(0)
            self.pipe.flush()

    def later(self, seconds: float) -> None:
        while seconds > 0:
            self.clock.advance(1)
            self.settle()
            seconds -= 1

    def said(self) -> list[str]:
        lines = [
            formatEvent(one)
            for one in self.observer
            if one["log_level"].name in ("info", "warn", "error")
        ]
        return [line for line in lines if "Kubernetes" in line]

    def metric(self) -> bool:
        registry = CollectorRegistry()
        registry.register(ReachCollector(self.reach))
        return b"agentk_cluster_up 1.0" in generate_latest(registry)

    def test_well(self) -> None:
        """Nothing is said, and nobody is told."""
        self.start()
        self.later(3 * CHECK_INTERVAL)
        self.assertEqual(self.version.looks, 4)
        self.assertEqual((self.said(), self.kas.told), ([], []))
        self.assertTrue(self.metric())

    def test_never_reached(self) -> None:
        """Said at once, and once."""
        self.version.problem = ConnectionRefusedError("Connection refused.")
        self.start()
        expected = (
            "cannot reach the Kubernetes API at https://kube:6443 "
            "(Connection was refused by other side: Connection refused); "
            "check --kubeconfig (a context)"
        )
        self.assertEqual((self.said(), self.kas.told), ([expected], [expected]))
        self.assertFalse(self.metric())
        self.version.problem = CallError(
            Status.DEADLINE_EXCEEDED, "agent -> API server: no response within 2 s"
        )
        self.later(3 * RETRY_INTERVAL)
        self.assertEqual(len(self.said()), 1)
        self.assertIn("(no response within 2 s)", self.reach.problem)
        self.version.problem = None
        self.later(RETRY_INTERVAL)
        self.assertEqual(
            self.said()[1:], ["the Kubernetes API at https://kube:6443 responds"]
        )
        self.assertEqual(self.kas.told[-1], "")
        self.assertTrue(self.metric())

    def test_restarts(self) -> None:
        """An API server that is back soon is no reason to say anything."""
        self.start()
        self.version.problem = ConnectionRefusedError()
        self.later(CHECK_INTERVAL + (FAILURES - 2) * RETRY_INTERVAL)
        self.version.problem = None
        self.later(RETRY_INTERVAL)
        self.assertEqual((self.said(), self.kas.told), ([], []))
        self.version.problem = ConnectionRefusedError()
        self.later(CHECK_INTERVAL + FAILURES * RETRY_INTERVAL)
        self.assertEqual((len(self.said()), len(self.kas.told)), (1, 1))

    def test_answers(self) -> None:
        """What answers is there, whatever it says; two answers are a problem."""
        for code, part in ((403, ""), (404, ""), (401, "credential"), (503, "503")):
            self.setUp()
            self.version.problem = OtherAnswer(code)
            self.start()
            self.assertIn(part, self.reach.problem)
            self.assertEqual(bool(part), bool(self.reach.problem))

    def test_new_tunnel(self) -> None:
        """Each kas is told; one of an older version is not."""
        self.services = frozenset()
        self.version.problem = ConnectionRefusedError()
        self.start()
        self.later(RETRY_INTERVAL)
        self.assertEqual(self.kas.told, [])
        self.services = frozenset([SERVICE.full_name])
        for count in (1, 2):
            self.reports.connected()
            self.settle()
            self.assertEqual(len(self.kas.told), count)

    def test_kas_refuses(self) -> None:
        """It is told with the next look."""
        self.kas.refuses = True
        self.version.problem = ConnectionRefusedError()
        self.start()
        self.kas.refuses = False
        self.later(RETRY_INTERVAL)
        self.assertEqual(len(self.kas.told), 1)

    def test_stop(self) -> None:
        """It looks no more."""
        self.start()
        self.reach.stop()
        self.later(2 * CHECK_INTERVAL)
        self.assertEqual(self.version.looks, 1)
