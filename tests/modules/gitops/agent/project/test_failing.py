"""Projects that fail: what kas is told of them, and for how long it shows that."""

from __future__ import annotations

from typing import Any

from modules.gitops.agent.project.failing import MAX_FAILING, REPORT_PAUSE
from modules.gitops.server import reported
from modules.gitops.server.reported import FAILING_SECONDS, REPORTS
from modules.gitops.wire import reports_pb2
from tests.modules.gitops.agent.project.test_reconcile import config_maps, object_
from tests.modules.gitops.halves import HalvesTestCase, text
from tunnel.errors import CallError, Status
from tunnel.testing.ends import AGENT

BAD = object_("bad", "Unknown", "x.io/v1")


class _Kas:
    """Counts calls, and may be of a version that does not know them."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.calls = 0
        self.knows = True

    async def call(self, *given: Any, **more: Any) -> Any:
        self.calls += 1
        if not self.knows:
            raise CallError(Status.UNIMPLEMENTED, "no such method")
        return await self._client.call(*given, **more)


class FailingTests(HalvesTestCase):
    """From agentk to kas."""

    @property
    def shown(self) -> str:
        """What ``kasctl status`` and ``doctor`` say of the agent."""
        problems: dict[str, str] = self.server._api.agents.problems
        return problems.get(AGENT.agent_id, "")

    def setUp(self) -> None:
        super().setUp()
        self.kas = self.agent._failing._kas = _Kas(self.agent._failing._kas)

    def begin(self, *objects: object) -> None:
        self.apps.commit({"a.yaml": text(*objects)})
        self.configure({"id": "apps"})
        self.passes(REPORT_PAUSE)

    def test_while_it_fails(self) -> None:
        """It is told again and again, and once that it is over."""
        self.begin(*config_maps(1))
        self.assertEqual((self.shown, self.kas.calls), ("", 0))
        self.apps.commit({"a.yaml": text(BAD)})
        self.pushed()
        self.passes(2 * FAILING_SECONDS)
        self.assertIn("project apps fails: a.yaml:1: ", self.shown)
        self.assertGreater(self.kas.calls, 2)
        self.apps.commit({"a.yaml": text(*config_maps(1))})
        self.pushed()
        self.passes(2 * REPORT_PAUSE)
        self.assertEqual(self.shown, "")
        before = self.kas.calls
        self.passes(3 * REPORT_PAUSE)
        self.assertEqual(self.kas.calls, before)

    def test_an_agent_that_is_away(self) -> None:
        """kas shows nothing any more that is not reported again."""
        self.begin(BAD)
        self.assertIn("project apps fails", self.shown)
        self.leave()
        self.passes(FAILING_SECONDS)
        self.assertEqual(self.shown, "")
        self.lead()
        self.passes(REPORT_PAUSE + 5)
        self.assertIn("project apps fails", self.shown)

    def test_a_kas_of_before(self) -> None:
        """It does not know the call, and nothing else stops for that."""
        self.kas.knows = False
        self.begin(BAD)
        self.passes(3 * REPORT_PAUSE)
        self.assertGreater(self.kas.calls, 2)
        self.assertEqual(self.shown, "")
        self.apps.commit({"a.yaml": text(*config_maps(1))})
        self.pushed()
        self.assertIsNotNone(self.live("m001"))

    def report(self, count: int, problem: str = "x") -> None:
        one = reports_pb2.FailingProject(project="a\x1b", problem=problem)
        request = reports_pb2.ReportFailingRequest(projects=[one] * count, left_out=3)
        self.pair.run(
            self.agent._api.calls.client(REPORTS).call("ReportFailing", request)
        )

    def test_limits(self) -> None:
        """kas takes so many projects, in so many reports, and shows clean texts."""
        self.report(MAX_FAILING)
        self.assertNotIn("\x1b", self.shown)
        self.assertTrue(self.shown.endswith("; and 3 more"), self.shown)
        for count, problem in ((MAX_FAILING + 1, ""), (1, "x" * reported.MAX_BYTES)):
            with self.assertRaises(CallError) as caught:
                self.report(count, problem)
            self.assertIs(caught.exception.status, Status.INVALID_ARGUMENT)
        self.report(1, "y" * 2 * reported.MAX_PROBLEM)
        self.assertLess(len(self.shown), 2 * reported.MAX_PROBLEM)
        with self.assertRaises(CallError) as caught:
            for _ in range(reported.REPORTS_OF_ONE):
                self.report(1)
        self.assertIs(caught.exception.status, Status.RESOURCE_EXHAUSTED)
