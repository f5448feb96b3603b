"""Orders for a project: suspend, undo, resume, approve; and its history."""

from __future__ import annotations

import base64
import json
from hashlib import sha256
from typing import Any

import attrs

from modules.gitops.agent.inventory.inventory import (
    COMMIT,
    HELD_BEFORE,
    UNMARKED,
    WRITER,
    WRITES,
)
from modules.gitops.agent.inventory.orders import (
    MAX_HELD,
    MAX_HISTORY,
    MAX_OPEN,
    MAX_USER,
    MAX_USERS,
    Approval,
    BegunDeletes,
    LastPass,
    Orders,
)
from modules.gitops.agent.inventory.own_secret import OWN_LABEL
from modules.gitops.agent.objects.manifests import ObjectKey
from modules.gitops.agent.objects.owner_annotations import OWNER
from modules.gitops.agent.project.explanations import LOST, LOST_BEFORE
from modules.gitops.agent.project.passes import AGAIN
from modules.gitops.agent.project.reconcile import Reconciler
from modules.gitops.server.control_server import CONTROL
from modules.gitops.wire import control_pb2 as pb
from tests.modules.gitops.agent.project.test_reconcile import config_maps, object_
from tests.modules.gitops.halves import HalvesTestCase, text
from tunnel.errors import CallError, Status
from tunnel.testing.objects import Refusal


def reference(name: str) -> pb.ObjectReference:
    return pb.ObjectReference(kind="ConfigMap", namespace="default", name=name)


class OrdersTests(HalvesTestCase):
    """From the external API to the Secret, and to the cluster."""

    def ask(self, method: str, **given: Any) -> Any:
        request = getattr(pb, f"{method}Request")(agent="1", project="apps", **given)
        return self.pair.run(self.pair.external(CONTROL).call(method, request))

    def refused(self, method: str, **given: Any) -> Status:
        with self.assertRaises(CallError) as caught:
            self.ask(method, **given)
        status: Status = caught.exception.status
        return status

    def status(self) -> Any:
        (found,) = self.ask("GetStatus").projects
        return found

    def commit(self, *objects: Any) -> str:
        commit = self.apps.commit({"a.yaml": text(*objects)})
        self.pushed()
        return commit

    def begin(self) -> str:
        commit = self.apps.commit({"a.yaml": text(*config_maps(1, 2, 3))})
        self.configure({"id": "apps"})
        return commit

    @property
    def secret(self) -> Any:
        """The Secret with the orders."""
        ((_, _, _, name),) = (
            key
            for key in self.cluster.objects._stored
            if key[3].startswith("gitops-orders-")
        )
        return self.cluster.objects.find("v1", "Secret", name, "default")

    @property
    def orders(self) -> Any:
        return json.loads(base64.b64decode(self.secret["data"]["orders"]))

    def change(self, name: str) -> None:
        """As somebody else does."""
        changed = self.live(name)
        changed["data"] = {"n": "theirs"}
        self.cluster.objects.put(changed)

    @property
    def inventory(self) -> Any:
        path = "/api/v1/namespaces/default/configmaps"
        answer = self.cluster.objects.respond("GET", path, "", b"", False)
        assert isinstance(answer, tuple)
        items = answer[1]["items"]
        (found,) = (
            one for one in items if one["metadata"]["name"].startswith("inventory-")
        )
        return found

    def test_how_often_they_are_read(self) -> None:
        """Once in a pass, and once more right before something is changed."""
        self.begin()

        def reads() -> int:
            name = f"/secrets/{self.secret['metadata']['name']}"
            asked = [
                one
                for one in self.cluster.requests
                if one.method == "GET" and one.path.endswith(name)
            ]
            self.cluster.requests.clear()
            return len(asked)

        project = self.agent.projects["apps"]
        reads()
        project.passes.interrupt()
        self.passes(1)
        self.assertEqual(self.status().objects_by_outcome, {"unchanged": 3})
        self.assertEqual(reads(), 1)
        self.change("m001")
        project.passes.interrupt()
        self.passes(1)
        self.assertEqual(self.live("m001")["data"], {"n": "1"})
        # ... and to number the execution, which changes the inventory, and to end it.
        self.assertEqual(reads(), 4)

    def test_a_commit_that_cannot_be_used(self) -> None:
        """It is told for as long as it is the last one."""
        before = self.begin()
        since = self.status().worked_at
        self.passes(60)
        bad = self.apps.commit({"a.yaml": "a: {}\nkind: ["})
        self.pushed()

        def check(state: Any) -> None:
            found = self.status()
            self.assertEqual(found.state, state)
            self.assertEqual((found.commit, found.next_commit), (before, bad))
            self.assertIn(f"commit {bad[:12]}: a.yaml:", found.problems[0])

        check(pb.ProjectStatus.STATE_FAILED)
        self.assertEqual(self.status().worked_at, since)
        self.assertEqual(self.status().objects_by_outcome, {"created": 3})
        project = self.agent.projects["apps"]
        self.assertIsNotNone(project.status.out_of_sync_since)
        self.ask("Suspend")
        self.passes(5)
        check(pb.ProjectStatus.STATE_SUSPENDED)
        self.ask("Resume")
        self.passes(5)
        again = self.status().worked_at.ToMicroseconds()
        self.assertGreater(again, since.ToMicroseconds())
        check(pb.ProjectStatus.STATE_FAILED)
        self.assertIsNotNone(project.status.out_of_sync_since)
        self.assertEqual(len(self.said(f"commit {bad[:12]}: a.yaml:")), 1)
        self.commit(*config_maps(1, 2, 3))
        self.assertEqual(self.status().state, pb.ProjectStatus.STATE_CURRENT)
        self.assertIsNone(project.status.out_of_sync_since)

    def test_a_commit_whose_key_is_missing(self) -> None:
        """The one before is in the cluster, and that is not what Git has."""
        before = self.apps.commit({"a.yaml": text(*config_maps(1))})
        self.configure({"id": "apps", "decryption": {"secret": "default/keys"}})
        self.assertEqual(self.status().state, pb.ProjectStatus.STATE_CURRENT)
        secret = {**object_("s", "Secret"), "sops": {"mac": "x"}}
        waits = self.apps.commit({"a.yaml": text(secret)})
        self.pushed()
        found = self.status()
        self.assertEqual(found.state, pb.ProjectStatus.STATE_WAITING)
        self.assertEqual((found.commit, found.next_commit), (before, waits))
        self.assertIn("default/keys (decryption.secret)", found.problems[0])

    def test_suspended(self) -> None:
        """Neither commits nor drift change anything; all of it comes afterwards."""
        self.begin()
        self.ask("Suspend")
        self.assertEqual(self.status().state, pb.ProjectStatus.STATE_SUSPENDED)
        self.change("m001")
        self.commit(*config_maps(1, 2, 4))
        self.passes(AGAIN)
        self.assertEqual(self.live("m001")["data"], {"n": "theirs"})
        self.assertIsNone(self.live("m004"))
        self.assertIsNotNone(self.live("m003"))
        self.assertIs(self.orders["suspended"], True)
        self.ask("Resume")
        self.passes(60)
        self.assertEqual(self.live("m001")["data"], {"n": "1"})
        self.assertIsNotNone(self.live("m004"))
        self.assertIsNone(self.live("m003"))
        self.assertEqual(self.status().state, pb.ProjectStatus.STATE_CURRENT)

    def test_undo(self) -> None:
        """Pruned objects and fields come back; later commits wait; so does a leader."""
        first = self.begin()
        changed = object_("m001", data={"n": "bad"})
        second = self.commit(changed, *config_maps(2))
        self.assertIsNone(self.live("m003"))
        self.assertEqual(self.ask("Undo").commit, first)
        self.passes(5)
        self.assertEqual(self.live("m001")["data"], {"n": "1"})
        self.assertIsNotNone(self.live("m003"))
        self.assertEqual(self.status().pinned, first)
        self.assertEqual(self.status().commit, first)

        self.commit(changed, *config_maps(2, 3, 9))
        self.passes(AGAIN)
        self.assertIsNone(self.live("m009"))
        self.leave()
        self.lead()
        self.passes(AGAIN)
        self.assertEqual(self.live("m001")["data"], {"n": "1"})
        self.assertIsNone(self.live("m009"))

        self.ask("Resume")
        self.passes(5)
        self.assertEqual(self.live("m001")["data"], {"n": "bad"})
        self.assertIsNotNone(self.live("m009"))
        self.assertNotIn("pinned", self.orders)
        commits = [one.commit for one in self.ask("GetHistory").commits]
        self.assertEqual(commits[:3], [first, second, first])

    def test_annotations_of_the_inventory(self) -> None:
        """Many users may write ConfigMaps, and none of them gives orders so."""
        self.begin()
        evil = self.apps.commit({"a.yaml": text(object_("evil"))}, ref="refs/heads/x")
        self.commit(*config_maps(1, 2))
        before = self.orders
        found = self.inventory
        for name, value in {
            "txkas/pinned": evil,
            "txkas/suspended": "true",
            "txkas/approved": "4f0c",
            "txkas/history": f'[["{evil}", 1.0, "1 created"]]',
        }.items():
            found["metadata"]["annotations"][name] = value
        self.cluster.objects.put(found)
        self.passes(AGAIN * 3)
        self.leave()
        self.lead()
        self.passes(AGAIN * 3)
        self.assertIsNone(self.live("evil"))
        self.assertEqual(self.status().state, pb.ProjectStatus.STATE_CURRENT)
        self.assertEqual((self.status().pinned, self.orders), ("", before))
        self.assertIs(self.refused("Undo", commit=evil), Status.NOT_FOUND)

    def test_a_planted_secret(self) -> None:
        """An author of manifests in Git cannot write one that counts."""
        self.begin()
        there = self.secret
        changes: list[dict[str, Any]] = [
            {"annotations": {OWNER: "x"}},
            {"labels": {OWN_LABEL: "another"}},
        ]
        for change in changes:
            planted = {**there, "metadata": {**there["metadata"], **change}}
            self.cluster.objects.put(planted)
            self.commit(*config_maps(7))
            self.assertIsNone(self.live("m007"))
            self.assertEqual(self.status().state, pb.ProjectStatus.STATE_FAILED)
            self.assertIn("agentk did not write the Secret", self.status().problems[0])

    def test_orders_in_git(self) -> None:
        """A manifest that has the name of that Secret is refused."""
        self.begin()
        name = self.secret["metadata"]["name"]
        before = self.orders
        self.commit(object_(name, "Secret", data={"orders": "e30="}), *config_maps(1))
        self.assertIn("agentk itself writes it", self.status().problems[0])
        self.assertEqual(self.orders["history"][:1], before["history"])

    def pin(self, commit: str) -> None:
        """Write the order itself, as a faulty agentk would."""
        found = self.secret
        orders = json.dumps({**self.orders, "pinned": commit}).encode()
        found["data"]["orders"] = base64.b64encode(orders).decode()
        self.cluster.objects.put(found)
        self.leave()
        self.lead()
        self.passes(60)

    def test_a_pinned_commit_that_is_not_in_the_history(self) -> None:
        """kas sends no other: the commit of an open merge request was not approved."""
        self.begin()
        evil = self.apps.commit({"a.yaml": text(object_("evil"))}, ref="refs/heads/x")
        self.commit(*config_maps(1, 2))
        self.pin(evil)
        self.assertIsNone(self.live("evil"))
        self.assertEqual(self.status().state, pb.ProjectStatus.STATE_FAILED)
        (line,) = self.status().problems
        self.assertIn(f"commit {evil[:12]} is not in the history of HEAD", line)

    def test_a_pinned_ref(self) -> None:
        """It would move: only the id of a commit is followed."""
        self.begin()
        self.apps.commit({"a.yaml": text(object_("evil"))}, ref="refs/heads/x")
        for name in ("refs/heads/x", "x", "HEAD"):
            self.pin(name)
            self.assertIsNone(self.live("evil"))
            (line,) = self.status().problems
            self.assertIn(f"{name!r} is not the id of a commit", line)

    def test_a_repair_where_it_is_pinned(self) -> None:
        """It is of the commit that is there, and the inventory says so."""
        first = self.begin()
        self.commit(*config_maps(1, 2))
        self.ask("Undo")
        self.passes(5)
        self.change("m001")
        self.passes(30)
        self.assertEqual(self.live("m001")["data"], {"n": "1"})
        self.assertEqual(self.inventory["metadata"]["annotations"][COMMIT], first)

    def test_approved_after_a_commit_that_cannot_be_read(self) -> None:
        """What was held before it still is, and goes when a person says so."""
        self.apps.commit({"a.yaml": text(*config_maps(*range(10)))})
        self.configure({"id": "apps"})
        self.commit(*config_maps(1))
        release = self.status().release
        self.apps.commit({"a.yaml": "a: ["})
        self.pushed()
        self.ask("Approve", release=release)
        self.passes(5)
        self.assertIsNone(self.live("m002"))
        self.assertIsNotNone(self.live("m001"))

    def test_a_commit_that_is_lost(self) -> None:
        """Rewritten history: it is said, and nothing is deleted or changed."""
        first = self.begin()
        self.commit(*config_maps(1, 2))
        del self.apps._trees[first]
        self.ask("Undo", commit=first[:10])
        self.passes(60)
        self.assertEqual(len(self.said(f"pinned to {first[:12]}, which cannot be")), 1)
        self.assertIsNone(self.live("m003"))
        self.assertIsNotNone(self.live("m002"))
        self.assertEqual(self.status().state, pb.ProjectStatus.STATE_FAILED)

    def test_what_cannot_be(self) -> None:
        self.begin()
        self.assertIs(self.refused("Undo"), Status.NOT_FOUND)
        self.assertIs(self.refused("Undo", commit="ffff"), Status.NOT_FOUND)

    def test_before_anything_was_applied(self) -> None:
        self.configure({"id": "apps"})
        for method in ("Suspend", "Undo", "GetHistory", "Repair"):
            self.assertIs(self.refused(method), Status.FAILED_PRECONDITION)

    def test_an_undo_after_a_forced_push(self) -> None:
        """A commit that was read for an earlier order may have left the history."""
        first = self.begin()
        self.commit(*config_maps(1, 2))
        self.ask("Undo", commit=first)
        self.passes(1)
        self.ask("Resume")
        self.passes(1)
        self.apps.rewind("")
        self.commit(*config_maps(1, 2, 3))
        self.ask("Undo", commit=first)
        self.passes(1)
        (why,) = self.status().problems
        self.assertIn("is not in the history of HEAD", why)
        self.assertIsNotNone(self.live("m003"))

    def test_history(self) -> None:
        """So many commits, each once, and what became of them."""
        first = self.begin()
        (found,) = self.ask("GetHistory").commits
        self.assertEqual((found.commit, found.summary), (first, "3 created"))
        self.passes(AGAIN * 3)
        self.assertEqual(len(self.ask("GetHistory").commits), 1)
        last = ""
        for number in range(MAX_HISTORY + 2):
            last = self.commit(object_("m001", data={"n": str(number)}))
        found = self.ask("GetHistory").commits
        self.assertEqual(len(found), MAX_HISTORY)
        self.assertEqual(found[-1].commit, last)

    def test_undo_passes_over_what_failed(self) -> None:
        """Without a commit it goes to the last one that was applied in full."""
        first = self.begin()
        respond = self.cluster.objects.respond

        def refuse(method: str, path: str, *rest: Any) -> Any:
            if method == "PATCH" and "/configmaps/bad" in path:
                raise Refusal(422, "Invalid", "no")
            return respond(method, path, *rest)

        self.patch(self.cluster.objects, "respond", refuse)
        bad = self.commit(object_("bad"), *config_maps(1, 2, 3))
        self.commit(*config_maps(1, 2))
        history = self.ask("GetHistory").commits
        self.assertEqual(history[1].commit, bad)
        self.assertEqual(self.ask("Undo").commit, first)
        self.passes(5)
        self.assertEqual(self.ask("Undo", commit=bad[:10]).commit, bad)

    def test_sync(self) -> None:
        """kas looks at once, and a commit that failed is applied again at once."""
        self.begin()
        newest = self.apps.commit({"a.yaml": text(*config_maps(1, 2, 5))})
        self.assertEqual(self.ask("Sync").commit, newest)
        self.passes(2)
        self.assertIsNotNone(self.live("m005"))
        before = self.status().worked_at.ToMicroseconds()
        self.assertEqual(self.ask("Sync").commit, newest)
        self.passes(1)
        self.assertGreater(self.status().worked_at.ToMicroseconds(), before)

    def test_decisions_in_the_audit_log(self) -> None:
        """With operator and client, and whatever comes of them; reading is none."""
        first = self.begin()
        self.commit(*config_maps(1, 2))
        client = self.pair.external(CONTROL)
        sent = {"kasctl-operator": "alice as root", "user-agent": "kasctl/1"}
        request = pb.UndoRequest(agent="1", project="apps", commit=first)
        self.pair.run(client.call("Undo", request, metadata=sent))
        self.refused("Approve", release="none")
        self.ask("Suspend")
        self.ask("GetHistory")
        self.refused("GetKept", id="4f0c")
        events = [
            (one.action, one.outcome, dict(one.details))
            for one in self.server._api.audit.events
        ]
        of_project = {"agent": "1", "project": "apps"}
        by_alice = {"operator": "alice as root", "user_agent": "kasctl/1"}
        self.assertEqual(
            events,
            [
                ("gitops.undo", "OK", {**of_project, "commit": first, **by_alice}),
                (
                    "gitops.approve",
                    "FAILED_PRECONDITION",
                    {**of_project, "release": "none"},
                ),
                ("gitops.suspend", "OK", of_project),
                ("gitops.kept", "NOT_FOUND", {**of_project, "state": "4f0c"}),
            ],
        )

    def test_sync_ends_a_pause(self) -> None:
        """kas was away for long, and agentk would ask again in minutes."""
        self.begin()
        self.apps.down = CallError(Status.UNAVAILABLE, "no Git server")
        self.passes(3600)
        self.apps.down = None
        newest = self.apps.commit({"a.yaml": text(*config_maps(1, 2, 5))})
        self.assertEqual(self.ask("Sync").commit, newest)
        self.passes(3)
        self.assertIsNotNone(self.live("m005"))

    def test_why_the_newest_commit_is_not_applied(self) -> None:
        first = self.begin()
        self.commit(*config_maps(1, 2))
        self.assertEqual(self.status().next_reason, "")
        self.ask("Undo")
        newest = self.commit(*config_maps(1, 2, 9))
        found = self.status()
        self.assertEqual((found.commit, found.next_commit), (first, newest))
        self.assertEqual(found.next_reason, f"the project is pinned to {first[:12]}")
        self.ask("Suspend")
        self.passes(1)
        self.assertEqual(self.status().next_reason, "the project is suspended")
        self.ask("Resume")
        self.passes(1)
        self.assertEqual(self.status().next_reason, "")
        broken = self.apps.commit({"a.yaml": "a: ["})
        self.pushed()
        self.assertIn("a.yaml:2:1", self.status().next_reason)
        # The reason of a newer one is another.
        self.apps.down = CallError(Status.UNAVAILABLE, "no Git server")
        project = self.agent.projects["apps"]
        project._commits.refused = "f" * 40
        project._commits._not_sent = "it is too large"
        found = self.status()
        self.assertEqual(found.next_reason, "it is too large")
        self.assertIn(f"commit {broken[:12]}: a.yaml:2:1", found.problems[1])
        # Nor does it matter after an undo, for the commit of that.
        self.ask("Undo", commit=first)
        self.passes(1)
        self.assertEqual(list(self.status().problems), ["it is too large"])

    def test_lines_of_another_commit(self) -> None:
        """They are not shown while a commit is worked on that may have none."""
        self.begin()
        self.cluster.objects.put(object_("m009", metadata={"namespace": "default"}))
        self.commit(*config_maps(1, 2, 3, 9))
        project = self.agent.projects["apps"]
        self.assertEqual(len(project.status.problems), 1)
        project.passes.is_busy = True
        self.assertEqual(len(project.status.problems), 1)
        project.desired.orders = attrs.evolve(project.desired.orders, pinned="f" * 40)
        self.assertEqual(project.status.problems, [])

    def test_no_approval_while_it_is_suspended(self) -> None:
        """Status offers it again once the project is resumed."""
        self.begin()
        self.commit(*config_maps(1), *config_maps(*range(10, 30)))
        self.commit(*config_maps(1))
        self.assertNotEqual(self.status().release, "")
        self.ask("Suspend")
        self.passes(1)
        self.assertEqual(self.status().release, "")
        self.ask("Resume")
        self.passes(1)
        self.assertNotEqual(self.status().release, "")

    def test_sync_of_a_project_that_only_git_has(self) -> None:
        """The refusal says how agentk reads the file that has it."""
        self.begin()
        client = self.pair.external(CONTROL)
        request = pb.SyncRequest(agent="1", project="new")
        with self.assertRaises(CallError) as caught:
            self.pair.run(client.call("Sync", request))
        self.assertIn(
            "known: apps (to read a new configuration, sync one of these)",
            caught.exception.message,
        )

    def taken(self) -> None:
        """Another field manager has a field that Git has, and agentk only reports."""
        self.apps.commit({"a.yaml": text(*config_maps(1, 2))})
        self.configure({"id": "apps", "drift": {"mode": "report"}})
        self.change("m001")
        self.change("m002")
        self.passes(60)
        self.assertEqual(self.status().drifted, 2)

    def test_repair(self) -> None:
        """It takes fields back from whoever has them, once."""
        self.taken()
        self.ask("Repair", objects=[reference("m001")])
        self.passes(5)
        self.assertEqual(self.live("m001")["data"], {"n": "1"})
        self.assertEqual(self.live("m002")["data"], {"n": "theirs"})
        self.ask("Repair")
        self.passes(5)
        self.assertEqual(self.live("m002")["data"], {"n": "2"})
        self.assertEqual(self.status().state, pb.ProjectStatus.STATE_CURRENT)

    def test_repairs_that_cannot_be(self) -> None:
        self.taken()
        missing = [reference("m009")]
        self.assertIs(self.refused("Repair", objects=missing), Status.NOT_FOUND)
        self.ask("Suspend")
        self.passes(1)
        self.assertIs(self.refused("Repair"), Status.FAILED_PRECONDITION)
        self.assertEqual(self.live("m001")["data"], {"n": "theirs"})

    def test_an_approval_counts_once(self) -> None:
        """A commit that is applied a second time needs another approval."""
        self.apps.commit({"a.yaml": text(*config_maps(*range(10)))})
        self.configure({"id": "apps"})
        self.commit(*config_maps(1))
        release = self.status().release
        self.ask("Approve", release=release)
        self.passes(5)
        self.assertIsNone(self.live("m002"))
        self.assertNotIn("approved", self.orders)
        self.ask("Undo")
        self.passes(5)
        self.assertIsNotNone(self.live("m002"))
        self.ask("Resume")
        self.passes(5)
        self.assertIsNotNone(self.live("m002"))
        # The objects are other ones.
        self.assertNotIn(self.status().release, ("", release))

    def test_an_approval_counts_once_for_a_commit(self) -> None:
        """Also where the files of the project change, and the commit does not."""
        few = {"id": "apps", "paths": [{"glob": "a.yaml"}]}
        self.apps.commit(
            {
                "a.yaml": text(*config_maps(1)),
                "b.yaml": text(*config_maps(*range(2, 10))),
            }
        )
        self.configure({"id": "apps"})
        self.configure(few)
        release = self.status().release
        self.ask("Approve", release=release)
        self.passes(5)
        self.assertIsNone(self.live("m002"))
        self.assertNotIn("approved", self.orders)
        self.configure({"id": "apps"})
        self.assertIsNotNone(self.live("m002"))
        self.configure(few)
        self.assertIsNotNone(self.live("m002"))
        self.assertNotIn(self.status().release, ("", release))

    def hold(self) -> str:
        """Hold the deletes of m001 to m009, and return their RELEASE."""
        self.apps.commit({"a.yaml": text(*config_maps(*range(10)))})
        self.configure({"id": "apps"})
        self.commit(*config_maps(0))
        return str(self.status().release)

    def restore(self, dump: Any) -> None:
        """As a user who creates an object again from a dump, with its annotations."""
        metadata = {
            name: dump["metadata"][name]
            for name in ("name", "namespace", "annotations")
        }
        self.cluster.objects.put({**dump, "metadata": metadata, "data": {"n": "new"}})

    def test_an_object_that_is_replaced_before_its_approval(self) -> None:
        """The approval covers the former object only, as the status showed it."""
        release = self.hold()
        dump = self.live("m005")
        self.cluster.objects.remove("v1", "ConfigMap", "m005", "default")
        self.restore(dump)
        self.ask("Approve", release=release)
        self.passes(5)
        self.assertIsNone(self.live("m004"))
        self.assertEqual(self.live("m005")["data"], {"n": "new"})
        found = self.status()
        self.assertEqual(found.state, pb.ProjectStatus.STATE_HELD)
        self.assertNotIn(found.release, ("", release))
        self.ask("Approve", release=found.release)
        self.passes(5)
        self.assertIsNone(self.live("m005"))

    def interrupted(self) -> str:
        """
        Interrupt approved deletes, while a user restores a deleted object.

        :return: the name for the deletes.
        """
        release = self.hold()
        dump = self.live("m005")
        stays = self.live("m001")
        stays["metadata"]["finalizers"] = ["example.org/slow"]
        self.cluster.objects.put(stays)
        self.ask("Approve", release=release)
        self.passes(3)
        self.assertIsNone(self.live("m005"))
        self.restore(dump)
        return release

    def check_restored(self, former: str) -> None:
        self.cluster.objects.remove("v1", "ConfigMap", "m001", "default")
        self.passes(60)
        self.assertEqual(self.live("m005")["data"], {"n": "new"})
        self.assertNotIn(self.status().release, ("", former))
        self.assertEqual(len(self.orders["held"]), 1)

    def test_an_object_restored_before_a_sync(self) -> None:
        """The approval of the deleted object does not cover the restored one."""
        former = self.interrupted()
        self.ask("Sync")
        self.passes(5)
        # The approval still covers the object that was not gone.
        self.assertEqual(self.status().problems[0], "approved, 0 of 1 gone")
        self.check_restored(former)

    def test_an_object_restored_before_another_leader(self) -> None:
        former = self.interrupted()
        self.leave()
        self.lead()
        self.passes(60)
        self.check_restored(former)

    def test_an_object_restored_before_another_writer(self) -> None:
        """Any client may interrupt a pass: it only has to write the ConfigMap."""
        former = self.interrupted()
        inventory = self.inventory
        inventory["metadata"]["labels"]["x"] = "1"
        self.cluster.objects.put(inventory)
        self.check_restored(former)

    def test_an_approval_of_an_earlier_version(self) -> None:
        """It names no uids, so it covers nothing, and the status asks again."""
        release = self.hold()
        secret, orders = self.secret, self.orders
        keys = [ObjectKey("", "ConfigMap", "default", f"m00{n}") for n in range(1, 10)]
        digests = [sha256("\0".join(key).encode()).hexdigest()[:16] for key in keys]
        commit = self.status().commit
        orders["approved"] = {"commit": commit, "objects": digests, "by": ["alice"]}
        value = base64.b64encode(json.dumps(orders).encode()).decode()
        secret["data"]["orders"] = value
        self.cluster.objects.put(secret)
        self.leave()
        self.lead()
        self.configure({"id": "apps"})
        self.passes(60)
        self.assertIsNotNone(self.live("m001"))
        self.assertEqual(self.status().release, release)
        self.ask("Approve", release=release)
        self.passes(5)
        self.assertIsNone(self.live("m001"))
        self.assertNotIn("approved", self.orders)

    def test_what_others_let_go(self) -> None:
        """Who may write the inventory approves nothing, and makes no share smaller."""
        self.apps.commit({"a.yaml": text(*config_maps(*range(10)))})
        self.configure({"id": "apps"})
        self.commit(*config_maps(1))
        self.assertEqual(len(self.orders["held"]), 9)
        for count, reason in ((0, HELD_BEFORE), (40, "9 of 10 objects")):
            inventory = self.inventory
            for key, value in inventory["data"].items():
                known = json.loads(value)
                known.pop("held", None)
                inventory["data"][key] = json.dumps(known)
            for number in range(count):
                inventory["data"][f"_x{number}__ConfigMap"] = ""
            self.cluster.objects.put(inventory)
            if count:
                secret = self.secret
                secret["data"] = {}
                self.cluster.objects.put(secret)
            self.leave()
            self.lead()
            self.configure({"id": "apps"})
            self.passes(60)
            self.assertIsNotNone(self.live("m002"))
            self.assertTrue(self.said(reason))
        self.ask("Approve", release=self.status().release)
        self.passes(5)
        self.assertIsNone(self.live("m002"))
        self.assertNotIn("held", self.orders)

    def test_entries_that_others_remove_and_add_again(self) -> None:
        """Their deletes still wait, however few they are at a time."""
        self.apps.commit({"a.yaml": text(*config_maps(*range(10)))})
        self.configure({"id": "apps"})
        self.commit(*config_maps(0))
        before = self.inventory["data"]
        victims = {name: one for name, one in before.items() if "held" in one}
        self.assertEqual(len(victims), 9)
        for removed in (
            {},
            {name: json.dumps({"uid": "another"}) for name in victims},
        ):
            inventory = self.inventory
            inventory["data"] = {
                **{name: one for name, one in before.items() if name not in victims},
                **removed,
            }
            self.cluster.objects.put(inventory)
            self.commit(object_("m000", data={"n": str(len(removed))}))
            self.assertEqual(len(self.orders["held"]), 9)
        for name, value in sorted(victims.items()):
            inventory = self.inventory
            known = json.loads(value)
            del known["held"]
            inventory["data"][name] = json.dumps(known)
            self.cluster.objects.put(inventory)
            self.commit(object_("m000", data={"n": name}))
        for number in range(1, 10):
            self.assertIsNotNone(self.live(f"m{number:03}"))
        self.ask("Approve", release=self.status().release)
        self.passes(5)
        self.assertIsNone(self.live("m002"))
        self.assertNotIn("held", self.orders)

    def test_deletes_of_one_commit_that_others_split(self) -> None:
        """The limits apply to all deletes of a commit together."""
        self.apps.commit({"a.yaml": text(*config_maps(*range(10)))})
        self.configure({"id": "apps"})
        inventory = self.inventory
        hidden = {
            name: inventory["data"].pop(name)
            for name in list(inventory["data"])
            if any(f"m00{number}" in name for number in (7, 8, 9))
        }
        self.cluster.objects.put(inventory)
        commit = self.commit(*config_maps(*range(4)))
        self.assertIsNone(self.live("m004"))
        self.assertEqual(self.orders["begun"]["commit"], commit)
        self.assertEqual(len(self.orders["begun"]["objects"]), 3)
        inventory = self.inventory
        inventory["data"].update(hidden)
        self.cluster.objects.put(inventory)
        self.leave()
        self.lead()
        self.configure({"id": "apps"})
        self.passes(60)
        self.assertIsNotNone(self.live("m007"))
        self.assertTrue(self.said("the inventory does not prove"))
        # A commit of its own deletes few objects again.
        self.ask("Approve", release=self.status().release)
        self.passes(5)
        self.assertIsNone(self.live("m007"))
        self.commit(*config_maps(0))
        self.assertIsNone(self.live("m003"))

    def test_deletes_that_are_held_without_pruning(self) -> None:
        """A pass that prunes nothing releases no delete."""
        self.apps.commit({"a.yaml": text(*config_maps(*range(10)))})
        self.configure({"id": "apps"})
        self.commit(*config_maps(0))
        self.configure({"id": "apps", "prune": False})
        self.assertEqual(len(self.orders["held"]), 9)
        # In Git again, or gone: these deletes need no approval any more.
        self.cluster.objects.remove("v1", "ConfigMap", "m009", "default")
        self.commit(*config_maps(*range(5)))
        self.assertEqual(len(self.orders["held"]), 4)

    def change_annotations(self, **values: str) -> None:
        """As a client that may write ConfigMaps; an empty value removes one."""
        inventory = self.inventory
        annotations = inventory["metadata"]["annotations"]
        for name, value in values.items():
            annotations["txkas/" + name.replace("_", "-")] = value
        inventory["metadata"]["annotations"] = {
            name: value for name, value in annotations.items() if value
        }
        self.cluster.objects.put(inventory)

    def test_a_mark_that_others_remove(self) -> None:
        """The Secret names the agentk of the last pass, too."""
        self.apps.commit({"a.yaml": text(*config_maps(*range(6)))})
        self.configure({"id": "apps"})
        mark = self.orders["last"]["writer"]
        self.assertEqual(mark, self.inventory["metadata"]["annotations"][WRITER])
        self.change_annotations(writer="")
        self.commit(*config_maps(*range(5)))
        self.assertIsNotNone(self.live("m005"))
        self.assertTrue(self.said(f"another agentk ({UNMARKED})"))
        # Another agentk was here before, whatever the annotation says.
        orders = self.orders
        orders["last"]["writer"] = "main@else/agent-1-lock"
        secret = self.secret
        value = base64.b64encode(json.dumps(orders).encode()).decode()
        secret["data"]["orders"] = value
        self.cluster.objects.put(secret)
        self.commit(*config_maps(*range(4)))
        self.assertIsNotNone(self.live("m004"))
        self.assertTrue(self.said("another agentk (main@else/agent-1-lock)"))
        # From now on, this agentk is the last one.
        self.assertEqual(self.orders["last"]["writer"], mark)
        self.commit(*config_maps(*range(3)))
        self.assertIsNone(self.live("m003"))

    def test_a_default_namespace_that_others_change(self) -> None:
        """Objects in the former Namespace stay."""
        self.apps.commit({"a.yaml": text(*config_maps(*range(2)))})
        self.configure({"id": "apps"})
        self.change_annotations(default_namespace="new")
        self.configure({"id": "apps", "default_namespace": "new"})
        self.assertIsNotNone(self.live("m001"))
        self.assertTrue(self.said("default_namespace was default and is new now"))
        # As long as a delete waits, the objects of both are in the cluster.
        self.assertEqual(self.orders["last"]["default_namespace"], "default")
        self.ask("Approve", release=self.status().release)
        self.passes(5)
        self.assertIsNone(self.live("m001"))
        self.assertEqual(self.orders["last"]["default_namespace"], "new")

    def test_an_inventory_that_is_gone(self) -> None:
        """The status says so, and nothing that was held is deleted later."""
        self.apps.commit({"a.yaml": text(*config_maps(*range(10)))})
        self.configure({"id": "apps"})
        self.commit(*config_maps(0))
        before = self.inventory
        name = before["metadata"]["name"]
        self.cluster.objects.remove("v1", "ConfigMap", name, "default")
        self.commit(*config_maps(0, 10))
        self.assertIn(LOST, self.status().problems)
        self.assertEqual(len(self.orders["held"]), 9)
        self.cluster.objects.put(before)
        self.commit(*config_maps(0, 10, 11))
        self.assertNotIn(LOST, self.status().problems)
        self.assertIsNotNone(self.live("m001"))
        # Until an operator has seen it.
        self.leave()
        self.lead()
        self.configure({"id": "apps"})
        self.passes(60)
        self.assertEqual(list(self.status().notices), [LOST_BEFORE])
        self.ask("Resume")
        self.passes(5)
        self.assertEqual(list(self.status().notices), [])
        self.assertNotIn("lost", self.orders)

    def test_an_inventory_that_is_gone_before_an_interrupted_pass(self) -> None:
        """The status says so afterwards, although the new inventory exists."""
        self.apps.commit({"a.yaml": text(*config_maps(*range(3)))})
        self.configure({"id": "apps"})
        self.cluster.objects.remove(
            "v1", "ConfigMap", self.inventory["metadata"]["name"], "default"
        )
        respond = self.cluster.objects.respond

        def refuse(method: str, path: str, *rest: Any) -> Any:
            if method == "PATCH" and "/configmaps/" in path:
                project.passes.interrupt()
                self.patch(self.cluster.objects, "respond", respond)
            return respond(method, path, *rest)

        project = self.agent.projects["apps"]
        self.patch(self.cluster.objects, "respond", refuse)
        self.commit(*config_maps(0, 1, 2, 3))
        self.passes(60)
        self.assertEqual(self.status().state, pb.ProjectStatus.STATE_CURRENT)
        self.assertEqual(list(self.status().problems), [])
        self.assertEqual(list(self.status().notices), [LOST_BEFORE])

    def test_orders_from_git(self) -> None:
        """A manifest cannot be orders, kept or not when it leaves Git."""
        self.begin()
        planted = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": "gitops-kept-x",
                "labels": {OWN_LABEL: "other"},
                "annotations": {"cli-utils.sigs.k8s.io/on-remove": "keep"},
            },
        }
        self.commit(*config_maps(1, 2, 3), planted)
        self.commit(*config_maps(1, 2, 3))
        found = self.cluster.objects.find("v1", "Secret", "gitops-kept-x", "default")
        self.assertIsNone(found)

    def test_the_leadership_ends_before_the_history_is_written(self) -> None:
        """The history is the next leader's."""
        self.begin()
        before = self.orders["history"]
        run = Reconciler.run

        async def late(reconciler: Reconciler, *given: Any) -> Any:
            found = await run(reconciler, *given)
            self.agent._api.leadership.leads = False
            return found

        self.patch(Reconciler, "run", late)
        self.commit(*config_maps(1, 2, 3, 4))
        self.assertIsNotNone(self.live("m004"))
        self.assertEqual(self.orders["history"], before)

    def test_the_history_of_what_a_person_let_go(self) -> None:
        """It says what became of the commit, and not what was held at first."""
        self.apps.commit({"a.yaml": text(*config_maps(*range(10)))})
        self.configure({"id": "apps"})
        commit = self.commit(*config_maps(1))
        found = self.ask("GetHistory").commits
        self.assertEqual(found[-1].summary, "9 blocked, 1 unchanged")
        self.passes(AGAIN * 3)
        self.assertEqual(len(self.ask("GetHistory").commits), 2)
        self.ask("Approve", release=self.status().release)
        self.passes(5)
        found = self.ask("GetHistory").commits
        self.assertEqual(len(found), 2)
        last = found[-1]
        self.assertEqual((last.commit, last.summary), (commit, "9 pruned, 1 unchanged"))
        self.passes(AGAIN * 3)
        self.assertEqual(self.ask("GetHistory").commits[-1], last)

    def test_orders_that_cannot_be_read(self) -> None:
        """agentk changes nothing, and says which Secret to look at."""
        self.begin()
        for written in (b"{", b"[]", b'{"history": [1]}', b"[" * 100_000, b"\xff"):
            broken = self.secret
            broken["data"]["orders"] = base64.b64encode(written).decode()
            self.cluster.objects.put(broken)
            self.assertIs(self.refused("GetHistory"), Status.FAILED_PRECONDITION)
        self.commit(*config_maps(7))
        self.assertIsNone(self.live("m007"))
        self.assertIn("gitops-orders-", self.status().problems[0])

    def test_writes_that_cannot_be_counted(self) -> None:
        self.begin()
        broken = self.inventory
        broken["metadata"]["annotations"][WRITES] = "9" * 5000
        self.cluster.objects.put(broken)
        self.commit(*config_maps(1, 2, 3, 4))
        self.assertIn(self.inventory["metadata"]["annotations"][WRITES], ("1", "2"))

    def test_agentk_may_not_write_secrets(self) -> None:
        """The status says which right is missing; nothing is applied."""
        respond = self.cluster.objects.respond

        def refuse(method: str, path: str, *rest: Any) -> Any:
            if "/secrets/gitops-orders-" in path:
                raise Refusal(403, "Forbidden", "no secrets for you")
            return respond(method, path, *rest)

        self.patch(self.cluster.objects, "respond", refuse)
        self.begin()
        self.assertIsNone(self.live("m001"))
        (line,) = self.status().problems
        self.assertIn("grant get, create and update of secrets there", line)


def test_approvals_of_two_users() -> None:
    """Both are named, the last one last; another commit begins anew."""
    uids = {ObjectKey("", "ConfigMap", "default", one): f"uid-{one}" for one in "abc"}
    one, two, three = ({key: uid} for key, uid in uids.items())
    approval = Approval().adding("1", one, "alice").adding("1", two, "bob")
    approval = approval.adding("1", three, "alice")
    assert approval.by == ("bob", "alice")
    assert all(approval.covers("1", key, uid) for key, uid in uids.items())
    assert approval.adding("2", one, "bob").by == ("bob",)
    assert Approval().adding("1", uids).by == ()
    for number in range(20):
        approval = approval.adding("1", uids, f"{number}, O=x" + "y" * 1000)
    assert len(approval.by) == MAX_USERS
    assert approval.by[-1].startswith("19, O=x")
    assert len(approval.by[-1]) == MAX_USER


def test_the_uid_of_an_approval() -> None:
    """Another object of the same name needs an approval of its own."""
    key = ObjectKey("", "ConfigMap", "default", "a")
    approval = Approval().adding("1", {key: "first"})
    assert approval.covers("1", key, "first")
    assert not approval.covers("2", key, "first")
    assert not approval.covers("1", key, "second")
    assert not approval.covers("1", key, "")
    assert approval.without("1", {key: "second"}) == approval
    assert approval.without("1", {key: "first"}) == Approval()


def test_the_limit_of_begun_deletes() -> None:
    """Deletes of another commit do not count; further ones are not recorded."""
    keys = [ObjectKey("", "ConfigMap", "here", f"m{n:05}") for n in range(MAX_HELD + 5)]
    begun = BegunDeletes().adding("1", keys[:3]).adding("1", keys[1:5])
    assert begun.besides("1", keys[:2]) == 3
    # Until an execution has ended, they count for the next commit, too.
    assert begun.besides("2", ()) == 5
    assert begun.ended().besides("2", ()) == 0
    assert begun.ended().adding("2", keys[:1]).besides("2", ()) == 1
    assert begun.adding("1", keys).besides("1", ()) == MAX_HELD


def test_the_limit_of_open_executions() -> None:
    """The signatures of the oldest ones are not valid any more."""
    last = LastPass().begun().ended()
    assert last.numbers == ("1",)
    for _ in range(MAX_OPEN + 1):
        last = last.begun()
    newest = MAX_OPEN + 2
    assert last.numbers == (*map(str, range(newest, 2, -1)), "1")
    assert last.ended().numbers == (str(newest),)


def test_the_limit_of_held_deletes() -> None:
    """New ones do not displace the ones that are held already."""
    keys = [ObjectKey("", "ConfigMap", "here", f"m{n:05}") for n in range(MAX_HELD + 5)]
    before = Orders().holding(keys[-3:], ())
    full = before.holding(keys, ())
    assert len(full.held) == MAX_HELD
    assert all(map(full.is_held, keys[-3:]))
    less = full.holding((), keys[:2])
    assert len(less.held) == MAX_HELD - 2
    assert not less.is_held(keys[0])
