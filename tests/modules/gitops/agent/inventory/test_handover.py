"""Objects that go from one project to another: they are there all the time."""

from __future__ import annotations

import copy
import json
from collections.abc import Collection
from typing import Any

import attrs
import pytest
from twisted.logger import LogLevel

from modules.gitops.agent.inventory.claims import OTHERS_SECONDS, Waits
from modules.gitops.agent.inventory.handover import _is_behind, names
from modules.gitops.agent.inventory.inventory import LABEL, PARTS, SOURCE, WRITER
from modules.gitops.agent.objects.live import live_object
from modules.gitops.agent.objects.manifests import ObjectKey, read_source
from modules.gitops.agent.objects.owner_annotations import CLAIMED_BY, GIVEN_BY, OWNER
from modules.gitops.agent.plan import plan
from modules.gitops.agent.plan.order import DEPENDS_ON
from modules.gitops.agent.plan.plan import FOLDER_GONE
from modules.gitops.agent.project import leftovers
from modules.gitops.agent.project.leftovers import LOOK_AGAIN
from modules.gitops.agent.project.passes import LOOK_SOONEST, TRY_MOST
from modules.gitops.agent.project.project import Project
from modules.gitops.agent.project.status import State
from modules.gitops.agent.source.snapshot import Location
from modules.gitops.server.control_server import CONTROL
from modules.gitops.wire import control_pb2, rpc_pb2
from modules.gitops.wire.settings import ManifestProject
from tests.modules.gitops.agent.project.test_reconcile import object_
from tests.modules.gitops.agent.test_module import Hanging
from tests.modules.gitops.halves import OTHER, HalvesTestCase, text
from tunnel.api import ConfigurationRefused, RepositorySettings
from tunnel.errors import CallError, Status

A = {"id": "apps", "paths": [{"glob": "a/*"}]}
B = {"id": "twin", "paths": [{"glob": "b/*"}]}
#: The other way round.
RECEIVES = {"id": "apps", "paths": [{"glob": "b/*"}]}
RENDERED = {"id": "twin", "source": {"kind": "kustomize", "path": "b"}}

STAYS, MOVES = object_("stays"), object_("moves", data={"n": "1"})
OWN = object_("own")

REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


@attrs.define
class _Reader:
    """A project, as far as handovers look at its commits."""

    known_commit: str
    known_since: float
    past_commits: Collection[str] = ()
    settings: ManifestProject = attrs.Factory(lambda: ManifestProject(id="apps"))
    location: Location = attrs.Factory(lambda: Location("url:1", "refs/heads/main"))

    @property
    def desired(self) -> _Reader:
        """The commits."""
        return self


@pytest.mark.parametrize(
    ("ours", "theirs", "is_behind"),
    [
        (_Reader("c", 5.0), _Reader("c", 1.0), False),
        # It read our commit, and then a newer one.
        (_Reader("c", 5.0), _Reader("d", 6.0, ("b", "c")), False),
        # It never read our commit.
        (_Reader("c", 5.0), _Reader("d", 6.0, ("b",)), True),
        # A forced push went back to our commit, which it read long ago.
        (_Reader("c", 5.0, ("b",)), _Reader("d", 4.0, ("b", "c")), True),
        # It is at a commit from before ours.
        (_Reader("c", 5.0, ("d",)), _Reader("d", 6.0, ("c",)), True),
    ],
)
def test_who_is_behind(ours: Any, theirs: Any, is_behind: bool) -> None:
    """Whether another project may not have read our commit."""
    assert _is_behind(theirs, ours) is is_behind


class HandoverTests(HalvesTestCase):
    """Two projects of one repository, and one of another."""

    def project(self, name: str) -> Project:
        project: Project = self.agent.projects[name]
        return project

    def deleted(self) -> list[str]:
        """Names of the objects that were deleted, inventories left out."""
        names = [
            one.path.partition("?")[0].rpartition("/")[2]
            for one in self.cluster.requests
            if one.method == "DELETE"
        ]
        return [one for one in names if not one.startswith("inventory-")]

    def owner(self, name: str = "moves") -> str:
        owner: str = self.live(name)["metadata"]["annotations"][OWNER]
        return owner

    def begin(self, *projects: Any) -> str:
        """The uid of the object that moves."""
        self.apps.commit({"a/a.yaml": text(STAYS, MOVES), "b/b.yaml": ""})
        self.configure(*projects)
        self.passes(5)
        uid: str = self.live("moves")["metadata"]["uid"]
        self.assertEqual(self.owner(), self.project("apps").desired.inventory)
        return uid

    def begin_account(self) -> str:
        """The uid of the object, which the account of another project may not patch."""
        a, b = {"id": "apps"}, {"id": "other", "service_account": "team/deployer"}
        self.other.commit({"b.yaml": text(object_("theirs"))})
        self.apps.commit({"a.yaml": text(STAYS, MOVES)})
        self.configure(a, b)
        self.passes(5)
        self.deny_patch()
        uid: str = self.live("moves")["metadata"]["uid"]
        return uid

    def deny_patch(self) -> None:
        path = "/api/v1/namespaces/default/configmaps/moves?fieldManager=agentk"
        self.cluster.answer("PATCH", f"{path}&force=false", {}, 403)

    def review(self, allowed: bool) -> None:
        """Answer reviews of an account's permissions."""
        answer = {"status": {"allowed": allowed}}
        self.cluster.answer("POST", REVIEWS, answer, 201)

    def test_a_preview_changes_nothing_of_a_pass(self) -> None:
        """The same plan, which a pass remembers answers for, leaves no trace."""
        self.begin(A, B)
        commit = self.apps.commit({"a/a.yaml": text(STAYS), "b/b.yaml": text(MOVES)})
        names = (
            *("_handed", "took", "waits", "_delayed"),
            "deletes_wait",
        )
        twin = self.project("twin")
        twin._transfers.waits = False
        for name in ("apps", "twin"):
            project = self.project(name)
            transfers = project._transfers
            before = {one: copy.deepcopy(getattr(transfers, one)) for one in names}
            self.pair.run(project.previewer.preview(rpc_pb2.Ref(commit=commit)))
            after = {one: getattr(transfers, one) for one in names}
            self.assertEqual(after, before, name)
        # A pass remembers the same answer.
        key = ObjectKey("", "ConfigMap", "default", "moves")
        snapshot = twin.operations._first_snapshot()
        self.pair.run(
            twin._transfers.given(snapshot, key, self.project("apps").desired.inventory)
        )
        self.assertTrue(twin._transfers.waits)

    def move(self) -> None:
        self.apps.commit({"a/a.yaml": text(STAYS), "b/b.yaml": text(MOVES)})
        self.pushed()

    def test_in_one_commit(self) -> None:
        """It is the same object, and both projects are current."""
        for first, second in ((A, B), (B, A)):
            uid = self.begin(first, second)
            self.move()
            self.passes(2 * TRY_MOST)
            self.assertEqual(self.live("moves")["metadata"]["uid"], uid)
            self.assertEqual(self.owner(), self.project("twin").desired.inventory)
            for name in ("apps", "twin"):
                self.assertEqual(self.project(name).status.problems, [])
                self.assertIs(self.project(name).status.state, State.CURRENT)
            self.assertEqual(self.deleted(), [])
            # And out of Git: whose it is now deletes it.
            self.apps.commit(
                {"a/a.yaml": text(STAYS), "b/b.yaml": text(object_("more"))}
            )
            self.pushed()
            self.passes(2 * TRY_MOST)
            self.assertEqual(self.deleted(), ["moves"])
            self.configure()
            for one in ("stays", "more"):
                self.cluster.objects.remove("v1", "ConfigMap", one, "default")
            self.cluster.requests.clear()

    def test_one_that_is_kept(self) -> None:
        """An object that is never deleted is handed over all the same."""
        kept = object_("moves", data={"n": "1"})
        kept["metadata"]["annotations"] = {
            "cli-utils.sigs.k8s.io/on-remove": "keep",
        }
        self.apps.commit({"a/a.yaml": text(STAYS, kept), "b/b.yaml": ""})
        twin = {**B, "depends_on": ["apps"]}
        self.configure(A, twin)
        self.passes(5)
        uid = self.live("moves")["metadata"]["uid"]
        self.apps.commit({"a/a.yaml": text(STAYS), "b/b.yaml": text(kept)})
        self.pushed()
        self.passes(2 * TRY_MOST)
        self.assertEqual(self.live("moves")["metadata"]["uid"], uid)
        self.assertEqual(self.owner(), self.project("twin").desired.inventory)
        # And out of Git: it stays, and is of no project any more.
        self.apps.commit({"a/a.yaml": text(STAYS), "b/b.yaml": text(OWN)})
        self.pushed()
        self.passes(2 * TRY_MOST)
        self.assertNotIn(OWNER, self.live("moves")["metadata"]["annotations"])
        self.assertEqual(self.deleted(), [])

    def test_one_that_may_not_take_it(self) -> None:
        """A team cannot keep objects of others, as a right that it is to lose."""
        self.begin_account()
        for allowed in (True, False):
            self.review(allowed)
            self.other.commit({"b.yaml": text(object_("theirs"), MOVES)})
            self.pushed("other")
            self.apps.commit({"a.yaml": text(STAYS)})
            self.pushed()
            self.passes(3 * TRY_MOST)
            self.assertEqual(self.deleted(), [] if allowed else ["moves"])
        asked = [one for one in self.cluster.requests if one.path == REVIEWS]
        self.assertEqual(
            {one.user for one in asked}, {"system:serviceaccount:team:deployer"}
        )
        attributes = json.loads(asked[0].body)["spec"]["resourceAttributes"]
        self.assertEqual(
            (attributes["verb"], attributes["resource"], attributes["name"]),
            ("patch", "configmaps", "moves"),
        )

    def test_an_owner_that_may_not_write_for_a_while(self) -> None:
        """It gives up nothing, so no other project takes its object."""
        policy = {"id": "apps", "inventory_policy": "must_match"}
        account = {"id": "other", "service_account": "team/deployer"}
        self.other.commit({"b.yaml": text(object_("theirs"), MOVES)})
        self.apps.commit({"a.yaml": text(STAYS)})
        self.configure(policy, account)
        self.passes(5)
        owner = self.project("other").desired.inventory
        self.assertEqual(self.owner(), owner)
        self.deny_patch()
        self.review(False)
        self.apps.commit({"a.yaml": text(STAYS, MOVES)})
        self.pushed()
        self.passes(3 * OTHERS_SECONDS)
        self.assertEqual(self.owner(), owner)

    def forbidden_account_names_an_object(self, *more: Any) -> None:
        """Move the object to the project whose account may not write it."""
        self.review(False)
        self.other.commit({"b.yaml": text(object_("theirs"), MOVES, *more)})
        self.pushed("other")
        self.passes(5)
        self.apps.commit({"a.yaml": text(STAYS)})
        self.pushed()
        self.passes(OTHERS_SECONDS / 2)
        self.assertEqual(self.deleted(), [])
        self.passes(OTHERS_SECONDS + TRY_MOST)
        self.assertEqual(self.deleted(), ["moves"])

    def test_an_account_that_may_not_read_it(self) -> None:
        """No plan has the object then."""
        self.begin_account()
        account = self.project("other")._client

        async def denied(client: Any, resource: Any, key: ObjectKey) -> Any:
            if key.name == "moves" and client is account:
                raise CallError(Status.PERMISSION_DENIED, "forbidden")
            return await live_object(client, resource, key)

        self.patch(plan, "live_object", denied)
        self.forbidden_account_names_an_object()

    def test_an_account_whose_commit_cannot_be_applied(self) -> None:
        """Its project has no results."""
        self.begin_account()
        one, two = (
            object_(
                name,
                metadata={
                    "annotations": {
                        DEPENDS_ON: f"/namespaces/default/ConfigMap/{needed}"
                    }
                },
            )
            for name, needed in (("one", "two"), ("two", "one"))
        )
        self.forbidden_account_names_an_object(one, two)

    def test_to_one_that_depends_on_it(self) -> None:
        """It need not wait until the object has left: that waits for it."""
        self.agent._renderer = renderer = Hanging()
        renderer.makes = text(object_("own")).encode()
        uid = self.begin(A, {**RENDERED, "depends_on": ["apps"]})
        # The one that the object leaves is the first to read the commit.
        renderer.makes = CallError(Status.UNAVAILABLE, "a moment")
        self.move()
        self.passes(5)
        renderer.makes = text(object_("own"), MOVES).encode()
        self.passes(2 * TRY_MOST)
        self.assertEqual(self.live("moves")["metadata"]["uid"], uid)
        self.assertEqual(self.owner(), self.project("twin").desired.inventory)
        for name in ("apps", "twin"):
            self.assertEqual(self.project(name).status.problems, [])
        # What fails there still holds it up.
        bad = object_("bad", "Unknown", "x.io/v1")
        self.apps.commit({"a/a.yaml": text(bad), "b/b.yaml": ""})
        self.pushed()
        self.passes(2 * TRY_MOST)
        self.assertIs(self.project("twin").status.state, State.WAITING)

    def test_a_conflict(self) -> None:
        """Who has a field of the object may lose it to `repair`, as at any time."""
        left = {**A, "drift": {"mode": "off"}}
        self.begin(left, B)
        client = self.agent._api.kubernetes.as_agentk()
        live = self.live("moves")
        changed = object_("moves", data={"n": "2"}, metadata=live["metadata"])
        changed["metadata"].pop("managedFields", None)
        self.pair.run(client.apply(changed, field_manager="kubectl", force=True))
        self.move()
        self.passes(5)
        twin = self.project("twin")
        (problem,) = twin.status.problems
        self.assertIn("once with 'kasctl gitops repair'", problem)
        self.pair.run(twin.operations.repair([]))
        self.passes(2 * TRY_MOST)
        self.assertEqual(twin.status.problems, [])
        self.assertEqual(self.owner(), twin.desired.inventory)
        self.assertEqual(self.live("moves")["data"], {"n": "1"})

    def test_one_that_reads_later(self) -> None:
        """The object stays until the project that may have it has said so."""
        self.agent._renderer = renderer = Hanging()
        renderer.makes = text(object_("own")).encode()
        uid = self.begin(A, RENDERED)
        renderer.makes = None
        self.move()
        self.passes(2 * TRY_MOST)
        self.assertEqual(self.owner(), self.project("apps").desired.inventory)
        (why,) = self.project("apps").status.problems
        self.assertIn("project twin has not read this commit, and may contain it", why)
        self.assertIs(self.project("apps").status.state, State.FAILED)
        self.assertTrue(self.project("apps").status.hands_over)
        # That commit never ends; the next one says it.
        renderer.makes = text(object_("own"), MOVES).encode()
        self.apps.commit({"a/a.yaml": text(STAYS), "b/more": ""})
        self.pushed()
        self.passes(5)
        self.assertEqual(self.live("moves")["metadata"]["uid"], uid)
        self.assertEqual(self.owner(), self.project("twin").desired.inventory)
        self.assertEqual(self.project("apps").status.problems, [])
        self.assertFalse(self.project("apps").status.hands_over)
        self.assertEqual(self.deleted(), [])

    def test_from_one_that_reads_later(self) -> None:
        """Whoever waits for the project that receives goes on until it has all."""
        self.agent._renderer = renderer = Hanging()
        renderer.makes = text(MOVES).encode()
        needs = object_("needs")
        needs["metadata"]["annotations"] = {
            "config.kubernetes.io/depends-on": "/namespaces/default/ConfigMap/moves"
        }
        self.apps.commit({"a/a.yaml": "", "b/b.yaml": text(STAYS, OWN)})
        source = {"kind": "kustomize", "path": "a"}
        self.configure(RECEIVES, {**RENDERED, "source": source})
        self.passes(5)
        renderer.makes = None
        self.apps.commit({"a/a.yaml": "", "b/b.yaml": text(STAYS, MOVES, needs)})
        self.pushed()
        self.passes(5)
        apps = self.project("apps")
        self.assertEqual(len(apps.status.problems), 3)
        self.assertIs(apps.status.state, State.FAILED)
        self.assertTrue(apps.status.hands_over)
        # Nobody who depends on it goes on.
        self.assertFalse(apps.status.is_current)
        renderer.makes = text(object_("more")).encode()
        self.apps.commit({"a/a": "", "b/b.yaml": text(STAYS, MOVES, needs)})
        self.pushed()
        self.passes(TRY_MOST)
        self.assertEqual(apps.status.problems, [])
        self.assertIs(apps.status.state, State.CURRENT)
        self.assertEqual(self.deleted(), ["own"])
        # One that has read the commit and has the object, too, does not give it.
        renderer.makes = text(object_("more"), MOVES).encode()
        self.apps.commit({"a/b": "", "b/b.yaml": text(STAYS)})
        self.pushed()
        self.passes(2 * TRY_MOST)
        self.apps.commit({"a/c": "", "b/b.yaml": text(STAYS, MOVES)})
        self.pushed()
        self.passes(5)
        self.assertIs(apps.status.state, State.FAILED)
        self.assertFalse(apps.status.hands_over)

    def test_from_another_agent(self) -> None:
        """An agent that follows the same gives the object within two minutes."""
        self.begin(A)
        followed = self.project("apps").operations._first_snapshot().followed
        for owner, source, awaited in (
            ("x", followed, True),
            ("x", "url:1 refs/heads/main other", False),
            ("in,valid", followed, False),
        ):
            theirs = object_("moves")
            theirs["metadata"].update(namespace="default", annotations={OWNER: owner})
            self.cluster.objects.put(theirs)
            inventory = {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {
                    "name": "inventory-x",
                    "namespace": "x",
                    "labels": {LABEL: "x"},
                    "annotations": {SOURCE: source, PARTS: "1"},
                },
            }
            self.cluster.objects.put(inventory)
            self.apps.commit({"a/a.yaml": text(STAYS, MOVES), owner: source})
            self.pushed()
            self.passes(5)
            self.assertIs(self.project("apps").status.state, State.FAILED)
            self.assertIs(self.project("apps").status.hands_over, awaited, owner)
            self.passes(OTHERS_SECONDS + 2 * TRY_MOST)
            self.assertFalse(self.project("apps").status.hands_over)

    def test_to_another_agent(self) -> None:
        """An object that waits for one is handed over; what fails besides is told."""
        self.begin(A)
        snapshot = self.project("apps").operations._first_snapshot()
        name = snapshot.followed
        behind = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": "inventory-x",
                "namespace": "x",
                "labels": {LABEL: "x"},
                "annotations": {SOURCE: name, PARTS: "1", WRITER: "other@x/lease"},
            },
        }
        self.cluster.objects.put(behind)
        # A preview begins no wait.
        head = self.apps.commit({"a/a.yaml": text(STAYS)}, "refs/heads/next")
        preview = self.project("apps").previewer.preview(rpc_pb2.Ref(branch="next"))
        self.assertEqual(self.pair.run(preview).commit, head)
        self.assertEqual(self.project("apps")._transfers.deletes_wait, Waits())
        self.move()
        self.passes(5)
        (why,) = self.project("apps").status.problems
        self.assertIn("waits up to 2 minutes for agent other, which follows", why)
        self.assertIs(self.project("apps").status.state, State.WAITING)
        self.assertTrue(self.project("apps").status.hands_over)
        self.assertEqual(len(self.project("apps")._transfers.deletes_wait.begun), 1)
        bad = object_("bad", "Unknown", "x.io/v1")
        self.apps.commit({"a/a.yaml": text(STAYS, bad)})
        self.pushed()
        self.passes(5)
        self.assertIs(self.project("apps").status.state, State.FAILED)
        self.assertFalse(self.project("apps").status.hands_over)

    def test_after_another_agent(self) -> None:
        """The delete is made when the wait ends; a newer commit waits once more."""
        self.begin(A)
        inventory = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": "inventory-x",
                "namespace": "x",
                "labels": {LABEL: "x"},
                "annotations": {
                    SOURCE: self.project("apps").operations._first_snapshot().followed,
                    PARTS: "1",
                },
            },
        }
        self.cluster.objects.put(inventory)
        self.move()
        self.passes(5)
        apps = self.project("apps")
        self.assertIs(apps.status.state, State.WAITING)
        self.passes(OTHERS_SECONDS - 10)
        self.assertEqual(self.deleted(), [])
        self.passes(10 + LOOK_SOONEST)
        self.assertEqual(self.deleted(), ["moves"])
        self.assertIs(apps.status.state, State.CURRENT)
        lines = [one for one in self.log if "waits up to" in one.get("line", "")]
        self.assertEqual([one["log_level"] for one in lines], [LogLevel.info])
        # The other agent may reach this commit, whatever it did with the last one.
        self.apps.commit({"a/a.yaml": text(object_("more"))})
        self.pushed()
        self.passes(5)
        self.assertEqual(self.deleted(), ["moves"])
        self.passes(OTHERS_SECONDS + LOOK_SOONEST)
        self.assertEqual(self.deleted(), ["moves", "stays"])

    def test_one_that_nobody_wants(self) -> None:
        """It goes once all have read the commit, and at once."""
        self.agent._renderer = renderer = Hanging()
        renderer.makes = text(object_("own")).encode()
        self.begin(A, RENDERED)
        renderer.makes = None
        self.move()
        self.passes(2 * TRY_MOST)
        self.assertEqual(self.deleted(), [])
        renderer.makes = text(object_("own")).encode()
        self.apps.commit({"a/a.yaml": text(STAYS), "b/more": ""})
        self.pushed()
        self.passes(5)
        self.assertEqual(self.deleted(), ["moves"])

    def test_one_that_cannot_be_read(self) -> None:
        """Nothing is deleted while a file of the other project is broken."""
        self.begin(A, B)
        self.apps.commit({"a/a.yaml": text(STAYS), "b/b.yaml": "{"})
        self.pushed()
        self.passes(2 * TRY_MOST)
        self.assertEqual(self.deleted(), [])
        self.apps.commit({"a/a.yaml": text(STAYS), "b/b.yaml": text(MOVES)})
        self.pushed()
        self.passes(2 * TRY_MOST)
        self.assertEqual(self.owner(), self.project("twin").desired.inventory)
        self.assertEqual(self.deleted(), [])

    def test_to_one_at_a_commit_that_was_skipped(self) -> None:
        """The giving project does not know the commit of the other: it may be old."""
        uid = self.begin(A, B)
        broken = "a: ["
        self.apps.commit({"a/a.yaml": broken, "b/b.yaml": text(OWN)})
        self.pushed()
        self.passes(5)
        self.assertIsNotNone(self.live("own"))
        self.apps.commit({"a/a.yaml": text(STAYS), "b/b.yaml": broken})
        self.pushed()
        self.passes(2 * TRY_MOST)
        self.assertEqual(self.deleted(), [])
        (why,) = self.project("apps").status.problems
        self.assertIn("project twin has not read this commit", why)
        self.move()
        self.passes(2 * TRY_MOST)
        self.assertEqual(self.live("moves")["metadata"]["uid"], uid)
        self.assertEqual(self.owner(), self.project("twin").desired.inventory)
        self.assertEqual(self.deleted(), ["own"])

    def test_an_account_that_gets_the_right_later(self) -> None:
        """The object stays for two minutes, in which the right usually comes."""
        uid = self.begin_account()
        self.review(False)
        self.other.commit({"b.yaml": text(object_("theirs"), MOVES)})
        self.pushed("other")
        self.apps.commit({"a.yaml": text(STAYS)})
        self.pushed()
        self.passes(OTHERS_SECONDS / 2)
        self.assertEqual(self.deleted(), [])
        self.cluster._answers.clear()
        self.passes(2 * TRY_MOST)
        self.assertEqual(self.deleted(), [])
        self.assertEqual(self.live("moves")["metadata"]["uid"], uid)
        self.assertEqual(self.owner(), self.project("other").desired.inventory)

    def test_projects_of_two_repositories(self) -> None:
        """Their commits say nothing of each other: objects are pruned, and move."""
        a, b = {"id": "apps"}, {"id": "other"}
        for number in range(3):
            self.other.commit({"b.yaml": text(object_(f"theirs{number}"))})
        self.apps.commit({"a.yaml": text(STAYS, MOVES, OWN)})
        self.configure(a, b)
        self.passes(5)
        uid = self.live("moves")["metadata"]["uid"]
        self.apps.commit({"a.yaml": text(STAYS, MOVES)})
        self.pushed()
        self.passes(TRY_MOST)
        self.assertEqual(self.deleted(), ["own"])
        self.assertEqual(self.project("apps").status.problems, [])
        self.other.commit({"b.yaml": text(object_("theirs2"), MOVES)})
        self.pushed("other")
        self.apps.commit({"a.yaml": text(STAYS)})
        self.pushed()
        self.passes(2 * TRY_MOST)
        self.assertEqual(self.deleted(), ["own"])
        self.assertEqual(self.live("moves")["metadata"]["uid"], uid)
        self.assertEqual(self.owner(), self.project("other").desired.inventory)
        for name in ("apps", "other"):
            self.assertEqual(self.project(name).status.problems, [])

    def test_after_a_resume(self) -> None:
        """The commit that was pinned before counts no longer."""
        self.begin(B, A)
        pinned = self.project("apps").desired.commit
        self.apps.commit({"a/a.yaml": text(MOVES), "b/b.yaml": ""})
        self.pushed()
        self.passes(5)
        self.pair.run(self.project("apps").operations.undo(pinned))
        self.passes(5)
        self.move()
        self.passes(TRY_MOST)
        self.assertEqual(self.owner(), self.project("apps").desired.inventory)
        self.pair.run(self.project("apps").operations.resume())
        self.passes(2 * TRY_MOST)
        self.assertEqual(self.owner(), self.project("twin").desired.inventory)
        self.assertEqual(self.project("twin").status.problems, [])

    def test_pinned_to_the_newest_commit(self) -> None:
        """A newer one takes nothing from it, not even with its folder."""
        uid = self.begin(B, A)
        pinned = self.project("apps").desired.commit
        self.pair.run(self.project("apps").operations.undo(pinned))
        self.passes(5)
        for files in (
            {"a/a.yaml": text(STAYS), "b/b.yaml": text(MOVES)},
            {"b/b.yaml": text(MOVES)},
        ):
            self.apps.commit(files)
            self.pushed()
            self.passes(2 * TRY_MOST)
            self.assertEqual(self.owner(), self.project("apps").desired.inventory)
            self.assertEqual(self.live("moves")["metadata"]["uid"], uid)
            problems = " ".join(self.project("apps").status.problems)
            self.assertNotIn(FOLDER_GONE, problems)
            self.assertEqual(self.deleted(), [])

    def test_undo_to_a_commit_that_cannot_be_read(self) -> None:
        """Until it is read, nothing that it may have is pruned, as after a restart."""
        self.begin(B, A)
        pinned = self.project("apps").desired.commit
        self.move()
        self.passes(2 * TRY_MOST)
        self.assertEqual(self.owner(), self.project("twin").desired.inventory)

        async def contains(ref: str, commit: str) -> bool:
            raise CallError(Status.UNAVAILABLE, "the server is away")

        self.patch(self.apps, "contains", contains)
        self.pair.run(self.project("apps").operations.undo(pinned))
        self.passes(1)
        self.apps.commit({"a/a.yaml": text(STAYS), "b/b.yaml": text(OWN)})
        self.pushed()
        self.passes(TRY_MOST)
        self.assertEqual(self.deleted(), [])

    def test_pinned_before_a_restart(self) -> None:
        """The others take nothing of a pinned commit before it was read again."""
        uid = self.begin(B, A)
        pinned = self.project("apps").desired.commit
        self.apps.commit({"a/a.yaml": text(MOVES), "b/b.yaml": ""})
        self.pushed()
        self.passes(5)
        self.pair.run(self.project("apps").operations.undo(pinned))
        self.passes(5)
        newer = object_("moves", data={"n": "2"})
        self.apps.commit({"a/a.yaml": text(STAYS), "b/b.yaml": text(newer)})
        self.pushed()
        self.passes(TRY_MOST)
        for _ in range(2):
            found = self.live("moves")
            self.assertEqual(
                (found["metadata"]["uid"], found["data"]), (uid, {"n": "1"})
            )
            self.assertEqual(self.owner(), self.project("apps").desired.inventory)
            self.leave()
            self.lead()
            self.passes(2 * TRY_MOST)

    def test_pinned_to_a_commit_that_cannot_be_read(self) -> None:
        """Until it is read, nothing that it may have is pruned."""
        self.begin(B, A)
        pinned = self.project("apps").desired.commit
        self.apps.commit({"a/a.yaml": text(STAYS), "b/b.yaml": text(MOVES)})
        self.pushed()
        self.passes(2 * TRY_MOST)
        self.pair.run(self.project("apps").operations.undo(pinned))
        self.passes(1)
        self.leave()

        async def contains(ref: str, commit: str) -> bool:
            raise CallError(Status.UNAVAILABLE, "the server is away")

        self.patch(self.apps, "contains", contains)
        self.lead()
        self.apps.commit({"a/a.yaml": text(STAYS), "b/b.yaml": text(OWN)})
        self.pushed()
        self.passes(2 * TRY_MOST)
        self.assertEqual(self.deleted(), [])
        (why,) = self.project("twin").status.problems
        self.assertIn("project apps has not read this commit", why)
        self.assertIn("the server is away", why)

    def test_a_configuration_that_is_not_in_effect(self) -> None:
        """It may have the project that takes the object: nothing is pruned."""
        self.begin(A)
        api = self.agent._api
        why = "commit 1234: .gitlab/agents/a/config.yaml:1:2: a mistake"
        api.events.publish(ConfigurationRefused((why,)))
        self.move()
        self.passes(2 * TRY_MOST)
        self.assertEqual(self.deleted(), [])
        (problem,) = self.project("apps").status.problems
        self.assertIn("the agent's configuration in Git is not in effect", problem)
        self.assertIn(why, problem)
        api.events.publish(ConfigurationRefused(()))
        self.passes(LOOK_SOONEST)
        self.passes(5)
        self.assertEqual(self.deleted(), ["moves"])

    def test_another_repository(self) -> None:
        """It comes there first, and leaves here then."""
        self.other.commit({"o.yaml": text(object_("own"))})
        uid = self.begin(A, {"id": "other"})
        self.other.commit({"o.yaml": text(object_("own"), MOVES)})
        self.pushed("other")
        self.passes(5)
        (why,) = self.project("other").status.problems
        # Not that adopt_all takes it over: the two would take it from each other.
        self.assertIn("project apps of this agent has it: remove", why)
        self.apps.commit({"a/a.yaml": text(STAYS)})
        self.pushed()
        self.passes(2 * TRY_MOST)
        self.assertEqual(self.live("moves")["metadata"]["uid"], uid)
        self.assertEqual(self.owner(), self.project("other").desired.inventory)
        self.assertEqual(self.project("other").status.problems, [])
        self.assertEqual(self.deleted(), [])

    def test_the_giving_project_names_the_branch(self) -> None:
        """The default branch and its name are the same ref."""
        self.check_one_branch({"ref": {"branch": "main"}}, {})

    def test_the_receiving_project_names_the_branch(self) -> None:
        """... in the other project as well."""
        self.check_one_branch({}, {"ref": {"branch": "main"}})

    def check_one_branch(self, more: dict[str, Any], other: dict[str, Any]) -> None:
        """Move an object while the receiving project cannot read the commit."""
        self.agent._renderer = renderer = Hanging()
        renderer.makes = text(object_("own")).encode()
        uid = self.begin({**A, **more}, {**RENDERED, **other})
        renderer.makes = None
        self.move()
        self.passes(5)
        (why,) = self.project("apps").status.problems
        self.assertIn("project twin has not read this commit", why)
        renderer.makes = text(object_("own"), MOVES).encode()
        self.apps.commit({"a/a.yaml": text(STAYS), "b/more": ""})
        self.pushed()
        self.pushed("twin")
        self.passes(2 * TRY_MOST)
        self.assertEqual(self.live("moves")["metadata"]["uid"], uid)
        self.assertEqual(self.owner(), self.project("twin").desired.inventory)
        self.assertEqual(self.deleted(), [])
        sources = {
            one["metadata"]["annotations"][SOURCE].rpartition(" ")[0]
            for one in self.inventories()
        }
        self.assertEqual(len(sources), 1)

    def inventories(self) -> list[Any]:
        return [
            found
            for name in ("apps", "twin")
            if (found := self.live(f"inventory-{self.project(name).desired.inventory}"))
        ]

    def test_after_a_restart(self) -> None:
        """A project that cannot be read keeps what it may have, whatever its id."""
        for receiving in ("", "twin"):
            self.agent._renderer = renderer = Hanging()
            renderer.makes = text(object_("own")).encode()
            twin = {**RENDERED, "id": receiving, "name": "twin"}
            uid = self.begin(A, twin)
            self.leave()
            renderer.makes = CallError(Status.UNAVAILABLE, "no such chart")
            self.apps.commit({"a/a.yaml": text(STAYS), "b/b.yaml": text(MOVES)})
            self.lead()
            self.passes(TRY_MOST)
            (why,) = self.project("apps").status.problems
            self.assertIn("project twin has not read this commit", why)
            self.assertIn("(fix it or remove the project): no such chart", why)
            self.assertEqual(self.deleted(), [])
            renderer.makes = text(object_("own"), MOVES).encode()
            self.passes(4 * TRY_MOST)
            self.assertEqual(self.live("moves")["metadata"]["uid"], uid)
            self.assertEqual(self.deleted(), [])
            self.configure()
            for one in ("stays", "own", "moves"):
                self.cluster.objects.remove("v1", "ConfigMap", one, "default")

    def test_after_a_restart_without_files(self) -> None:
        """kas says which repository it is, even where it cannot send a file."""
        bad = {"id": "twin", "paths": [{"glob": "b/*"}], "ref": {"branch": "next"}}
        files = {"a/a.yaml": text(STAYS, MOVES), "b/b.yaml": text(object_("own"))}
        self.apps.commit(files, "refs/heads/next")
        elsewhere = {"id": "other", "paths": [{"glob": "none/*"}]}
        self.begin(A, bad, elsewhere)
        self.leave()
        self.apps.commit({"a/a.yaml": text(STAYS)})
        self.apps.remove("refs/heads/next")
        self.lead()
        self.passes(TRY_MOST)
        # One follows another branch, the other one another repository.
        self.assertEqual(self.project("twin").desired.commit, "")
        self.assertEqual(self.project("other").desired.commit, "")
        self.assertEqual(self.deleted(), ["moves"])

    def test_a_folder_that_was_removed(self) -> None:
        """It has no object for the others, and its project prunes nothing."""
        for more in ({}, {"source": {"kind": "kustomize", "path": "b"}, "paths": []}):
            self.agent._renderer = renderer = Hanging()
            renderer.makes = text(OWN).encode()
            files = {"a/a.yaml": text(STAYS, MOVES), "b/b.yaml": text(OWN)}
            self.apps.commit(files)
            self.configure(A, {**B, **more})
            self.passes(5)
            renderer.makes = CallError(Status.FAILED_PRECONDITION, "no folder b")
            # One object is pruned, and one comes from the folder that is gone.
            self.apps.commit({"a/a.yaml": text(STAYS, OWN)})
            self.pushed()
            self.passes(TRY_MOST)
            self.assertEqual(self.deleted(), ["moves"])
            self.assertEqual(self.project("apps").status.problems, [])
            self.assertEqual(self.owner("own"), self.project("apps").desired.inventory)
            self.assertIs(self.project("twin").status.state, State.FAILED)
            # Nor does it come back, once it is removed there.
            self.apps.commit({"a/a.yaml": text(STAYS)})
            self.pushed()
            self.pair.run(self.project("twin").operations.repair([]))
            self.passes(2 * TRY_MOST)
            self.assertEqual(self.deleted(), ["moves", "own"])
            self.assertIsNone(self.live("own"))
            self.assertIn(FOLDER_GONE, self.project("twin").status.problems[-1])
            self.configure()
            self.cluster.requests.clear()

    def test_a_folder_that_is_gone_after_a_restart(self) -> None:
        """What it has in the cluster is handed over, and nothing else of it goes."""
        own = [OWN, object_("more")]
        self.apps.commit({"a/a.yaml": text(STAYS), "b/b.yaml": text(*own)})
        self.configure(A, B)
        self.passes(5)
        uid = self.live("own")["metadata"]["uid"]
        self.leave()
        self.apps.commit({"a/a.yaml": text(STAYS, OWN)})
        self.lead()
        self.passes(2 * TRY_MOST)
        self.assertEqual(self.project("twin").desired.commit, "")
        self.assertEqual(self.owner("own"), self.project("apps").desired.inventory)
        self.assertEqual(self.live("own")["metadata"]["uid"], uid)
        self.assertEqual(self.owner("more"), self.project("twin").desired.inventory)
        self.assertEqual(
            (self.project("apps").status.problems, self.deleted()), ([], [])
        )
        # The folder is there again.
        self.apps.commit({"a/a.yaml": text(STAYS), "b/b.yaml": text(*own)})
        self.pushed()
        self.passes(2 * TRY_MOST)
        self.assertEqual(self.owner("own"), self.project("twin").desired.inventory)
        self.assertEqual(
            (self.project("twin").status.problems, self.deleted()), ([], [])
        )

    def test_a_repository_that_is_not_known(self) -> None:
        """What cannot be compared keeps the object, and says what to do."""
        self.begin(A, {"id": "none", "name": "gone"})
        self.apps.commit({"a/a.yaml": text(STAYS)})
        self.pushed()
        self.passes(TRY_MOST)
        self.assertEqual(self.deleted(), [])
        (why,) = self.project("apps").status.problems
        self.assertIn("(fix it or remove the project): agent", why)
        self.configure(A)
        self.passes(TRY_MOST)
        self.assertEqual(self.deleted(), ["moves"])

    def test_another_branch(self) -> None:
        """One that follows another ref keeps nothing but what it has."""
        elsewhere = {**B, "ref": {"branch": "production"}}
        files = {"a/a.yaml": text(STAYS, MOVES), "b/b.yaml": ""}
        self.apps.commit(files, "refs/heads/production")
        self.begin(A, elsewhere)
        self.apps.commit({"a/a.yaml": text(STAYS)})
        self.pushed()
        self.passes(5)
        self.assertEqual(self.deleted(), ["moves"])

    def test_another_name(self) -> None:
        """The project under its new name takes what the old one had."""
        self.begin(A)
        uid = self.live("stays")["metadata"]["uid"]
        self.configure({**A, "id": "twin"})
        self.passes(2 * TRY_MOST)
        for name in ("stays", "moves"):
            self.assertEqual(self.owner(name), self.project("twin").desired.inventory)
        self.assertEqual(self.live("stays")["metadata"]["uid"], uid)
        self.assertEqual(self.project("twin").status.problems, [])
        self.assertEqual(self.deleted(), [])
        self.apps.commit({"a/a.yaml": text(STAYS)})
        self.pushed()
        self.passes(5)
        self.assertEqual(self.deleted(), ["moves"])

    def test_another_name_beside_a_project_without_a_commit(self) -> None:
        """What the old name had is taken at once, though another ref is deleted."""
        gone = {"id": "other", "ref": {"branch": "deleted"}}
        self.begin(A, gone)
        self.configure({**A, "id": "twin"}, gone)
        self.passes(10)
        twin, other = self.project("twin"), self.project("other")
        self.assertIs(twin.status.state, State.CURRENT)
        for name in ("stays", "moves"):
            self.assertEqual(self.owner(name), twin.desired.inventory)
        self.assertEqual(other.desired.known_commit, "")
        # The id is the one that it keeps with its first commit.
        before = other.desired.inventory
        self.other.commit({"b.yaml": text(OWN)}, "refs/heads/deleted")
        self.passes(TRY_MOST)
        self.assertEqual(other.desired.inventory, before)
        self.assertEqual(self.owner("own"), before)

    def test_another_name_beside_a_project_with_bad_files(self) -> None:
        """As above: none of its commits can be read."""
        bad = {"id": "other"}
        self.other.commit({"b.yaml": "kind: ["})
        self.begin(A)
        self.configure({**A, "id": "twin"}, bad)
        self.passes(2)
        self.assertIs(self.project("twin").status.state, State.CURRENT)
        self.assertEqual(self.project("other").desired.known_commit, "")

    def test_another_name_beside_an_unknown_repository(self) -> None:
        """Its inventory may be the old one: the status says for whom this waits."""
        unknown = {"id": "secret"}
        self.begin(A, unknown)
        former = self.owner()
        self.configure({**A, "id": "twin"}, unknown)
        self.passes(OTHERS_SECONDS + 2 * TRY_MOST)
        twin = self.project("twin")
        self.assertIs(twin.status.state, State.FAILED)
        why = twin.status.problems[0]
        self.assertIn(f"it is owned by the inventory {former}; it waits for", why)
        self.assertIn("project secret, whose repository is unknown (fix it", why)
        self.assertIn(self.project("secret").status.problems[0], why)
        self.assertNotIn("adopt_all", why)
        self.assertEqual(self.owner(), former)
        # It is known now, though its commit cannot be read: no need to wait for more.
        self.other.commit({"b.yaml": "kind: ["})
        repositories = self.server._settings.repositories
        repositories["secret"] = RepositorySettings(url=OTHER)
        self.passes(TRY_MOST)
        self.assertEqual(self.owner(), twin.desired.inventory)
        self.assertIs(twin.status.state, State.CURRENT)

    def test_leftovers_beside_a_project_without_a_commit(self) -> None:
        """The old objects may be in its files: nothing calls them unused."""
        gone = {"id": "other", "ref": {"branch": "deleted"}}
        self.begin(A, gone)
        self.configure(B, gone)
        self.passes(LOOK_AGAIN + 2 * TRY_MOST)
        self.assertNotEqual(self.project("other").desired.inventory, "")
        self.assertEqual(self.notices("twin"), [])
        self.other.commit({"b.yaml": text(OWN)}, "refs/heads/deleted")
        self.passes(2 * TRY_MOST)
        (notice,) = self.notices("twin")
        self.assertIn("2 objects stay in the cluster", notice)

    def test_held_objects_under_another_name(self) -> None:
        """What the old project held stays, and status and log say so."""
        files = [object_(f"gone{number}") for number in range(3)]
        limited = {**A, "prune_limits": {"count": 1}}
        self.apps.commit({"a/a.yaml": text(STAYS, MOVES, *files)})
        self.configure(limited)
        self.passes(5)
        former = self.project("apps").desired.inventory
        self.apps.commit({"a/a.yaml": text(STAYS, MOVES)})
        self.pushed()
        self.passes(5)
        self.assertIs(self.project("apps").status.state, State.HELD)
        self.configure({**limited, "id": "twin"})
        self.passes(2 * TRY_MOST)
        twin = self.project("twin")
        self.assertEqual((self.owner(), self.deleted()), (twin.desired.inventory, []))
        self.assertIs(twin.status.state, State.CURRENT)
        (notice,) = self.notices()
        self.assertIn(f"(inventory {former})", notice)
        self.assertIn("3 objects stay in the cluster", notice)
        self.assertIn("ConfigMap default/gone0", notice)
        self.assertIn(f"delete ConfigMap default/inventory-{former}", notice)
        self.passes(LOOK_AGAIN)
        self.assertEqual(len(self.said("3 objects stay in the cluster")), 1)
        # An inventory that another user wrote names nothing.
        objects = self.cluster.objects
        live = self.live(f"inventory-{former}")
        live["metadata"].update(name="inventory-x", labels={LABEL: "x"})
        objects.put(live)
        self.configure({**limited, "id": "twin"})
        self.passes(LOOK_AGAIN)
        self.assertEqual(self.notices(), [notice])
        for number in range(3):
            objects.remove("v1", "ConfigMap", f"gone{number}", "default")
        self.passes(LOOK_AGAIN)
        self.assertEqual(self.notices(), [])

    def test_other_agents_wait_for_no_former_project(self) -> None:
        """Its inventory says so once the new project has the objects."""
        self.begin(A)
        former = f"inventory-{self.project('apps').desired.inventory}"
        followed = self.live(former)["metadata"]["annotations"][SOURCE]
        # One object may not be taken yet.
        self.deny_patch()
        self.configure({**A, "id": "twin"})
        self.passes(2 * TRY_MOST)
        self.assertEqual(self.live(former)["metadata"]["annotations"][SOURCE], followed)
        self.cluster._answers.clear()
        self.passes(LOOK_AGAIN + 2 * TRY_MOST)
        self.assertEqual(self.owner(), self.project("twin").desired.inventory)
        self.passes(LOOK_AGAIN)
        self.assertNotIn(SOURCE, self.live(former)["metadata"]["annotations"])
        # It comes back, and is followed again.
        self.configure(A)
        self.passes(2 * TRY_MOST)
        self.assertEqual(self.live(former)["metadata"]["annotations"][SOURCE], followed)

    def test_a_project_that_was_removed(self) -> None:
        """Its objects stay, and are named while another project follows the same."""
        self.begin(A)
        self.configure(B)
        self.passes(2 * TRY_MOST)
        (notice,) = self.notices("twin")
        self.assertIn("2 objects stay in the cluster", notice)
        self.assertEqual(self.deleted(), [])

    def test_claims_of_a_project_that_was_removed(self) -> None:
        """They end, so that the owner of the object may delete it."""
        self.begin(A)
        moves = self.live("moves")
        moves["metadata"]["annotations"][OWNER] = "another"
        self.cluster.objects.put(moves)
        self.passes(2 * TRY_MOST)
        former = self.project("apps").desired.inventory
        annotations = self.live("moves")["metadata"]["annotations"]
        self.assertEqual(annotations[CLAIMED_BY], former)
        self.configure(B)
        self.passes(LOOK_AGAIN + 2 * TRY_MOST)
        annotations = self.live("moves")["metadata"]["annotations"]
        self.assertNotIn(CLAIMED_BY, annotations)
        self.assertEqual(annotations[OWNER], "another")

    def test_many_former_projects(self) -> None:
        """Each step examines a bounded number; the search ends with all of them."""
        self.patch(leftovers, "MAX_INVENTORIES", 1)
        self.patch(leftovers, "MAX_LOOKED", 1)
        self.apps.commit({"a/a.yaml": text(STAYS, MOVES), "b/b.yaml": text(OWN)})
        self.configure({**A, "name": "one"}, {**B, "name": "two"})
        self.passes(5)
        self.configure({"id": "apps", "paths": [{"glob": "c/*"}]})
        self.apps.commit({"c/c.yaml": ""})
        self.pushed()
        self.passes(2 * TRY_MOST)
        found = sorted(one.partition(" in ")[0] for one in self.notices("apps"))
        self.assertEqual(found, ["1 object stays", "2 objects stay"])

    def test_many_claims_of_a_project_that_was_removed(self) -> None:
        """All of them end, however many a step of a search examines."""
        self.patch(leftovers, "MAX_LOOKED", 1)
        self.begin(A)
        for name in ("moves", "stays"):
            live = self.live(name)
            live["metadata"]["annotations"][OWNER] = "another"
            self.cluster.objects.put(live)
        self.passes(2 * TRY_MOST)
        self.configure(B)
        self.passes(LOOK_AGAIN + 2 * TRY_MOST)
        for name in ("moves", "stays"):
            annotations = self.live(name)["metadata"]["annotations"]
            self.assertNotIn(CLAIMED_BY, annotations)

    def test_an_object_that_cannot_be_read(self) -> None:
        """It hides no object after it."""
        self.begin(A)
        self.configure(B)

        async def denied(client: Any, resource: Any, key: ObjectKey) -> Any:
            if key.name == "moves":
                raise CallError(Status.PERMISSION_DENIED, "forbidden")
            return await live_object(client, resource, key)

        self.patch(leftovers, "live_object", denied)
        self.passes(2 * TRY_MOST)
        (notice,) = self.notices("twin")
        self.assertIn("1 object stays in the cluster", notice)

    def test_a_project_that_was_removed_and_another_agent(self) -> None:
        """An object that another agent claims is released for that agent."""
        self.begin(A)
        former = self.project("apps").desired.inventory
        live = self.live("moves")
        uid = live["metadata"]["uid"]
        live["metadata"]["annotations"][CLAIMED_BY] = "two"
        self.cluster.objects.put(live)
        entry = json.dumps({"uid": uid, "claimed": former})
        self.cluster.objects.put(
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {
                    "name": "inventory-two",
                    "namespace": "other",
                    "labels": {LABEL: "two"},
                    "annotations": {
                        PARTS: "1",
                        SOURCE: "url:1 refs/heads/main x",
                        WRITER: "two@a/b",
                    },
                },
                "data": {"default_moves__ConfigMap": entry},
            }
        )
        self.configure(B)
        self.passes(2 * TRY_MOST)
        metadata = self.live("moves")["metadata"]
        annotations = metadata["annotations"]
        self.assertEqual((metadata["uid"], self.deleted()), (uid, []))
        self.assertNotIn(OWNER, annotations)
        self.assertEqual(
            (annotations[CLAIMED_BY], annotations[GIVEN_BY]), ("two", former)
        )
        (notice,) = self.notices()
        self.assertIn("1 object stays in the cluster", notice)

    def notices(self, name: str = "twin") -> list[str]:
        """What the status of a project says that is no failure."""
        asked = control_pb2.GetStatusRequest(agent="1", project=name)
        callee = self.pair.external(CONTROL)
        answer = self.pair.run(callee.call("GetStatus", asked))
        (status,) = answer.projects
        return list(status.notices)

    def test_inventories_of_others(self) -> None:
        """What another agentk wrote is given by nobody, nor what has no inventory."""
        self.begin(A)
        objects = self.cluster.objects
        for inventory in (self.project("apps").desired.inventory, "none", "..", "a/b"):
            live = objects.find("v1", "ConfigMap", f"inventory-{inventory}", "default")
            if live is not None:
                live["metadata"]["annotations"]["txkas/writer"] = "else@a/b"
                objects.put(live)
            moved = self.live("moves")
            moved["metadata"]["annotations"][OWNER] = inventory
            objects.put(moved)
            self.configure()
            self.configure({**A, "id": "twin"})
            self.passes(30)
            self.assertEqual(self.owner(), inventory)
            self.assertIn(
                "it is owned by the inventory", self.project("twin").status.problems[0]
            )


def test_names() -> None:
    """An object counts as named wherever it might be."""
    text = (
        "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}\n---\n"
        "{apiVersion: v1, kind: ConfigMap, metadata: {name: b, namespace: x}}\n"
    )
    named = names(read_source([("a.yaml", text.encode())]).manifests, "here")
    assert named(ObjectKey("", "ConfigMap", "here", "a"))
    assert named(ObjectKey("", "ConfigMap", "", "a"))
    assert named(ObjectKey("", "ConfigMap", "x", "b"))
    assert not named(ObjectKey("", "ConfigMap", "x", "a"))
    assert not named(ObjectKey("", "Secret", "here", "a"))
    assert not named(ObjectKey("", "ConfigMap", "here", "b"))
