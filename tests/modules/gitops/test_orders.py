"""What people have said of a project: suspend, undo, resume, and what was applied."""

from __future__ import annotations

from typing import Any

from modules.gitops import control_pb2 as pb
from modules.gitops.inventory import (
    APPROVED,
    COMMIT,
    HISTORY,
    MAX_HISTORY,
    PINNED,
    SUSPENDED,
    WRITES,
)
from modules.gitops.operators import CONTROL
from modules.gitops.project import AGAIN, REST
from tests.modules.gitops.halves import HalvesTestCase, text
from tests.modules.gitops.test_reconcile import config_maps, object_
from tunnel.errors import CallError, Status


class OrdersTests(HalvesTestCase):
    """From the external API to the annotations, and what comes of them."""

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

    def annotate(self, **said: str) -> None:
        """As ``kubectl annotate`` does; what is empty is taken away."""
        names = {"suspended": SUSPENDED, "pinned": PINNED, "approved": APPROVED}
        found = self.inventory
        annotations = found["metadata"]["annotations"]
        annotations |= {names[name]: value for name, value in said.items()}
        for name in [name for name, value in annotations.items() if not value]:
            del annotations[name]
        self.cluster.objects.put(found)

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
        self.assertIsNotNone(project.out_of_sync_since)
        self.ask("Suspend")
        self.passes(5)
        check(pb.ProjectStatus.STATE_SUSPENDED)
        self.ask("Resume")
        self.passes(5)
        again = self.status().worked_at.ToMicroseconds()
        self.assertGreater(again, since.ToMicroseconds())
        check(pb.ProjectStatus.STATE_FAILED)
        self.assertIsNotNone(project.out_of_sync_since)
        self.assertEqual(len(self.said(f"commit {bad[:12]}: a.yaml:")), 1)
        self.commit(*config_maps(1, 2, 3))
        self.assertEqual(self.status().state, pb.ProjectStatus.STATE_CURRENT)
        self.assertIsNone(project.out_of_sync_since)

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
        self.assertEqual(self.inventory["metadata"]["annotations"][SUSPENDED], "true")
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
        self.assertNotIn(PINNED, self.inventory["metadata"]["annotations"])
        commits = [one.commit for one in self.ask("GetHistory").commits]
        self.assertEqual(commits[:3], [first, second, first])

    def test_kubectl_suspends_and_resumes(self) -> None:
        """agentk hears of it where it repairs, and in the minute after it."""
        self.begin()
        self.annotate(suspended="true")
        self.change("m001")
        self.passes(30)
        self.assertEqual(self.live("m001")["data"], {"n": "theirs"})
        self.assertEqual(self.status().state, pb.ProjectStatus.STATE_SUSPENDED)
        self.annotate(suspended="")
        self.passes(120)
        self.assertEqual(self.live("m001")["data"], {"n": "1"})
        self.assertEqual(self.status().state, pb.ProjectStatus.STATE_CURRENT)

    def test_kubectl_pins(self) -> None:
        """Within the hour, even where nothing else makes it work."""
        first = self.apps.commit({"a.yaml": text(*config_maps(1, 2, 3))})
        self.configure({"id": "apps", "drift": {"mode": "report"}})
        self.commit(*config_maps(1, 2, 4))
        self.annotate(pinned=first)
        self.passes(REST + 60)
        self.assertIsNone(self.live("m004"))
        self.assertIsNotNone(self.live("m003"))
        self.annotate(pinned="")
        self.passes(REST + 60)
        self.assertIsNotNone(self.live("m004"))

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
        for method in ("Suspend", "Undo", "GetHistory"):
            self.assertIs(self.refused(method), Status.FAILED_PRECONDITION)

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

    def test_kubectl_approves_something_else(self) -> None:
        """Nothing goes, and the status and the log say why, once."""
        self.apps.commit({"a.yaml": text(*config_maps(*range(10)))})
        self.configure({"id": "apps"})
        self.commit(*config_maps(1))
        release = self.status().release
        self.annotate(approved="4f0c")
        self.passes(60)
        self.assertEqual(self.status().state, pb.ProjectStatus.STATE_HELD)
        self.assertIn("of other objects", self.status().problems[0])
        self.assertEqual(len(self.said("of other objects")), 1)
        self.annotate(approved=release)
        self.passes(30)
        self.assertEqual(self.status().state, pb.ProjectStatus.STATE_CURRENT)
        self.assertEqual(list(self.status().problems), [])

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

    def test_a_history_that_cannot_be_read(self) -> None:
        """It is none; the next one begins again."""
        self.begin()
        for number, written in enumerate(
            (
                "{",
                '[["c", NaN, ""]]',
                '[["c", 1e300, ""]]',
                f'[["c", {"9" * 400}, ""]]',
                "[" * 100_000,
            )
        ):
            broken = self.inventory
            broken["metadata"]["annotations"] |= {HISTORY: written, WRITES: "9" * 5000}
            self.cluster.objects.put(broken)
            self.assertEqual(len(self.ask("GetHistory").commits), 0, written[:20])
            self.commit(*config_maps(1, 2, 3, 4 + number))
            self.assertEqual(len(self.ask("GetHistory").commits), 1, written[:20])
