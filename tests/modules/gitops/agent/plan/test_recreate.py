"""Objects whose fields are immutable: deleted and made anew where Git allows it."""

from __future__ import annotations

import json
from typing import Any

from twisted.internet.defer import CancelledError, Deferred

from modules.gitops.agent.apply.backups import KeptStates
from modules.gitops.agent.apply.outcome import Outcome
from modules.gitops.agent.objects.manifests import read_source
from modules.gitops.agent.objects.owner_annotations import owner_of
from modules.gitops.agent.plan.recreate import RECREATE, is_allowed, restorable
from modules.gitops.wire.settings import PruneLimits
from tests.modules.gitops.agent.project.test_reconcile import (
    ID,
    Dead,
    Killed,
    ReconcileCase,
    object_,
)
from tunnel.testing.objects import Refusal

ALLOWED = {RECREATE: "true"}
TEXT = "delete and recreate it"


def fixed(value: str, name: str = "fixed", **annotations: str) -> dict[str, Any]:
    """A ConfigMap that cannot be changed."""
    metadata = {"annotations": annotations} if annotations else {}
    return object_(name, data={"n": value}, immutable=True, metadata=metadata)


class RecreateTests(ReconcileCase):
    def uid(self, name: str = "fixed") -> str:
        return str(self.live(name)["metadata"]["uid"])

    def test_not_without_permission(self) -> None:
        """It alone fails, what to do is said, and it stays."""
        self.commit(fixed("1"), object_("other", data={"n": "1"}))
        uid = self.uid()
        report = self.commit(fixed("2"), object_("other", data={"n": "2"}))
        (failed,) = report.failed
        self.assertIn("field is immutable", failed.reason)
        self.assertIn(
            f'{TEXT}, annotate it with {RECREATE}: "true"',
            failed.reason,
        )
        self.assertEqual((self.uid(), self.live("fixed")["data"]), (uid, {"n": "1"}))
        self.assertEqual(self.live("other")["data"], {"n": "2"})

    def test_once(self) -> None:
        """With permission, and not once more with the next look."""
        self.commit(fixed("1", **ALLOWED))
        uid = self.uid()
        report = self.commit(fixed("2", **ALLOWED))
        (result,) = report.results.values()
        self.assertIs(result.outcome, Outcome.RECREATED)
        self.assertEqual(self.live("fixed")["data"], {"n": "2"})
        self.assertNotEqual(self.uid(), uid)
        uid = self.uid()
        report = self.commit(fixed("2", **ALLOWED))
        self.assertEqual(self.uid(), uid)
        self.assertEqual(report.failed, [])
        # The inventory has the new one, which leaves as any other.
        self.commit(object_("other"))
        report = self.commit(object_("other"))
        self.assertIsNone(self.live("fixed"))

    def test_what_is_wrong_is_never_deleted(self) -> None:
        """However it is annotated."""
        self.commit(fixed("1", **ALLOWED))
        uid = self.uid()
        wrong = fixed("1", **ALLOWED)
        wrong["data"] = {"not a key": "x"}
        (failed,) = self.commit(wrong).failed
        self.assertIn("not a key", failed.reason)
        self.assertNotIn(TEXT, failed.reason)
        self.assertEqual(self.uid(), uid)

    def test_brakes(self) -> None:
        """What keeps an object from being pruned keeps it from this, too."""
        self.commit(fixed("1", **ALLOWED))
        uid = self.uid()
        live = self.live("fixed")
        live["metadata"]["annotations"]["helm.sh/resource-policy"] = "keep"
        self.objects.put(live)
        (failed,) = self.commit(fixed("2", **ALLOWED)).failed
        self.assertIn("is kept: helm.sh/resource-policy", failed.reason)
        self.assertEqual(self.uid(), uid)

    def test_not_what_others_have(self) -> None:
        self.commit(fixed("1", **ALLOWED))
        uid = self.uid()
        found = self.planned(fixed("2", **ALLOWED))
        live = self.live("fixed")
        live["metadata"]["annotations"]["config.k8s.io/owning-inventory"] = "other"
        self.objects.put(live)
        self.assertEqual(set(self.acted(found).values()), {Outcome.FAILED})
        self.assertEqual(self.uid(), uid)

    def test_so_many_in_one_run(self) -> None:
        """The rest comes with the next."""
        names = [f"m{n}" for n in range(4)]
        limits = PruneLimits(count=3)
        self.commit(*(fixed("1", one, **ALLOWED) for one in names))
        new = [fixed("2", one, **ALLOWED) for one in names]
        report = self.commit(*new, limits=limits)
        self.assertEqual(len(report.failed), 1)
        self.assertIn("3 objects were recreated", report.failed[0].reason)
        self.assertEqual(self.commit(*new, limits=limits).failed, [])
        self.assertEqual(self.live("m3")["data"], {"n": "2"})

    def test_restored(self) -> None:
        """What cannot be made anew after all is put back, and is not tried again."""
        self.commit(fixed("1", **ALLOWED))
        settled: dict[Any, Any] = {}
        tried = []
        write = self.objects._write

        def refuse(*given: Any) -> Any:
            found = given[2]
            is_new = found.get("data") == {"n": "2"}
            if is_new and found["metadata"]["name"] == "fixed" and not given[4]:
                tried.append(found)
                if self.live("fixed") is None:
                    raise Refusal(403, "Forbidden", "exceeded quota")
            return write(*given)

        self.patch(self.objects, "_write", refuse)
        new = fixed("2", **ALLOWED)
        (failed,) = self.commit(new, settled=settled).failed
        self.assertIn("was restored: API server: exceeded quota", failed.reason)
        self.assertEqual(self.live("fixed")["data"], {"n": "1"})
        uid, count = self.uid(), len(tried)
        (failed,) = self.commit(new, settled=settled).failed
        self.assertIn("was restored", failed.reason)
        self.assertEqual((self.uid(), len(tried)), (uid, count))
        # Another commit is another matter.
        self.assertEqual(self.commit(fixed("3", **ALLOWED), settled=settled).failed, [])

    def test_restored_and_removed(self) -> None:
        self.commit(fixed("1", **ALLOWED), object_("stays"))
        write = self.objects._write

        def refuse(*given: Any) -> Any:
            is_new = given[2].get("data") == {"n": "2"} and not given[4]
            if is_new and self.live("fixed") is None:
                raise Refusal(403, "Forbidden", "exceeded quota")
            return write(*given)

        self.patch(self.objects, "_write", refuse)
        (failed,) = self.commit(fixed("2", **ALLOWED), object_("stays")).failed
        self.assertIn("was restored", failed.reason)
        self.commit(object_("stays"))
        self.assertIsNone(self.live("fixed"))

    def test_killed_and_removed(self) -> None:
        """Wherever agentk is killed, the object is deleted or an operator is asked."""
        asked = 0
        for point in range(1, 60):
            self.commit(fixed("1", **ALLOWED), object_("stays"))
            client = Killed(self.client, point, after=True)
            try:
                self.commit(fixed("2", **ALLOWED), object_("stays"), client=client)
            except Dead:
                pass
            else:
                break
            report = self.commit(object_("stays"), commit="x")
            if report.held:
                asked += 1
                self.approve(report)
                self.commit(object_("stays"), commit="x")
            self.assertIsNone(self.live("fixed"), point)
        self.assertGreater(asked, 0)

    def test_a_newer_commit_during_the_wait(self) -> None:
        """The inventory has what was recreated and created before the wait."""
        stays = object_("stays")
        self.commit(fixed("1", **ALLOWED), fixed("1", "quick", **ALLOWED), stays)
        live = self.live("fixed")
        live["metadata"]["finalizers"] = ["x.io/slow"]
        self.objects.put(live)
        new = [fixed("2", **ALLOWED), fixed("2", "quick", **ALLOWED), object_("new")]
        data = "\n---\n".join(json.dumps(one) for one in [*new, stays])
        source = read_source([("a.yaml", data.encode())])
        running = Deferred.fromCoroutine(self.reconciler().run("c", source))
        for _ in range(20):
            self.clock.advance(1)
            self.pair.settle()
        self.assertNoResult(running)
        running.cancel()
        self.failureResultOf(running, CancelledError)
        report = self.commit(stays, prune_timeout=0.0)
        self.assertEqual(report.blocked, [])
        self.assertEqual((self.live("quick"), self.live("new")), (None, None))

    def test_an_unsigned_entry_restores_nothing(self) -> None:
        """Other clients may add an entry with the uid of an earlier object."""
        kept = self.states(self.client)
        self.commit(fixed("1", **ALLOWED), object_("stays"), kept=kept)
        uid = self.uid()
        kept = self.states(self.client)
        self.commit(fixed("2", **ALLOWED), object_("stays"), kept=kept)
        self.commit(object_("stays"))
        self.assertIsNone(self.live("fixed"))
        inventory = self.live(f"inventory-{ID}")
        inventory["data"]["default_fixed__ConfigMap"] = json.dumps({"uid": uid})
        self.objects.put(inventory)
        wrong = fixed("3", **ALLOWED)
        wrong["data"] = {"not a key": "x"}
        self.commit(wrong, object_("stays"), kept=self.states(self.client))
        self.assertIsNone(self.live("fixed"))

    def test_restored_by_the_next_agentk(self) -> None:
        """Wherever the first one is killed, and what is new is refused afterwards."""
        write = self.objects._write

        def refuse(*given: Any) -> Any:
            is_new = given[2].get("data") == {"n": "2"} and not given[4]
            if is_new and self.live("fixed") is None:
                raise Refusal(403, "Forbidden", "exceeded quota")
            return write(*given)

        gone = 0
        for point in range(1, 60):
            self.patch(self.objects, "_write", write)
            self.commit(fixed("1", **ALLOWED), kept=self.states(self.client))
            self.patch(self.objects, "_write", refuse)
            client = Killed(self.client, point, after=True)
            try:
                self.commit(
                    fixed("2", **ALLOWED), client=client, kept=self.states(client)
                )
            except Dead:
                pass
            else:
                break
            gone += self.live("fixed") is None
            (failed,) = self.commit(
                fixed("2", **ALLOWED), kept=self.states(self.client)
            ).failed
            self.assertIn("was restored", failed.reason, point)
            self.assertEqual(self.live("fixed")["data"], {"n": "1"}, point)
            # It is the source's as before, and leaves with it.
            self.assertEqual(owner_of(self.live("fixed")), ID)
        self.assertGreater(gone, 0)

    def states(self, client: Any) -> KeptStates:
        return KeptStates(client, ID, "default", self.clock.seconds, "without_secrets")

    def test_kinds_that_only_a_person_deletes(self) -> None:
        """Those with content of others."""
        self.commit(object_("space", "Namespace", metadata={"annotations": ALLOWED}))
        write = self.objects._write

        def refuse(*given: Any) -> Any:
            if given[1][3] == "space" and given[2].get("spec"):
                raise Refusal(422, "Invalid", "spec: field is immutable")
            return write(*given)

        self.patch(self.objects, "_write", refuse)
        metadata = {"annotations": ALLOWED}
        changed = object_("space", "Namespace", metadata=metadata, spec={"a": "b"})
        (failed,) = self.commit(changed).failed
        self.assertIn("which agentk does not do for this kind", failed.reason)
        self.assertIsNotNone(self.live("space", "Namespace", namespace=""))

    def test_permissions(self) -> None:
        """As Flux and Argo CD have them, and no half ones."""
        sync = "argocd.argoproj.io/sync-options"
        for said, allowed in (
            ({}, False),
            ({RECREATE: "true"}, True),
            ({RECREATE: "false"}, False),
            ({"kustomize.toolkit.fluxcd.io/force": "Enabled"}, True),
            ({"kustomize.toolkit.fluxcd.io/force": "disabled"}, False),
            ({sync: "Force=true"}, False),
            ({sync: "Prune=false, Force=true,Replace=true"}, True),
        ):
            text = str(fixed("1", **said)).replace("'", '"')
            source = read_source([("a.yaml", text.replace("True", "true").encode())])
            (manifest,) = source.manifests
            self.assertIs(is_allowed(manifest), allowed, said)


def test_a_job_as_it_can_be_made_again() -> None:
    """Without what names its uid."""
    labels = {"batch.kubernetes.io/controller-uid": "u", "job-name": "j", "a": "b"}
    live = object_(
        "j",
        "Job",
        "batch/v1",
        metadata={"uid": "u", "resourceVersion": "1", "labels": dict(labels)},
        spec={
            "selector": {"matchLabels": {"batch.kubernetes.io/controller-uid": "u"}},
            "template": {"metadata": {"labels": dict(labels)}},
        },
        status={"succeeded": 1},
    )
    found = restorable(live)
    assert found == object_(
        "j",
        "Job",
        "batch/v1",
        metadata={"labels": {"job-name": "j", "a": "b"}},
        spec={"template": {"metadata": {"labels": {"job-name": "j", "a": "b"}}}},
    )
    assert "status" in live
