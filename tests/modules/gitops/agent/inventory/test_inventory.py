"""An inventory is never less than what exists, wherever its writing stops."""

from __future__ import annotations

import copy
import json
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import attrs
from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from modules.gitops.agent.inventory import inventory as module
from modules.gitops.agent.inventory.inventory import (
    LABEL,
    PARTS,
    RECREATE_SECONDS,
    WRITER,
    Inventory,
    InventoryEntry,
    InventoryStore,
)
from modules.gitops.agent.inventory.orders import AppliedCommit, LastPass, OrderStore
from modules.gitops.agent.inventory.writer import InventoryWriter
from modules.gitops.agent.objects.manifests import ObjectKey
from modules.gitops.agent.objects.owner_annotations import OWNER
from tests.modules.gitops.server.test_module import Asker
from tunnel.errors import CallError, Status
from tunnel.testing import FakeCluster, ModulePair
from tunnel.testing.objects import Refusal


def key(name: str, kind: str = "ConfigMap", group: str = "") -> ObjectKey:
    return ObjectKey(group, kind, "here", name)


def entries(*numbers: int, uid: str = "") -> dict[ObjectKey, InventoryEntry]:
    return {key(f"object-{n:04}"): InventoryEntry(uid) for n in numbers}


class InventoryTests(SynchronousTestCase):
    """One inventory, in an API server in memory."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.cluster = FakeCluster(self.clock)
        self.pair = ModulePair(self.clock, cluster=self.cluster)
        self.client = self.pair.agent_half(Asker).api.kubernetes.as_agentk()
        self.pair.start()
        self.addCleanup(self.pair.stop)
        self.store = self.made()

    def made(self) -> InventoryStore:
        return InventoryStore(self.client, "7-9", "default", clock=self.clock)

    def moving(self) -> InventoryStore:
        """One that comes from ``default``, and is in a Namespace of operators."""
        return InventoryStore(
            self.client, "7-9", "operators", ["default"], clock=self.clock
        )

    def denied(self, namespace: str, verb: str) -> InventoryStore:
        """As `moving`, where agentk may not do one thing in one Namespace."""
        client: Any = _Denied(self.client, namespace, verb)
        return InventoryStore(client, "7-9", "operators", ["default"], clock=self.clock)

    def read(self, store: InventoryStore | None = None) -> Inventory:
        return self.pair.run((store or self.made()).read())

    def write(
        self, found: dict[ObjectKey, InventoryEntry], commit: str = "c", **more: Any
    ) -> None:
        store: InventoryStore = more.get("store", self.store)
        self.pair.run(store.write(Inventory(found, commit)))

    def stored(self, number: int = 0, namespace: str = "default") -> Any:
        name = "inventory-7-9" + (f"-{number}" if number else "")
        return self.cluster.objects.find("v1", "ConfigMap", name, namespace)

    def refused(self, run: Callable[[], object]) -> CallError:
        with self.assertRaises(CallError) as caught:
            run()
        error: CallError = caught.exception
        return error

    def test_nothing_yet(self) -> None:
        found = self.read()
        self.assertEqual((found.entries, found.commit), ({}, ""))

    def test_written_and_read(self) -> None:
        found = {
            key("a"): InventoryEntry("uid-1"),
            key("b", "Deployment", "apps"): InventoryEntry(),
            ObjectKey("", "Namespace", "", "here"): InventoryEntry("uid-2"),
            ObjectKey("rbac.x", "Role", "here", "system:a:b"): InventoryEntry("uid-3"),
            ObjectKey("rbac.x", "Role", "here", "any_thing at all"): InventoryEntry(
                "uid-4"
            ),
            ObjectKey("x.io", "K" * 60, "n" * 63, "a" * 253): InventoryEntry(),
        }
        self.write(found, "c1")
        again = self.read()
        self.assertEqual(again.entries, found)
        self.assertEqual(again.commit, "c1")
        stored = self.stored()
        self.assertEqual(stored["metadata"]["labels"], {LABEL: "7-9"})
        self.assertIn("here_system__a__b_rbac.x_Role", stored["data"])
        self.assertIn("here_b_apps_Deployment", stored["data"])

    def test_moved(self) -> None:
        """The first write moves it; reading writes nothing."""
        self.patch(module, "MAX_PART", 500)
        found = entries(*range(20))
        self.write(found, "c1")
        parts = int(self.stored()["metadata"]["annotations"][PARTS])
        self.assertGreater(parts, 1)
        store, before = self.moving(), len(self.cluster.requests)
        again = self.read(store)
        self.assertEqual((again.entries, again.commit), (found, "c1"))
        asked = self.cluster.requests[before:]
        self.assertEqual({one.method for one in asked}, {"GET"})
        self.write(found, "c2", store=store)
        for number in range(parts):
            self.assertIsNone(self.stored(number))
            self.assertIsNotNone(self.stored(number, "operators"))
        self.write(entries(*range(5)), "c3", store=store)
        self.assertEqual(self.read(self.moving()).entries, entries(*range(5)))

    def test_moved_from_where_it_was_last(self) -> None:
        """Between any two Namespaces, also back to the one that came first."""

        def store(namespace: str) -> InventoryStore:
            orders = OrderStore(self.client, "7-9", "default")
            formers = ("default", "other")
            return InventoryStore(
                self.client, "7-9", namespace, formers, orders=orders, clock=self.clock
            )

        before = "default"
        for namespace in ("default", "first", "second", "default"):
            changed = store(namespace)
            found = self.read(changed)
            self.assertEqual(len(found.entries), 0 if before == namespace else 2)
            self.write(entries(1, 2), store=changed)
            places = {
                one: self.stored(0, one) is not None
                for one in ("default", "first", "second")
            }
            self.assertEqual([one for one in places if places[one]], [namespace])
            last = partial(attrs.evolve, last=LastPass(namespace=namespace))
            self.pair.run(OrderStore(self.client, "7-9", "default").change(last))
            before = namespace

    def test_moved_half(self) -> None:
        """Wherever it ends, nothing is lost, and the next write removes the rest."""
        self.patch(module, "MAX_PART", 500)
        found = entries(*range(20))
        for point in range(1, 60):
            self.write(found, "c1", store=self.made())
            failing: Any = _Failing(self.client, point)
            moving = InventoryStore(
                failing, "7-9", "operators", ["default"], clock=self.clock
            )
            try:
                self.read(moving)
                self.write(found, "c2", store=moving)
            except CallError:
                pass
            else:
                break
            again = self.moving()
            self.assertEqual(self.read(again).entries, found, point)
            self.write(found, "c2", store=again)
            self.assertEqual(self.read(self.moving()).entries, found, point)
            for number in range(16):
                name = "inventory-7-9" + (f"-{number}" if number else "")
                self.assertIsNone(self.stored(number), point)
                if self.stored(number, "operators") is not None:
                    self.cluster.objects.remove("v1", "ConfigMap", name, "operators")
        self.assertGreater(point, 5)

    def test_a_former_namespace_that_agentk_may_not_read(self) -> None:
        """As where it acts as ServiceAccounts, with rights in its own alone."""
        store = self.denied("default", "get")
        self.assertEqual(self.read(store).entries, {})
        self.write(entries(1), store=store)
        self.assertEqual(self.read(store).entries, entries(1))
        self.assertIsNotNone(self.stored(0, "operators"))

    def test_rights_that_are_missing(self) -> None:
        """The error names them: the API server's words do not say what they are for."""
        self.write(entries(1))
        for run in (
            partial(self.read, self.denied("operators", "get")),
            partial(self.write, entries(1), store=self.denied("operators", "json")),
        ):
            error = self.refused(run)
            self.assertIn("grant get, create, update and delete of", error.message)
            self.assertIn("ConfigMaps of operators", error.message)
            self.assertIs(error.status, Status.PERMISSION_DENIED)
        store = self.denied("default", "delete")
        self.read(store)
        # The former one cannot be deleted; it stays, and is not read any more.
        self.write(entries(1, 2), store=store)
        self.assertIsNotNone(self.stored())
        self.assertEqual(self.read(self.moving()).entries, entries(1, 2))

    def test_one_that_another_user_wrote(self) -> None:
        """Beside ours it counts for nothing, and elsewhere it is not looked for."""
        self.write(entries(1), store=self.moving())
        planted: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": "inventory-7-9",
                "namespace": "default",
                "labels": {LABEL: "7-9"},
                "annotations": {PARTS: "?", OWNER: "x"},
            },
        }
        self.cluster.objects.put(planted)
        store = self.moving()
        self.assertEqual(self.read(store).entries, entries(1))
        self.write(entries(1), store=store)
        self.assertIsNone(self.stored())
        self.cluster.objects.remove("v1", "ConfigMap", "inventory-7-9", "operators")
        planted["metadata"] |= {"namespace": "elsewhere", "annotations": {}}
        self.cluster.objects.put(planted)
        self.assertEqual(self.read(self.moving()).entries, {})

    def test_signatures(self) -> None:
        """What agentk did not write about an object is not known."""

        def store() -> InventoryStore:
            orders = OrderStore(self.client, "7-9", "default")
            return InventoryStore(
                self.client, "7-9", "default", orders=orders, clock=self.clock
            )

        keys = [ObjectKey("", "ConfigMap", "default", name) for name in ("a", "b")]
        known = {key: InventoryEntry("u", applied="1:digest:owned") for key in keys}
        self.write(known, store=store())
        self.assertEqual(self.read(store()).entries, known)
        secret = self.cluster.objects.find(
            "v1", "Secret", "gitops-orders-7-9", "default"
        )
        there: Any = self.stored()
        (name, other) = sorted(there["data"])
        value = json.loads(there["data"][name])
        signature = value["applied"].rpartition(":")[2]
        for forged in (
            {**value, "applied": "1:digest:owned"},
            {**value, "applied": f"1:digest:else:{signature}"},
            {**value, "applied": "1:digest:owned:\u00e9"},
            {**value, "applied": json.loads(there["data"][other])["applied"]},
            {**value, "uid": "v"},
        ):
            data = {**there["data"], name: json.dumps(forged)}
            self.cluster.objects.put({**there, "data": data})
            found = self.read(store()).entries
            self.assertEqual([one.applied for one in found.values()].count(""), 1)
        # With another key none of them holds.
        assert secret is not None
        self.cluster.objects.remove("v1", "Secret", "gitops-orders-7-9", "default")
        self.cluster.objects.put(there)
        found = self.read(store()).entries
        self.assertEqual([one.applied for one in found.values()], ["", ""])

    def test_a_former_one_that_cannot_be_used(self) -> None:
        """It counts as none, and stays where it is."""
        ours, theirs = (
            InventoryWriter(self.client, "main", f"{space}/lease", lambda: 0.0)
            for space in ("operators", "theirs")
        )
        self.patch(InventoryWriter, "leads_elsewhere", lambda *_: succeed(True))
        label = {LABEL: "7-9"}
        value = {"default_a__ConfigMap": "["}
        for labels, noted, data in (
            ({}, {}, {"default_a__ConfigMap": ""}),
            ({LABEL: "7-8"}, {}, {"default_a__ConfigMap": ""}),
            (label, {PARTS: "16"}, {}),
            (label, {PARTS: "?"}, {}),
            (label, {WRITER: theirs.mark}, {}),
            (label, {OWNER: "7-9"}, {}),
            (label, {}, value),
        ):
            planted = {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {
                    "name": "inventory-7-9",
                    "namespace": "default",
                    "labels": labels,
                    "annotations": noted,
                },
                "data": data,
            }
            self.cluster.objects.put(planted)
            store = InventoryStore(
                self.client, "7-9", "operators", ["default"], ours, clock=self.clock
            )
            self.assertEqual(self.read(store).entries, {}, planted)
            self.write(entries(1), store=store)
            self.assertEqual(self.read(store).entries, entries(1))
            self.assertIsNotNone(self.stored())
            for space in ("operators", "default"):
                self.cluster.objects.remove("v1", "ConfigMap", "inventory-7-9", space)

    def test_one_that_another_agentk_needs(self) -> None:
        """It stays where it is; one of ours, left by a move that was cut off, goes."""
        ours, theirs = (
            InventoryWriter(self.client, "main", f"{space}/lease", lambda: 0.0)
            for space in ("operators", "theirs")
        )

        def store(
            writer: InventoryWriter, space: str, former: str = ""
        ) -> InventoryStore:
            return InventoryStore(
                self.client, "7-9", space, [former], writer, clock=self.clock
            )

        for writer, stays in ((theirs, True), (ours, False)):
            self.write(entries(1), store=store(ours, "operators"))
            self.write(entries(2), store=store(writer, "default"))
            again = store(ours, "operators", "default")
            self.read(again)
            self.write(entries(1, 3), store=again)
            self.assertEqual(self.stored() is not None, stays)
            for space in ("operators", *(["default"] if stays else [])):
                self.cluster.objects.remove("v1", "ConfigMap", "inventory-7-9", space)

    def test_one_that_says_it_is_ours(self) -> None:
        """Objects are taken from none whose project agentk never applied."""
        writer = InventoryWriter(self.client, "main", "default/lease", lambda: 0.0)
        orders = OrderStore(self.client, "7-9", "default")
        store = InventoryStore(
            self.client, "7-9", "default", (), writer, orders, clock=self.clock
        )
        planted: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": "inventory-x",
                "namespace": "default",
                "annotations": {WRITER: writer.mark},
            },
        }
        self.cluster.objects.put(planted)
        self.assertFalse(self.pair.run(store.is_of_us("x")))
        done = AppliedCommit("c", 1, "1 created")
        change = OrderStore(self.client, "x", "default").change
        self.pair.run(change(lambda one: one.remembering(done, False)))
        self.assertTrue(self.pair.run(store.is_of_us("x")))
        planted["metadata"]["annotations"][OWNER] = "other"
        self.cluster.objects.put(planted)
        self.assertFalse(self.pair.run(store.is_of_us("x")))

    def test_what_gitlabs_agent_left(self) -> None:
        self.cluster.objects.put(
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": "inventory-7-9", "namespace": "default"},
                "data": {
                    "default_web_apps_Deployment": "",
                    "_here__Namespace": '{"actuation": "Succeeded"}',
                    "_system__x_rbac.authorization.k8s.io_ClusterRole": "",
                },
            }
        )
        self.assertEqual(
            self.read(self.store).entries,
            {
                ObjectKey("apps", "Deployment", "default", "web"): InventoryEntry(),
                ObjectKey("", "Namespace", "", "here"): InventoryEntry(),
                ObjectKey(
                    "rbac.authorization.k8s.io", "ClusterRole", "", "system:x"
                ): InventoryEntry(),
            },
        )
        self.write(entries(1))
        self.assertEqual(self.read().entries, entries(1))

    def test_a_second_writer_loses(self) -> None:
        """Whatever it wants to write, and even where that is the same."""
        self.write(entries(1))
        late = self.made()
        self.read(late)
        self.write(entries(1))
        self.assertEqual(
            self.refused(lambda: self.write(entries(2), store=late)).status,
            Status.ABORTED,
        )
        self.assertEqual(self.read().entries, entries(1))
        self.read(late)
        self.write(entries(2), store=late)
        self.assertEqual(self.read().entries, entries(2))

    def test_a_second_one_that_creates_it(self) -> None:
        other = self.made()
        self.read(other)
        self.write(entries(1))
        error = self.refused(lambda: self.write(entries(2), store=other))
        self.assertEqual(error.status, Status.ABORTED)

    def test_what_cannot_be_read(self) -> None:
        self.write(entries(1))
        for data in (
            {"nothing": ""},
            {"a_b": ""},
            {"__x_": ""},
            {"here_a__ConfigMap": "no json"},
            {"here_a__ConfigMap": "[]"},
            {"here_a__ConfigMap": '{"uid": 1}'},
            {"odd.1": ""},
            {"odd.1": '{"key": ["a"]}'},
        ):
            damaged = self.stored()
            damaged["data"] = data
            self.cluster.objects.put(damaged)
            error = self.refused(self.read)
            self.assertEqual(error.status, Status.FAILED_PRECONDITION, data)
            self.assertIn("inventory default/inventory-7-9 cannot", error.message)

    def test_parts_of_other_clients(self) -> None:
        """With signatures, no change by another client stops the project."""
        self.patch(module, "MAX_PART", 700)

        def store() -> InventoryStore:
            orders = OrderStore(self.client, "7-9", "default")
            return InventoryStore(
                self.client, "7-9", "default", orders=orders, clock=self.clock
            )

        wanted = entries(*range(20), uid="u")
        name = "inventory-7-9"

        def changed(number: int, change: Callable[[Any], object]) -> None:
            there = copy.deepcopy(self.stored(number))
            change(there)
            self.cluster.objects.put(there)

        def annotated(annotation: str, value: str) -> Callable[[Any], object]:
            return lambda there: there["metadata"]["annotations"].update(
                {annotation: value}
            )

        def kept(number: int) -> int:
            return len(self.stored(number).get("data") or {})

        changes: dict[str, tuple[Callable[[], object], Callable[[], int]]] = {
            "value": (
                lambda: changed(0, lambda one: one["data"].update(x_y__Z="garbage")),
                lambda: 20,
            ),
            "key": (
                lambda: changed(1, lambda one: one["data"].update(junk="")),
                lambda: 20,
            ),
            "count": (lambda: changed(0, annotated(PARTS, "3")), lambda: 20),
            "large count": (lambda: changed(0, annotated(PARTS, "16")), lambda: 20),
            "from Git": (lambda: changed(0, annotated(OWNER, "x")), lambda: 20),
            "part from Git": (lambda: changed(1, annotated(OWNER, "x")), lambda: 20),
            "missing part": (
                lambda: self.cluster.objects.remove(
                    "v1", "ConfigMap", f"{name}-1", "default"
                ),
                lambda: 20 - lost,
            ),
        }
        for case, (attack, expected) in changes.items():
            before = store()
            self.read(before)
            self.write(wanted, store=before)
            self.assertGreater(int(self.stored()["metadata"]["annotations"][PARTS]), 1)
            lost = kept(1)
            attack()
            after = store()
            found = self.read(after)
            self.assertEqual(len(found.entries), expected(), case)
            self.assertTrue(all(one.is_signed for one in found.entries.values()), case)
            self.write(wanted, store=after)
            self.assertEqual(self.read(store()).entries, wanted, case)
            self.assertNotIn(OWNER, self.stored()["metadata"]["annotations"])

    def signed(self) -> InventoryStore:
        """An inventory whose entries are signed."""
        orders = OrderStore(self.client, "7-9", "default")
        return InventoryStore(
            self.client, "7-9", "default", orders=orders, clock=self.clock
        )

    def test_texts_without_limits(self) -> None:
        """No text of another client fills the inventory, or cannot be written."""
        wanted = entries(1, 2, uid="u")
        self.write(wanted, store=self.signed())
        first = dict(self.stored()["data"])
        name, value = next(iter(first.items()))
        known = json.loads(value)
        odd = '{"key": ["", "ConfigMap", "default", "%s"]}'
        for case, changed in {
            "surrogate": {"odd.1": odd % r"\ud800"},
            "surrogate in a reason": {name: json.dumps(known | {"held": "\ud800"})},
            "surrogate in a claim": {name: json.dumps(known | {"claimed": "\ud800"})},
            "name": {"odd.1": odd % ("x" * 500_000)},
            "reason": {name: json.dumps(known | {"held": "A" * 720_000})},
            "claim": {name: json.dumps(known | {"claimed": "A" * 720_000})},
            "uid": {name: json.dumps(known | {"uid": "A" * 720_000})},
        }.items():
            there = copy.deepcopy(self.stored())
            there["data"] = first | changed
            self.cluster.objects.put(there)
            store = self.signed()
            found = self.read(store)
            self.assertLessEqual(len(found.entries), 2, case)
            for entry in found.entries.values():
                self.assertLess(len(entry.held) + len(entry.claimed), 2000)
                self.assertTrue(entry.held.isprintable())
            self.write(wanted, store=store)
            self.assertEqual(self.read(self.signed()).entries, wanted, case)

    def test_an_immutable_part(self) -> None:
        """agentk replaces it."""
        wanted = entries(*range(20), uid="u")
        self.small()
        self.write(wanted, store=self.signed())
        for number in (0, 1):
            there = copy.deepcopy(self.stored(number))
            there["immutable"] = True
            self.cluster.objects.put(there)
            store = self.signed()
            self.read(store)
            others = entries(*range(20), uid="v")
            self.write(others, "c2", store=store)
            self.assertEqual(self.read(self.signed()).entries, others)
            self.assertNotIn("immutable", self.stored(number))
            self.read(store)
            self.write(wanted, "c1", store=store)

    def immutable(self) -> tuple[InventoryStore, list[str]]:
        """
        Make part 0 immutable.

        :return: a store that has read it, and the methods of the requests to write a
            ConfigMap that fail, each once.
        """
        store = self.signed()
        self.read(store)
        self.write(entries(*range(5), uid="u"), store=store)
        there = copy.deepcopy(self.stored())
        there["immutable"] = True
        self.cluster.objects.put(there)
        store, fails = self.signed(), list[str]()
        self.read(store)
        respond = self.cluster.objects.respond

        def failing(method: str, path: str, *rest: Any) -> Any:
            if fails and method == fails[0] and "/configmaps" in path:
                del fails[0]
                if method == "DELETE":
                    respond(method, path, *rest)
                raise Refusal(500, "InternalError", "etcdserver: leader changed")
            return respond(method, path, *rest)

        self.patch(self.cluster.objects, "respond", failing)
        return store, fails

    def test_a_finalizer_of_another_client(self) -> None:
        """
        A part that cannot be changed does not stay forever, nor is it lost if it was
        deleted meanwhile.
        """
        wanted = entries(*range(6), uid="v")
        for number, is_deleted in ((0, False), (0, True), (1, False), (1, True)):
            self.small()
            store = self.signed()
            self.read(store)
            self.write(entries(*range(20), uid="u"), store=store)
            there = copy.deepcopy(self.stored(number))
            there["metadata"]["finalizers"] = ["example.org/never"]
            there["immutable"] = not is_deleted
            self.cluster.objects.put(there)
            if is_deleted:
                name = there["metadata"]["name"]
                self.pair.run(self.client.delete(module._CONFIG_MAPS, name, "default"))
                self.assertIn("deletionTimestamp", self.stored(number)["metadata"])
            store = self.signed()
            self.read(store)
            self.write(wanted, store=store)
            self.assertNotIn("deletionTimestamp", self.stored(number)["metadata"])
            self.assertNotIn("finalizers", self.stored(number)["metadata"])
            self.assertEqual(self.read(self.signed()).entries, wanted)

    def test_an_immutable_part_that_cannot_be_created_at_once(self) -> None:
        """Its entries are not lost, nor if the response to the delete is."""
        wanted = entries(*range(6), uid="v")
        for failures in (["POST"] * 3, ["DELETE"], ["DELETE", "POST"]):
            store, fails = self.immutable()
            fails += failures
            self.write(wanted, store=store)
            self.assertEqual(fails, [])
            self.assertNotIn("immutable", self.stored())
            self.assertEqual(self.read(self.signed()).entries, wanted)

    def test_an_immutable_part_that_was_created_although_it_failed(self) -> None:
        """Only the response was lost: the next read finds the part."""
        store, _ = self.immutable()
        wanted, lost = entries(*range(6), uid="v"), [1]
        respond = self.cluster.objects.respond

        def failing(method: str, path: str, *rest: Any) -> Any:
            found = respond(method, path, *rest)
            if method == "POST" and "/configmaps" in path and lost:
                lost.clear()
                raise Refusal(500, "InternalError", "no response")
            return found

        self.patch(self.cluster.objects, "respond", failing)
        error = self.refused(lambda: self.write(wanted, store=store))
        self.assertIs(error.status, Status.ABORTED)
        self.assertEqual(self.read(self.signed()).entries, wanted)

    def test_an_immutable_part_that_cannot_be_created(self) -> None:
        """The attempts end."""
        store, fails = self.immutable()
        fails += ["POST"] * 1000
        since = self.clock.seconds()
        error = self.refused(lambda: self.write(entries(1), store=store))
        self.assertIs(error.status, Status.UNAVAILABLE)
        seconds = self.clock.seconds() - since
        self.assertGreaterEqual(seconds, RECREATE_SECONDS)
        self.assertLess(seconds, 2 * RECREATE_SECONDS)

    def test_an_immutable_part_while_the_pass_is_interrupted(self) -> None:
        """The interruption takes effect when the part exists again."""
        store, fails = self.immutable()
        fails += ["POST"] * 2
        wanted, results = entries(*range(6), uid="v"), list[Any]()
        writing = Deferred.fromCoroutine(store.write(Inventory(wanted, "c")))
        writing.addErrback(lambda failure: results.append(failure.type))
        self.pair.settle()
        self.assertEqual((len(fails), self.stored()), (1, None))
        writing.cancel()
        self.assertEqual(results, [])
        for _ in range(4):
            self.clock.advance(0.5)
            self.pair.settle()
        self.assertEqual((fails, results), ([], [CancelledError]))
        self.assertEqual(self.read(self.signed()).entries, wanted)

    def test_many_entries_of_other_clients(self) -> None:
        """They are not kept in memory, and the next write removes them."""
        self.patch(module, "MAX_UNSIGNED", 10)
        wanted = entries(*range(5), uid="u")
        self.write(wanted, store=self.signed())
        there = copy.deepcopy(self.stored())
        junk = {f"a_{number}__ConfigMap": "" for number in range(1000)}
        there["data"] = junk | there["data"] | {"zz_junk__ConfigMap": ""}
        self.cluster.objects.put(there)
        store = self.signed()
        found = self.read(store)
        self.assertTrue(found.is_altered)
        self.assertEqual(len(found.entries), 15)
        self.assertEqual(len(store._parts[0]["data"]), 15)  # type: ignore[index]
        self.assertEqual(
            {k for k, one in found.entries.items() if one.is_signed}, set(wanted)
        )
        self.write(wanted, store=store)
        after = self.read(self.signed())
        self.assertEqual((after.entries, after.is_altered), (wanted, False))

    def test_parts_that_cannot_be(self) -> None:
        self.write(entries(1))
        for count in ("0", "3", "x", "2", "1024"):
            damaged = self.stored()
            damaged["metadata"]["annotations"][PARTS] = count
            self.cluster.objects.put(damaged)
            error = self.refused(self.read)
            self.assertEqual(error.status, Status.FAILED_PRECONDITION, count)

    # More than one part.

    def small(self) -> None:
        """Ten objects fill a part."""
        self.patch(module, "MAX_PART", 700)

    def test_parts(self) -> None:
        self.small()
        self.write(entries(*range(100)))
        count = int(self.stored()["metadata"]["annotations"][PARTS])
        self.assertGreater(count, 2)
        self.assertEqual(self.read().entries, entries(*range(100)))
        self.write(entries(1), "c2")
        self.assertEqual(self.read().entries, entries(1))
        self.assertEqual(self.stored()["metadata"]["annotations"][PARTS], str(count))

    def test_only_parts_that_change_are_written(self) -> None:
        self.small()
        self.write(entries(*range(60)))
        before = len(self.cluster.requests)
        self.write(entries(*range(61)))
        self.assertEqual(len(self.cluster.requests) - before, 2)

    def test_too_many(self) -> None:
        self.small()
        error = self.refused(lambda: self.write(entries(*range(1000))))
        self.assertEqual(error.status, Status.RESOURCE_EXHAUSTED)
        self.assertIsNone(self.stored())

    def test_wherever_it_stops(self) -> None:
        """
        A write that is cut off anywhere leaves everything of what was and will be in
        both, and the next one mends it.
        """
        self.small()
        for old, new in (
            ((), range(100)),
            (range(5), range(100)),
            (range(60), range(40, 140)),
            (range(100), range(10)),
        ):
            for stops in range(1, 40):
                if self.cut_off(entries(*old), entries(*new, uid="u"), stops):
                    break
            else:
                self.fail("it never ends")

    def test_the_commit_comes_last(self) -> None:
        """Wherever a write stops, all entries are there if the commit is named."""
        self.small()
        for old, new in (
            ((), range(100)),
            (range(5), range(100)),
            (range(60), range(40, 140)),
        ):
            first = Inventory(entries(*old), "c1", source="apps")
            for second in (
                attrs.evolve(first, entries=entries(*new), commit="c2"),
                attrs.evolve(first, entries=entries(*new), source="other"),
            ):
                for stops in range(1, 40):
                    if self.announced(first, second, stops):
                        break
                else:
                    self.fail("it never ends")

    def announced(self, first: Inventory, second: Inventory, stops: int) -> bool:
        """Write *second* over *first*; whether it ended before the request."""
        self.remove_all()
        if first.entries:
            self.pair.run(self.made().write(first))
        store = self.made()
        store._client = _Failing(self.client, stops)  # type: ignore[assignment]
        try:
            self.read(store)
            self.pair.run(store.write(second))
        except CallError:
            found = self.read()
            if (found.commit, found.source) == (second.commit, second.source):
                wanted = second.entries.keys()
                self.assertLessEqual(wanted, found.entries.keys(), stops)
            return False
        found = self.read()
        self.assertEqual(found.entries, second.entries)
        self.assertEqual((found.commit, found.source), (second.commit, second.source))
        return True

    def remove_all(self) -> None:
        for number in range(32):
            if self.stored(number) is not None:
                name = self.stored(number)["metadata"]["name"]
                self.cluster.objects.remove("v1", "ConfigMap", name, "default")

    def cut_off(
        self,
        old: dict[ObjectKey, InventoryEntry],
        new: dict[ObjectKey, InventoryEntry],
        stops: int,
    ) -> bool:
        """Write *new* over *old*; whether it came to its end before the request."""
        self.remove_all()
        if old:
            self.write(old, store=self.made())
        store = self.made()
        store._client = _Failing(self.client, stops)  # type: ignore[assignment]
        try:
            self.read(store)
            self.write(new, store=store)
        except CallError:
            found = self.read().entries
            both = old.keys() & new.keys()
            self.assertLessEqual(both, found.keys(), stops)
            self.assertLessEqual(found.keys(), old.keys() | new.keys())
            mended = self.made()
            self.read(mended)
            self.write(new, store=mended)
            self.assertEqual(self.read().entries, new)
            return False
        self.assertEqual(self.read().entries, new)
        return True


@attrs.define
class _Denied:
    """A client that may not do one thing in one Namespace."""

    _client: Any
    _namespace: str
    _verb: str

    def _check(self, verb: str, *place: str) -> None:
        if verb == self._verb and any(self._namespace in one for one in place):
            raise CallError(Status.PERMISSION_DENIED, "API server: forbidden")

    async def get(self, resource: Any, name: str, namespace: str) -> Any:
        self._check("get", namespace)
        return await self._client.get(resource, name, namespace)

    async def delete(
        self, resource: Any, name: str, namespace: str, **more: Any
    ) -> None:
        self._check("delete", namespace)
        await self._client.delete(resource, name, namespace, **more)

    async def json(self, method: str, path: str, body: Any) -> Any:
        self._check("json", path)
        return await self._client.json(method, path, body)


@attrs.define
class _Failing:
    """A client whose connection breaks after some requests, before or after one."""

    _client: Any
    _left: int

    def _go_on(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise CallError(Status.UNAVAILABLE, "the connection broke")

    def get(self, *given: Any) -> Awaitable[Any]:
        self._go_on()
        return self._client.get(*given)  # type: ignore[no-any-return]

    def list(self, *given: Any, **more: Any) -> Any:
        self._go_on()
        return self._client.list(*given, **more)

    def delete(self, *given: Any, **more: Any) -> Awaitable[None]:
        self._go_on()
        return self._client.delete(*given, **more)  # type: ignore[no-any-return]

    def json(self, method: str, path: str, body: Any) -> Awaitable[Any]:
        self._go_on()
        return self._client.json(method, path, copy.deepcopy(body))  # type: ignore[no-any-return]
