"""What others change: seen when it happens, told, and repaired within limits."""

from __future__ import annotations

import json
from typing import Any
from unittest.mock import Mock

import pytest
from twisted.logger import capturedLogs

from modules.gitops.agent.drift import drift as module
from modules.gitops.agent.drift.drift import Drift, DriftKind, DriftState
from modules.gitops.agent.drift.watches import RETRY_FIRST, RETRY_MOST, _Watch
from modules.gitops.agent.objects import differences
from modules.gitops.agent.objects.differences import (
    changed_fields,
    owned_fields,
    writers_of,
)
from modules.gitops.agent.objects.manifests import ObjectKey
from modules.gitops.agent.objects.owner_annotations import OWNER
from modules.gitops.agent.project.passes import AGAIN, WATCHED_AGAIN
from tests.modules.gitops.agent.project.test_reconcile import config_maps, object_
from tests.modules.gitops.halves import HalvesTestCase, text
from tunnel.api import KubernetesResource, KubernetesWrite
from tunnel.testing import FakeRequest

VERBS = frozenset("get list watch create update patch delete".split())


class DriftTestCase(HalvesTestCase):
    """One project, and a person with kubectl."""

    def begin(self, *objects: Any, **settings: Any) -> None:
        self.apps.commit({"a.yaml": text(*objects)})
        self.configure({"id": "apps", **settings})
        # Until the watches have begun.
        self.passes(1)

    def edit(self, name: str, kind: str = "ConfigMap", **fields: Any) -> None:
        """As a person does, and none of it through agentk."""
        api_version = "apps/v1" if kind == "Deployment" else "v1"
        live = self.cluster.objects.find(api_version, kind, name, "default")
        assert live is not None
        self.cluster.objects.put({**live, **fields})
        self.passes(1)

    def remove(self, name: str) -> None:
        self.cluster.objects.remove("v1", "ConfigMap", name, "default")
        self.passes(1)

    @property
    def present(self) -> list[Drift]:
        return list(self.agent.projects["apps"].drifts.present.values())

    @property
    def lately(self) -> list[Drift]:
        return list(self.agent.projects["apps"].drifts.lately)

    def asked(self, since: int, *methods: str) -> list[str]:
        """Requests about objects, watches and lists of agentk's left out."""
        return [
            f"{one.method} {one.path}"
            for one in self.cluster.requests[since:]
            if one.method in methods and "limit=" not in one.path
            and "watch=" not in one.path
        ]  # fmt: skip


class RepairTests(DriftTestCase):
    """As it is by default."""

    def test_a_field(self) -> None:
        self.begin(object_("a", data={"x": "1", "y": "1"}))
        self.edit("a", data={"x": "2", "y": "1", "theirs": "1"})
        self.assertEqual(self.live("a")["data"], {"x": "1", "y": "1", "theirs": "1"})
        (line,) = self.said("it is repaired")
        self.assertIn("ConfigMap default/a changed by test (Update)", line)
        self.assertIn(": /data/x; it is repaired", line)
        self.assertEqual(len(self.said("it was repaired")), 1)
        self.assertEqual(self.present, [])
        (drift,) = self.lately
        self.assertEqual(drift.state, DriftState.REPAIRED)
        self.assertEqual(drift.fields[0].wanted, '"1"')
        self.assertEqual(drift.fields[0].live, '"2"')

    def test_an_object_that_is_gone(self) -> None:
        """It alone is applied again."""
        self.begin(*config_maps(*range(10)))
        before = len(self.cluster.requests)
        self.remove("m003")
        self.assertEqual(self.live("m003")["data"], {"n": "3"})
        self.assertEqual(len(self.asked(before, "PATCH")), 1)
        self.assertEqual(len(self.said("m003 deleted; it is repaired")), 1)
        # It is known by its new uid: once more.
        self.remove("m003")
        self.assertIsNotNone(self.live("m003"))

    def test_nothing_is_pruned_by_a_repair(self) -> None:
        self.begin(*config_maps(1, 2, 3), prune=False)
        self.apps.commit({"a.yaml": text(*config_maps(1, 2))})
        self.pushed()
        self.remove("m001")
        self.assertIsNotNone(self.live("m001"))
        self.assertIsNotNone(self.live("m003"))

    def test_what_is_not_ours_costs_nothing(self) -> None:
        """Status, and fields that Git does not name."""
        self.begin(
            object_("d", "Deployment", "apps/v1", spec={"template": {"a": "1"}}),
            object_("a", data={"x": "1"}),
        )
        before = len(self.cluster.requests)
        self.edit("d", "Deployment", status={"replicas": 3})
        self.edit("d", "Deployment", spec={"template": {"a": "1"}, "replicas": 7})
        self.edit("a", data={"x": "1", "theirs": "1"})
        self.passes(AGAIN)
        self.assertEqual(self.asked(before, "GET", "PATCH", "PUT", "POST"), [])
        self.assertEqual(self.present, [])
        live = self.cluster.objects.find("apps/v1", "Deployment", "d", "default")
        assert live is not None
        self.assertEqual(live["spec"]["replicas"], 7)

    def test_one_that_is_looked_at_anyway(self) -> None:
        """What its fields were made of is not asked again with each event."""
        asked: list[int] = []
        owned = owned_fields

        def counted(metadata: Any, manager: str) -> str:
            asked.append(1)
            return owned(metadata, manager)

        self.begin(object_("a", data={"x": "1"}))
        self.patch(module, "owned_fields", counted)
        live = self.live("a")
        for number in range(20):
            self.cluster.objects.put({**live, "data": {"x": f"other {number}"}})
        self.passes(0)
        self.assertEqual(len(asked), 1)

    def test_at_rest(self) -> None:
        """Where all kinds are watched a full pass is rare."""
        self.begin(*config_maps(*range(20)))
        before = len(self.cluster.requests)
        self.passes(WATCHED_AGAIN - 60)
        self.assertEqual(self.asked(before, "GET", "PATCH"), [])
        self.passes(120)
        # One list says that none has changed since it was applied; the others read the
        # orders and the inventory.
        self.assertLess(len(self.asked(before, "GET")), 5)
        self.assertEqual(self.asked(before, "PATCH"), [])

    def test_a_kind_that_cannot_be_watched(self) -> None:
        """All of it is applied again every five minutes, as before."""
        self.cluster.objects.streams = False
        denied = {"kind": "Status", "message": "no", "code": 403}
        path = "/api/v1/configmaps?limit=500"
        self.cluster.answer("GET", path, denied, 403)
        self.begin(*config_maps(1))
        self.assertEqual(len(self.said("cannot be watched for drift")), 1)
        delay = self.agent.projects["apps"].status.drift_delay
        self.assertIn(
            "changes to ConfigMap by other clients are detected every 5 minutes", delay
        )
        self.assertTrue(delay.endswith(": no"), delay)
        self.remove("m001")
        self.assertIsNone(self.live("m001"))
        self.passes(AGAIN)
        self.assertIsNotNone(self.live("m001"))

    def test_how_late_it_is_seen(self) -> None:
        """Of a kind that is watched at once; status says of which it is not."""
        self.begin(*config_maps(1))
        project = self.agent.projects["apps"]
        self.assertEqual(project.status.drift_delay, "")
        kinds = {("", f"K{number}"): "forbidden" for number in range(7)}
        self.patch(project.drifts._watches, "problems", lambda follower: kinds)
        self.assertIn("K0, K1, K2, K3, K4 and 2 more kinds", project.status.drift_delay)
        for mode, said in (("report", "every 10 minutes"), ("off", "")):
            project.status._drift_mode = mode
            self.assertIn(said, project.status.drift_delay)
        self.assertEqual(project.status.drift_delay, "")

    def test_a_version_that_goes(self) -> None:
        """The one that Git names now is watched."""
        old = KubernetesResource("x.io", "v1beta1", "Thing", "things", True, VERBS)
        new = KubernetesResource("x.io", "v1", "Thing", "things", True, VERBS)
        objects = self.cluster.objects
        objects.add_kind(old)
        objects.add_kind(new)
        self.begin(object_("t", "Thing", "x.io/v1beta1", spec={"a": "1"}))
        self.apps.commit({"a.yaml": text(object_("t", "Thing", "x.io/v1", spec={}))})
        self.pushed()
        del objects._kinds[old.api_version, old.name]
        self.cluster.cut()
        self.passes(RETRY_MOST)
        self.assertTrue(self.agent.projects["apps"].drifts.is_watched)

    def test_while_the_watch_was_away(self) -> None:
        """Its version is forgotten, all is listed again: what went is missed."""
        self.begin(*config_maps(1, 2))
        self.cluster.refuses = True
        self.cluster.cut()
        self.passes(1)
        self.cluster.objects.remove("v1", "ConfigMap", "m001", "default")
        live = self.live("m002")
        self.cluster.objects.put({**live, "data": {"n": "other"}})
        self.cluster.objects.forget()
        self.cluster.refuses = False
        self.passes(RETRY_FIRST + 60)
        self.assertIsNotNone(self.live("m001"))
        self.assertEqual(self.live("m002")["data"], {"n": "2"})

    def test_two_projects_share_watches(self) -> None:
        self.other.commit({"a.yaml": text(*config_maps(5))})
        self.apps.commit({"a.yaml": text(*config_maps(1))})
        self.configure({"id": "apps"}, {"id": "other"})
        self.passes(2)
        self.assertEqual(len(self.cluster.objects.watchers), 1)
        for name in ("m001", "m005"):
            self.remove(name)
            self.assertIsNotNone(self.live(name))
        self.configure({"id": "other"})
        self.remove("m001")
        self.assertIsNone(self.live("m001"))
        self.remove("m005")
        self.assertIsNotNone(self.live("m005"))
        self.configure()
        self.passes(1)
        self.assertEqual(len(self.cluster.objects.watchers), 0)

    def test_an_event_that_nobody_can_read(self) -> None:
        """It is logged, and drift is seen again after a moment."""
        self.begin(object_("a", data={"x": "1"}))
        bad = {
            "kind": "PartialObjectMetadata",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": {"resourceVersion": "9999"},
        }
        line = json.dumps({"type": "MODIFIED", "object": bad}).encode() + b"\n"
        for watcher in tuple(self.cluster.objects.watchers):
            assert watcher._send is not None
            watcher._send(line)
        self.passes(1)
        self.assertEqual(len(self.said("watching ConfigMap failed")), 1)
        self.flushLoggedErrors(KeyError)
        self.passes(400)
        self.edit("a", data={"x": "2"})
        self.passes(7)
        self.assertEqual(self.live("a")["data"], {"x": "1"})

    def test_objects_nested_deep(self) -> None:
        """One that cannot be read, whatever the depth, fails alone."""
        self.begin(object_("a", data={"x": "1"}), object_("b", data={"x": "1"}))
        take, depth = self.cluster.take, 0

        def nested(request: FakeRequest) -> Any:
            answer = take(request)
            if "/configmaps/b" not in request.path or not isinstance(answer, tuple):
                return answer
            status, body = answer
            deep = b', "deep":' + b'{"a":' * depth + b"{}" + b"}" * depth + b"}"
            return status, body[:-1] + deep

        self.cluster.take = nested  # type: ignore[method-assign]
        for depth in (150, 400, 900, 200_000):
            self.edit("b", data={"x": f"{depth}"})
            self.edit("a", data={"x": "2"})
            self.assertEqual(self.live("a")["data"], {"x": "1"})
            self.passes(module.REPAIRS_SECONDS)
        self.assertEqual(self.flushLoggedErrors(), [])

    def test_events_nested_deep(self) -> None:
        """Fields of managers are, too."""
        self.begin(object_("a", data={"x": "1"}))
        for number, depth in enumerate((400, *range(800, 1000, 10), 200_000)):
            line = (
                b'{"type":"MODIFIED","object":{"metadata":{"name":"a","namespace":'
                b'"default","resourceVersion":"%d","managedFields":[{"manager":'
                b'"agentk","operation":"Apply","fieldsV1":%b{}%b}]}}}\n'
            ) % (9000 + number, b'{"f:a":' * depth, b"}" * depth)
            (watcher,) = self.cluster.objects.watchers
            assert watcher._send is not None
            watcher._send(line)
            self.passes(1)
        self.assertEqual(self.flushLoggedErrors(), [])
        self.edit("a", data={"x": "2"})
        self.passes(60)
        self.assertEqual(self.live("a")["data"], {"x": "1"})

    def test_annotations_of_a_secret_that_are_all_gone(self) -> None:
        """With what kubectl wrote there, which is the Secret."""
        key = ObjectKey("", "Secret", "a", "s")
        name = "kubectl.kubernetes.io/last-applied-configuration"
        wanted = {"metadata": {"annotations": {name: '{"data":{"k":"b2xk"}}'}}}
        fields, _ = changed_fields(key, wanted, {"metadata": {}})
        self.assertEqual([field.wanted for _, field in fields], ["***"])

    def test_what_is_named_of_one_object(self) -> None:
        """Keys and writers have no limit in the API server, and have one here."""
        key = ObjectKey("x.io", "Thing", "a", "t")
        live: dict[str, Any] = {"metadata": {}, "spec": {"a" * 100_000: 1}}
        ((path, field),), _ = changed_fields(key, {"metadata": {}}, live)
        self.assertEqual(len(field.path), differences.MAX_PATH)
        live["metadata"]["managedFields"] = [
            {"manager": f"m{number}", "operation": "Apply", "fieldsV1": {"f:spec": {}}}
            for number in range(100)
        ]
        writers = writers_of(live, [path], "agentk")
        self.assertEqual(len(writers), differences.MAX_WRITERS)

    def test_a_key_that_forges_lines(self) -> None:
        """What others call a field writes nothing else into the log."""
        kind = KubernetesResource("x.io", "v1", "Thing", "things", True, VERBS)
        self.cluster.objects.add_kind(kind)
        name = "a\n2026-01-01 agentk: all is well \x1b[2J"
        self.begin(object_("t", "Thing", "x.io/v1", spec={name: {"a": "1"}}))
        live = self.cluster.objects.find("x.io/v1", "Thing", "t", "default")
        assert live is not None
        live["spec"][name] = {"a": "2"}
        self.cluster.objects.put(live)
        self.passes(1)
        (line,) = self.said("it is repaired")
        self.assertIn("/spec/a?2026-01-01 agentk: all is well ?[2J/a", line)

    def test_a_list_that_is_one_field(self) -> None:
        """Another program appends to it each minute: one wins, and both are named."""
        mine = [{"key": "a"}]
        spec = {"tolerations": mine}
        self.begin(object_("d", "Deployment", "apps/v1", spec=spec))
        path = "/apis/apps/v1/namespaces/default/deployments/d"
        before = len(self.cluster.requests)
        for minute in range(30):
            live = self.cluster.objects.find("apps/v1", "Deployment", "d", "default")
            assert live is not None
            live["spec"]["tolerations"] = [*mine, {"key": f"b{minute}"}]
            self.cluster.objects.put(live)
            self.passes(60)
        applied = [
            one
            for one in self.asked(before, "PATCH")
            if path in one and "dryRun" not in one
        ]
        self.assertEqual(len(applied), 5)
        self.assertIn(": /spec/tolerations; it is repaired", self.said("repaired")[0])
        (line,) = self.said("keep changing it: repaired 5 times")
        self.assertIn("agentk and test", line)

    def test_two_engines_fight(self) -> None:
        """It is told apart and left; all others are repaired."""
        self.begin(object_("a", data={"x": "1"}), object_("b", data={"x": "1"}))
        for _ in range(20):
            self.edit("a", data={"x": "theirs"})
            self.passes(15)
        self.assertEqual(self.live("a")["data"], {"x": "theirs"})
        self.assertEqual(len(self.said("it was repaired")), module.REPAIRS)
        (line,) = self.said("its repair is paused for an hour")
        self.assertIn("agentk and test keep changing it: repaired 5 times", line)
        self.edit("b", data={"x": "2"})
        self.assertEqual(self.live("b")["data"], {"x": "1"})

    def test_who_deleted_it(self) -> None:
        """One through kas, and then another, beside it."""
        self.begin(object_("a", data={"x": "1"}))
        write = KubernetesWrite(
            *("user:alice", "delete", "", "configmaps", "default", "a", "", "kubectl"),
            *(self.clock.seconds(), 0.1),
        )
        self.passes(1)
        self.agent._writes.add(write)
        self.remove("a")
        self.remove("a")
        self.assertIsNotNone(self.live("a"))
        found = [one.credentials for one in self.lately]
        self.assertEqual(found, [("user:alice",), ()])

    def test_repairs_that_fail(self) -> None:
        """For however long: it is no fight, and is repaired once that can be."""
        self.begin(object_("a", data={"x": "1"}))
        path = "/api/v1/namespaces/default/configmaps/a?fieldManager=agentk&force=true"
        answer = {"kind": "Status", "message": "hook down", "code": 500}
        self.cluster.answer("PATCH", path, answer, 500)
        self.edit("a", data={"x": "2"})
        self.passes(module.REPAIR_AGAIN * (module.REPAIRS + 2))
        (drift,) = self.present
        self.assertEqual(drift.state, DriftState.FAILED)
        del self.cluster._answers["PATCH", path]
        self.passes(module.REPAIR_AGAIN * 2)
        self.assertEqual(self.live("a")["data"], {"x": "1"})

    def test_a_whole_namespace(self) -> None:
        """More than a minute's repairs take more than a minute."""
        self.patch(module, "ALL_REPAIRS", 5)
        self.begin(*config_maps(*range(12)))
        for number in range(12):
            self.cluster.objects.remove("v1", "ConfigMap", f"m{number:03}", "default")
        self.passes(2)
        there = [self.live(f"m{number:03}") is not None for number in range(12)]
        self.assertEqual(sum(there), 5)
        self.passes(130)
        for number in range(12):
            self.assertIsNotNone(self.live(f"m{number:03}"))

    def test_one_that_people_took_over(self) -> None:
        """Without our mark it is not ours, whatever Git says."""
        self.begin(object_("a", data={"x": "1"}))
        live = self.live("a")
        self.assertEqual(live["metadata"]["annotations"].pop(OWNER)[:2], "1-")
        self.edit("a", metadata=live["metadata"], data={"x": "2"})
        self.assertEqual(self.live("a")["data"], {"x": "2"})
        (drift,) = self.present
        self.assertEqual(drift.state, DriftState.FAILED)
        self.assertIn("of no inventory", drift.reason)

    def test_secrets_are_masked(self) -> None:
        self.begin(object_("s", "Secret", data={"key": "b2xk"}))
        live = self.cluster.objects.find("v1", "Secret", "s", "default")
        assert live is not None
        self.cluster.objects.put({**live, "data": {"key": "bmV3"}})
        self.passes(1)
        (drift,) = self.lately
        self.assertEqual(drift.fields[0].path, "/data/key")
        self.assertEqual((drift.fields[0].wanted, drift.fields[0].live), ("***", "***"))
        for value in ("b2xk", "bmV3"):
            self.assertNotIn(value, repr(drift))
            self.assertEqual(self.said(value), [])

    def test_a_job_that_ends_by_itself(self) -> None:
        job = object_("j", "Job", "batch/v1", spec={"ttlSecondsAfterFinished": 5})
        self.begin(job)
        self.cluster.objects.remove("batch/v1", "Job", "j", "default")
        self.passes(10)
        found = self.cluster.objects.find("batch/v1", "Job", "j", "default")
        self.assertIsNone(found)
        self.assertEqual(self.present, [])

    def test_what_left_git_is_no_drift(self) -> None:
        self.begin(*config_maps(1, 2))
        self.apps.commit({"a.yaml": text(*config_maps(1))})
        self.pushed()
        self.passes(5)
        self.assertIsNone(self.live("m002"))
        self.assertEqual(self.said("drift"), [])

    def test_the_cluster_away(self) -> None:
        """A repair that cannot be made is made later."""
        self.begin(*config_maps(1))
        self.cluster.objects.remove("v1", "ConfigMap", "m001", "default")
        self.cluster.refuses = True
        self.cluster.cut()
        self.passes(30)
        self.assertIsNone(self.live("m001"))
        self.cluster.refuses = False
        self.passes(120)
        self.assertIsNotNone(self.live("m001"))

    def test_metrics(self) -> None:
        self.begin(*config_maps(1, 2))
        sample = self.agent._api.metrics.get_sample_value

        def value(name: str, **labels: str) -> float | None:
            found: float | None = sample(
                f"agentk_gitops_{name}", {"project": "apps", **labels}
            )
            return found

        self.assertEqual(value("objects", outcome="created"), 2)
        self.assertEqual(value("out_of_sync_seconds"), 0)
        self.edit("m001", data={"n": "other"})
        self.assertEqual(value("drifts_total", kind="ConfigMap"), 1)
        self.assertEqual(value("drift_repairs_total", result="repaired"), 1)
        self.assertEqual(value("drifted_objects"), 0)
        self.assertEqual(value("out_of_sync_seconds"), 0)


class ReportTests(DriftTestCase):
    """``mode: report``, and what is left to others."""

    def left_as_it_is(self) -> None:
        """Check that one changed object and one deleted object are only reported."""
        self.assertEqual(self.live("m001")["data"], {"n": "other"})
        self.assertIsNone(self.live("m002"))
        kinds = {one.key.name: one.kind for one in self.present}
        self.assertEqual(kinds, {"m001": DriftKind.CHANGED, "m002": DriftKind.DELETED})
        self.assertEqual(len(self.said("it is not repaired")), 2)

    def test_it_stays(self) -> None:
        self.begin(*config_maps(1, 2), drift={"mode": "report"})
        self.edit("m001", data={"n": "other"})
        self.remove("m002")
        self.passes(WATCHED_AGAIN * 2)
        self.left_as_it_is()
        self.assertIsNotNone(self.agent.projects["apps"].status.out_of_sync_since)

    def test_it_stays_while_agentk_starts(self) -> None:
        """What others did while nobody looked is told, too."""
        self.begin(*config_maps(1, 2, 3), drift={"mode": "report"})
        self.leave()
        self.edit("m001", data={"n": "other"})
        self.remove("m002")
        self.lead()
        self.passes(WATCHED_AGAIN * 2)
        self.left_as_it_is()

    def test_it_stays_while_another_fails(self) -> None:
        """Until Git changes it, however often all of it is tried again."""
        bad = object_("t", "Thing", "x.io/v1")
        self.begin(*config_maps(1, 2), bad, drift={"mode": "report"})
        self.edit("m001", data={})
        self.remove("m002")
        self.passes(AGAIN)
        self.assertEqual(self.live("m001")["data"], {})
        self.assertIsNone(self.live("m002"))
        self.assertEqual(len(self.present), 2)
        self.apps.commit({"a.yaml": text(*config_maps(1, 2, 3))})
        self.pushed()
        self.assertIsNotNone(self.live("m003"))
        self.assertIsNone(self.live("m002"))
        self.assertEqual(len(self.present), 2)
        self.apps.commit({"a.yaml": text(*config_maps(1, 2, 3, immutable=False))})
        self.pushed()
        self.assertEqual(self.live("m001")["data"], {"n": "1"})
        self.assertIsNotNone(self.live("m002"))
        self.assertEqual(self.present, [])

    def test_it_ends(self) -> None:
        self.begin(*config_maps(1), drift={"mode": "report"})
        self.edit("m001", data={"n": "other"})
        self.assertEqual(len(self.present), 1)
        self.edit("m001", data={"n": "1"})
        self.assertEqual(self.present, [])
        self.assertEqual(self.lately[-1].state, DriftState.ENDED)

    def test_one_whose_status_changes_all_the_time(self) -> None:
        """Between any two requests: what others did is told all the same, and once."""
        self.begin(object_("a", data={"x": "1"}), drift={"mode": "report"})
        take, looks = self.cluster.take, 0

        def overtaken(request: FakeRequest) -> Any:
            nonlocal looks
            answer = take(request)
            if request.method == "GET" and request.path.endswith("/configmaps/a"):
                looks += 1
                live = self.live("a")
                self.cluster.objects.put({**live, "status": {"n": looks}})
            return answer

        self.cluster.take = overtaken  # type: ignore[method-assign]
        self.edit("a", data={"x": "2"})
        self.passes(300)
        (drift,) = self.present
        self.assertEqual(drift.kind, DriftKind.CHANGED)
        self.assertEqual(len(self.said("it is not repaired")), 1)
        self.assertLess(looks, 300 / module.LOOKS_SECONDS * module.LOOKS + module.LOOKS)
        self.cluster.take = take  # type: ignore[method-assign]
        self.edit("a", data={"x": "1"})
        self.passes(300)
        self.assertEqual(self.present, [])

    def test_off(self) -> None:
        self.begin(*config_maps(1), drift={"mode": "off"})
        self.remove("m001")
        self.passes(WATCHED_AGAIN * 2)
        self.assertIsNone(self.live("m001"))
        self.assertEqual(len(self.cluster.objects.watchers), 0)
        self.apps.commit({"a.yaml": text(*config_maps(1, 2))})
        self.pushed()
        self.assertIsNotNone(self.live("m001"))

    def test_ignored_fields(self) -> None:
        ignored = {"kind": "ConfigMap", "name": "a*", "fields": ["/spec/x~1y"]}
        self.begin(
            object_("ab", spec={"x/y": "1", "z": "1"}),
            object_("b", spec={"x/y": "1"}),
            drift={"ignore": [ignored]},
        )
        self.assertEqual(self.live("ab")["spec"], {"z": "1"})
        self.assertEqual(self.live("b")["spec"], {"x/y": "1"})
        self.edit("ab", spec={"x/y": "theirs", "z": "2"})
        self.assertEqual(self.live("ab")["spec"], {"x/y": "theirs", "z": "1"})


@pytest.mark.parametrize("kind", ["MODIFIED", "DELETED", "lost"])
def test_a_project_that_fails_when_told(kind: str) -> None:
    """The other projects of the agent are told of the object all the same."""
    watch: Any = _Watch(Mock(), Mock(), Mock(), Mock(), ("", "ConfigMap"), "", "v1")
    key = ObjectKey("", "ConfigMap", "default", "a")
    bad, good = Mock(), Mock()
    watch.followers.update({bad: None, good: None})
    for name in ("changed", "deleted"):
        getattr(bad, name).side_effect = ValueError
    with capturedLogs() as events:
        if kind == "lost":
            watch._lost({bad: frozenset([key]), good: frozenset([key])}, ())
        else:
            watch._tell([bad, good], key, {"metadata": {}}, kind == "DELETED")
    (call,) = good.mock_calls
    assert call[0] == ("changed" if kind == "MODIFIED" else "deleted")
    assert len(events) == 1
