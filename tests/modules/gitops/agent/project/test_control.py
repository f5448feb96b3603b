"""What people ask of an agent's projects, from the external API to agentk."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import attrs
from twisted.internet.defer import fail

from modules.gitops.agent.inventory.orders import Orders
from modules.gitops.agent.objects.differences import ChangedField
from modules.gitops.agent.objects.manifests import ObjectKey, Origin
from modules.gitops.agent.project import control
from modules.gitops.agent.project.control import MAX_OBJECTS, MAX_PROBLEM, _previewed
from modules.gitops.agent.project.journal import MAX_LINES
from modules.gitops.agent.project.preview import ObjectPreview
from modules.gitops.agent.project.status import ProjectStatus
from modules.gitops.server.control_server import CONTROL
from modules.gitops.wire import control_pb2 as pb
from modules.gitops.wire.effect import Effect
from tests.modules.gitops.agent.project.test_reconcile import config_maps, object_
from tests.modules.gitops.halves import HalvesTestCase, text
from tunnel.api import AuditStage, ConfigurationRefused, EnforcedEvents
from tunnel.errors import CallError, Status
from tunnel.rpc.messages import MAX_MESSAGE


class ControlTests(HalvesTestCase):
    """`GitopsControl`."""

    def ask(self, method: str, request: Any) -> Any:
        return self.pair.run(self.pair.external(CONTROL).call(method, request))

    def refused(self, method: str, request: Any) -> CallError:
        with self.assertRaises(CallError) as caught:
            self.ask(method, request)
        error: CallError = caught.exception
        return error

    def status(self, **given: Any) -> Any:
        request = pb.GetStatusRequest(agent="agent-1", **given)
        return self.ask("GetStatus", request).projects

    def test_before_and_after_a_commit(self) -> None:
        self.assertEqual(list(self.status()), [])
        self.configure({"id": "apps"})
        (waiting,) = self.status()
        self.assertEqual(waiting.state, pb.ProjectStatus.STATE_WAITING)
        self.assertTrue(waiting.problems)
        commit = self.apps.commit({"a.yaml": text(*config_maps(1, 2))})
        self.passes(300)
        (found,) = self.status(objects=True)
        self.assertEqual(found.state, pb.ProjectStatus.STATE_CURRENT)
        self.assertEqual((found.id, found.repository), ("apps", "apps"))
        self.assertEqual((found.commit, found.next_commit), (commit, ""))
        self.assertEqual(dict(found.objects_by_outcome), {"created": 2})
        self.assertEqual(found.objects[0].object.name, "m001")
        self.assertEqual(found.objects[0].place, "a.yaml:1")
        self.assertGreater(found.worked_at.seconds, 0)
        (plain,) = self.status(project="apps")
        self.assertEqual(list(plain.objects), [])

    def test_enforced_orders(self) -> None:
        """No order reaches the agent before its event is in the audit log."""
        audit: Any = self.server._api.audit
        audit.enforced = frozenset([EnforcedEvents.ADMINISTRATION])
        self.apps.commit({"a.yaml": text(*config_maps(1, 2))})
        self.configure({"id": "apps"})
        self.passes(1)
        audit.events.clear()
        request = pb.SuspendRequest(agent="agent-1", project="apps")
        full = CallError(Status.UNAVAILABLE, "the audit log cannot be written")
        audit.commits.append(fail(full))
        error = self.refused("Suspend", request)
        self.assertIn("the audit log cannot be written", error.message)
        self.assertNotEqual(self.status()[0].state, pb.ProjectStatus.STATE_SUSPENDED)
        audit.events.clear()
        self.ask("Suspend", request)
        begun, ended = audit.events
        self.assertEqual(audit.committed[-1], begun)
        self.assertEqual((begun.stage, begun.outcome), (AuditStage.BEGUN, ""))
        self.assertEqual((ended.stage, ended.outcome), (AuditStage.ENDED, "OK"))
        self.assertTrue(begun.id)
        self.assertEqual((ended.id, ended.details), (begun.id, begun.details))
        # A read is not an order.
        self.refused("GetKept", pb.GetKeptRequest(agent="other", project="apps"))
        self.assertEqual(audit.events[-1].stage, AuditStage.CHANGED)

    def test_drift(self) -> None:
        self.apps.commit({"a.yaml": text(*config_maps(1, 2))})
        self.configure({"id": "apps", "drift": {"mode": "report"}})
        self.passes(1)
        request = pb.GetDriftRequest(agent="agent-1")
        self.assertEqual(list(self.ask("GetDrift", request).drifts), [])
        live = self.live("m001")
        self.cluster.objects.put({**live, "data": {"n": "theirs"}})
        self.passes(1)
        (drift,) = self.ask("GetDrift", request).drifts
        self.assertEqual((drift.project, drift.object.name), ("apps", "m001"))
        self.assertEqual([one.drifted for one in self.status()], [1])
        self.assertEqual(drift.kind, pb.ObjectDrift.KIND_CHANGED)
        self.assertEqual(drift.state, pb.ObjectDrift.STATE_REPORTED)
        (field,) = drift.fields
        self.assertEqual(
            (field.path, field.wanted, field.live), ("/data/n", '"1"', '"theirs"')
        )
        (writer,) = drift.writers
        self.assertEqual((writer.manager, writer.operation), ("test", "Update"))
        self.assertLessEqual(writer.time.seconds, self.clock.seconds())
        self.assertEqual(drift.place, "a.yaml:1")
        self.cluster.objects.put({**live, "data": {"n": "1"}})
        self.passes(1)
        self.assertEqual(list(self.ask("GetDrift", request).drifts), [])
        request.ended = True
        (ended,) = self.ask("GetDrift", request).drifts
        self.assertEqual(ended.state, pb.ObjectDrift.STATE_ENDED)

    def test_what_is_wrong(self) -> None:
        self.apps.commit({"a.yaml": "kind: ["})
        self.configure({"id": "apps"})
        (found,) = self.status()
        self.assertEqual(found.state, pb.ProjectStatus.STATE_FAILED)
        self.assertIn("a.yaml:", found.problems[0])

    def test_no_more_objects_than_fit(self) -> None:
        self.apps.commit({"a.yaml": text(*config_maps(*range(3)))})
        self.configure({"id": "apps"})
        self.patch(control, "MAX_OBJECTS", 2)
        (found,) = self.status(objects=True)
        self.assertEqual(len(found.objects), 2)
        self.patch(control, "MAX_BYTES", 100)
        (found,) = self.status(objects=True)
        self.assertEqual([one.object.name for one in found.objects], ["m000"])

    def test_what_matters_has_room(self) -> None:
        """What failed is among the objects, however many there are besides."""
        self.cluster.objects.put(object_("m009", metadata={"namespace": "default"}))
        self.apps.commit({"a.yaml": text(*config_maps(*range(10)))})
        self.configure({"id": "apps"})
        self.patch(control, "MAX_OBJECTS", 3)
        (found,) = self.status(objects=True)
        names = [one.object.name for one in found.objects]
        self.assertEqual(names, ["m000", "m001", "m009"])
        preview = self.ask("Preview", pb.PreviewRequest(agent="1", project="apps"))
        self.assertEqual(
            [(one.object.name, one.effect) for one in preview.objects],
            [("m000", "unchanged"), ("m001", "unchanged"), ("m009", "refused")],
        )

    def test_fields_that_have_no_room(self) -> None:
        """They are counted, and the objects are all there."""
        self.apps.commit({"a.yaml": text(*config_maps(*range(10)))})
        self.configure({"id": "apps"})
        changed = [object_(f"m{n:03}", data={"n": "new"}) for n in range(10)]
        commit = self.apps.commit({"a.yaml": text(*changed)})
        self.patch(control, "MAX_FIELD_BYTES", 200)
        request = pb.PreviewRequest(agent="1", project="apps")
        request.ref.commit = commit
        objects = self.ask("Preview", request).objects
        self.assertEqual(len(objects), 10)
        self.assertEqual({len(one.fields) + one.more_fields for one in objects}, {1})
        self.assertEqual(len(objects[0].fields), 1)
        self.assertEqual(len(objects[9].fields), 0)

    def test_as_much_as_there_can_be(self) -> None:
        """It is less than a message of a call may have."""
        key = ObjectKey("g" * 253, "K" * 63, "n" * 63, "o" * 253)
        field = ChangedField("/" + "k" * 250, "a" * 200, "b" * 200)
        found = [
            ObjectPreview(
                key, Effect.CHANGE, "r" * 300, Origin("f" * 200), (field,) * 20
            )
        ]
        objects = control._weighed(
            control._Room(),
            found * MAX_OBJECTS,
            lambda one: one.effect,
            partial(_previewed, "apps"),
        )
        self.assertGreater(len(objects), 1000)
        answer = pb.PreviewResponse(problems=["p" * MAX_PROBLEM] * 20, objects=objects)
        self.assertLess(answer.ByteSize(), MAX_MESSAGE)

    def test_much_that_is_wrong(self) -> None:
        """With all of many projects: each has a line, and the answer its room."""
        lines = ["\N{SNOWMAN}" * MAX_PROBLEM * 2] * (MAX_LINES + 1)
        self.patch(ProjectStatus, "problems", property(lambda _: lines))
        pinned = Orders(pinned="p" * 100_000)
        self.configure(*({"id": f"p{number}"} for number in range(100)))
        for one in self.agent.projects.values():
            one.desired.orders = pinned
        found = self.status(objects=True)
        self.assertEqual(len(found), 100)
        self.assertEqual(len(found[0].problems), MAX_LINES)
        self.assertEqual({len(one.problems) for one in found[20:]}, {1})
        self.assertLess(sum(one.ByteSize() for one in found), control.SPARE_BYTES)

    def test_approval(self) -> None:
        self.apps.commit({"a.yaml": text(*config_maps(*range(10)))})
        self.configure({"id": "apps"})
        request = pb.ApproveRequest(agent="1", project="apps", release="x")
        self.assertIn("nothing is held", self.refused("Approve", request).message)
        self.apps.commit({"a.yaml": text(*config_maps(1))})
        self.pushed()
        (held,) = self.status()
        self.assertEqual(held.state, pb.ProjectStatus.STATE_HELD)
        error = self.refused("Approve", request)
        self.assertIs(error.status, Status.FAILED_PRECONDITION)
        self.assertIn("other objects are held", error.message)
        self.assertIn("see 'kasctl gitops status agent-1 apps'", error.message)
        self.assertIsNotNone(self.live("m002"))
        request.release = held.release
        self.ask("Approve", request)
        self.passes(5)
        self.assertIsNone(self.live("m002"))
        (found,) = self.status()
        self.assertEqual(found.state, pb.ProjectStatus.STATE_CURRENT)

    def test_the_number_of_executions(self) -> None:
        """Each that changes the inventory has its own, which its signatures contain."""
        self.apps.commit({"a.yaml": text(*config_maps(1))})
        self.configure({"id": "apps"})
        operations = self.agent.projects["apps"].operations

        def number() -> tuple[str, str]:
            store = operations._stores.orders(operations._first_snapshot())
            orders: Orders = self.pair.run(store.read())
            return orders.last.number, orders.last.done

        for files, expected in (
            (config_maps(1), "2"),
            (config_maps(1, 2), "3"),
            (config_maps(1), "4"),
            (config_maps(1, 3), "5"),
        ):
            self.apps.commit({"a.yaml": text(*files)})
            self.pushed()
            self.passes(60)
            self.assertEqual(number(), (expected, expected))

    def test_undo_ends_an_approval(self) -> None:
        """Deletes need another approval, also if the undone commit is never applied."""
        first = self.apps.commit({"a.yaml": text(*config_maps(1, 2, 3, 4))})
        self.configure({"id": "apps"})
        stuck = self.live("m004")
        stuck["metadata"]["finalizers"] = ["x.io/never"]
        self.cluster.objects.put(stuck)
        operations = self.agent.projects["apps"].operations

        def approval() -> str:
            store = operations._stores.orders(operations._first_snapshot())
            orders: Orders = self.pair.run(store.read())
            return orders.approval.commit

        for end in (pb.UndoRequest, pb.ResumeRequest):
            last = self.apps.commit({"a.yaml": ""})
            self.pushed()
            (status,) = self.status()
            request = pb.ApproveRequest(agent="1", project="apps")
            request.release = status.release
            self.ask("Approve", request)
            self.assertEqual(approval(), last)
            if end is pb.UndoRequest:
                self.ask("Undo", end(agent="1", project="apps", commit=first))
            else:
                store = operations._stores.orders(operations._first_snapshot())
                pinned = partial(attrs.evolve, pinned=last)
                self.pair.run(store.change(pinned))
                self.ask("Resume", end(agent="1", project="apps"))
            self.assertEqual(approval(), "")
            self.ask("Resume", pb.ResumeRequest(agent="1", project="apps"))
            self.apps.commit({"a.yaml": text(*config_maps(1, 2, 3, 4))})
            self.pushed()
            self.passes(60)

    def test_a_client_that_always_changes_the_inventory(self) -> None:
        """The status says so."""
        self.apps.commit({"a.yaml": text(*config_maps(1))})
        self.configure({"id": "apps"})
        name = f"inventory-{self.agent.projects['apps'].desired.inventory}"
        take = self.cluster.take

        def touching(request: Any) -> Any:
            found = take(request)
            if request.method == "GET" and request.path.endswith(name):
                live: Any = copy.deepcopy(self.live(name))
                live["metadata"]["annotations"]["x"] = str(len(self.cluster.requests))
                self.cluster.objects.put(live)
            return found

        self.cluster.take = touching  # type: ignore[method-assign]
        self.apps.commit({"a.yaml": text(*config_maps(1, 2))})
        self.pushed()
        self.passes(600)
        self.assertIsNone(self.live("m002"))
        (status,) = self.status()
        self.assertIn("another client changes the inventory", status.problems[0])
        self.cluster.take = take  # type: ignore[method-assign]
        self.passes(600)
        self.assertIsNotNone(self.live("m002"))
        self.assertEqual(list(self.status()[0].problems), [])

    def test_while_what_was_approved_goes(self) -> None:
        """Status asks no more, and says how many are gone and what holds the others."""
        self.apps.commit({"a.yaml": text(*config_maps(1, 2, 3, 4))})
        self.configure({"id": "apps"})
        stuck = self.live("m004")
        stuck["metadata"]["finalizers"] = ["x.io/never"]
        self.cluster.objects.put(stuck)
        self.apps.commit({"a.yaml": ""})
        self.pushed()
        (status,) = self.ask("GetStatus", pb.GetStatusRequest(agent="1")).projects
        self.assertEqual(status.state, pb.ProjectStatus.STATE_HELD)
        request = pb.ApproveRequest(agent="1", project="apps", release=status.release)
        self.ask("Approve", request)
        self.passes(10)
        (status,) = self.ask("GetStatus", pb.GetStatusRequest(agent="1")).projects
        self.assertEqual(status.state, pb.ProjectStatus.STATE_WORKING)
        self.assertEqual(status.release, "")
        how_far, why = status.problems
        self.assertEqual(how_far, "approved, 3 of 4 gone")
        self.assertTrue(why.startswith("ConfigMap default/m004 still exists: "))
        self.assertIn("x.io/never", why)
        self.cluster.objects.remove("v1", "ConfigMap", "m004", "default")
        self.passes(10)
        (status,) = self.ask("GetStatus", pb.GetStatusRequest(agent="1")).projects
        self.assertEqual(status.state, pb.ProjectStatus.STATE_CURRENT)
        self.assertEqual(list(status.problems), [])

    def test_a_repair_of_another_object(self) -> None:
        """The error has the form that the command takes, and names what is near."""
        self.apps.commit({"a.yaml": text(object_("one"))})
        self.configure({"id": "apps"})
        self.passes(5)
        for name, kind, said in (
            ("one", "configmap", "configmap/one; it has ConfigMap/default/one"),
            ("two", "ConfigMap", "ConfigMap/two: name it KIND[.GROUP]/[NAMESPACE/]"),
        ):
            named = pb.ObjectReference(kind=kind, name=name)
            request = pb.RepairRequest(agent="1", project="apps", objects=[named])
            error = self.refused("Repair", request)
            self.assertIs(error.status, Status.NOT_FOUND)
            self.assertIn(f"the project has no object {said}", error.message)

    def test_a_configuration_that_is_refused(self) -> None:
        """What is in effect is not what people see in Git."""
        self.configure({"id": "apps"})
        publish = self.pair.agent.bus.publish
        publish(ConfigurationRefused(("commit 1: config.yaml:2:3: " + "x" * 9999,)))
        request = pb.GetStatusRequest(agent="1")
        (problem,) = self.ask("GetStatus", request).configuration_problems
        self.assertTrue(problem.startswith("commit 1: config.yaml:2:3: x"))
        self.assertEqual(len(problem), MAX_PROBLEM)
        publish(ConfigurationRefused(()))
        answer = self.ask("GetStatus", request)
        self.assertEqual(list(answer.configuration_problems), [])

    def test_who_cannot_be_asked(self) -> None:
        self.configure({"id": "apps"})
        error = self.refused("GetStatus", pb.GetStatusRequest(agent="other"))
        self.assertIn("connected: agent-1", error.message)
        self.assertIs(error.status, Status.NOT_FOUND)
        error = self.refused("GetStatus", pb.GetStatusRequest())
        self.assertIs(error.status, Status.INVALID_ARGUMENT)
        request = pb.GetStatusRequest(agent="1", project="none")
        error = self.refused("GetStatus", request)
        self.assertIs(error.status, Status.NOT_FOUND)
        self.assertIn("known: apps", error.message)

    def test_an_agentk_that_does_not_lead(self) -> None:
        """It refuses the call, so that kas tries the next one."""
        self.leave()
        error = self.refused("GetStatus", pb.GetStatusRequest(agent="1"))
        self.assertIs(error.status, Status.UNAVAILABLE)
        self.assertIn("does not lead", error.message)

    def test_an_agent_without_gitops(self) -> None:
        self.pair.agent.dispatcher.withdraw("GitopsAgent")
        error = self.refused("GetStatus", pb.GetStatusRequest(agent="1"))
        self.assertIs(error.status, Status.FAILED_PRECONDITION)
        self.assertIn("has no GitOps", error.message)
