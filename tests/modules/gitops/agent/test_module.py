"""Both halves: a commit comes, and the cluster is as it says."""

from __future__ import annotations

import json
from typing import Any

import attrs
from twisted.internet.defer import CancelledError, Deferred
from zope.interface.verify import verifyObject

from modules.gitops.agent.inventory.identity import inventory_id
from modules.gitops.agent.objects.owner_annotations import OWNER
from modules.gitops.agent.project.journal import MAX_LINE
from modules.gitops.agent.project.leftovers import Leftovers
from modules.gitops.agent.project.passes import AGAIN
from modules.gitops.agent.project.status import State
from modules.gitops.agent.source.commits import LOOK_MOST
from modules.gitops.agent.source.pause import ASK_FIRST, ASK_MOST
from modules.gitops.agent.source.threads import TextThreads
from modules.gitops.wire import rpc_pb2
from tests.modules.gitops.agent.project.test_reconcile import config_maps, object_
from tests.modules.gitops.halves import HalvesTestCase, text
from tunnel.api import (
    IAgentModule,
    TunnelConnected,
)
from tunnel.api.followed_refs import RETRY_MOST
from tunnel.errors import CallError, ConfigurationError, Status


class Hanging:
    """A renderer that ends when it is told what it makes."""

    def __init__(self) -> None:
        self.threads = TextThreads(1)
        self.makes: bytes | CallError | None = None
        self.begun = self.ended = 0
        self.given: list[str] = []

    async def render(self, kind: Any, space: str, files: Any, _: Any) -> Any:
        self.begun += 1
        self.given = [path for path, _ in files]
        if isinstance(self.makes, bytes):
            return "made", self.makes
        if self.makes is not None:
            raise self.makes
        try:
            return await Deferred()
        finally:
            self.ended += 1


class HeldThreads:
    """Threads that end when they are told to."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._held: Deferred[None] = Deferred()

    async def run(self, work: Any, *args: Any) -> Any:
        self.names.append(work.__name__)
        await self._held
        return work(*args)

    def end(self) -> None:
        held, self._held = self._held, Deferred()
        held.callback(None)


class HalvesTests(HalvesTestCase):
    """What comes of commits."""

    def test_interfaces(self) -> None:
        verifyObject(IAgentModule, self.agent)

    def test_own_namespace(self) -> None:
        """Clients with agentk's own rights reach no orders, wherever agentk runs."""
        self.assertTrue(self.agent._api.kubernetes.own_namespace.is_closed)

    def test_a_commit_and_the_next(self) -> None:
        self.apps.commit({"a.yaml": text(*config_maps(1, 2))})
        self.configure({"id": "apps"})
        self.assertEqual(self.live("m001")["data"], {"n": "1"})
        self.assertEqual(len(self.said("is in the cluster: 2 created")), 1)
        self.apps.commit({"a.yaml": text(*config_maps(1, 3))})
        self.pushed()
        self.assertIsNone(self.live("m002"))
        self.assertIsNotNone(self.live("m003"))
        self.assertEqual(len(self.said("1 created, 1 pruned, 1 unchanged")), 1)

    def test_the_first_repository_by_default(self) -> None:
        self.apps.commit({"a.yaml": text(*config_maps(1))})
        self.configure({})
        self.assertIsNotNone(self.live("m001"))

    def test_settings(self) -> None:
        self.apps.commit(
            {"prod/a.yaml": text(object_("a")), "b.yaml": text(object_("b"))},
            "refs/heads/next",
        )
        self.configure(
            {
                "id": "apps",
                "ref": {"branch": "next"},
                "paths": [{"glob": "/prod/*.yaml"}],
                "default_namespace": "here",
            }
        )
        self.assertIsNotNone(self.live("a", "here"))
        self.assertIsNone(self.live("b", "here"))

    def test_settings_that_cannot_be(self) -> None:
        for projects, says in (
            (
                [{"id": "a", "depends_on": ["b"]}],
                "'b', but no project of manifest_projects has that name; no other "
                "project exists",
            ),
            (
                [{"id": "a", "depends_on": ["b"]}, {"id": "b", "depends_on": ["a"]}],
                "these depend on each other: 'a', 'b'",
            ),
            ([{"id": "a", "depends_on": ["a"]}], "depend on each other: 'a'"),
            ([{"id": "a", "name": "b"}, {"id": "b"}], "two projects are called 'b'"),
            ([{"id": "a", "name": "b/c"}], "must have 1 to 63 letters, digits"),
            ([{"id": "a", "service_account": "a"}], "namespace/name"),
            ([{"id": "a", "service_account": "a/b/c"}], "namespace/name"),
        ):
            with self.assertRaises(ConfigurationError) as caught:
                self.configure(*projects)
            self.assertIn(says, str(caught.exception))

    def test_nothing_is_changed_in_a_dry_run(self) -> None:
        self.apps.commit({"a.yaml": text(*config_maps(1))})
        self.configure({"id": "apps", "dry_run_strategy": "server"})
        self.assertIsNone(self.live("m001"))
        self.assertEqual(len(self.said("would 1 create (dry run)")), 1)

    def test_only_while_it_leads(self) -> None:
        self.leave()
        self.apps.commit({"a.yaml": text(*config_maps(1))})
        self.configure({"id": "apps"})
        self.passes(AGAIN)
        self.assertIsNone(self.live("m001"))
        self.lead()
        self.passes(5)
        self.assertIsNotNone(self.live("m001"))

    def test_side_by_side(self) -> None:
        """What is wrong with one project is its own."""
        self.apps.commit({"a.yaml": "no: object"})
        self.other.commit({"a.yaml": text(*config_maps(5))})
        self.configure({"id": "apps"}, {"id": "other"})
        self.assertIsNotNone(self.live("m005"))
        (line,) = self.said("project apps, commit")
        self.assertIn("a.yaml:1: apiVersion is missing", line)
        self.apps.commit({"a.yaml": text(*config_maps(1))})
        self.pushed()
        self.assertIsNotNone(self.live("m001"))

    def test_several_projects_of_a_repository(self) -> None:
        """Each has files, an inventory and a status of its own."""
        files = {
            f"{team}/a.yaml": text(*config_maps(number))
            for number, team in enumerate(("blue", "green", "red"))
        }
        self.apps.commit(files)
        teams = [
            {"id": "apps", "name": team, "paths": [{"glob": f"/{team}/*.yaml"}]}
            for team in ("blue", "green")
        ]
        rest: dict[str, Any] = {"id": "apps", "paths": [{"glob": "/red/*.yaml"}]}
        self.configure(*teams, rest, {"id": "other", "depends_on": ["blue"]})
        for number in range(3):
            self.assertIsNotNone(self.live(f"m00{number}"))
        self.assertEqual(set(self.agent.projects), {"blue", "green", "apps", "other"})
        ids = {
            self.live(f"m00{number}")["metadata"]["annotations"][OWNER]
            for number in range(3)
        }
        self.assertEqual(len(ids), 3)
        # Only what left the files of the one project goes.
        del files["green/a.yaml"]
        self.apps.commit({**files, "green/b.yaml": text(*config_maps(5))})
        self.pushed()
        self.assertIsNone(self.live("m001"))
        for number in (0, 2, 5):
            self.assertIsNotNone(self.live(f"m00{number}"))

    def test_a_project_that_gets_a_name(self) -> None:
        """It has another inventory then, and takes what the old one names."""
        self.apps.commit({"a.yaml": text(*config_maps(1, 2))})
        self.configure({"id": "apps"})
        before = self.live("m001")["metadata"]
        self.configure({"id": "apps", "name": "web"})
        self.passes(120)
        after = self.live("m001")["metadata"]
        self.assertEqual(after["uid"], before["uid"])
        self.assertNotEqual(after["annotations"], before["annotations"])
        self.apps.commit({"a.yaml": text(*config_maps(1))})
        self.pushed()
        self.assertIsNone(self.live("m002"))

    def test_a_namespace_that_is_missing(self) -> None:
        """The message says which one, and what needs it."""
        self.agent._inventories = "web"
        path = "/api/v1/namespaces/web/configmaps"
        message = 'namespaces "web" not found'
        answer = {"kind": "Status", "code": 404, "message": message}
        self.cluster.answer("POST", path, answer, 404)
        self.apps.commit({"a.yaml": text(*config_maps(1))})
        self.configure({"id": "apps"})
        self.passes(1)
        (line,) = self.said("the Namespace web, which is to hold the inventory")
        self.assertIn("modules.gitops.inventory_namespace", line)

    def test_one_that_depends_on_another(self) -> None:
        """It waits until all of the other is current, and not only applied."""
        operator = object_("d", "Deployment", "apps/v1", spec={"replicas": 1})
        self.apps.commit({"a.yaml": text(operator)})
        self.other.commit({"a.yaml": text(*config_maps(1))})
        self.configure({"id": "other", "depends_on": ["apps"]}, {"id": "apps"})
        self.passes(60)
        (other,) = [one for one in self.agent.projects.values() if one.name == "other"]
        self.assertIs(other.status.state, State.WAITING)
        self.assertEqual(other.status.problems, ["it waits for apps (depends_on)"])
        self.assertIsNone(self.live("m001"))
        live = self.cluster.objects.find("apps/v1", "Deployment", "d", "default")
        assert live is not None
        counts = ("replicas", "updatedReplicas", "availableReplicas", "readyReplicas")
        live["status"] = {
            "observedGeneration": live["metadata"].get("generation", 1),
            "conditions": [{"type": "Available", "status": "True"}],
            **dict.fromkeys(counts, 1),
        }
        self.cluster.objects.put(live)
        self.passes(10)
        self.assertIsNotNone(self.live("m001"))
        self.assertIs(other.status.state, State.CURRENT)
        self.assertEqual(other.status.problems, [])

    def test_a_project_that_leaves_the_configuration(self) -> None:
        """Its objects stay."""
        self.apps.commit({"a.yaml": text(*config_maps(1))})
        self.configure({"id": "apps"})
        self.configure()
        self.apps.commit({"a.yaml": text(*config_maps(2, 3))})
        self.pushed()
        self.passes(AGAIN * 2)
        self.assertIsNotNone(self.live("m001"))
        self.assertIsNone(self.live("m002"))

    def test_git_away(self) -> None:
        """What is in the cluster stays; once, and not each minute, it is said."""
        self.apps.commit({"a.yaml": text(*config_maps(1))})
        self.configure({"id": "apps"})
        self.apps.down = CallError(Status.UNAVAILABLE, "no route")
        self.pushed()
        self.passes(600)
        self.assertIsNotNone(self.live("m001"))
        self.assertEqual(len(self.said("cannot get its files")), 1)
        self.apps.down = None
        self.apps.commit({"a.yaml": text(*config_maps(1, 2))})
        self.passes(600)
        self.assertIsNotNone(self.live("m002"))

    def test_the_tunnel_is_there_again(self) -> None:
        """Soon after that kas is asked, for however long it was away."""
        self.apps.commit({"a.yaml": text(*config_maps(1))})
        self.configure({"id": "apps"})
        self.apps.down = CallError(Status.UNAVAILABLE, "no tunnel")
        self.pushed()
        self.passes(ASK_MOST * 4 + 250)
        self.apps.down = None
        self.apps.commit({"a.yaml": text(*config_maps(1, 2))})
        self.agent._api.events.publish(TunnelConnected("1"))
        self.agent._api.events.publish(TunnelConnected("1"))
        # kas itself looks at the repository once a minute while that fails.
        self.passes(ASK_FIRST + RETRY_MOST)
        self.assertIsNotNone(self.live("m002"))

    def test_the_tunnel_is_there_again_and_no_commit_is_new(self) -> None:
        """Then nothing is wrong any more: the next commit may be weeks away."""
        self.apps.commit({"a.yaml": text(*config_maps(1))})
        self.configure({"id": "apps"})
        project = self.agent.projects["apps"]
        self.apps.down = CallError(Status.UNAVAILABLE, "no tunnel")
        self.pushed()
        self.passes(30)
        (problem,) = project.status.problems
        self.assertIn("no tunnel", problem)
        # It is asked again within seconds, and may answer otherwise.
        self.agent._api.events.publish(TunnelConnected("1"))
        self.assertEqual(project.status.problems, [])
        self.passes(ASK_FIRST + RETRY_MOST)
        self.assertEqual(len(project.status.problems), 1)
        self.apps.down = None
        self.agent._api.events.publish(TunnelConnected("1"))
        self.passes(ASK_MOST)
        self.assertEqual(project.status.problems, [])
        self.apps.commit({"a.yaml": text(*config_maps(1, 2))})
        self.pushed()
        self.assertIsNotNone(self.live("m002"))

    def test_what_others_changed_is_put_right(self) -> None:
        self.apps.commit({"a.yaml": text(*config_maps(1))})
        self.configure({"id": "apps"})
        self.cluster.objects.remove("v1", "ConfigMap", "m001", "default")
        self.passes(AGAIN)
        self.passes(1)
        self.assertIsNotNone(self.live("m001"))

    def test_a_newer_commit_takes_over(self) -> None:
        """While an hour is waited for the last one."""
        waits = object_("d", "Deployment", "apps/v1", spec={"replicas": 1})
        needs = {
            "config.kubernetes.io/depends-on": "apps/namespaces/default/Deployment/d"
        }
        late = object_("late", metadata={"annotations": needs})
        self.apps.commit({"a.yaml": text(waits, late)})
        self.configure({"id": "apps"})
        self.passes(60)
        self.assertIsNone(self.live("late"))
        self.apps.commit({"a.yaml": text(waits, object_("fixed"))})
        self.pushed()
        self.assertIsNotNone(self.live("fixed"))

    def test_a_newer_commit_takes_over_a_rendering(self) -> None:
        """That of the last one hangs, and is ended."""
        renderer = Hanging()
        self.agent._renderer = renderer
        self.apps.commit({"kustomization.yaml": "resources: [a.yaml]"})
        self.configure({"id": "apps", "source": {"kind": "kustomize"}})
        self.passes(30)
        self.assertEqual((renderer.begun, renderer.ended), (1, 0))
        renderer.makes = text(*config_maps(1)).encode()
        self.apps.commit({"kustomization.yaml": "resources: [b.yaml]"})
        self.pushed()
        self.assertEqual((renderer.begun, renderer.ended), (2, 1))
        self.assertIsNotNone(self.live("m001"))

    def test_a_commit_that_kas_refused(self) -> None:
        """The one that mends it is applied at once, and it counts as out of sync."""
        self.apps.commit({"a/a.yaml": text(object_("one"))})
        self.configure({"id": "apps", "paths": [{"glob": "a/*"}]})
        self.passes(10)
        project = self.agent.projects["apps"]
        self.assertIsNone(project.status.out_of_sync_since)
        refused = self.apps.commit({"b/a.yaml": text(object_("one"))})
        self.pushed()
        self.passes(5)
        self.assertIsNotNone(project.status.out_of_sync_since)
        self.assertIs(project.status.state, State.FAILED)
        self.assertEqual(project.status.next_commit, refused)
        self.assertIn("has no folder a", project.status.next_reason)
        self.passes(3 * ASK_MOST)
        self.assertEqual(len(self.said("has no folder a")), 1)
        self.apps.commit({"a/a.yaml": text(object_("two"))})
        self.pushed()
        self.passes(5)
        self.assertIsNotNone(self.live("two"))
        self.assertIsNone(project.status.out_of_sync_since)
        self.assertIs(project.status.state, State.CURRENT)

    def test_a_branch_that_comes_back(self) -> None:
        """A push ends the wait of kas and of agentk, however long it has become."""
        self.apps.commit({"a.yaml": text(object_("one"))}, "refs/heads/x")
        self.configure({"id": "apps", "ref": {"branch": "x"}})
        self.passes(5)
        self.apps.remove("refs/heads/x")
        self.pushed()
        # By now the pause of agentk takes five minutes.
        self.passes(1250)
        project = self.agent.projects["apps"]
        self.assertIn("has no refs/heads/x", project.status.problems[0])
        self.apps.commit({"a.yaml": text(object_("two"))}, "refs/heads/x")
        self.passes(LOOK_MOST)
        self.pushed()
        self.passes(5)
        self.assertIsNotNone(self.live("two"))
        self.assertEqual(project.status.problems, [])

    def test_a_failure_before_the_commit(self) -> None:
        """A readable ref ends no pause if kas fails for another reason."""
        asked: list[object] = []
        self.apps.commit({"a.yaml": text(object_("one"))})
        self.configure({"id": "apps", "paths": [{"glob": "[a"}]})
        handle = self.server._globs

        def noted(request: object, work: object) -> Any:
            asked.append(request)
            return handle(request, work)

        self.patch(self.server, "_globs", noted)
        self.passes(1200)
        self.assertGreater(len(asked), 0)
        self.assertLess(len(asked), 10)

    def test_a_refused_commit_that_is_taken_back(self) -> None:
        """A forced push leads the branch to the commit that is in the cluster."""
        good = self.apps.commit({"a/a.yaml": text(object_("one"))})
        self.configure({"id": "apps", "paths": [{"glob": "a/*"}]})
        self.passes(10)
        project = self.agent.projects["apps"]
        self.apps.commit({"b/a.yaml": text(object_("one"))})
        self.pushed()
        self.assertIs(project.status.state, State.FAILED)
        self.apps.rewind(good)
        self.pushed()
        self.passes(ASK_FIRST)
        self.assertEqual(
            (project.status.problems, project.status.next_commit), ([], "")
        )
        self.assertIs(project.status.state, State.CURRENT)

    def test_what_kas_refuses_until_its_limits_are_others(self) -> None:
        """The same commit is asked for again and again, however rarely."""
        self.apps.commit({"a.yaml": text(object_("one")), "b.yaml": ""})
        limits = self.server._settings
        self.server._settings = attrs.evolve(limits, max_number_of_files=1)
        self.configure({"id": "apps"})
        self.passes(3 * ASK_MOST)
        self.assertIsNone(self.live("one"))
        self.server._settings = limits
        self.passes(2 * ASK_MOST)
        self.assertIsNotNone(self.live("one"))

    def test_previews_that_hang(self) -> None:
        """They have slots of their own, and no commit waits for them."""
        agent = self.agent
        for one, other in (
            (agent._renderer, agent._preview_renderer),
            (agent._decryptor, agent._preview_decryptor),
        ):
            self.assertIsNot(one.children, other.children)
            self.assertIsNot(one.threads, other.threads)
        self.assertIs(agent._preview_renderer.threads, agent._preview_decryptor.threads)
        agent._renderer, agent._preview_renderer = renderer, shown = (
            Hanging(),
            Hanging(),
        )
        renderer.makes = text(*config_maps(1)).encode()
        self.apps.commit({"kustomization.yaml": "resources: [a.yaml]"})
        self.configure({"id": "apps", "source": {"kind": "kustomize"}})
        previewer = agent.projects["apps"].previewer
        preview = Deferred.fromCoroutine(previewer.preview(rpc_pb2.Ref()))
        self.passes(5)
        self.assertEqual((renderer.begun, shown.begun, shown.ended), (1, 1, 0))
        renderer.makes = text(*config_maps(2)).encode()
        self.apps.commit({"kustomization.yaml": "resources: [b.yaml]"})
        self.pushed()
        self.assertIsNotNone(self.live("m002"))
        self.assertNoResult(preview)
        preview.addErrback(lambda failure: failure.trap(CancelledError))
        preview.cancel()

    def test_previews_whose_threads_do_not_end(self) -> None:
        """All that a preview reads, it reads in threads of its own."""
        agent = self.agent
        held = HeldThreads()
        agent._preview_renderer = attrs.evolve(agent._preview_renderer, threads=held)
        self.apps.commit({"a.yaml": text(*config_maps(1))})
        self.configure({"id": "apps"})
        self.passes(5)
        project = agent.projects["apps"]
        preview = Deferred.fromCoroutine(project.previewer.preview(rpc_pb2.Ref()))
        self.pair.settle()
        self.assertEqual(held.names, ["read_source"])
        held.end()
        self.pair.settle()
        self.assertEqual(held.names, ["read_source", "order_of"])
        self.apps.commit({"a.yaml": text(*config_maps(1, 2))})
        self.pushed()
        self.assertIsNotNone(self.live("m002"))
        self.assertNoResult(preview)
        held.end()
        self.pair.settle()
        found = self.successResultOf(preview).objects
        self.assertEqual([one.key.name for one in found], ["m001", "m002"])

    def test_folders_that_begin_with_a_dot(self) -> None:
        """What is rendered is given files in them; plain files there are none."""
        files = {".base/a.yaml": text(*config_maps(1)), "b.yaml": ""}
        self.agent._renderer = renderer = Hanging()
        renderer.makes = b""
        self.apps.commit(files)
        self.configure({"id": "apps", "source": {"kind": "kustomize"}})
        self.passes(10)
        self.assertEqual(renderer.given, sorted(files))
        self.configure({"id": "apps"})
        self.passes(10)
        self.assertIsNone(self.live("m001"))

    def test_a_renderer_that_is_away(self) -> None:
        """The same commit is tried again."""
        renderer = Hanging()
        renderer.makes = CallError(Status.UNAVAILABLE, "no place to write")
        self.agent._renderer = renderer
        self.apps.commit({"kustomization.yaml": "resources: [a.yaml]"})
        self.configure({"id": "apps", "source": {"kind": "kustomize"}})
        self.passes(600)
        (project,) = self.agent.projects.values()
        self.assertEqual(project.status.problems, ["no place to write"])
        self.assertEqual(len(self.said("no place to write")), 1)
        self.assertGreater(renderer.begun, 2)
        renderer.makes = text(*config_maps(1)).encode()
        self.passes(ASK_MOST)
        self.assertEqual(project.status.problems, [])
        self.assertIsNotNone(self.live("m001"))

    def test_what_strangers_call_things(self) -> None:
        """It writes no line of its own into the log, and no megabyte."""
        key = "k" * 1_000_000
        label = {**object_("a"), "metadata": {"name": "a", "labels": {key: 1}}}
        self.apps.commit({"a\n\x1b[2J.yaml": "a: [", "b.yaml": text(label)})
        self.configure({"id": "apps"})
        self.passes(1)
        lines = self.said("project apps, commit")
        self.assertEqual(len(lines), 2)
        self.assertIn("a  [2J.yaml:2:1: this is not YAML", lines[0])
        self.assertLess(len(lines[1]), MAX_LINE + 200)
        self.assertTrue(all(one.isprintable() for one in lines))

    def test_what_is_not_pruned(self) -> None:
        """Where nothing is that is how it should be, and waits for nobody."""
        self.apps.commit({"a.yaml": text(*config_maps(*range(9)))})
        self.configure({"id": "apps", "prune": False})
        self.passes(1)
        for commit in (config_maps(1, 2, 3, 4, 5, 6, 7), config_maps(1)):
            self.apps.commit({"a.yaml": text(*commit)})
            self.pushed()
            project = self.agent.projects["apps"]
            assert project.passes.report is not None
            self.assertEqual(project.passes.report.release, "")
            self.assertEqual(
                (project.status.state, project.status.problems), (State.CURRENT, [])
            )
            self.assertTrue(project.status.is_current)
            self.assertIsNone(project.status.out_of_sync_since)
        self.assertIsNotNone(self.live("m008"))
        # ... and known all the same, for when it is to go.
        self.configure({"id": "apps"})
        self.passes(1)
        self.assertIs(self.agent.projects["apps"].status.state, State.HELD)

    def test_a_broken_commit(self) -> None:
        """The good one before it goes on, and is still put right."""
        self.apps.commit({"a.yaml": text(*config_maps(1))})
        self.configure({"id": "apps"})
        self.apps.commit({"a.yaml": "a: b: c"})
        self.pushed()
        self.assertEqual(len(self.said("a.yaml:1:5: this is not YAML")), 1)
        self.cluster.objects.remove("v1", "ConfigMap", "m001", "default")
        self.passes(AGAIN)
        self.passes(1)
        self.assertIsNotNone(self.live("m001"))
        self.apps.commit({"a.yaml": text(*config_maps(2))})
        self.pushed()
        self.assertIsNotNone(self.live("m002"))

    def test_one_source_twice(self) -> None:
        """Each would prune what the other has."""
        self.apps.commit(
            {"a/a.yaml": text(object_("a")), "b/b.yaml": text(object_("b"))}
        )
        one, two = (
            {"paths": [{"glob": "a/*"}]},
            {"id": "apps", "paths": [{"glob": "b/*"}]},
        )
        self.configure(one, two)
        self.passes(AGAIN)
        self.assertEqual(
            len(self.said("another project of this agent also has this repository")), 1
        )
        self.assertIsNotNone(self.live("a"))
        self.assertIsNone(self.live("b"))
        self.configure(two)
        self.passes(60)
        self.assertIsNotNone(self.live("b"))

    def test_the_cluster_away(self) -> None:
        self.cluster.refuses = True
        self.apps.commit({"a.yaml": text(*config_maps(1))})
        self.configure({"id": "apps"})
        self.assertEqual(len(self.said("the API server cannot be reached")), 1)
        self.cluster.refuses = False
        self.passes(60)
        self.assertIsNotNone(self.live("m001"))

    def test_a_pass_that_fails_has_ended(self) -> None:
        """Else `kasctl gitops sync --wait` would wait for it."""
        self.apps.commit({"a.yaml": text(*config_maps(1))})
        self.configure({"id": "apps"})
        project = self.agent.projects["apps"]
        before = project.passes.worked_at
        self.cluster.refuses = True
        self.cluster.cut()
        self.pair.run(project.operations.sync())
        self.passes(10)
        self.assertIs(project.status.state, State.FAILED)
        self.assertNotEqual(project.passes.worked_at, before)

    def limit(self, *namespaces: str) -> None:
        """Limit the scope of the agent."""
        texts = {
            "gitops": json.dumps({"manifest_projects": [{"id": "apps"}]}),
            "scope": json.dumps({"namespaces": namespaces}),
        }
        self.pair.sections.apply(texts)
        self.passes(5)

    def test_a_scope(self) -> None:
        """Objects outside are neither applied nor pruned, nor watched."""
        inside, outside = (
            object_("m", metadata={"namespace": one}) for one in ("default", "other")
        )
        self.apps.commit({"a.yaml": text(inside, outside)})
        self.configure({"id": "apps"})
        find = self.cluster.objects.find
        self.assertIsNotNone(find("v1", "ConfigMap", "m", "other"))
        since = len(self.cluster.requests)
        self.limit("default")
        watched = {
            one.path.partition("?")[0]
            for one in self.cluster.requests[since:]
            if "watch=" in one.path
        }
        self.assertEqual(watched, {"/api/v1/namespaces/default/configmaps"})
        self.apps.commit({"a.yaml": text(inside)})
        self.pushed()
        self.passes(5)
        self.assertIsNotNone(find("v1", "ConfigMap", "m", "other"))
        outside_of = "namespace other is outside of the agent's scope: default"
        self.assertTrue(self.said(outside_of))
        self.apps.commit({"a.yaml": text(inside, object_("n"), outside)})
        self.pushed()
        self.passes(5)
        self.assertIsNotNone(self.live("n"))
        (failed,) = self.agent.projects["apps"].passes.report.failed
        self.assertEqual(failed.reason, outside_of)
        self.limit()
        self.assertEqual(self.agent.projects["apps"].passes.report.failed, [])

    def test_a_part_that_fails(self) -> None:
        """The projects go on, and the part restarts in a minute."""
        runs: list[None] = []

        async def fail(leftovers: Leftovers) -> None:
            runs.append(None)
            raise OSError("a fault")

        self.patch(Leftovers, "run", fail)
        self.leave()
        self.lead()
        self.assertEqual(len(self.flushLoggedErrors(OSError)), 1)
        self.clock.advance(60)
        self.assertEqual(len(runs), 2)
        self.assertEqual(len(self.flushLoggedErrors(OSError)), 1)
        self.apps.commit({"a.yaml": text(*config_maps(1))})
        self.configure({"id": "apps"})
        self.assertIsNotNone(self.live("m001"))

    def test_a_blocked_prune_is_said_once_and_approved(self) -> None:
        self.apps.commit({"a.yaml": text(*config_maps(*range(10)))})
        self.configure({"id": "apps"})
        self.apps.commit({"a.yaml": text(*config_maps(1))})
        self.pushed()
        self.passes(AGAIN * 3)
        lines = self.said("ConfigMap default/m002 blocked")
        self.assertEqual(len(lines), 1)
        self.assertIn("9 of 10 objects would be deleted", lines[0])
        (how,) = self.said("9 objects wait for an approval")
        *_, agent, project, release = how.split()
        self.assertEqual((agent, project), (self.agent._api.agent_name, "apps"))
        self.pair.run(self.agent.projects["apps"].operations.approve(release))
        self.passes(5)
        self.assertIsNone(self.live("m002"))
        self.assertIsNotNone(self.live("m001"))


def test_inventory_ids() -> None:
    assert inventory_id("7", 9, "group/apps", "") == "7-9"
    assert inventory_id("7", 0, "apps", "").startswith("7-apps-")
    assert inventory_id("7", 9, "group/apps", "web").startswith("7-group-apps-web-")
    odd = inventory_id("Ä" * 300, 0, "../..", "")
    assert odd.startswith("x-x-")
    for name in ("", "c" * 63):
        assert len(inventory_id("a" * 300, 0, "b" * 300, name)) <= 63
    ids = {
        inventory_id(*given)
        for given in (
            ("a", 0, "b-c", ""),
            ("a-b", 0, "c", ""),
            ("a", 0, "b", "c"),
            ("a", 0, "b", "C"),
            ("a", 0, "b", "c-d"),
        )
    }
    assert len(ids) == 5
