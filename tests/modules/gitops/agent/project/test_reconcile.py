"""Commits and the cluster: what is applied, what goes, and what never does."""

from __future__ import annotations

import copy
import json
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from functools import partial
from typing import Any, cast

import attrs
from twisted.internet.defer import CancelledError, Deferred, maybeDeferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from modules.gitops.agent.apply import act, backups
from modules.gitops.agent.apply.ledger import Superseded
from modules.gitops.agent.apply.outcome import Outcome, Result
from modules.gitops.agent.inventory import inventory
from modules.gitops.agent.inventory.claims import Claim
from modules.gitops.agent.inventory.inventory import (
    COMMIT,
    LABEL,
    PARTS,
    WRITER,
    Inventory,
    InventoryEntry,
    InventoryStore,
)
from modules.gitops.agent.inventory.orders import Orders, OrderStore
from modules.gitops.agent.inventory.writer import InventoryWriter
from modules.gitops.agent.objects.differences import owned_fields
from modules.gitops.agent.objects.error_statuses import AWAY
from modules.gitops.agent.objects.manifests import (
    Manifest,
    ObjectKey,
    Source,
    read_source,
)
from modules.gitops.agent.objects.owner_annotations import OWNER
from modules.gitops.agent.objects.prune_guards import guard_of_object
from modules.gitops.agent.plan.order import DEPENDS_ON
from modules.gitops.agent.plan.plan import (
    UNSIGNED,
    UNSIGNED_CLAIMED,
    OtherSources,
    Plan,
    SourceSettings,
    Verb,
)
from modules.gitops.agent.project.preview import preview_of
from modules.gitops.agent.project.reconcile import Pass, Reconciler, Report
from modules.gitops.agent.source import threads
from modules.gitops.wire.settings import PruneLimits
from tests.modules.gitops.server.test_module import Asker
from tunnel.api import KubernetesObject, KubernetesResource
from tunnel.errors import CallError, Status
from tunnel.testing import FakeCluster, ModulePair

ID = "7-9"

THING = KubernetesResource(
    "x.io",
    "v1",
    "Thing",
    "things",
    True,
    frozenset("get list watch create patch delete".split()),
)
DEFINITION = KubernetesResource(
    "apiextensions.k8s.io",
    "v1",
    "CustomResourceDefinition",
    "customresourcedefinitions",
    False,
    frozenset("get list watch create patch delete".split()),
)


SERVICES = KubernetesResource(
    "apiregistration.k8s.io",
    "v1",
    "APIService",
    "apiservices",
    False,
    frozenset(("get", "list")),
)

#: An API server of its own has the kinds of x.io.
SERVICE = {
    "apiVersion": "apiregistration.k8s.io/v1",
    "kind": "APIService",
    "metadata": {"name": "v1.x.io"},
    "spec": {"group": "x.io", "service": {"name": "a"}},
}


def suspended(orders: Orders) -> Orders:
    """An operator's order to change nothing."""
    return attrs.evolve(orders, suspended=True)


def object_(
    name: str, kind: str = "ConfigMap", api_version: str = "v1", **fields: Any
) -> dict[str, Any]:
    metadata = {"name": name, **fields.pop("metadata", {})}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **fields}


def config_maps(*numbers: int, **fields: Any) -> list[dict[str, Any]]:
    return [object_(f"m{n:03}", data={"n": str(n)}, **fields) for n in numbers]


@attrs.frozen
class _Bound:
    """A reconciler for one pass."""

    reconciler: Reconciler
    one_pass: Pass

    @property
    def client(self) -> Any:
        """The client of the project."""
        return self.reconciler.client

    @property
    def store(self) -> InventoryStore:
        """The inventory."""
        return self.one_pass.store

    @property
    def settings(self) -> SourceSettings:
        """The settings of the source."""
        return self.one_pass.settings

    async def plan(self, commit: str, source: Source) -> Plan | Report:
        """See `Reconciler.plan`."""
        return await self.reconciler.plan(self.one_pass, commit, source)

    async def run(self, commit: str, source: Source) -> Report:
        """See `Reconciler.run`; the execution ends as one of `Passes`."""
        report = await self.reconciler.run(self.one_pass, commit, source)
        await self.store.end()
        return report

    async def repair(
        self, commit: str, manifests: Collection[Manifest]
    ) -> Mapping[ObjectKey, Result]:
        """See `Reconciler.repair`."""
        return await self.reconciler.repair(self.one_pass, commit, manifests)


class ReconcileCase(SynchronousTestCase):
    """One source, and an API server in memory."""

    def setUp(self) -> None:
        for module in (backups, threads):
            self.patch(module, "deferToThread", maybeDeferred)
        self.clock = Clock()
        self.cluster = FakeCluster(self.clock)
        self.objects = self.cluster.objects
        self.pair = ModulePair(self.clock, cluster=self.cluster)
        self.client = self.pair.agent_half(Asker).api.kubernetes.as_agentk()
        self.pair.start()
        self.addCleanup(self.pair.stop)
        self.leads = True
        self.commits = 0
        self.held_before = False

    def reconciler(self, **given: Any) -> _Bound:
        settings = {
            name: given.pop(name)
            for name in attrs.fields_dict(SourceSettings).keys() - {"inventory_id"}
            if name in given
        }
        inventory_id = given.pop("inventory_id", ID)
        client = given.pop("client", self.client)
        writer = InventoryWriter(
            client,
            given.pop("agent", "main"),
            given.pop("lease", "here/ours"),
            self.clock.seconds,
        )
        store = InventoryStore(
            client,
            inventory_id,
            "default",
            writer=writer,
            orders=OrderStore(client, inventory_id, given.pop("own", "default")),
            clock=self.clock,
        )
        of_pass, others = (
            {name: given.pop(name) for name in names if name in given}
            for names in (("kept", "threads"), ("stays", "given", "claims"))
        )
        one_pass = Pass(
            store=store,
            settings=SourceSettings(inventory_id=inventory_id, **settings),
            others=OtherSources(**others),
            **of_pass,
        )
        settled = given.pop("settled", {})
        reconciler = Reconciler(
            client=client,
            leads=given.pop("leads", lambda: self.leads),
            clock=self.clock,
            now=self.clock.seconds,
            **given,
        )
        reconciler.settled = settled
        return _Bound(reconciler, one_pass)

    def commit(self, *objects: Any, **given: Any) -> Report:
        """What becomes of a commit that has these objects."""
        self.commits += 1
        name = given.pop("commit", f"c{self.commits}")
        remembers = given.pop("remembers", True)
        text = "\n---\n".join(json.dumps(one) for one in objects)
        source = read_source([("all.yaml", text.encode())])
        report = self.pair.run(self.reconciler(**given).run(name, source))
        if remembers and self.held_before:
            # As `Passes` does after each pass.
            released = partial(Orders.holding, keys=(), released=report.released)
            self.pair.run(self.order(released))
        self.held_before = bool(report.held)
        return report

    def planned(self, *objects: Any, **given: Any) -> Plan:
        text = "\n---\n".join(json.dumps(one) for one in objects)
        source = read_source([("all.yaml", text.encode())])
        found = self.pair.run(self.reconciler(**given).plan("c", source))
        assert isinstance(found, Plan)
        return found

    def live(self, name: str, kind: str = "ConfigMap", **where: str) -> Any:
        api_version = where.get("api_version", "v1")
        namespace = where.get("namespace", "default")
        return self.objects.find(api_version, kind, name, namespace)

    def remove(self, name: str) -> None:
        """As some other client, if it is there."""
        if self.live(name) is not None:
            self.objects.remove("v1", "ConfigMap", name, "default")

    def names(self) -> set[str]:
        """ConfigMaps that are no inventory."""
        found = self.pair.run(_all(self.client))
        return {one for one in found if not one.startswith("inventory-")}

    def acted(self, plan: Plan) -> dict[str, Outcome]:
        """What becomes of a plan that was made before."""
        given = self.reconciler()
        self.pair.run(given.store.read())
        acting = act.Act(
            *(self.client, plan, given.settings, given.store, lambda: True),
            self.clock,
            self.clock.seconds,
        )
        self.pair.run(acting.run())
        return {key.name: one.outcome for key, one in acting.results.items()}

    def order(self, change: Callable[[Orders], Orders]) -> Coroutine[Any, Any, Orders]:
        """Give an order, as an operator does by way of `kasctl gitops`."""
        return OrderStore(self.client, ID, "default").change(change)

    def approve(self, report: Report) -> None:
        """Approve the deletes that a report holds."""

        def approved(orders: Orders) -> Orders:
            approval = orders.approval.adding(report.commit, report.held_uids)
            return attrs.evolve(orders, approval=approval)

        self.pair.run(self.order(approved))

    def inventory(self) -> set[str]:
        store = InventoryStore(self.client, ID, "default", clock=self.clock)
        return {key.name for key in self.pair.run(store.read()).entries}

    def outcomes(self, report: Report) -> dict[str, Outcome]:
        self.assertEqual(report.problems, ())
        return {key.name: one.outcome for key, one in report.results.items()}


async def _all(client: Any) -> list[str]:
    resource = await client.resource("v1", "ConfigMap")
    found: list[str] = []
    async for page in client.list(resource):
        found += [one["metadata"]["name"] for one in page]
    return found


class ApplyTests(ReconcileCase):
    """What is in Git comes into the cluster."""

    def test_a_first_commit(self) -> None:
        report = self.commit(
            *config_maps(1, 2), object_("other", metadata={"namespace": "elsewhere"})
        )
        self.assertEqual(set(self.outcomes(report).values()), {Outcome.CREATED})
        live = self.live("m001")
        self.assertEqual(live["data"], {"n": "1"})
        self.assertEqual(live["metadata"]["annotations"], {OWNER: ID})
        self.assertIsNotNone(self.live("other", namespace="elsewhere"))
        self.assertEqual(self.inventory(), {"m001", "m002", "other"})

    def test_again_without_a_change(self) -> None:
        self.commit(*config_maps(*range(20)), commit="c")
        before = len(self.cluster.requests)
        report = self.commit(*config_maps(*range(20)), commit="c")
        self.assertEqual(set(self.outcomes(report).values()), {Outcome.UNCHANGED})
        asked = self.cluster.requests[before:]
        writes = [one for one in asked if one.method not in ("GET", "PATCH")]
        self.assertEqual(writes, [])

    def test_a_change(self) -> None:
        self.commit(object_("a", data={"x": "1", "y": "1"}))
        report = self.commit(object_("a", data={"x": "2"}))
        self.assertEqual(self.outcomes(report), {"a": Outcome.CHANGED})
        self.assertEqual(self.live("a")["data"], {"x": "2"})

    def test_text_of_a_secret_is_ours(self) -> None:
        """``stringData`` comes as ``data``: of the former nobody is noted as owner."""
        self.commit(object_("s", "Secret", stringData={"a": "1", "b": "1"}))
        self.assertEqual(self.live("s", "Secret")["data"], {"a": "MQ==", "b": "MQ=="})
        self.commit(object_("s", "Secret", stringData={"a": "2"}, data={"c": "Mw=="}))
        live = self.live("s", "Secret")
        self.assertEqual(live["data"], {"a": "Mg==", "c": "Mw=="})
        self.assertNotIn("stringData", live)

    def test_others_fields_stay(self) -> None:
        self.commit(object_("a", data={"x": "1"}))
        live = self.live("a")
        live["data"]["theirs"] = "1"
        self.objects.put(live)
        self.commit(object_("a", data={"x": "2"}))
        self.assertEqual(self.live("a")["data"], {"x": "2", "theirs": "1"})

    def test_what_other_engines_have(self) -> None:
        """It is not fought over, whatever may be adopted."""
        marks: dict[str, dict[str, Any]] = {
            "Flux (Kustomization flux/apps)": {
                "labels": {
                    "kustomize.toolkit.fluxcd.io/name": "apps",
                    "kustomize.toolkit.fluxcd.io/namespace": "flux",
                }
            },
            "Flux (HelmRelease web/shop)": {
                "labels": {
                    "helm.toolkit.fluxcd.io/name": "shop",
                    "helm.toolkit.fluxcd.io/namespace": "web",
                }
            },
            "Argo CD (Application shop)": {
                "annotations": {
                    "argocd.argoproj.io/tracking-id": "shop:/ConfigMap:default/a"
                }
            },
            "Argo CD (Application old)": {
                "labels": {"argocd.argoproj.io/instance": "old"}
            },
        }
        for engine, marked in marks.items():
            metadata = {"namespace": "default", **marked}
            self.objects.put(object_("a", metadata=metadata, data={"x": "theirs"}))
            report = self.commit(object_("a", data={"x": "1"}), policy="adopt_all")
            (failed,) = report.failed
            self.assertIn(f"{engine} applies it", failed.reason)
            self.assertEqual(self.live("a")["data"], {"x": "theirs"})
            self.remove("a")

    def test_conflicts_are_reported_and_not_forced(self) -> None:
        self.commit(object_("a", data={"x": "1"}), object_("b", data={"x": "1"}))
        live = self.live("a")
        live["data"]["x"] = "theirs"
        self.objects.put(live)
        objects = [object_("a", data={"x": "2"}), object_("b", data={"x": "2"})]
        report = self.commit(*objects)
        self.assertEqual(
            self.outcomes(report), {"a": Outcome.FAILED, "b": Outcome.CHANGED}
        )
        (failed,) = report.failed
        self.assertIn('conflict with "test": .data.x', str(failed))
        self.assertRegex(
            str(failed), r"written by test \(Update\) at 1970-\S+Z: leave these fields"
        )
        self.assertTrue(str(failed).startswith("all.yaml:1: ConfigMap default/a"))
        self.assertEqual(self.live("a")["data"]["x"], "theirs")
        self.commit(*objects, force=True)
        self.assertEqual(self.live("a")["data"]["x"], "2")

    def test_nothing_of_a_commit_that_cannot_be_read(self) -> None:
        self.commit(*config_maps(1))
        for bad in ("no object", object_("m002", metadata={"labels": {"a": 1}})):
            report = self.commit(*config_maps(2), bad)
            self.assertEqual(len(report.problems), 1)
            self.assertEqual(report.results, {})
        circle = {"annotations": {DEPENDS_ON: "/namespaces/default/ConfigMap/a"}}
        self.assertEqual(len(self.commit(object_("a", metadata=circle)).problems), 1)
        twins = [object_("a"), object_("a", metadata={"namespace": "default"})]
        self.assertEqual(len(self.commit(*twins).problems), 1)
        self.assertEqual(self.names(), {"m001"})

    def test_a_kind_that_the_cluster_has_not(self) -> None:
        """Alone: its siblings are applied, and nothing goes in that run."""
        self.commit(*config_maps(1, 2))
        report = self.commit(*config_maps(1, 3), object_("t", "Thing", "x.io/v1"))
        self.assertEqual(
            self.outcomes(report),
            {
                "m001": Outcome.UNCHANGED,
                "m003": Outcome.CREATED,
                "t": Outcome.FAILED,
                "m002": Outcome.BLOCKED,
            },
        )
        self.assertIn("no kind Thing in x.io/v1", report.failed[0].reason)
        self.assertEqual(self.inventory(), {"m001", "m002", "m003"})

    def test_what_needs_a_failed_one_is_left_out(self) -> None:
        theirs = object_("a", data={"x": "theirs"})
        theirs["metadata"]["namespace"] = "default"
        self.objects.put(theirs)
        needs = {"annotations": {DEPENDS_ON: "/namespaces/default/ConfigMap/a"}}
        report = self.commit(object_("a"), object_("b", metadata=needs), object_("c"))
        self.assertEqual(
            self.outcomes(report),
            {"a": Outcome.FAILED, "b": Outcome.SKIPPED, "c": Outcome.CREATED},
        )

    def test_a_definition_and_its_objects(self) -> None:
        """The kind comes ten seconds after its definition."""
        self.objects.add_kind(DEFINITION)
        definition = object_(
            "things.x.io",
            "CustomResourceDefinition",
            "apiextensions.k8s.io/v1",
            spec={"group": "x.io", "names": {"kind": "Thing", "plural": "things"}},
        )

        def established() -> None:
            live = self.objects.find(
                "apiextensions.k8s.io/v1", "CustomResourceDefinition", "things.x.io"
            )
            assert live is not None
            live["status"] = {"conditions": [{"type": "Established", "status": "True"}]}
            self.objects.put(live)
            self.clock.callLater(3, self.objects.add_kind, THING)

        self.clock.callLater(10, established)
        report = self.commit(
            object_("t", "Thing", "x.io/v1", metadata={"namespace": "here"}),
            object_("here", "Namespace"),
            definition,
        )
        self.assertEqual(set(self.outcomes(report).values()), {Outcome.CREATED})
        self.assertGreater(self.clock.seconds(), 12)

    def test_an_object_that_agentk_may_not_see(self) -> None:
        """Alone: its siblings are applied, and nothing goes in that run."""
        self.commit(*config_maps(1, 2, 3))
        client = _Refused(self.client, "m003", "configmaps is forbidden")
        report = self.commit(*config_maps(2, 3, 4), client=client)
        self.assertEqual(
            self.outcomes(report),
            {
                "m002": Outcome.UNCHANGED,
                "m003": Outcome.FAILED,
                "m004": Outcome.CREATED,
                "m001": Outcome.BLOCKED,
            },
        )
        self.assertEqual(report.failed[0].reason, "configmaps is forbidden")
        report = self.commit(*config_maps(2, 4), client=client)
        self.assertEqual(self.outcomes(report)["m003"], Outcome.BLOCKED)
        self.assertEqual(self.outcomes(report)["m001"], Outcome.PRUNED)

    def test_words_about_a_secret(self) -> None:
        secret = object_("s", "Secret", data={"a": "s3cret"})
        for status in (Status.PERMISSION_DENIED, *AWAY - {Status.RESOURCE_EXHAUSTED}):
            words = "a webhook says: s3cret"
            client: Any = _Refused(self.client, "s", words, "apply", status)
            report = self.commit(secret, client=client)
            self.assertIn("the API server refuses the", report.failed[0].reason)
            self.assertNotIn("s3cret", str(report.failed))
            plan = self.planned(secret)
            settings = self.reconciler().settings
            try:
                said = str(self.pair.run(preview_of(client, plan, settings)))
            except CallError as error:
                said = error.message
            self.assertIn("the API server refuses the", said)
            self.assertNotIn("s3cret", said)

    def test_an_inventory_in_git_is_none_of_its_objects(self) -> None:
        labels = {"labels": {LABEL: "7-9"}}
        report = self.commit(object_("mine", metadata=labels), *config_maps(1))
        self.assertEqual(self.outcomes(report), {"m001": Outcome.CREATED})

    def test_an_inventory_in_git_that_has_no_label(self) -> None:
        """Git cannot approve, resume or forget what only people may."""
        self.commit(*config_maps(1), inventory_id="8-8")
        self.commit(*config_maps(2))
        said = {"annotations": {COMMIT: "by Git"}}
        for name in (f"inventory-{ID}", "inventory-8-8"):
            before = self.live(name)["metadata"]["annotations"]
            report = self.commit(
                object_(name, metadata=said), *config_maps(2), policy="adopt_all"
            )
            (failed,) = report.failed
            self.assertIn("it is an inventory", failed.reason)
            after = self.live(name)["metadata"]["annotations"]
            self.assertEqual(before.keys(), after.keys())

    def test_an_inventory_that_another_source_put_there(self) -> None:
        """Its entries are not signed, and the project replaces it."""
        said = {"annotations": {COMMIT: "theirs"}}
        data = {"default_m002__ConfigMap": ""}
        self.commit(object_("inventory-8-8", metadata=said, data=data), *config_maps(2))
        report = self.commit(*config_maps(1), inventory_id="8-8")
        self.assertEqual(self.outcomes(report)["m001"], Outcome.CREATED)
        self.assertIsNotNone(self.live("m002"))
        self.assertNotIn(OWNER, self.live("inventory-8-8")["metadata"]["annotations"])

    def test_what_is_waited_for_in_vain(self) -> None:
        deployment = object_("d", "Deployment", "apps/v1", spec={"replicas": 1})
        needs = {"annotations": {DEPENDS_ON: "apps/namespaces/default/Deployment/d"}}
        report = self.commit(
            deployment, object_("b", metadata=needs), reconcile_timeout=20.0
        )
        self.assertEqual(
            self.outcomes(report), {"d": Outcome.FAILED, "b": Outcome.SKIPPED}
        )
        self.assertIn("not current in 20 s: replicas: 0 of 1", report.failed[0].reason)

    def test_names_without_a_place(self) -> None:
        """Charts write a namespace for every kind."""
        role = object_("r", "ClusterRole", "rbac.authorization.k8s.io/v1")
        role["metadata"]["namespace"] = "here"
        report = self.commit(role)
        (key,) = report.results
        self.assertEqual(key.namespace, "")


class OwnerTests(ReconcileCase):
    """Objects that are there already."""

    def test_what_came_since_the_plan(self) -> None:
        """Of another source, or of none: neither is overwritten."""
        self.commit(*config_maps(1))
        plan = self.planned(object_("a"), object_("b"), *config_maps(1))
        self.put("8-8")
        theirs = object_("b", metadata={"namespace": "default"}, data={"x": "theirs"})
        self.objects.put(theirs)
        outcomes = self.acted(plan)
        self.assertEqual(outcomes["a"], Outcome.FAILED)
        self.assertEqual(outcomes["b"], Outcome.FAILED)
        self.assertEqual(self.live("b")["data"], {"x": "theirs"})

    def put(self, owner: str = "") -> None:
        found = object_("a", metadata={"namespace": "default"})
        if owner:
            found["metadata"]["annotations"] = {OWNER: owner}
        self.objects.put(found)

    def test_policies(self) -> None:
        """The matrix of cli-utils."""
        for owner, policy, applied in (
            ("", "must_match", False),
            ("", "adopt_if_no_inventory", True),
            ("", "adopt_all", True),
            ("8-1", "must_match", False),
            ("8-1", "adopt_if_no_inventory", False),
            ("8-1", "adopt_all", True),
            (ID, "must_match", True),
        ):
            self.remove("a")
            self.put(owner)
            report = self.commit(object_("a", data={"x": "1"}), policy=policy)
            outcome = Outcome.CHANGED if applied else Outcome.FAILED
            self.assertEqual(self.outcomes(report), {"a": outcome}, (owner, policy))
            self.assertEqual("data" in self.live("a"), applied)
            for failed in report.failed:
                enough = "adopt_all" if owner else "adopt_if_no_inventory"
                self.assertIn(f"{enough} takes it over", failed.reason)

    def test_what_others_have_does_not_become_ours_by_a_try(self) -> None:
        self.put("8-1")
        self.commit(object_("a"), *config_maps(1))
        # As claimed, for the one that has it to know.
        self.assertEqual(self.inventory(), {"a", "m001"})
        self.commit(*config_maps(1))
        self.assertIsNotNone(self.live("a"))
        self.assertEqual(self.inventory(), {"m001"})

    def test_an_object_moves_to_another_source(self) -> None:
        """In both orders, and it is there all the time."""
        for first in ("7-9", "8-8"):
            second = {"7-9": "8-8", "8-8": "7-9"}[first]
            moving, rest = object_("a"), config_maps(1, 2)
            self.commit(*rest[:1], moving, inventory_id=first)
            self.commit(rest[1], inventory_id=second)
            uid = self.live("a")["metadata"]["uid"]
            self.commit(rest[1], moving, inventory_id=second, policy="adopt_all")
            report = self.commit(rest[0], inventory_id=first)
            self.assertEqual(self.outcomes(report)["a"], Outcome.FORGOTTEN)
            live = self.live("a")
            self.assertEqual(live["metadata"]["uid"], uid)
            self.assertEqual(live["metadata"]["annotations"][OWNER], second)
            for name in ("inventory-7-9", "inventory-8-8", "a", "m001", "m002"):
                self.remove(name)


class PruneTests(ReconcileCase):
    """What left Git leaves the cluster, and what must not."""

    def test_what_left(self) -> None:
        self.commit(*config_maps(*range(30)))
        report = self.commit(*config_maps(*range(2, 30)))
        gone = {"m000", "m001"}
        self.assertEqual(
            {
                name
                for name, one in self.outcomes(report).items()
                if one is Outcome.PRUNED
            },
            gone,
        )
        self.assertEqual(self.names() & gone, set())
        self.assertEqual(self.inventory(), self.names())

    def test_an_empty_source(self) -> None:
        self.commit(*config_maps(*range(3)))
        report = self.commit()
        self.assertEqual(len(report.blocked), 3)
        self.assertIn("no objects any more", report.blocked[0].reason)
        self.assertEqual(len(self.names()), 3)
        self.assertEqual(self.inventory(), self.names())
        report = self.commit(commit="x")
        self.assertEqual(len(report.blocked), 3)
        self.approve(report)
        self.commit(commit="x")
        self.assertEqual(self.names(), set())

    def test_what_never_goes_counts_for_nothing(self) -> None:
        """Objects that are kept make no share of deletes smaller, in Git or not."""
        keep = {"annotations": {"helm.sh/resource-policy": "keep"}}
        kept = config_maps(*range(20, 28), metadata=keep)
        limits = PruneLimits(percent=50, count=100)
        self.commit(*config_maps(*range(8)), *kept, limits=limits)
        # Five of eight, where sixteen are there.
        report = self.commit(*config_maps(*range(3)), *kept, limits=limits)
        self.assertEqual(len(report.blocked), 5)
        self.assertIn("5 of 8 objects would be deleted", report.blocked[0].reason)
        self.commit(*config_maps(*range(8)), *kept, limits=limits)
        report = self.commit(*config_maps(*range(3)), limits=limits)
        self.assertIn("5 of 8 objects would be deleted", report.blocked[0].reason)

    def test_a_namespace_is_looked_through_at_once(self) -> None:
        """Each kind is listed once, and none waits for another."""
        space = self.objects.put(object_("here", "Namespace"))
        asked: list[str] = []
        held: Deferred[None] = Deferred()
        client = self.client

        class Slow:
            """Answers no list before several have been asked for."""

            def __getattr__(self, name: str) -> Any:
                return getattr(client, name)

            async def list(self, resource: Any, *given: Any, **more: Any) -> Any:
                if given:
                    asked.append(resource.kind)
                    if len(asked) == 3:
                        held.callback(None)
                    await held
                async for page in client.list(resource, *given, **more):
                    yield page

        done = Deferred.fromCoroutine(
            guard_of_object(cast(Any, Slow()), space, "i", lambda key: False)
        )
        for _ in range(5):
            self.pair.settle()
        self.assertEqual(self.successResultOf(done), "")
        self.assertEqual(len(asked), len(set(asked)))

    def test_another_default_namespace(self) -> None:
        """What is known of the old one is found; nothing goes there unasked."""
        self.commit(*config_maps(1, 2))
        report = self.commit(*config_maps(1, 2), default_namespace="new")
        self.assertEqual(len(report.blocked), 2)
        self.assertIn("default_namespace was default", report.blocked[0].reason)
        uid = self.live("m001")["metadata"]["uid"]
        # It was a mistake: what came by it goes.
        self.commit(*config_maps(1, 2))
        self.assertIsNone(self.live("m001", namespace="new"))
        self.assertEqual(self.live("m001")["metadata"]["uid"], uid)

    def test_a_default_namespace_that_was_approved(self) -> None:
        self.commit(*config_maps(1, 2))
        given = {"default_namespace": "new", "commit": "c"}
        self.approve(self.commit(*config_maps(1, 2), **given))
        self.commit(*config_maps(1, 2), **given)
        self.assertIsNone(self.live("m001"))
        self.assertIsNotNone(self.live("m001", namespace="new"))
        report = self.commit(*config_maps(1), default_namespace="new")
        self.assertEqual(self.outcomes(report)["m002"], Outcome.PRUNED)

    def test_two_installations_with_one_name(self) -> None:
        """Neither deletes what the other one has; whichever begins is first."""
        self.commit(*config_maps(1, 2), lease="one/lock", own="one")
        lease = {"holderIdentity": "a", "renewTime": "1970-01-01T00:00:00.000000Z"}
        self.objects.put(
            object_(
                "lock",
                "Lease",
                "coordination.k8s.io/v1",
                metadata={"namespace": "one"},
                spec={**lease, "leaseDurationSeconds": 15},
            )
        )
        with self.assertRaises(CallError) as caught:
            self.commit(*config_maps(3), lease="two/lock")
        self.assertIn("main@one/lock", caught.exception.message)
        self.assertEqual(self.names(), {"m001", "m002"})
        # The first one is stopped, for good or not: nobody can tell.
        self.clock.advance(76)
        self.commit(*config_maps(3), lease="two/lock", commit="x")
        self.commit(*config_maps(3), lease="two/lock", commit="x")
        report = self.commit(*config_maps(3), lease="two/lock", commit="y")
        self.assertEqual(len(report.blocked), 2)
        self.assertIn("another agentk (main@one/lock)", report.blocked[0].reason)
        self.assertEqual(self.names(), {"m001", "m002", "m003"})
        # A repair approves nothing.
        late = self.reconciler(lease="two/lock")
        source = read_source([("a.yaml", json.dumps(config_maps(3)[0]).encode())])
        self.pair.run(late.repair("y", source.manifests))
        report = self.commit(*config_maps(3), lease="two/lock", commit="y")
        self.assertIn("another agentk (main@one/lock)", report.blocked[0].reason)
        # It was an agentk that has moved.
        self.approve(report)
        self.commit(*config_maps(3), lease="two/lock", commit="y")
        self.assertEqual(self.names(), {"m003"})

    def test_marks_of_other_clients(self) -> None:
        """No mark stops a project if the inventory has agentk's signatures."""
        self.commit(*config_maps(1, 2))
        for name in ("ours", "node-0"):
            lease = {"holderIdentity": "a", "renewTime": "1970-01-01T00:00:00.000000Z"}
            self.objects.put(
                object_(
                    name,
                    "Lease",
                    "coordination.k8s.io/v1",
                    metadata={"namespace": "there"},
                    spec={**lease, "leaseDurationSeconds": 15},
                )
            )
        for mark in ("main@there/ours", "x@there/node-0"):
            found = self.live(f"inventory-{ID}")
            found["metadata"]["annotations"][WRITER] = mark
            self.objects.put(found)
            report = self.commit(*config_maps(1))
            self.assertIn("another agentk (main@there", report.blocked[0].reason)
        # Only an agentk with the same id writes the same inventory.
        found = self.live(f"inventory-{ID}")
        found["metadata"]["annotations"][WRITER] = "x@there/node-0"
        self.objects.put({**found, "data": {"default_m009__ConfigMap": ""}})
        self.commit(*config_maps(1))
        found = self.live(f"inventory-{ID}")
        found["metadata"]["annotations"][WRITER] = "main@there/ours"
        self.objects.put({**found, "data": {"default_m009__ConfigMap": ""}})
        with self.assertRaises(CallError):
            self.commit(*config_maps(1))

    def test_more_entries_than_an_inventory_holds(self) -> None:
        """Entries that other clients added do not stop the project."""
        self.commit(*config_maps(*range(4)))
        self.patch(inventory, "MAX_PARTS", 2)
        self.patch(inventory, "MAX_PART", 1000)
        # Of a kind that agentk cannot look for now, so that none is forgotten.
        self.objects.add_kind(SERVICES)
        self.objects.put(SERVICE)
        junk = {f"default_y{n:03}_x.io_Thing": "" for n in range(200)}
        self.change_entries(**junk)
        report = self.commit(object_("m000", data={"n": "x"}), *config_maps(1, 2, 3))
        self.assertEqual(len(report.blocked), 200)
        self.assertEqual(self.live("m000")["data"], {"n": "x"})
        self.assertEqual(len(self.inventory()), 4)
        # Entries of agentk itself are never removed.
        with self.assertRaises(CallError) as caught:
            self.commit(*config_maps(*range(40)))
        self.assertIs(caught.exception.status, Status.RESOURCE_EXHAUSTED)

    def test_two_installations_with_one_lease(self) -> None:
        """In one Namespace their agentk lead by turns."""
        self.commit(*config_maps(1, 2))
        report = self.commit(*config_maps(3), agent="other")
        self.assertEqual(len(report.blocked), 2)
        self.assertIn("another agentk (main@here/ours)", report.blocked[0].reason)
        # What the first one has in Git is nobody's to delete.
        report = self.commit(*config_maps(1, 2))
        self.assertEqual([one.key.name for one in report.blocked], ["m003"])
        self.assertEqual(self.names(), {"m001", "m002", "m003"})

    def change_entries(self, **values: Any) -> None:
        """As a client that may write ConfigMaps; None removes an entry."""
        found = self.live(f"inventory-{ID}")
        data = {**found["data"], **values}
        found["data"] = {name: one for name, one in data.items() if one is not None}
        self.objects.put(found)

    def test_entries_that_agentk_did_not_write(self) -> None:
        """An object of another installation, with an equal id, needs an approval."""
        self.commit(*config_maps(*range(6)))
        theirs = object_(
            "theirs", metadata={"namespace": "default", "annotations": {OWNER: ID}}
        )
        keep = {OWNER: ID, "helm.sh/resource-policy": "keep"}
        self.objects.put(theirs)
        self.objects.put(
            object_("kept", metadata={"namespace": "default", "annotations": keep})
        )
        uid = self.live("theirs")["metadata"]["uid"]
        own = self.live(f"inventory-{ID}")["data"]["default_m001__ConfigMap"]
        for value in (
            "",
            json.dumps({"uid": uid}),
            json.dumps({**json.loads(own), "uid": uid}),
        ):
            self.change_entries(
                default_theirs__ConfigMap=value, default_kept__ConfigMap=""
            )
            report = self.commit(*config_maps(*range(6)))
            (blocked,) = report.blocked
            self.assertEqual((blocked.key.name, blocked.reason), ("theirs", UNSIGNED))
            # Not recorded: there may be any number of them.
            self.assertEqual((len(report.held), report.holds), (1, ()))
            self.assertEqual(self.outcomes(report)["kept"], Outcome.FORGOTTEN)
            annotations = self.live("kept")["metadata"]["annotations"]
            self.assertEqual(annotations, keep)
        # Such entries make no share smaller, and no share larger.
        self.assertEqual(len(self.commit(*config_maps(0, 1)).blocked), 5)
        self.commit(*config_maps(*range(6)), commit="x")
        self.approve(self.commit(*config_maps(*range(6)), commit="x"))
        self.commit(*config_maps(*range(6)), commit="x")
        self.assertIsNone(self.live("theirs"))

    def test_unsigned_entries_of_objects_in_git(self) -> None:
        """They make no share smaller."""
        self.commit(*config_maps(*range(30)))
        new = [object_(f"x{n:03}") for n in range(30)]
        self.change_entries(**{f"default_x{n:03}__ConfigMap": "" for n in range(30)})
        report = self.commit(*new)
        self.assertEqual(len(report.held), 30)
        self.assertIn("30 of 30 objects would be deleted", report.blocked[0].reason)

    def test_an_unsigned_entry_that_cannot_be_read(self) -> None:
        """It stops no other object, but an entry of agentk does."""
        self.objects.add_kind(THING)
        self.commit(*config_maps(0), object_("b", "Thing", "x.io/v1"))
        self.change_entries(**{"default_a_x.io_Thing": ""})
        path = "/apis/x.io/v1/namespaces/default/things"
        self.cluster.answer("GET", f"{path}/a", {}, 503)
        report = self.commit(*config_maps(0, 1), object_("b", "Thing", "x.io/v1"))
        self.assertIn("503", report.blocked[0].reason)
        self.assertIsNotNone(self.live("m001"))
        self.cluster.answer("GET", f"{path}/b", {}, 503)
        with self.assertRaises(CallError):
            self.commit(*config_maps(0, 1, 2))

    def test_deletes_that_become_possible_few_by_few(self) -> None:
        """The limits judge them together, and the others need no approval then."""
        self.commit(*config_maps(*range(30)))
        for number in range(1, 4):

            def stays(key: ObjectKey, number: int = number) -> str:
                return "another has it" if int(key.name[1:]) > number else ""

            report = self.commit(*config_maps(0), commit="c", stays=stays)
            self.assertEqual(len(report.blocked), 29)
            self.assertEqual((len(report.held), report.holds), (number, ()))
            reasons = {one.key.name: one.reason for one in report.blocked}
            why = f"with {29 - number} that are blocked for other reasons"
            self.assertIn(why, reasons["m001"])
        # Another project took the others.
        for number in range(4, 30):
            live = self.live(f"m{number:03}")
            live["metadata"]["annotations"][OWNER] = "8-8"
            self.objects.put(live)
        report = self.commit(*config_maps(0), commit="c")
        self.assertEqual((report.blocked, len(self.names())), ([], 27))

    def test_deletes_that_all_become_possible(self) -> None:
        """After they were delayed, they are held, and an approval is enough."""
        self.commit(*config_maps(*range(30)))

        def stays(key: ObjectKey) -> str:
            return "another has it" if int(key.name[1:]) > 5 else ""

        self.commit(*config_maps(0), commit="c", stays=stays)
        report = self.commit(*config_maps(0), commit="c")
        self.assertEqual((len(report.held), len(report.holds)), (29, 29))
        self.approve(report)
        self.commit(*config_maps(0), commit="c")
        self.assertEqual(self.names(), {"m000"})

    def test_a_claim_to_an_object_of_an_unsigned_entry(self) -> None:
        """The object is not released either."""
        self.commit(*config_maps(1))
        theirs = object_(
            "theirs", metadata={"namespace": "default", "annotations": {OWNER: ID}}
        )
        self.objects.put(theirs)
        self.change_entries(default_theirs__ConfigMap="")

        async def claimed(objects: Any) -> Any:
            return {key: Claim("another agent has it", True) for key in objects}

        report = self.commit(*config_maps(1), claims=claimed)
        self.assertIn(UNSIGNED_CLAIMED, report.blocked[0].reason)
        self.assertEqual(self.live("theirs")["metadata"]["annotations"], {OWNER: ID})

    def test_entries_of_earlier_versions(self) -> None:
        """The first pass signs what is in Git; what was signed before needs nothing."""
        secrets = [object_(f"s{n}", "Secret") for n in range(3)]
        self.commit(*config_maps(*range(6)), *secrets)
        data = self.live(f"inventory-{ID}")["data"]
        for name, value in data.items():
            if "Secret" in name:
                known = json.loads(value)
                self.assertEqual(known.pop("applied")[0], ":")
                data[name] = json.dumps(known)
        self.change_entries(**data)
        # A Secret that leaves Git with the first pass waits; a ConfigMap does not.
        report = self.commit(*config_maps(*range(5)), *secrets[:2])
        self.assertEqual([one.key.name for one in report.blocked], ["s2"])
        self.assertEqual(report.blocked[0].reason, UNSIGNED)
        self.assertIsNone(self.live("m005"))
        self.commit(*config_maps(*range(5)), secrets[0])
        self.assertIsNone(self.live("s1", "Secret"))
        self.assertIsNotNone(self.live("s2", "Secret"))

    def write_without_uid(self) -> InventoryStore:
        """Write an entry as an execution does before it creates the object m002."""
        self.commit(*config_maps(1))
        plan = self.planned(*config_maps(1, 2))
        store = self.reconciler().store
        self.pair.run(store.read())
        key = ObjectKey("", "ConfigMap", "default", "m002")
        entries = {**plan.inventory.entries, key: InventoryEntry()}
        self.pair.run(store.write(Inventory(entries, "c")))
        annotations = {OWNER: ID}
        metadata = {"namespace": "default", "annotations": annotations}
        self.objects.put(object_("m002", metadata=metadata))
        return store

    def test_an_entry_without_a_uid(self) -> None:
        """agentk was killed after it had created the object, and prunes it."""
        self.write_without_uid()
        report = self.commit(*config_maps(1), commit="x")
        self.assertEqual(self.outcomes(report)["m002"], Outcome.PRUNED)

    def test_a_copy_of_an_entry_without_a_uid(self) -> None:
        """After the execution has ended, it proves nothing."""
        self.pair.run(self.write_without_uid().end())
        report = self.commit(*config_maps(1), commit="x")
        self.assertEqual(report.blocked[0].reason, UNSIGNED)
        self.approve(report)
        report = self.commit(*config_maps(1), commit="x")
        self.assertEqual(self.outcomes(report)["m002"], Outcome.PRUNED)

    def test_a_copy_of_an_entry(self) -> None:
        """Neither does a copy from before another execution changed the inventory."""
        self.commit(*config_maps(1, 2, 3, 4, 5))
        copied: Any = copy.deepcopy(self.live(f"inventory-{ID}"))["data"]
        self.change_entries(
            **{name: None for name in copied if name.startswith("default_m002")}
        )
        self.commit(*config_maps(1, 4, 5))
        entry = {k: v for k, v in copied.items() if k.startswith("default_m002")}
        self.change_entries(**entry)
        report = self.commit(*config_maps(1, 4, 5), commit="later")
        self.assertEqual(report.blocked[0].reason, UNSIGNED)
        self.assertIsNotNone(self.live("m002"))

    def test_most_of_it(self) -> None:
        self.commit(*config_maps(*range(30)))
        three = config_maps(*range(3))
        # However often it is looked at again.
        report = self.commit(*three, commit="x")
        for _ in range(2):
            self.assertEqual(len(report.blocked), 27)
            self.assertIn("27 of 30 objects would be deleted", report.blocked[0].reason)
            report = self.commit(*three, commit="x")
        self.approve(attrs.evolve(report, held=report.held[:1]))
        report = self.commit(*three, commit="x")
        self.assertEqual((len(report.blocked), len(report.held)), (26, 26))
        self.approve(report)
        # For this commit and these objects, and for no others.
        self.assertEqual(len(self.commit(*three, commit="y").blocked), 26)
        self.commit(*three, commit="x")
        self.assertEqual(len(self.names()), 3)
        self.assertEqual(self.commit(*three, commit="x").release, "")

    def test_an_approval_lasts_no_longer_than_its_commit(self) -> None:
        """Where nothing could go with it, nothing goes with the next one."""
        self.commit(*config_maps(*range(30)))
        rest = config_maps(*range(3), *range(100, 300))
        rest[1]["data"] = {"n": "another"}
        refused = _Refused(self.client, "m001", "a webhook denies it", "apply")
        self.approve(self.commit(*rest, commit="x", client=refused))
        report = self.commit(*rest, commit="x", client=refused)
        self.assertEqual((len(report.blocked), report.release), (27, ""))
        report = self.commit(*rest, commit="y")
        self.assertEqual(len(report.blocked), 27)
        self.assertEqual(len(self.names()), 230)
        # With its own commit, they still go.
        self.commit(*rest, commit="x")
        self.assertEqual(len(self.names()), 203)

    def test_what_never_was_makes_no_share_smaller(self) -> None:
        """A commit whose hundred objects are all refused, and is taken back."""
        self.commit(*config_maps(*range(30)))
        bad = [object_(f"t{n}", metadata={"namespace": "no"}) for n in range(100)]
        for one in bad:
            name = one["metadata"]["name"]
            self.client = _Refused(self.client, name, "no", "apply")
        self.commit(*config_maps(*range(30)), *bad)
        self.assertEqual(len(self.inventory()), 130)
        report = self.commit(*config_maps(*range(3)))
        self.assertEqual(len(report.blocked), 27)

    def test_a_commit_that_is_reverted_while_agentk_waits(self) -> None:
        """The new objects are deleted without an approval."""
        slow = object_("slow", "Deployment", "apps/v1", spec={"replicas": 1})
        given = self.reconciler(awaits_all=True, reconcile_timeout=3600.0)
        text = "\n---\n".join(json.dumps(one) for one in (slow, *config_maps(1)))
        source = read_source([("all.yaml", text.encode())])
        running = Deferred.fromCoroutine(given.run("c", source))
        for _ in range(30):
            self.clock.advance(1)
            self.pair.settle()
        self.assertFalse(running.called)
        self.assertIsNotNone(self.live("slow", "Deployment", api_version="apps/v1"))
        running.cancel()
        running.addErrback(lambda failure: failure.trap(CancelledError))
        report = self.commit(*config_maps(1))
        self.assertEqual(self.outcomes(report)["slow"], Outcome.PRUNED)

    def test_held_by_an_execution_that_is_interrupted(self) -> None:
        """Other clients cannot release the deletes, whenever it ended."""
        wanted = config_maps(*range(10))
        for point in range(1, 40):
            self.commit(*wanted)
            before: Any = copy.deepcopy(self.live(f"inventory-{ID}"))
            killed = Killed(self.client, point, after=True)
            try:
                self.commit(wanted[0], client=killed, remembers=False)
            except Dead:
                pass
            # The next execution finds no entries.
            live: Any = self.live(f"inventory-{ID}")
            kept = {k: v for k, v in live["data"].items() if "m000" in k}
            removed = {k: v for k, v in before["data"].items() if "m000" not in k}
            held = "held" in json.dumps(live["data"])
            if held:
                self.objects.put({**live, "data": kept})
                self.commit(wanted[0])
                for start in range(0, 9, 3):
                    live = self.live(f"inventory-{ID}")
                    some = dict(list(removed.items())[start : start + 3])
                    self.objects.put({**live, "data": live["data"] | some})
                    self.commit(wanted[0])
            self.assertEqual(len(self.names()), 10, point)
            if held and point > 12:
                break
        self.assertGreater(point, 12)

    def test_held_while_it_prunes_nothing(self) -> None:
        """The limit holds the deletes also after ``prune`` is true again."""
        new = [object_(f"x{number:03}") for number in range(20)]
        self.commit(*config_maps(*range(20)))
        self.commit(*new, prune=False)
        live: Any = copy.deepcopy(self.live(f"inventory-{ID}"))
        for name, value in live["data"].items():
            known = json.loads(value)
            known.pop("held", None)
            live["data"][name] = json.dumps(known)
        self.objects.put(live)
        report = self.commit(*new, prune=True)
        self.assertEqual(len(report.held), 20)
        self.assertEqual(len(self.names()), 40)

    def test_what_other_clients_wrote_is_removed(self) -> None:
        """Also if nothing else changes."""
        self.commit(*config_maps(1))
        live: Any = copy.deepcopy(self.live(f"inventory-{ID}"))
        before = set(live["data"])
        live["data"]["x_y__Z"] = "garbage"
        live["metadata"]["annotations"][PARTS] = "16"
        self.objects.put(live)
        self.commit(*config_maps(1), commit="c1")
        live = self.live(f"inventory-{ID}")
        self.assertEqual(set(live["data"]), before)
        self.assertEqual(live["metadata"]["annotations"][PARTS], "1")

    def test_held_while_its_api_server_is_away(self) -> None:
        """It is held afterwards, too, however many objects came meanwhile."""
        self.objects.add_kind(THING)
        self.objects.add_kind(SERVICES)
        self.objects.put(SERVICE)
        things = [object_(f"t{n}", "Thing", "x.io/v1") for n in range(10)]
        self.commit(*things, *config_maps(1))
        many = config_maps(*range(100))
        self.assertEqual(len(self.commit(*many).blocked), 10)
        del self.objects._kinds["x.io/v1", "things"]
        self.clock.advance(60)
        self.assertEqual(len(self.commit(*many).blocked), 10)
        self.objects.add_kind(THING)
        self.clock.advance(60)
        report = self.commit(*many)
        self.assertEqual(len(report.blocked), 10)
        self.assertIn("10 of 11 objects", report.blocked[0].reason)

    def test_everything_is_renamed(self) -> None:
        """What came in its place does not make it a smaller share."""
        self.commit(*config_maps(*range(30)))
        for commit in ("x", "x", "y"):
            report = self.commit(*config_maps(*range(30, 60)), commit=commit)
            self.assertEqual(len(report.blocked), 30)
        self.commit(*config_maps(*range(60)))
        self.assertEqual(len(self.names()), 60)
        report = self.commit(*config_maps(*range(60, 90)))
        self.assertEqual(len(report.blocked), 60)

    def test_renamed_while_an_object_failed(self) -> None:
        """Nothing goes in that run, and no more of it in the next one."""
        self.commit(*config_maps(*range(30)))
        renamed = config_maps(*range(30, 60))
        bad = object_("t", "Thing", "x.io/v1")
        self.assertEqual(len(self.commit(*renamed, bad).blocked), 30)
        self.assertEqual(len(self.commit(*renamed).blocked), 30)
        self.assertEqual(len(self.names()), 60)

    def test_too_many(self) -> None:
        self.commit(*config_maps(*range(30)))
        limits = PruneLimits(percent=100, count=4)
        report = self.commit(*config_maps(*range(25)), limits=limits)
        self.assertEqual(len(report.blocked), 5)
        # What was held waits for a person, or for Git.
        report = self.commit(*config_maps(*range(30)), limits=limits)
        report = self.commit(*config_maps(*range(26)), limits=limits)
        self.assertEqual(len(report.blocked), 0)

    def test_what_is_applied_beside_a_brake(self) -> None:
        self.commit(*config_maps(*range(10)))
        report = self.commit(*config_maps(20, 21))
        self.assertEqual(len(report.blocked), 10)
        self.assertIn("m020", self.names())

    def test_off_and_on_again(self) -> None:
        """What left while it was off is still known."""
        self.commit(*config_maps(1, 2))
        report = self.commit(*config_maps(1), prune=False)
        self.assertEqual(report.blocked[0].reason, "prune is false")
        self.assertEqual(self.names(), {"m001", "m002"})
        self.commit(*config_maps(1))
        self.assertEqual(self.names(), {"m001"})

    def test_another_object_of_the_name(self) -> None:
        self.commit(*config_maps(1, 2))
        live = self.live("m002")
        self.remove("m002")
        del live["metadata"]["uid"], live["metadata"]["resourceVersion"]
        self.objects.put(live)
        # With the annotation, agentk may have recreated it: an operator decides.
        report = self.commit(*config_maps(1), commit="x")
        self.assertEqual(report.blocked[0].reason, UNSIGNED)
        self.assertEqual(self.inventory(), {"m001", "m002"})
        live["metadata"]["annotations"]["helm.sh/resource-policy"] = "keep"
        self.objects.put(live)
        self.commit(*config_maps(1), commit="x")
        self.assertEqual(self.live("m002")["metadata"]["annotations"][OWNER], ID)
        self.assertEqual(self.inventory(), {"m001"})

    def test_an_object_without_annotation_of_the_name(self) -> None:
        self.commit(*config_maps(1, 2))
        self.remove("m002")
        self.objects.put(object_("m002", metadata={"namespace": "default"}))
        report = self.commit(*config_maps(1))
        self.assertEqual(self.outcomes(report)["m002"], Outcome.FORGOTTEN)
        self.assertIsNotNone(self.live("m002"))
        self.assertEqual(self.inventory(), {"m001"})

    def test_one_object_with_two_names(self) -> None:
        """As of an API that shows objects of another one, with the same uid."""
        self.objects.add_kind(THING)
        self.objects.add_kind(attrs.evolve(THING, group="new.x.io"))
        thing = object_("t", "Thing", "x.io/v1")
        self.commit(thing, *config_maps(1))
        uid = self.live("t", "Thing", api_version="x.io/v1")["metadata"]["uid"]
        renamed = object_("t", "Thing", "new.x.io/v1")
        shown = copy.deepcopy(renamed)
        shown["metadata"] |= {"namespace": "default", "annotations": {OWNER: ID}}
        self.objects.put(shown)
        for stored in self.objects._stored.values():
            if stored.resource.group == "new.x.io":
                stored.object["metadata"]["uid"] = uid
        report = self.commit(renamed, *config_maps(1))
        (forgotten,) = (
            one for one in report.results.values() if one.outcome is Outcome.FORGOTTEN
        )
        self.assertEqual(forgotten.key.group, "x.io")
        self.assertIn(
            "it is the same object as Thing.new.x.io default/t", forgotten.reason
        )
        self.assertIsNotNone(self.live("t", "Thing", api_version="x.io/v1"))

    def test_gone_already(self) -> None:
        self.commit(*config_maps(1, 2))
        self.remove("m002")
        report = self.commit(*config_maps(1))
        self.assertEqual(self.outcomes(report)["m002"], Outcome.FORGOTTEN)
        self.assertEqual(self.inventory(), {"m001"})

    def test_annotations_that_keep(self) -> None:
        """Whoever put them there, and in Git or in the cluster."""
        for name, value in (
            ("cli-utils.sigs.k8s.io/on-remove", "keep"),
            ("client.lifecycle.config.k8s.io/deletion", "detach"),
            ("helm.sh/resource-policy", "keep"),
            ("kustomize.toolkit.fluxcd.io/prune", "disabled"),
            ("argocd.argoproj.io/sync-options", "Validate=false, Prune=false"),
            ("argocd.argoproj.io/sync-options", "Delete=confirm"),
            ("helm.sh/resource-policy", " Keep"),
            ("kustomize.toolkit.fluxcd.io/prune", "Disabled"),
        ):
            self.commit(object_("a"), *config_maps(1))
            live = self.live("a")
            live["metadata"]["annotations"][name] = value
            self.objects.put(live)
            report = self.commit(*config_maps(1))
            self.assertEqual(self.outcomes(report)["a"], Outcome.DETACHED, name)
            self.assertEqual(self.live("a")["metadata"]["annotations"], {name: value})
            self.assertEqual(self.inventory(), {"m001"})
            self.remove("a")

    def test_a_stuck_finalizer(self) -> None:
        """It is named; the others go, and the next commit comes."""
        self.commit(*config_maps(1, 2, 3))
        live = self.live("m002")
        live["metadata"]["finalizers"] = ["x.io/never"]
        self.objects.put(live)
        report = self.commit(*config_maps(1), prune_timeout=10.0)
        (failed,) = report.failed
        self.assertEqual(failed.key.name, "m002")
        self.assertIn("not gone in 10 s", failed.reason)
        self.assertIn("x.io/never", failed.reason)
        self.assertEqual(self.names(), {"m001", "m002"})
        self.assertEqual(self.inventory(), {"m001", "m002"})
        self.commit(*config_maps(1, 4), prune_timeout=10.0)
        self.assertIn("m004", self.names())

    def test_a_namespace_with_foreign_content(self) -> None:
        inside = object_("ours", metadata={"namespace": "here"})
        self.commit(object_("here", "Namespace"), inside, *config_maps(1, 2))
        foreign = object_("theirs", "Secret", metadata={"namespace": "here"})
        self.objects.put(foreign)
        report = self.commit(*config_maps(1, 2))
        outcomes = self.outcomes(report)
        self.assertEqual(outcomes["here"], Outcome.BLOCKED)
        self.assertEqual(outcomes["ours"], Outcome.PRUNED)
        self.assertIn("Secret here/theirs", report.blocked[0].reason)
        self.objects.remove("v1", "Secret", "theirs", "here")
        outcomes = self.outcomes(self.commit(*config_maps(1, 2)))
        self.assertEqual(outcomes["here"], Outcome.PRUNED)

    def test_a_namespace_with_what_stays(self) -> None:
        """In Git, by an annotation, or because of who owns it."""
        space, names = object_("here", "Namespace"), ("one", "two", "three")
        inside = [object_(one, metadata={"namespace": "here"}) for one in names]
        rest = config_maps(*range(8))
        self.commit(space, *inside, *rest)
        report = self.commit(inside[0], *rest)
        self.assertEqual(self.outcomes(report)["here"], Outcome.BLOCKED)
        self.assertIn("ConfigMap here/one", report.blocked[0].reason)
        live = self.live("one", namespace="here")
        live["metadata"]["annotations"]["helm.sh/resource-policy"] = "keep"
        self.objects.put(live)
        report = self.commit(*rest)
        self.assertEqual(self.outcomes(report)["here"], Outcome.BLOCKED)
        self.objects.remove("v1", "ConfigMap", "one", "here")
        owned = object_("owned", metadata={"namespace": "here"})
        owned["metadata"]["ownerReferences"] = [{"apiVersion": "v1", "kind": "Node"}]
        self.objects.put(owned)
        report = self.commit(*rest)
        self.assertIn("ConfigMap here/owned", report.blocked[0].reason)
        owned["metadata"]["ownerReferences"] = [{"apiVersion": "v1", "kind": "Pod"}]
        self.objects.put(owned)
        self.assertEqual(self.outcomes(self.commit(*rest))["here"], Outcome.PRUNED)

    def test_a_delete_that_is_refused(self) -> None:
        """The object is not deleted by way of its Namespace."""
        space = object_("here", "Namespace")
        inside = object_("ours", metadata={"namespace": "here"})
        self.commit(space, inside, *config_maps(1, 2))
        client = _Refused(self.client, "ours", "a webhook denies it", "delete")
        outcomes = self.outcomes(self.commit(*config_maps(1, 2), client=client))
        self.assertEqual(
            (outcomes["ours"], outcomes["here"]), (Outcome.FAILED, Outcome.BLOCKED)
        )
        self.assertEqual(self.inventory(), {"m001", "m002", "ours", "here"})
        outcomes = self.outcomes(self.commit(*config_maps(1, 2)))
        self.assertEqual(
            (outcomes["ours"], outcomes["here"]), (Outcome.PRUNED, Outcome.PRUNED)
        )

    def test_what_others_need_stays_while_they_do(self) -> None:
        """An operator, while its object has a finalizer that it alone takes off."""
        place = "/namespaces/default/ConfigMap"
        needs = {"annotations": {DEPENDS_ON: f"{place}/operator,{place}/m001"}}
        self.commit(
            object_("operator"), object_("thing", metadata=needs), *config_maps(1)
        )
        live = self.live("thing")
        live["metadata"]["finalizers"] = ["x.io/operator"]
        self.objects.put(live)
        outcomes = self.outcomes(self.commit(*config_maps(1), prune_timeout=5.0))
        self.assertEqual(outcomes["thing"], Outcome.FAILED)
        self.assertEqual(outcomes["operator"], Outcome.BLOCKED)
        self.assertIsNotNone(self.live("operator"))

    def test_made_anew_and_the_answer_is_lost(self) -> None:
        """It is ours all the same, and goes when it leaves Git."""
        for point in range(1, 40):
            self.commit(*config_maps(1, 2))
            self.remove("m002")
            killed = Killed(self.client, point, after=True)
            try:
                self.commit(*config_maps(1, 2), client=killed)
            except Dead:
                pass
            else:
                break
            report = self.commit(*config_maps(1), commit="x")
            if report.held:
                # The inventory does not contain the uid of the new object.
                self.approve(report)
                self.commit(*config_maps(1), commit="x")
            self.assertIsNone(self.live("m002"), point)
        self.assertGreater(point, 5)

    def test_a_forged_inventory_hides_nothing(self) -> None:
        """An agentk that starts believes only what an agentk signed."""
        (wanted,) = config_maps(1)
        self.commit(wanted)
        self.assertEqual(self.outcomes(self.commit(wanted))["m001"], Outcome.UNCHANGED)
        live = self.live("m001")
        requests = len(self.cluster.requests)
        self.commit(wanted)
        sent = [one.method for one in self.cluster.requests[requests:]]
        self.assertNotIn("PATCH", sent)
        # Another user changes the object and says that it is as it was applied.
        fields = live["metadata"]["managedFields"]
        fields[0]["time"] = "2026-01-01T00:00:00Z"
        self.objects.put({**live, "data": {"n": "other"}})
        owned = owned_fields(self.live("m001")["metadata"], "agentk")
        inventory: Any = self.live(f"inventory-{ID}")
        ((name, value),) = inventory["data"].items()
        known = json.loads(value)
        form, digest, _, signature = known["applied"].split(":")
        known["applied"] = f"{form}:{digest}:{owned}:{signature}"
        self.objects.put({**inventory, "data": {name: json.dumps(known)}})
        self.commit(wanted, force=True)
        self.assertEqual(self.live("m001")["data"], {"n": "1"})

    def test_a_conversion_webhook_that_is_down(self) -> None:
        """Its objects fail alone; the commit that mends the webhook is applied."""
        self.objects.add_kind(THING)
        things = [object_(f"t{n}", "Thing", "x.io/v1") for n in (1, 2)]
        self.commit(*things, *config_maps(1))
        failed = {"code": 500, "message": "conversion webhook failed: refused"}
        path = "/apis/x.io/v1/namespaces/default/things"
        for name in ("t1", "t2"):
            self.cluster.answer("GET", f"{path}/{name}", failed, 500)
        # One of them leaves Git, and the other stays.
        mended = object_("m001", data={"n": "mended"})
        outcomes = self.outcomes(self.commit(things[0], mended, *config_maps(2)))
        self.assertEqual(
            outcomes,
            {
                "t1": Outcome.FAILED,
                "t2": Outcome.BLOCKED,
                "m001": Outcome.CHANGED,
                "m002": Outcome.CREATED,
            },
        )
        self.assertEqual(self.live("m001")["data"], {"n": "mended"})
        self.assertEqual(self.inventory(), {"t1", "t2", "m001", "m002"})

    def test_an_api_server_that_is_full(self) -> None:
        """It says nothing of an object: nothing else is tried."""
        self.commit(*config_maps(1))
        path = "/api/v1/namespaces/default/configmaps/m001"
        for status, words in ((503, "no"), (429, "no"), (500, "etcdserver: no leader")):
            self.cluster.answer("GET", path, {"message": words}, status)
            with self.assertRaises(CallError):
                self.commit(*config_maps(1, 2))
        self.assertIsNone(self.live("m002"))

    def test_an_api_server_that_is_away(self) -> None:
        """Its kinds are not to be seen, and nothing is forgotten."""
        self.objects.add_kind(SERVICES)
        self.objects.add_kind(THING)
        self.objects.put(SERVICE)
        self.commit(object_("t", "Thing", "x.io/v1"), *config_maps(1))
        del self.objects._kinds["x.io/v1", "things"]
        self.clock.advance(60)
        report = self.commit(*config_maps(1))
        self.assertEqual(self.outcomes(report)["t"], Outcome.BLOCKED)
        self.assertEqual(self.inventory(), {"t", "m001"})

    def test_an_api_server_that_has_no_such_kind(self) -> None:
        """It may have come back without all of them: that is not the end of them."""
        self.objects.add_kind(SERVICES)
        self.objects.add_kind(THING)
        conditions = [{"type": "Available", "status": "True"}]
        self.objects.put({**SERVICE, "status": {"conditions": conditions}})
        self.commit(object_("t", "Thing", "x.io/v1"), *config_maps(1))
        del self.objects._kinds["x.io/v1", "things"]
        self.clock.advance(60)
        report = self.commit(*config_maps(1))
        self.assertEqual(self.inventory(), {"t", "m001"})
        self.assertIn("does not list this kind now", report.blocked[0].reason)

    def test_a_definition_with_objects_of_others(self) -> None:
        self.objects.add_kind(DEFINITION)
        self.objects.add_kind(THING)
        definition = object_(
            "things.x.io",
            "CustomResourceDefinition",
            "apiextensions.k8s.io/v1",
            spec={"group": "x.io", "names": {"kind": "Thing", "plural": "things"}},
        )
        self.commit(definition, *config_maps(1))
        thing = object_("t", "Thing", "x.io/v1", metadata={"namespace": "there"})
        self.objects.put(thing)
        report = self.commit(*config_maps(1))
        self.assertEqual(self.outcomes(report)["things.x.io"], Outcome.BLOCKED)
        self.assertIn("Thing.x.io there/t", report.blocked[0].reason)

    def test_a_label_that_keeps(self) -> None:
        self.commit(object_("a"), *config_maps(1))
        live = self.live("a")
        live["metadata"]["labels"] = {"kustomize.toolkit.fluxcd.io/prune": "disabled"}
        self.objects.put(live)
        outcomes = self.outcomes(self.commit(*config_maps(1)))
        self.assertEqual(outcomes["a"], Outcome.DETACHED)

    def test_a_definition_of_which_nothing_is_served(self) -> None:
        """Its objects are in no list, and would go with it."""
        self.objects.add_kind(DEFINITION)
        spec = {"group": "x.io", "names": {"kind": "Thing", "plural": "things"}}
        kind, api_version = DEFINITION.kind, DEFINITION.api_version
        self.commit(object_("things.x.io", kind, api_version, spec=spec), object_("a"))
        live = self.live("things.x.io", kind, api_version=api_version, namespace="")
        live["status"] = {"conditions": [{"type": "Established", "status": "True"}]}
        self.objects.put(live)
        report = self.commit(object_("a"))
        self.assertEqual(self.outcomes(report)["things.x.io"], Outcome.BLOCKED)
        self.assertIn("cannot tell whether", report.blocked[0].reason)

    def test_a_kind_of_which_nothing_is_served(self) -> None:
        """Its objects are still there, and come back with the version."""
        self.objects.add_kind(DEFINITION)
        self.objects.add_kind(THING)
        kind, api_version = DEFINITION.kind, DEFINITION.api_version
        for name in "Other", "Thing":
            spec = {"group": "x.io", "names": {"kind": name, "plural": name.lower()}}
            self.objects.put(
                object_(f"{name.lower()}.x.io", kind, api_version, spec=spec)
            )
        self.commit(object_("t", "Thing", "x.io/v1"), *config_maps(1))
        del self.objects._kinds["x.io/v1", "things"]
        self.clock.advance(60)
        report = self.commit(*config_maps(1))
        self.assertEqual(self.outcomes(report)["t"], Outcome.BLOCKED)
        self.assertIn("no version of it is served", report.blocked[0].reason)
        self.assertEqual(self.inventory(), {"t", "m001"})
        self.objects.remove(api_version, kind, "thing.x.io", "")
        report = self.commit(*config_maps(1))
        self.assertEqual(self.inventory(), {"m001"})

    def test_a_namespace_of_which_not_all_is_seen(self) -> None:
        """An API server that is away may have objects in it."""
        self.objects.add_kind(SERVICES)
        self.objects.put(SERVICE)
        self.commit(object_("here", "Namespace"), *config_maps(1))
        report = self.commit(*config_maps(1))
        self.assertEqual(self.outcomes(report)["here"], Outcome.BLOCKED)
        self.assertIn("the API server of x.io is unavailable", report.blocked[0].reason)
        conditions = [{"type": "Available", "status": "True"}]
        self.objects.put({**SERVICE, "status": {"conditions": conditions}})
        outcomes = self.outcomes(self.commit(*config_maps(1)))
        self.assertEqual(outcomes["here"], Outcome.PRUNED)

    def test_owners_that_are_not_in_the_namespace(self) -> None:
        """Of the whole cluster in an older version, or of a kind that is gone."""
        self.objects.add_kind(attrs.evolve(THING, kind="Wide", namespaced=False))
        for api_version, kind in (("x.io/v1beta1", "Wide"), ("gone.io/v1", "Gone")):
            self.commit(object_("here", "Namespace"), *config_maps(1))
            owned = object_("owned", metadata={"namespace": "here"})
            owner = {"apiVersion": api_version, "kind": kind}
            owned["metadata"]["ownerReferences"] = [owner]
            self.objects.put(owned)
            report = self.commit(*config_maps(1))
            self.assertEqual(self.outcomes(report)["here"], Outcome.BLOCKED, kind)
            self.assertIn("ConfigMap here/owned", report.blocked[0].reason)

    def test_a_kind_that_is_gone_where_agentk_may_not_ask_why(self) -> None:
        """All else is applied and pruned; of its objects nothing is forgotten."""
        self.objects.add_kind(SERVICES)
        self.objects.add_kind(THING)
        self.commit(object_("t", "Thing", "x.io/v1"), *config_maps(1, 2))
        del self.objects._kinds["x.io/v1", "things"]
        self.clock.advance(60)
        path = "/apis/apiregistration.k8s.io/v1/apiservices?limit=500"
        denied = {"kind": "Status", "message": "may not", "code": 403}
        self.cluster.answer("GET", path, denied, 403)
        report = self.commit(*config_maps(1, 3))
        self.assertEqual(self.outcomes(report)["t"], Outcome.BLOCKED)
        self.assertIn("may not", report.blocked[0].reason)
        self.assertEqual(self.names(), {"m001", "m003"})
        self.assertEqual(self.inventory(), {"t", "m001", "m003"})

    def test_content_goes_before_its_namespace(self) -> None:
        inside = object_("ours", metadata={"namespace": "here"})
        self.commit(object_("here", "Namespace"), inside, *config_maps(1))
        before = len(self.cluster.requests)
        self.commit(*config_maps(1))
        deleted = [
            one.path for one in self.cluster.requests[before:] if one.method == "DELETE"
        ]
        self.assertEqual(
            [path.rpartition("/")[2] for path in deleted], ["ours", "here"]
        )

    def test_what_changed_since_the_plan(self) -> None:
        """Each delete asks its prune guards once more, right before."""
        inside = object_("ours", metadata={"namespace": "here"})
        space = object_("here", "Namespace")
        self.commit(space, inside, *config_maps(1, 2, 3))
        plan = self.planned(*config_maps(3))
        verbs = {key.name: one.verb for key, one in plan.leaving.items()}
        self.assertEqual(set(verbs.values()), {Verb.BLOCK})
        plan = self.planned(*config_maps(3), limits=PruneLimits(percent=100))
        for name, change in (
            ("m001", {"helm.sh/resource-policy": "keep", OWNER: ID}),
            ("m002", {OWNER: "8-8"}),
        ):
            live = self.live(name)
            live["metadata"]["annotations"] = change
            self.objects.put(live)
        theirs = object_("theirs", "Secret", metadata={"namespace": "here"})
        self.objects.put(theirs)
        self.assertEqual(
            self.acted(plan),
            {
                "m001": Outcome.BLOCKED,
                "m002": Outcome.FORGOTTEN,
                "m003": Outcome.UNCHANGED,
                "ours": Outcome.PRUNED,
                "here": Outcome.BLOCKED,
            },
        )
        self.assertEqual(self.inventory(), {"m001", "m003", "here"})

    def test_a_plan_changes_nothing(self) -> None:
        self.commit(*config_maps(1, 2))
        before = len(self.cluster.requests)
        plan = self.planned(*config_maps(2, 3))
        verbs = {key.name: one.verb for key, one in plan.wanted.items()}
        self.assertEqual(verbs, {"m002": Verb.APPLY, "m003": Verb.CREATE})
        self.assertEqual(
            {key.name: one.verb for key, one in plan.leaving.items()},
            {"m001": Verb.PRUNE},
        )
        methods = {one.method for one in self.cluster.requests[before:]}
        self.assertEqual(methods, {"GET"})


class LeaderTests(ReconcileCase):
    """Two agentk, of which one has lost its leadership."""

    def test_no_longer_the_leader(self) -> None:
        self.commit(*config_maps(1))
        self.leads = False
        with self.assertRaises(Superseded):
            self.commit(*config_maps(2))
        self.assertEqual(self.names(), {"m001"})

    def test_it_wakes_up_late(self) -> None:
        """It asked before it was frozen; the inventory tells it."""
        self.commit(*config_maps(1))
        late = self.reconciler()
        source = read_source([("a.yaml", json.dumps(config_maps(2)[0]).encode())])
        plan = self.pair.run(late.plan("late", source))
        assert isinstance(plan, Plan)
        self.commit(*config_maps(1, 3))
        acting = act.Act(
            late.client, plan, late.settings, late.store, lambda: True, self.clock,
            self.clock.seconds,
        )  # fmt: skip
        with self.assertRaises(Superseded):
            self.pair.run(acting.run())
        self.assertEqual(self.names(), {"m001", "m003"})

    def ends_at(self, delete: str, meanwhile: Callable[[], Awaitable[object]]) -> None:
        """*meanwhile* comes while the delete of an object is prepared."""
        looks = 0

        async def look(name: str) -> None:
            nonlocal looks
            looks += name == delete
            if name == delete and looks == 2:
                await meanwhile()

        client = _Watched(self.client, look)
        with self.assertRaises(Superseded):
            self.commit(*config_maps(1, 2), client=client)
        self.assertEqual(looks, 2)
        self.assertIsNotNone(self.live(delete))

    def test_frozen_before_a_delete(self) -> None:
        """The next one has a commit with that object, and changes nothing of it."""
        self.commit(*config_maps(1, 2, 3))
        text = "\n---\n".join(json.dumps(one) for one in config_maps(1, 2, 3))
        source = read_source([("all.yaml", text.encode())])
        self.ends_at("m003", lambda: self.reconciler().run("next", source))

    def test_suspended_before_a_delete(self) -> None:
        """As with kubectl: agentk hears nothing of it but where it asks."""
        self.commit(*config_maps(1, 2, 3))
        self.ends_at("m003", lambda: self.order(suspended))

    def test_suspended_while_it_waits(self) -> None:
        """What comes after what is waited for is not applied."""
        first = object_("a", metadata={"annotations": {"x": "1"}})
        needs = {DEPENDS_ON: "/namespaces/default/ConfigMap/a"}
        second = object_("b", metadata={"annotations": needs})
        self.commit(first, second)
        self.remove("b")
        looks = []

        async def look(name: str) -> None:
            looks.append(name)
            if looks.count("a") == 2:
                await self.order(suspended)

        with self.assertRaises(Superseded):
            self.commit(first, second, commit="c1", client=_Watched(self.client, look))
        self.assertIsNone(self.live("b"))

    def test_suspended_since_it_was_asked(self) -> None:
        """A commit may take minutes to be read: nothing is applied then."""
        self.commit(*config_maps(1))
        late = self.reconciler()
        self.pair.run(late.store.read())
        self.pair.run(self.order(suspended))
        source = read_source([("a.yaml", json.dumps(config_maps(2)[0]).encode())])
        with self.assertRaises(Superseded):
            self.pair.run(late.run("late", source))
        with self.assertRaises(Superseded):
            self.pair.run(late.repair("late", source.manifests))
        self.assertEqual(self.names(), {"m001"})


class CrashTests(ReconcileCase):
    """agentk is killed at each of its requests, before it and after it."""

    def test_every_point(self) -> None:
        old, new = config_maps(*range(8)), config_maps(*range(4, 12))
        limits = PruneLimits(percent=100)
        for after in (False, True):
            for point in range(1, 200):
                for name in self.names() | {f"inventory-{ID}"}:
                    self.remove(name)
                self.commit(*old)
                try:
                    self.commit(
                        *new, limits=limits, client=Killed(self.client, point, after)
                    )
                except Dead:
                    pass
                else:
                    break
                # All that exists is known, so that it can go.
                self.assertLessEqual(self.names(), self.inventory(), (point, after))
                report = self.commit(*new, limits=limits)
                self.assertEqual(report.failed, [])
                wanted = {one["metadata"]["name"] for one in new}
                self.assertEqual(self.names(), wanted, (point, after))
                self.assertEqual(self.inventory(), wanted)
            else:
                self.fail("it never ends")
            self.assertGreater(point, 20)


class _Overtaken:
    """A client before whose first application others do something."""

    def __init__(self, client: Any, others: Callable[[], object]) -> None:
        self._client = client
        self._others: Callable[[], object] | None = others

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def apply(self, found: Any, **given: Any) -> Any:
        others, self._others = self._others, None
        if others is not None:
            others()
        return await self._client.apply(found, **given)


class _Refused:
    """A client that the API server refuses one object, by one method."""

    def __init__(
        self,
        client: Any,
        refused: str,
        words: str,
        method: str = "get",
        status: Status = Status.PERMISSION_DENIED,
    ) -> None:
        self._client, self._refused, self._words = client, refused, words
        self._method, self._status = method, status

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._client, name)
        if name != self._method:
            return method

        async def call(*given: Any, **more: Any) -> Any:
            names = {
                one["metadata"]["name"] if isinstance(one, dict) else one
                for one in given
                if not isinstance(one, KubernetesResource)
            }
            if self._refused in names:
                raise CallError(self._status, self._words)
            return await method(*given, **more)

        return call


class _Watched:
    """A client, of which each look at an object is told before it is made."""

    def __init__(self, client: Any, look: Callable[[str], Awaitable[object]]) -> None:
        self._client, self._look = client, look

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def get(
        self, resource: KubernetesResource, name: str, namespace: str = ""
    ) -> Any:
        await self._look(name)
        return await self._client.get(resource, name, namespace)


class Dead(Exception):
    """Of the process; no part of it does anything more."""


class Killed:
    """A client of a process that dies at a request, before or after it is answered."""

    def __init__(self, client: Any, left: int, after: bool) -> None:
        self._client, self._left, self._after = client, left, after

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._client, name)
        if name == "list":
            return method

        async def call(*given: Any, **more: Any) -> KubernetesObject:
            self._left -= 1
            if self._left < 0 or (self._left == 0 and not self._after):
                raise Dead
            found: KubernetesObject = await method(*given, **more)
            if self._left == 0:
                raise Dead
            return found

        return call


class OvertakenTests(ReconcileCase):
    """Between the plan of a new object and its creation."""

    def found(self, **metadata: Any) -> Any:
        made = object_("m001", data={"n": "theirs"})
        made["metadata"] |= {"namespace": "default", **metadata}
        return made

    def overtaken(self, found: Any, **given: Any) -> Report:
        client = _Overtaken(self.client, lambda: self.objects.put(found))
        return self.commit(*config_maps(1), client=client, **given)

    def test_another_object(self) -> None:
        """It is left as it is, also where fields are taken by force."""
        for force in (False, True):
            report = self.overtaken(self.found(), force=force)
            (result,) = report.results.values()
            self.assertIs(result.outcome, Outcome.FAILED)
            self.assertIn(
                "another object of this name was created in the meantime", result.reason
            )
            self.assertEqual(self.live("m001")["data"], {"n": "theirs"})
            self.objects.remove("v1", "ConfigMap", "m001", "default")

    def test_our_own(self) -> None:
        """Of a request that was answered by nobody: it is applied."""
        found = self.found(annotations={OWNER: ID})
        report = self.overtaken(found, force=True)
        (result,) = report.results.values()
        self.assertNotEqual(result.outcome, Outcome.FAILED)
        self.assertEqual(self.live("m001")["data"], {"n": "1"})

    def test_an_api_that_knows_no_versions(self) -> None:
        """It is looked at, and applied without one."""
        words = "resourceVersion should not be set on objects to be created"
        client = _Versionless(self.client, words)
        report = self.commit(*config_maps(1), client=client)
        (result,) = report.results.values()
        self.assertIs(result.outcome, Outcome.CREATED)


class _Versionless(_Overtaken):
    def __init__(self, client: Any, words: str) -> None:
        super().__init__(client, lambda: None)
        self._words = words

    async def apply(self, found: Any, **given: Any) -> Any:
        if found["metadata"].get("resourceVersion"):
            raise CallError(Status.INVALID_ARGUMENT, self._words)
        return await self._client.apply(found, **given)
