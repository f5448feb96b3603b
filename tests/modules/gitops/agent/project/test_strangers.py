"""Other clients that write the inventory, and scopes that change: what others feel."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

from modules.gitops.agent.apply.backups import MAX_OF_OBJECT
from modules.gitops.agent.apply.execution import BUSY_TIMES
from modules.gitops.agent.apply.pruner import ALWAYS_CHANGED
from modules.gitops.agent.inventory.inventory import (
    COMMIT,
    LABEL,
    PARTS,
    SELECTION,
    SOURCE,
    WRITER,
)
from modules.gitops.agent.objects.owner_annotations import CLAIMED_BY, OWNER
from modules.gitops.agent.project.status import State
from modules.gitops.wire.settings import GitopsSection
from tests.modules.gitops.agent.project.test_reconcile import config_maps, object_
from tests.modules.gitops.halves import HalvesTestCase, text
from tunnel.config import read

DEPENDS = ({"id": "apps"}, {"id": "other", "depends_on": ["apps"]})


class StrangersTestCase(HalvesTestCase):
    """Projects whose inventories and scopes a test changes."""

    def inventory(self, project: str = "apps") -> Any:
        """The first part of a project's inventory."""
        objects = self.cluster.objects
        (found,) = (
            one.object
            for one in objects._stored.values()
            if one.object["kind"] == "ConfigMap"
            and one.object["metadata"]["name"].startswith("inventory-")
            and f"-{project}-" in one.object["metadata"]["name"]
        )
        return json.loads(json.dumps(found))

    def add_entry(self, name: str, value: str = "") -> None:
        """As a client that may write ConfigMaps."""
        inventory = self.inventory()
        inventory["data"][name] = value
        self.cluster.objects.put(inventory)

    def apply(self, *projects: Any, scope: tuple[str, ...] = ()) -> None:
        """Configure projects and a scope."""
        texts = {"gitops": json.dumps({"manifest_projects": projects})}
        if scope:
            texts["scope"] = json.dumps({"namespaces": scope})
        self.pair.sections.apply(texts)
        self.passes(10)

    def project(self, name: str = "apps") -> Any:
        return self.agent.projects[name]

    def outside(self, since: int) -> list[str]:
        """Requests for the namespace ``other``."""
        paths = [one.path for one in self.cluster.requests[since:]]
        return [one for one in paths if "/namespaces/other/" in one]

    def stranger(self, name: str, namespace: str = "other") -> Any:
        """An object in a namespace."""
        return object_(name, metadata={"namespace": namespace})

    def find(self, name: str) -> Any:
        return self.cluster.objects.find("v1", "ConfigMap", name, "other")


class PruneTests(StrangersTestCase):
    """An object whose owner changes it before each of its deletes."""

    def test_an_object_that_always_changes(self) -> None:
        """It holds up neither the project nor the backups of other objects."""
        changes = object_("x", metadata={"namespace": "other"})
        precious = object_("y", data={"precious": "backup"})
        self.apps.commit({"a.yaml": text(*config_maps(*range(8)), changes, precious)})
        self.apply({"id": "apps"})
        self.apps.commit({"a.yaml": text(*config_maps(*range(8)), changes)})
        self.pushed()
        self.passes(60)
        respond, deletes = self.cluster.objects.respond, list[str]()

        def changing(method: str, path: str, *rest: Any) -> Any:
            if method == "DELETE" and "/other/configmaps/x" in path:
                deletes.append(path)
                live = json.loads(json.dumps(self.find("x")))
                live["data"] = {"n": str(len(deletes))}
                self.cluster.objects.put(live)
            return respond(method, path, *rest)

        self.patch(self.cluster.objects, "respond", changing)
        self.apps.commit({"a.yaml": text(*config_maps(*range(8)))})
        self.pushed()
        self.passes(30)
        (project,) = [self.project()]
        self.assertEqual(len(deletes), BUSY_TIMES)
        self.assertIn(ALWAYS_CHANGED, str(project.status.problems))
        drifted = json.loads(json.dumps(self.live("m001")))
        drifted["data"] = {"n": "by hand"}
        self.cluster.objects.put(drifted)
        self.passes(3600)
        self.assertEqual(self.live("m001")["data"], {"n": "1"})
        kept = self.pair.run(project.operations.kept())
        names = [one.key.name for one in kept]
        self.assertLessEqual(names.count("x"), MAX_OF_OBJECT)
        self.assertIn("y", names)


class CopyTests(StrangersTestCase):
    """Copies of entries of earlier executions, in the hands of other clients."""

    def setUp(self) -> None:
        super().setUp()
        self.deletes: list[str] = []
        #: Called before each write of the inventory.
        self.before_write: Callable[[], None] = lambda: None
        respond = self.cluster.objects.respond

        def noting(method: str, path: str, *rest: Any) -> Any:
            if method == "DELETE" and "/configmaps/m" in path:
                self.deletes.append(path.rpartition("/")[2].partition("?")[0])
            if method == "PUT" and "/configmaps/inventory-" in path:
                self.before_write()
            return respond(method, path, *rest)

        self.patch(self.cluster.objects, "respond", noting)
        self.apps.commit({"a.yaml": text(*config_maps(*range(10)))})
        self.apply({"id": "apps"})
        self.passes(60)

    @property
    def orders_secret(self) -> Any:
        """The Secret with the orders."""
        (secret,) = (
            one.object
            for one in self.cluster.objects._stored.values()
            if one.object["metadata"]["name"].startswith("gitops-orders")
        )
        return secret

    @property
    def numbers(self) -> tuple[str, str]:
        """The numbers of the last execution, and of the last one that ended."""
        data = self.orders_secret["data"]["orders"]
        last = json.loads(base64.b64decode(data))["last"]
        return last["number"], last["done"]

    def hide(self, *numbers: int) -> dict[str, str]:
        """Remove entries from the inventory, and return them."""
        found = self.inventory()
        names = [f"m{number:03}" for number in numbers]
        hidden = {
            key: value
            for key, value in found["data"].items()
            if any(name in key for name in names)
        }
        for key in hidden:
            del found["data"][key]
        self.cluster.objects.put(found)
        return hidden

    def show(self, entries: dict[str, str]) -> None:
        """Put copies of entries into the inventory."""
        found = self.inventory()
        found["data"].update(entries)
        self.cluster.objects.put(found)

    def commit(self, *numbers: int, more: Any = ()) -> None:
        """Push a commit, and let it be applied."""
        self.apps.commit({"a.yaml": text(*config_maps(*numbers), *more)})
        self.pushed()
        self.passes(120)

    def test_each_execution_ends(self) -> None:
        """Of a commit, and of the same commit once more."""
        self.assertEqual(self.numbers, ("1", "1"))
        self.hide(9)
        self.passes(3700)
        number, done = self.numbers
        self.assertEqual((number, len(self.inventory()["data"])), (done, 10))
        self.cluster.objects.remove("v1", "ConfigMap", "m001", "default")
        self.pair.run(self.project().operations.sync())
        self.passes(60)
        self.assertEqual(self.numbers, (str(int(done) + 1),) * 2)

    def test_a_copy_from_before_a_commit(self) -> None:
        """It does not get more deletes past the limits, also after an hourly pass."""
        self.hide(9)
        self.passes(3700)
        hidden = self.hide(7, 8, 9)
        self.commit(0, 1, 2, 3)
        self.show(hidden)
        self.commit(0, 1, 2, 3, more=[object_("extra")])
        self.assertEqual(sorted(self.deletes), ["m004", "m005", "m006"])
        self.assertIs(self.project().status.state, State.HELD)

    def test_a_copy_after_an_execution_that_never_ends(self) -> None:
        """What the interrupted execution deleted counts for the next commit, too."""
        hidden = self.hide(7, 8, 9)

        def overtake() -> None:
            if len(self.deletes) >= 3:
                found = self.inventory()
                annotations = found["metadata"].setdefault("annotations", {})
                annotations["x"] = str(len(self.cluster.requests))
                self.cluster.objects.put(found)

        self.before_write = overtake
        self.commit(0, 1, 2, 3)
        number, done = self.numbers
        self.assertNotEqual(number, done)
        self.before_write = lambda: None
        self.show(hidden)
        self.commit(0, 1, 2, 3, more=[object_("extra")])
        self.assertEqual(sorted(self.deletes), ["m004", "m005", "m006"])
        self.assertIn(
            "with 3 that were deleted before", str(self.project().status.problems)
        )
        # It has ended: the next commit has limits of its own.
        self.commit(0, 1, 2, 7, 8, 9, more=[object_("extra")])
        self.assertIn("m003", self.deletes)

    def show_after_deletes(self) -> None:
        """
        Hide entries, delete others with one commit, and show the copies to the next.
        """
        first = object_("first")
        hidden = self.hide(7, 8, 9)
        self.commit(*range(4), more=[first])
        self.assertEqual(sorted(self.deletes), ["m004", "m005", "m006"])
        self.show(hidden)
        self.commit(*range(4), more=[first, object_("extra")])
        self.assertEqual(sorted(self.deletes), ["m004", "m005", "m006"])
        self.assertIs(self.project().status.state, State.HELD)
        number, done = self.numbers
        self.assertEqual(number, done)

    def test_a_copy_after_an_execution_without_deletes(self) -> None:
        """The deletes of a later commit make it invalid."""
        self.push_first()
        self.assertEqual(self.numbers, ("2", "2"))
        self.show_after_deletes()

    def push_first(self) -> None:
        """Apply a commit that deletes nothing."""
        self.commit(*range(10), more=[object_("first")])

    def interrupt(self, writes: int, begin: Callable[[], object]) -> None:
        """
        Interrupt each execution.

        :param writes: how many writes of the inventory succeed before.
        :param begin: has agentk begin the first execution.
        """
        left = [writes]

        def overtake() -> None:
            left[0] -= 1
            if left[0] < 0:
                found = self.inventory()
                annotations = found["metadata"].setdefault("annotations", {})
                annotations["x"] = str(len(self.cluster.requests))
                self.cluster.objects.put(found)

        self.before_write = overtake
        begin()
        self.passes(60)
        self.before_write = lambda: None
        number, done = self.numbers
        self.assertEqual(done, "1")
        self.assertGreater(int(number), 1)

    def test_a_copy_after_an_interrupted_execution_without_deletes(self) -> None:
        """The next execution that ends makes it invalid."""
        # The first write signs the entries.
        self.interrupt(1, self.push_first)
        self.show_after_deletes()

    def test_entries_that_an_interrupted_execution_did_not_sign(self) -> None:
        """They stay valid, also if the next execution has nothing to change."""

        def sync() -> None:
            self.pair.run(self.project().operations.sync())

        self.add_entry("junk", "{")
        self.interrupt(0, sync)
        inventory = self.inventory()
        del inventory["data"]["junk"]
        self.cluster.objects.put(inventory)
        sync()
        self.passes(120)
        number, done = self.numbers
        self.assertEqual(number, done)
        self.commit(*range(8))
        self.assertEqual(sorted(self.deletes), ["m008", "m009"])

    def test_an_interrupted_execution_of_an_earlier_version(self) -> None:
        """It wrote the last two numbers only, and both are valid."""
        self.interrupt(1, self.push_first)
        secret = json.loads(json.dumps(self.orders_secret))
        orders = json.loads(base64.b64decode(secret["data"]["orders"]))
        del orders["last"]["open"]
        orders["last"].update(number="2", done="1")
        value = base64.b64encode(json.dumps(orders).encode()).decode()
        secret["data"]["orders"] = value
        self.cluster.objects.put(secret)
        self.commit(*range(8))
        self.assertEqual(sorted(self.deletes), ["m008", "m009"])
        self.assertEqual(self.numbers, ("3", "3"))

    def delete_without_other_changes(self, **settings: Any) -> dict[str, str]:
        """
        Apply a commit that waited for another agent, so that the entries are in the
        inventory already when its deletes begin; return hidden entries.
        """
        self.apply({"id": "apps", **settings})
        self.passes(60)
        own = self.inventory()["metadata"]["annotations"]
        marks = {SOURCE: own[SOURCE], COMMIT: "0" * 40, WRITER: "two@b/agentk"}
        metadata = {
            "name": "inventory-two",
            "namespace": "b",
            "labels": {LABEL: "two"},
            "annotations": {PARTS: "1", **marks},
        }
        other = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
        self.cluster.objects.put({**other, "data": {}})
        self.apps.commit({"a.yaml": text(*config_maps(*range(4)))})
        self.pushed()
        self.passes(60)
        self.assertEqual(self.deletes, [])
        return self.hide(7, 8, 9)

    def test_deletes_of_unchanged_entries(self) -> None:
        """Copies of these entries are not valid for the next commit."""
        for settings in ({}, {"prune_timeout": "0s"}):
            with self.subTest(settings):
                hidden = self.delete_without_other_changes(**settings)
                self.passes(120)
                self.assertEqual(sorted(self.deletes), ["m004", "m005", "m006"])
                self.cluster.objects.remove("v1", "ConfigMap", "inventory-two", "b")
                self.show(hidden)
                self.commit(*range(4), more=[object_("extra")])
                self.assertEqual(sorted(self.deletes), ["m004", "m005", "m006"])
                self.assertIs(self.project().status.state, State.HELD)
                # Everything is as it was at the beginning.
                self.deletes.clear()
                self.commit(*range(10))

    def test_interrupted_deletes_of_unchanged_entries(self) -> None:
        """They count for the next commit, too."""
        hidden = self.delete_without_other_changes()
        live = json.loads(json.dumps(self.live("m006")))
        live["metadata"]["finalizers"] = ["x.io/wait"]
        self.cluster.objects.put(live)
        self.passes(90)
        number, done = self.numbers
        self.assertNotEqual(number, done)
        self.cluster.objects.remove("v1", "ConfigMap", "inventory-two", "b")
        self.show(hidden)
        self.commit(*range(4), more=[object_("extra")])
        self.passes(300)
        self.assertEqual(set(self.deletes), {"m004", "m005", "m006"})
        self.assertIs(self.project().status.state, State.HELD)

    def test_deletes_of_a_commit_that_is_complete(self) -> None:
        """They do not count for a later commit, although a pass is interrupted."""
        self.commit(*range(6))
        self.assertEqual(len(self.deletes), 4)
        waiting = object_("web", "Deployment", "apps/v1", spec={"replicas": 1})
        self.commit(*range(6), more=[waiting])
        self.commit(*range(4), more=[waiting])
        self.assertEqual(len(self.deletes), 6)

    def test_a_copy_of_an_entry_without_a_uid(self) -> None:
        """An object that was restored from a backup is not agentk's."""
        self.cluster.objects.remove("v1", "ConfigMap", "m009", "default")
        written: dict[str, str] = {}
        respond = self.cluster.objects.respond

        def copying(method: str, path: str, *rest: Any) -> Any:
            if method == "PUT" and "/configmaps/inventory-" in path:
                for one in rest:
                    data = json.loads(one)["data"] if isinstance(one, bytes) else {}
                    for key, value in data.items():
                        if "m009" in key and '"uid"' not in value:
                            written[key] = value
            return respond(method, path, *rest)

        self.patch(self.cluster.objects, "respond", copying)
        self.pair.run(self.project().operations.sync())
        self.passes(60)
        restored = json.loads(json.dumps(self.live("m009")))
        self.cluster.objects.remove("v1", "ConfigMap", "m009", "default")
        for name in ("uid", "resourceVersion", "managedFields", "creationTimestamp"):
            restored["metadata"].pop(name, None)
        self.cluster.objects.put(restored | {"data": {"theirs": "1"}})
        self.assertTrue(written)
        self.show(written)
        self.commit(*range(9))
        self.assertIsNotNone(self.live("m009"))


class FirstPassTests(StrangersTestCase):
    """A project whose first pass waits for a Deployment that never becomes ready."""

    def begin(self, *projects: Any) -> None:
        first = object_("web", "Deployment", "apps/v1", spec={"replicas": 1})
        waits = {
            "config.kubernetes.io/depends-on": "apps/namespaces/default/Deployment/web"
        }
        last = object_("after", metadata={"annotations": waits})
        self.apps.commit({"a.yaml": text(*config_maps(1, 2), first, last)})
        self.apply({"id": "apps", "name": "tpyo"}, *projects)
        self.passes(60)
        self.assertIsNotNone(self.live("m002"))

    def test_renamed(self) -> None:
        """The objects are the new project's, which prunes them."""
        self.begin()
        self.apply({"id": "apps", "name": "typo"})
        self.passes(600)
        self.apps.commit({"a.yaml": text(*config_maps(1))})
        self.pushed()
        self.passes(900)
        self.assertIsNone(self.live("m002"))
        self.assertIs(self.project("typo").status.state, State.CURRENT)

    def test_removed(self) -> None:
        """Its objects are named."""
        others = ({"id": "twin", "paths": [{"glob": "nothing/*.yaml"}]},)
        self.begin(*others)
        self.apply(*others)
        self.passes(1500)
        (said,) = self.said("stay in the cluster from a former project")
        self.assertIn("ConfigMap default/m002", said)


class EntryTests(StrangersTestCase):
    """Entries that agentk did not write decide nothing about others."""

    def dependents(self, entry: str, scope: tuple[str, ...] = ()) -> None:
        """A project that depends on another goes on, whatever its inventory has."""
        self.apps.commit({"a.yaml": text(*config_maps(1, 2))})
        self.other.commit({"b.yaml": text(object_("b", data={"v": "1"}))})
        self.apply(*DEPENDS, scope=scope)
        self.passes(30)
        self.add_entry(entry)
        self.apps.commit({"a.yaml": text(*config_maps(1, 2, 3))})
        self.pushed()
        self.passes(60)
        self.other.commit({"b.yaml": text(object_("b", data={"v": "2"}))})
        self.pushed("other")
        self.passes(60)
        self.assertEqual(self.live("b")["data"], {"v": "2"})

    def test_an_object_that_cannot_be(self) -> None:
        self.dependents("_nothing__ConfigMap")
        self.assertNotIn("_nothing__ConfigMap", self.inventory()["data"])
        self.assertIs(self.project().status.state, State.CURRENT)

    def test_an_object_outside_of_the_scope(self) -> None:
        self.dependents("nowhere_nothing__ConfigMap", ("default",))
        self.assertIs(self.project().status.state, State.CURRENT)

    def test_an_object_that_agentk_may_not_read(self) -> None:
        path = "/api/v1/namespaces/kube-system/configmaps/nothing"
        self.cluster.answer("GET", path, {"message": "forbidden"}, 403)
        self.dependents("kube-system_nothing__ConfigMap")

    def test_an_object_that_would_need_an_approval(self) -> None:
        """Only its own project shows it."""
        self.apps.commit({"a.yaml": text(*config_maps(1, 2))})
        self.apply({"id": "apps"})
        owner = self.live("m001")["metadata"]["annotations"][OWNER]
        metadata = {"namespace": "default", "annotations": {OWNER: owner}}
        self.cluster.objects.put(object_("planted", metadata=metadata))
        self.dependents("default_planted__ConfigMap")
        self.assertIs(self.project().status.state, State.HELD)
        self.assertTrue(self.project().status.is_current)
        self.assertIsNotNone(self.live("planted"))

    def test_an_entry_with_another_reason(self) -> None:
        """Only agentk holds deletes, and only its own reasons are shown."""
        self.apps.commit({"a.yaml": text(*config_maps(*range(8)))})
        self.other.commit({"b.yaml": text(object_("b", data={"v": "1"}))})
        self.apply(*DEPENDS)
        self.passes(30)
        inventory = self.inventory()
        forged = "mallory has approved this"
        for name, value in inventory["data"].items():
            changed = json.loads(value) | {"held": forged}
            inventory["data"][name] = json.dumps(changed)
        self.cluster.objects.put(inventory)
        self.apps.commit({"a.yaml": text(*config_maps(*range(7)))})
        self.pushed()
        self.passes(60)
        self.other.commit({"b.yaml": text(object_("b", data={"v": "2"}))})
        self.pushed("other")
        self.passes(60)
        self.assertEqual(self.live("b")["data"], {"v": "2"})
        self.assertNotIn(forged, str(self.project().status.problems))
        self.assertNotIn(forged, str(self.inventory()))

    def test_a_mark_with_a_lease_in_another_namespace(self) -> None:
        """The Secret knows that this agentk wrote last; only deletes are held."""
        self.apps.commit({"a.yaml": text(*config_maps(*range(8)))})
        self.apply({"id": "apps"})
        name = self.agent._api.leadership.lease.rpartition("/")[2]
        lease = {"holderIdentity": "me", "leaseDurationSeconds": 2_000_000_000}
        self.cluster.objects.put(
            object_(
                name,
                "Lease",
                "coordination.k8s.io/v1",
                metadata={"namespace": "attacker"},
                spec=lease | {"renewTime": "1970-01-01T00:00:00.000000Z"},
            )
        )
        inventory = self.inventory()
        inventory["data"] = {}
        inventory["metadata"]["annotations"][WRITER] = f"main@attacker/{name}"
        self.cluster.objects.put(inventory)
        self.apps.commit({"a.yaml": text(*config_maps(*range(1, 9)))})
        self.pushed()
        self.passes(60)
        self.assertIsNotNone(self.live("m008"))
        self.assertIsNotNone(self.live("m000"))

    def test_the_default_namespace_changes(self) -> None:
        """An entry that cannot be looked at does not hold later deletes."""
        self.apps.commit({"a.yaml": text(*config_maps(*range(8)))})
        self.apply({"id": "apps"})
        self.add_entry("default_nothing_x.io_Thing")
        self.apply({"id": "apps", "default_namespace": "web"})
        self.ask_approval()
        self.assertIsNone(self.live("m007"))
        self.apps.commit({"a.yaml": text(*config_maps(*range(7)))})
        self.pushed()
        self.passes(10)
        find = self.cluster.objects.find
        self.assertIsNotNone(find("v1", "ConfigMap", "m006", "web"))
        self.assertIsNone(find("v1", "ConfigMap", "m007", "web"))

    def ask_approval(self) -> None:
        """Approve what is held."""
        operations, status = self.project().operations, self.project().status
        self.pair.run(operations.approve(status.release))
        self.passes(10)

    def test_a_selection(self) -> None:
        """Other clients cannot shorten the wait for agents that may need an object."""
        commit = self.apps.commit(
            {"a/a.yaml": text(*config_maps(*range(5))), "b/b.yaml": text(object_("b"))}
        )
        self.apply({"id": "apps"})
        inventory = self.inventory()
        annotations = inventory["metadata"]["annotations"]
        other = {
            PARTS: "1",
            SOURCE: annotations[SOURCE],
            COMMIT: commit,
            WRITER: "two@b/agentk",
        }
        metadata = {
            "name": "inventory-two",
            "namespace": "b",
            "labels": {LABEL: "two"},
            "annotations": other,
        }
        config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
        self.cluster.objects.put({**config_map, "data": {}})
        new = {"id": "apps", "paths": [{"glob": "a/**/*.yaml"}]}
        section = json.dumps({"manifest_projects": [new]})
        settings = read(section, "gitops", GitopsSection).manifest_projects[0]
        annotations[SELECTION] = settings.selection
        self.cluster.objects.put(inventory)
        self.apply(new)
        self.assertIsNotNone(self.live("b"))


class ScopeTests(StrangersTestCase):
    """Objects outside of the scope are not this agent's to decide about."""

    def test_objects_that_leave_the_scope(self) -> None:
        """They are forgotten, and neither hold nor count in other deletes."""
        outside = [self.stranger(f"m{number:03}") for number in range(10)]
        inside = config_maps(20, 21, 22, 23)
        self.apps.commit({"a.yaml": text(*outside, *inside)})
        self.apply({"id": "apps"})
        self.apply({"id": "apps"}, scope=("default",))
        since = len(self.cluster.requests)
        self.apps.commit({"a.yaml": text(*inside)})
        self.pushed()
        self.passes(30)
        self.apps.commit({"a.yaml": text(*inside[:3])})
        self.pushed()
        self.passes(30)
        self.assertIsNone(self.live("m023"))
        self.assertIs(self.project().status.state, State.CURRENT)
        self.assertIsNotNone(self.find("m005"))
        self.assertEqual(self.outside(since), [])

    def test_lists(self) -> None:
        """No list of many objects goes beyond the scope."""
        outside = [self.stranger(f"m{number:03}") for number in range(6)]
        self.apps.commit({"a.yaml": text(*outside, object_("in"))})
        self.apply({"id": "apps"})
        self.apply({"id": "apps"}, scope=("default",))
        since = len(self.cluster.requests)
        self.pair.run(self.project().operations.sync())
        self.passes(30)
        self.assertEqual(self.outside(since), [])
        self.assertEqual(len(self.project().passes.report.failed), 6)

    def test_leftovers(self) -> None:
        """Objects of former projects outside of the scope stay as they are."""
        self.apps.commit({"a.yaml": text(self.stranger("x"), object_("in"))})
        self.other.commit({"b.yaml": text(object_("b"))})
        self.apply({"id": "apps"})
        found = self.find("x")
        found["metadata"]["annotations"][CLAIMED_BY] = "two"
        self.cluster.objects.put(found)
        before = self.find("x")["metadata"]["annotations"]
        since = len(self.cluster.requests)
        self.apply({"id": "other"}, scope=("default",))
        self.passes(900)
        self.assertEqual(self.outside(since), [])
        self.assertEqual(self.find("x")["metadata"]["annotations"], before)

    def test_drift_while_suspended(self) -> None:
        """The watches of the new scope have the same followers."""
        self.apps.commit({"a.yaml": text(*config_maps(1))})
        drift = {"id": "apps", "drift": {"mode": "report"}}
        self.apply(drift, scope=("default", "b"))
        self.pair.run(self.project().operations.suspend())
        self.passes(5)
        self.apply(drift, scope=("default",))
        self.passes(5)
        live = self.live("m001")
        self.cluster.objects.put({**live, "data": {"n": "theirs"}})
        self.passes(30)
        self.assertEqual(len(self.project().drifts.present), 1)

    def test_receivers(self) -> None:
        """An object outside of the scope is not notified."""
        thing = self.stranger("x")
        self.cluster.objects.put(thing)
        self.apps.commit({"a.yaml": text(object_("in"))})
        receiver = {
            "project": "apps",
            "objects": [
                {
                    "api_version": "v1",
                    "kind": "ConfigMap",
                    "namespace": "other",
                    "name": "x",
                    "annotation": "reconcile.fluxcd.io/requestedAt",
                }
            ],
        }
        section = {"manifest_projects": [{"id": "apps"}], "receivers": [receiver]}
        texts = {
            "gitops": json.dumps(section),
            "scope": json.dumps({"namespaces": ["default"]}),
        }
        since = len(self.cluster.requests)
        self.pair.sections.apply(texts)
        self.passes(30)
        self.assertEqual(self.outside(since), [])
        self.assertTrue(self.said("is outside of the agent's scope"))


class RepairTests(StrangersTestCase):
    """An order to repair is for the cluster as the operator saw it."""

    def test_an_order_that_could_not_be_carried_out(self) -> None:
        """It ends, and the log says so."""
        self.apps.commit({"a.yaml": text(object_("a", data={"x": "1"}))})
        self.apply({"id": "apps", "drift": {"mode": "report"}})
        blocks = [True]
        take = self.cluster.take
        name = self.inventory()["metadata"]["name"]

        def refuse(request: Any) -> Any:
            if name in request.path and blocks[0]:
                return 500, b'{"kind": "Status", "message": "etcd"}'
            return take(request)

        self.patch(self.cluster, "take", refuse)
        operations = self.project().operations
        self.pair.run(operations.repair(()))
        self.passes(20)
        self.assertTrue(self.said("was not repaired"))
        blocks[0] = False
        self.passes(60)
        live = self.live("a")
        self.cluster.objects.put({**live, "data": {"x": "hotfix"}})
        self.pair.run(operations.suspend())
        self.passes(10)
        self.pair.run(operations.resume())
        self.passes(20)
        self.assertEqual(self.live("a")["data"], {"x": "hotfix"})

    def test_suspended_in_the_meantime(self) -> None:
        """An order of before does not count after `resume`."""
        self.apps.commit({"a.yaml": text(object_("a", data={"x": "1"}))})
        self.apply({"id": "apps", "drift": {"mode": "report"}})
        project = self.project()
        self.pair.run(project.operations.suspend())
        self.passes(5)
        project.passes.repair(())
        self.passes(5)
        live = self.live("a")
        self.cluster.objects.put({**live, "data": {"x": "hotfix"}})
        self.pair.run(project.operations.resume())
        self.passes(20)
        self.assertEqual(self.live("a")["data"], {"x": "hotfix"})
