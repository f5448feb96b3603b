"""Objects of other engines that are told of commits."""

from __future__ import annotations

import json
from typing import Any

from twisted.internet.defer import Deferred

from modules.gitops.agent.project import control
from modules.gitops.agent.source.pause import ASK_MOST
from modules.gitops.server.control_server import CONTROL
from modules.gitops.wire import control_pb2 as pb
from tests.modules.gitops.agent.project.test_reconcile import config_maps, object_
from tests.modules.gitops.halves import HalvesTestCase, text
from tunnel.api import KubernetesResource
from tunnel.errors import CallError, ConfigurationError, Status

VERBS = frozenset("get list watch create patch delete".split())
FLUX, ARGO_CD = "source.toolkit.fluxcd.io", "argoproj.io"
REPOSITORY = KubernetesResource(
    FLUX, "v1", "GitRepository", "gitrepositories", True, VERBS
)
APPLICATION = KubernetesResource(
    ARGO_CD, "v1alpha1", "Application", "applications", True, VERBS
)
REQUESTED, REFRESH = "reconcile.fluxcd.io/requestedAt", "argocd.argoproj.io/refresh"

ONE: dict[str, Any] = {
    "api_version": f"{FLUX}/v1",
    "kind": "GitRepository",
    "namespace": "flux",
    "name": "apps",
}
OTHER: dict[str, Any] = {
    "api_version": f"{ARGO_CD}/v1alpha1",
    "kind": "Application",
    "namespace": "argocd",
    "name": "shop",
}
OWN: dict[str, Any] = {
    "api_version": "v1",
    "kind": "ConfigMap",
    "namespace": "default",
    "name": "ours",
    "annotation": "example.org/commit",
}


class Hanging:
    """A client of which no request for objects of one kind is answered."""

    def __init__(self, client: Any, kind: str) -> None:
        self._client, self._kind = client, kind

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def _asked(self, name: str, resource: Any, *rest: Any, **more: Any) -> Any:
        if resource.kind == self._kind:
            await Deferred()
        return await getattr(self._client, name)(resource, *rest, **more)

    async def get(self, *rest: Any, **more: Any) -> Any:
        return await self._asked("get", *rest, **more)

    async def patch(self, *rest: Any, **more: Any) -> Any:
        return await self._asked("patch", *rest, **more)


class ReceiverTests(HalvesTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.cluster.objects.add_kind(REPOSITORY)
        self.cluster.objects.add_kind(APPLICATION)
        for one in (ONE, OTHER, OWN):
            metadata = {"namespace": one["namespace"]}
            self.cluster.objects.put(
                object_(one["name"], one["kind"], one["api_version"], metadata=metadata)
            )

    def receive(self, *objects: Any, **rest: Any) -> None:
        receiver = {"project": "apps", "objects": list(objects), **rest}
        section = {"manifest_projects": [], "receivers": [receiver]}
        self.pair.sections.apply({"gitops": json.dumps(section)})
        self.passes(1)

    def annotations(self, one: dict[str, Any]) -> Any:
        found = self.cluster.objects.find(
            one["api_version"], one["kind"], one["name"], one["namespace"]
        )
        assert found is not None
        return found["metadata"].get("annotations", {})

    def test_each_push(self) -> None:
        # Only which commit it is is asked for, whatever is in it.
        self.patch(self.apps, "read", None)
        self.patch(self.apps, "tree", None)
        first = self.apps.commit({"a": "1"})
        self.receive(ONE, OTHER, OWN)
        self.assertEqual(self.annotations(ONE), {REQUESTED: first})
        self.assertEqual(self.annotations(OTHER), {REFRESH: "normal"})
        self.assertEqual(self.annotations(OWN), {"example.org/commit": first})
        second = self.apps.commit({"a": "2"})
        self.pushed()
        self.assertEqual(self.annotations(ONE), {REQUESTED: second})
        patches = [one for one in self.cluster.requests if one.method == "PATCH"]
        self.passes(600)
        again = [one for one in self.cluster.requests if one.method == "PATCH"]
        self.assertEqual(len(again), len(patches))

    def test_a_field(self) -> None:
        """It gets the commit; what stands beside it stays."""
        commit = self.apps.commit({"a": "1"})
        metadata = {"namespace": "flux"}
        spec = {"ref": {"branch": "main"}, "url": "https://git"}
        self.cluster.objects.put(
            object_("apps", "GitRepository", f"{FLUX}/v1", metadata=metadata, spec=spec)
        )
        self.receive({**ONE, "field": "/spec/ref/com~1mit"})
        found = self.cluster.objects.find(f"{FLUX}/v1", "GitRepository", "apps", "flux")
        assert found is not None
        self.assertEqual(
            found["spec"],
            {"ref": {"branch": "main", "com/mit": commit}, "url": "https://git"},
        )
        self.assertEqual(self.annotations(ONE), {})

    def test_a_field_that_cannot_be(self) -> None:
        for field, why in (
            ("spec", "not a JSON pointer"),
            ("/metadata/name", "identifies the object and cannot be ignored"),
            ("/kind", "identifies the object and cannot be ignored"),
            ("/metadata/labels/a", "use 'annotation' for an annotation"),
            ("/spec/sources/0/targetRevision", "not an item of a list"),
            ("/spec/sources/-", "not an item of a list"),
            ("/spec//a", "not an item of a list"),
        ):
            with self.assertRaises(ConfigurationError) as caught:
                self.receive({**ONE, "field": field})
            self.assertIn(why, str(caught.exception))
        with self.assertRaises(ConfigurationError) as caught:
            self.receive({**OWN, "field": "/data/a"})
        self.assertIn("are mutually exclusive", str(caught.exception))

    def test_another_branch(self) -> None:
        self.apps.commit({"a": "1"})
        commit = self.apps.commit({"a": "2"}, "refs/heads/next")
        self.receive(ONE, ref={"branch": "next"})
        self.assertEqual(self.annotations(ONE), {REQUESTED: commit})

    def test_one_that_is_not_there(self) -> None:
        """All others are told; it is when it comes."""
        commit = self.apps.commit({"a": "1"})
        missing = {**ONE, "name": "late"}
        self.receive(missing, OTHER)
        self.assertEqual(self.annotations(OTHER), {REFRESH: "normal"})
        self.passes(600)
        self.assertEqual(len(self.said("late cannot be notified of commit")), 1)
        told = [one for one in self.cluster.requests if "/shop" in one.path]
        self.assertEqual(len(told), 1)
        metadata = {"namespace": "flux"}
        late = object_("late", "GitRepository", f"{FLUX}/v1", metadata=metadata)
        self.cluster.objects.put(late)
        self.passes(ASK_MOST)
        self.assertEqual(self.annotations(missing), {REQUESTED: commit})

    def test_only_while_it_leads(self) -> None:
        self.apps.commit({"a": "1"})
        self.receive(ONE)
        self.leave()
        before = self.annotations(ONE)
        self.apps.commit({"a": "2"})
        self.pushed()
        self.assertEqual(self.annotations(ONE), before)
        self.lead()
        self.passes(5)
        self.assertNotEqual(self.annotations(ONE), before)

    def test_no_more(self) -> None:
        """It has left the configuration."""
        self.apps.commit({"a": "1"})
        self.receive(ONE)
        before = self.annotations(ONE)
        self.configure()
        self.apps.commit({"a": "2"})
        self.pushed()
        self.assertEqual(self.annotations(ONE), before)

    def test_git_away(self) -> None:
        self.apps.commit({"a": "1"})
        self.apps.down = CallError(Status.UNAVAILABLE, "no route")
        self.receive(ONE)
        self.passes(600)
        self.assertEqual(len(self.said("commits of apps are unavailable")), 1)
        self.apps.down = None
        self.passes(ASK_MOST)
        self.assertIn(REQUESTED, self.annotations(ONE))

    def test_git_is_back_and_no_commit_is_new(self) -> None:
        """Then nothing is wrong any more, and nobody is told anything again."""
        self.apps.commit({"a": "1"})
        self.receive(ONE)
        before = self.annotations(ONE)
        ((receiver, _),) = self.agent._receivers.values()
        self.apps.down = CallError(Status.UNAVAILABLE, "no route")
        self.pushed()
        self.assertIn("no route", receiver.problem)
        self.apps.down = None
        self.passes(2 * ASK_MOST)
        self.assertEqual(receiver.problem, "")
        self.assertEqual(self.annotations(ONE), before)

    def test_status(self) -> None:
        """Beside our own projects, with what each is now."""
        commit = self.apps.commit({"a.yaml": text(*config_maps(1))})
        missing = {**ONE, "name": "late"}
        self.receive(OTHER, missing)
        request = pb.GetStatusRequest(agent="1")
        answer = self.pair.run(self.pair.external(CONTROL).call("GetStatus", request))
        found = {one.object.name: one for one in answer.receivers}
        self.assertEqual(found["shop"].health, "current")
        self.assertEqual(found["shop"].problem, "")
        self.assertEqual(found["shop"].commit, commit)
        self.assertEqual(found["late"].commit, "")
        self.assertIn("not found", found["late"].problem)
        self.assertEqual(found["late"].health, "")
        self.receive(OTHER)
        answer = self.pair.run(self.pair.external(CONTROL).call("GetStatus", request))
        (one,) = answer.receivers
        self.assertEqual(one.commit, commit)

    def test_one_that_hangs(self) -> None:
        """Or its webhook: the others are told, and the status is there."""
        api = self.agent._api
        hanging: Any = Hanging(api.kubernetes.as_agentk(), "GitRepository")
        self.patch(api.kubernetes, "as_agentk", lambda: hanging)
        self.apps.commit({"a.yaml": text(*config_maps(1))})
        self.receive(ONE, OTHER)
        self.assertEqual(self.annotations(OTHER), {REFRESH: "normal"})
        self.assertEqual(self.annotations(ONE), {})
        request, begun = pb.GetStatusRequest(agent="1"), self.clock.seconds()
        answer = self.pair.run(self.pair.external(CONTROL).call("GetStatus", request))
        self.assertLess(self.clock.seconds() - begun, control.HEALTH_SECONDS + 1)
        found = {one.object.name: one for one in answer.receivers}
        self.assertEqual(found["shop"].health, "current")
        self.assertIn("does not answer now", found["apps"].reason)
        self.leave()
        self.assertEqual(self.agent._receivers, {})

    def test_settings_that_cannot_be(self) -> None:
        for objects, says in (
            ([], "1 to 500 entries"),
            ([{**OWN, "annotation": ""}], "kind ConfigMap has no default annotation"),
            ([{**OWN, "annotation": "no slash"}], "the full name of an annotation"),
        ):
            with self.assertRaises(ConfigurationError) as caught:
                self.receive(*objects)
            self.assertIn(says, str(caught.exception))
