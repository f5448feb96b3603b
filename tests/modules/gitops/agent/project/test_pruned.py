"""Prunes: what kas's audit log has of them, and what happens while kas is away."""

from __future__ import annotations

from typing import Any

import pytest

from modules.gitops.agent.objects.manifests import ObjectKey
from modules.gitops.agent.project import pruned
from modules.gitops.agent.project.passes import UNKNOWN
from modules.gitops.agent.project.pruned import (
    MAX_NAMED,
    MAX_TOLD,
    REPORT_PAUSE,
    TRY_MOST,
)
from modules.gitops.server import reported
from modules.gitops.server.control_server import CONTROL
from modules.gitops.server.reported import MAX_PRUNES, REPORTS
from modules.gitops.wire import control_pb2 as pb
from modules.gitops.wire import reports_pb2
from tests.modules.gitops.agent.project.test_reconcile import config_maps
from tests.modules.gitops.halves import HalvesTestCase, text
from tunnel.errors import CallError, Status


class PrunedTests(HalvesTestCase):
    """From agentk to kas's audit log."""

    def begin(self, count: int, **settings: Any) -> None:
        self.apps.commit({"a.yaml": text(*config_maps(*range(count)))})
        self.configure({"id": "apps", **settings})
        self.passes(5)

    def prunes(self) -> list[Any]:
        self.passes(2 * REPORT_PAUSE)
        return [
            dict(one.details)
            for one in self.server._api.audit.events
            if (one.action, one.outcome) == ("gitops.prune", "OK")
        ]

    def commit(self, *numbers: int) -> str:
        commit = self.apps.commit({"a.yaml": text(*config_maps(*numbers))})
        self.pushed()
        self.passes(5)
        return commit

    def test_one_that_agentk_makes_by_itself(self) -> None:
        self.begin(3)
        self.assertEqual(self.prunes(), [])
        commit = self.commit(0)
        expected = {
            "agent": "agent-1",
            "agent_id": "1",
            "project": "apps",
            "commit": commit,
            "objects": "ConfigMap default/m001, ConfigMap default/m002",
            "operator": "agentk",
            "count": 2,
        }
        self.assertEqual(self.prunes(), [expected])
        # Once.
        self.passes(10 * REPORT_PAUSE)
        self.assertEqual(self.prunes(), [expected])

    def test_one_that_was_approved(self) -> None:
        """It has the user who ran kasctl, whatever the request says."""
        self.begin(3, prune_limits={"count": 1})
        for numbers, sent, by in (
            ((0,), {"kasctl-operator": "alice"}, "alice"),
            ((5, 6, 7), {}, UNKNOWN),
        ):
            self.commit(*numbers)
            if by == UNKNOWN:
                self.commit(5)
            project = self.agent.projects["apps"]
            request = pb.ApproveRequest(
                agent="1",
                project="apps",
                release=project.status.release,
                operator="mallory",
            )
            client = self.pair.external(CONTROL)
            self.pair.run(client.call("Approve", request, metadata=sent))
            self.passes(10)
            last = self.prunes()[-1]
            self.assertEqual((last["approved_by"], last["count"]), (by, 2))
            # An agent may report any name.
            self.assertEqual(last["operator"], "agentk")

    def test_while_kas_is_away(self) -> None:
        """What was deleted meanwhile is told once it is back, and no more than that."""
        kas, down = self.agent._pruned._kas, [Status.UNAVAILABLE]

        class Away:
            async def call(self, *given: Any, **more: Any) -> Any:
                if down:
                    raise CallError(down[0], "away")
                return await kas.call(*given, **more)

        self.agent._pruned._kas = Away()
        self.begin(4)
        self.commit(0, 1)
        self.assertEqual(self.prunes(), [])
        down.clear()
        self.passes(TRY_MOST)
        (one,) = self.prunes()
        self.assertEqual(one["count"], 2)
        # A kas of before does not know the call.
        down.append(Status.UNIMPLEMENTED)
        self.commit(0)
        self.assertEqual(len(self.prunes()), 1)
        self.assertEqual(self.agent._pruned._waiting, {})

    def test_limits_of_what_waits(self) -> None:
        """Of what there is no room for the number is told."""
        self.patch(pruned, "MAX_WAITING", MAX_TOLD + 1)
        key = ObjectKey("", "ConfigMap", "default", "x")
        for number in range(MAX_TOLD + 4):
            self.agent._pruned.add("apps", f"c{number:02}", key, "")
        for _ in range(MAX_NAMED):
            self.agent._pruned.add("apps", "c00", key, "")
        found = self.prunes()
        self.assertEqual(len(found), MAX_TOLD + 2)
        self.assertEqual(found[0]["count"], MAX_NAMED + 1)
        self.assertEqual(found[0]["objects"].count("default/x"), MAX_NAMED)
        (rest,) = (one for one in found if "project" not in one)
        self.assertEqual(rest["count"], 3)

    def test_limits_of_kas(self) -> None:
        """It takes so many, and cuts texts."""
        client = self.agent._api.calls.client(REPORTS)
        one = reports_pb2.Prune(project="x" * 5000, count=1)
        for prunes in ([one] * (MAX_PRUNES + 1), [one] * MAX_PRUNES):
            request = reports_pb2.ReportPrunedRequest(prunes=prunes)
            if len(prunes) == MAX_PRUNES:
                self.pair.run(client.call("ReportPruned", request))
                continue
            with pytest.raises(CallError) as caught:
                self.pair.run(client.call("ReportPruned", request))
            self.assertIs(caught.value.status, Status.INVALID_ARGUMENT)
        found = self.prunes()
        self.assertEqual(len(found), MAX_PRUNES)
        self.assertEqual(len(found[0]["project"]), reported.MAX_ID)

    def test_an_agent_with_too_many_prunes(self) -> None:
        """kas refuses whole reports of this agent until the period is over."""
        client = self.agent._api.calls.client(REPORTS)
        one = reports_pb2.Prune(project="x", count=1)
        request = reports_pb2.ReportPrunedRequest(prunes=[one] * MAX_PRUNES)
        reports = reported.PRUNES_OF_ONE // MAX_PRUNES
        for _ in range(reports):
            self.pair.run(client.call("ReportPruned", request))
        with pytest.raises(CallError) as caught:
            self.pair.run(client.call("ReportPruned", request))
        self.assertIs(caught.value.status, Status.RESOURCE_EXHAUSTED)
        self.assertEqual(len(self.prunes()), reports * MAX_PRUNES)
        self.passes(reported.PRUNES_SECONDS)
        self.pair.run(client.call("ReportPruned", request))
        self.assertEqual(len(self.prunes()), (reports + 1) * MAX_PRUNES)
