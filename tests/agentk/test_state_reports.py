"""Reports to kas of modules that failed."""

from __future__ import annotations

from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from agentk.state_reports import SERVICE, StateReports, modules_report
from tunnel.pb import reports_pb2
from tunnel.testing import ModulePair


class _Kas:
    """Notes what it is told, like that part of kas."""

    configuration = dict

    def __init__(self, api: Any) -> None:
        self.told: list[dict[str, str]] = []
        api.calls.handle(SERVICE, self)

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def cluster(self, report: Any, call: Any) -> reports_pb2.ClusterReported:
        return reports_pb2.ClusterReported()

    async def modules(self, report: Any, call: Any) -> reports_pb2.ModulesReported:
        self.told.append({one.module: one.problem for one in report.restarting})
        return reports_pb2.ModulesReported()


class StateReportsTests(SynchronousTestCase):
    """What kas hears, and when."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.pair = ModulePair(self.clock)
        self.kas = self.pair.server_half(_Kas)
        self.pair.start()
        self.addCleanup(self.pair.stop)
        self.problems: dict[str, str] = {}
        self.services = frozenset([SERVICE.full_name])
        self.reports: StateReports[dict[str, str]] = StateReports(
            "Modules",
            lambda: dict(self.problems),
            modules_report,
            {},
            self.pair.agent.open_stream,
            lambda: self.services,
            self.clock,
        )

    def test_changes(self) -> None:
        """Each change once, and everything again over a new tunnel."""
        self.reports.report()
        self.pair.settle()
        self.assertEqual(self.kas.told, [])
        self.problems["gitops"] = "ValueError: odd"
        for _ in range(2):
            self.reports.report()
            self.pair.settle()
        self.assertEqual(self.kas.told, [{"gitops": "ValueError: odd"}])
        self.reports.connected()
        self.pair.settle()
        self.assertEqual(len(self.kas.told), 2)
        self.problems.clear()
        self.reports.report()
        self.pair.settle()
        self.assertEqual(self.kas.told[2:], [{}])

    def test_while_it_is_told(self) -> None:
        """What changes meanwhile follows."""
        self.problems["one"] = "ValueError"
        self.reports.report()
        self.problems["two"] = "OSError"
        self.reports.report()
        self.pair.settle()
        self.assertEqual([len(one) for one in self.kas.told], [1, 2])

    def test_an_older_kas(self) -> None:
        """A kas that does not name the service is not asked."""
        self.services = frozenset()
        self.problems["one"] = "ValueError"
        self.reports.report()
        self.pair.settle()
        self.assertEqual(self.kas.told, [])
