"""Prunes: what kas's audit log has of them, and what happens while kas is away."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock, deferLater

from modules.gitops.agent.apply.pruner import ANSWER_SECONDS
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
from tunnel.api import GitPushed
from tunnel.errors import CallError, Status


class SlowDeletes:
    """
    Client whose deletes take effect long before their responses arrive.

    :ivar fails: whether the response is an error; the object is deleted anyway.
    :ivar deletes: whether the object is deleted.
    :ivar slow_gets: names of objects that are never read.
    """

    def __init__(self, client: Any, clock: Clock) -> None:
        self._client, self._clock = client, clock
        self.seconds, self.fails, self.deletes = 2.0, False, True
        self.slow_gets: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def get(self, resource: Any, name: str, *given: Any) -> Any:
        if name in self.slow_gets:
            await Deferred()
        return await self._client.get(resource, name, *given)

    async def delete(self, *given: Any, **more: Any) -> None:
        if self.deletes:
            await self._client.delete(*given, **more)
        await deferLater(self._clock, self.seconds)
        if self.fails:
            raise CallError(Status.UNAVAILABLE, "the connection was lost")


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

    def slowly(self) -> SlowDeletes:
        """Delete m001, and await the response."""
        self.begin(3)
        reconciler = self.agent.projects["apps"].passes.reconciler
        reconciler.client = slow = SlowDeletes(reconciler.client, self.clock)
        return slow

    def deleting(self) -> None:
        self.apps.commit({"a.yaml": text(*config_maps(0, 2))})
        self.server._api.events.publish(GitPushed("apps"))
        for _ in range(100):
            if self.live("m001") is None:
                return
            self.passes(0.5)
        self.fail("m001 was not deleted")

    def test_a_delete_that_a_newer_event_interrupts(self) -> None:
        """The API server has deleted the object, so the audit log names it."""
        self.slowly()
        self.deleting()
        self.pair.run(self.agent.projects["apps"].operations.suspend())
        (one,) = self.prunes()
        self.assertEqual(one["objects"], "ConfigMap default/m001")

    def test_a_delete_during_a_change_of_leader(self) -> None:
        self.slowly()
        self.deleting()
        self.leave()
        self.passes(5)
        self.lead()
        (one,) = self.prunes()
        self.assertEqual((one["objects"], one["count"]), ("ConfigMap default/m001", 1))

    def test_a_delete_that_outlasts_its_pass(self) -> None:
        """It has the user who approved it, although an order ended the approval."""
        self.begin(3, prune_limits={"count": 1})
        project = self.agent.projects["apps"]
        reconciler = project.passes.reconciler
        reconciler.client = slow = SlowDeletes(reconciler.client, self.clock)
        self.commit(0)
        reconciler.prunes = lambda _: slow.slow_gets.add("m002")
        approving = project.operations.approve(project.status.release, "alice")
        self.pair.run(approving)
        self.passes(0.5)
        self.assertIsNone(self.live("m001"))
        self.assertEqual(self.agent._pruned._waiting, {})
        self.pair.run(project.operations.undo(""))
        self.passes(0.5)
        # The next pass has begun.
        self.assertEqual(project.desired.orders.approval.commit, "")
        self.assertEqual(self.agent._pruned._waiting, {})
        slow.slow_gets.clear()
        (one,) = self.prunes()
        self.assertEqual(one["objects"], "ConfigMap default/m001")
        self.assertEqual(one["approved_by"], "alice")

    def test_an_interrupted_delete_without_a_response(self) -> None:
        """The next pass begins after a time limit."""
        slow = self.slowly()
        slow.seconds = 1000.0
        self.deleting()
        project = self.agent.projects["apps"]
        project.passes.interrupt()
        self.passes(ANSWER_SECONDS - 1)
        self.assertIs(project.passes.is_busy, True)
        self.passes(5)
        self.assertIs(project.passes.is_busy, False)

    def test_a_delete_whose_response_is_lost(self) -> None:
        """The object is gone, so this was the delete."""
        slow = self.slowly()
        slow.fails = True
        self.deleting()
        (one,) = self.prunes()
        self.assertEqual(one["objects"], "ConfigMap default/m001")
        self.assertEqual(self.agent.projects["apps"].passes.report.failed, [])

    def test_a_delete_that_fails(self) -> None:
        """An object that is still there was not deleted."""
        slow = self.slowly()
        slow.fails, slow.deletes = True, False
        self.commit(0, 2)
        self.assertIsNotNone(self.live("m001"))
        self.assertEqual(self.prunes(), [])
        (failed,) = self.agent.projects["apps"].passes.report.failed
        self.assertEqual(failed.key.name, "m001")
        slow.fails, slow.deletes = False, True
        self.passes(60)
        self.assertEqual(len(self.prunes()), 1)

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
