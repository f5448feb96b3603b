"""What a commit would change, from the external API to the API server and back."""

from __future__ import annotations

import copy
from typing import Any

import attrs
from twisted.internet.defer import Deferred

from modules.gitops.agent.objects.manifests import Source
from modules.gitops.agent.objects.owner_annotations import OWNER
from modules.gitops.agent.project.control import MAX_MERGE_REQUESTS, MAX_PREVIEWS
from modules.gitops.agent.source.decryption import Decryptor
from modules.gitops.server.control_server import CONTROL
from modules.gitops.wire import control_pb2 as pb
from modules.gitops.wire import rpc_pb2
from tests.modules.gitops.agent.project.test_reconcile import config_maps, object_
from tests.modules.gitops.halves import HalvesTestCase, text
from tunnel.errors import CallError, Status
from tunnel.testing import FakeRequest

NEXT = "refs/heads/next"


def of_others() -> Any:
    """An object that is there, and of no source."""
    found = object_("theirs")
    found["metadata"]["namespace"] = "default"
    found["data"] = {"key": "precious"}
    return found


class PreviewTests(HalvesTestCase):
    """`GitopsControl.Preview`."""

    def ask(self, project: str = "apps", path: str = "", **ref: str) -> Any:
        request = pb.PreviewRequest(
            agent="1", project=project, ref=rpc_pb2.Ref(**ref), path=path
        )
        return self.pair.run(self.pair.external(CONTROL).call("Preview", request))

    def effects(self, answer: Any) -> dict[str, str]:
        return {one.object.name: one.effect for one in answer.objects}

    def objects_now(self) -> Any:
        names = ("m001", "m002", "m003", "m004", "theirs")
        return copy.deepcopy([self.live(one) for one in names])

    def test_each_effect(self) -> None:
        """As the commit then does, and the cluster stays as it was."""
        self.apps.commit({"a.yaml": text(*config_maps(1, 2, 3))})
        self.configure({"id": "apps"})
        self.cluster.objects.put(of_others())
        before = self.objects_now()
        changed = object_("m002")
        changed["data"] = {"n": "two", "more": "x"}
        new = [*config_maps(1), changed, object_("theirs"), *config_maps(4)]
        commit = self.apps.commit({"b.yaml": text(*new)}, NEXT)
        answer = self.ask(branch="next")
        self.assertEqual(answer.commit, commit)
        self.assertEqual(
            self.effects(answer),
            {
                "m001": "unchanged",
                "m002": "change",
                "m003": "blocked",
                "m004": "create",
                "theirs": "refused",
            },
        )
        (found,) = (one for one in answer.objects if one.object.name == "m002")
        fields = [(one.path, one.before, one.after) for one in found.fields]
        self.assertEqual(
            fields, [("/data/more", "", '"x"'), ("/data/n", '"2"', '"two"')]
        )
        self.assertTrue(found.place.startswith("b.yaml:"))
        self.assertEqual(self.objects_now(), before)

    def test_a_manifest_that_does_not_fit_its_kind(self) -> None:
        """Of that object it is told, with its place, and of all others as well."""
        self.apps.commit({"a.yaml": text(*config_maps(1))})
        self.configure({"id": "apps"})
        words = (
            "failed to create typed patch object (default/m002; /v1, Kind=ConfigMap): "
            ".data.n: expected string, got &value.valueUnstructured{Value:80}"
        )
        path = "/api/v1/namespaces/default/configmaps/m002"
        query = "fieldManager=agentk&force=false&dryRun=All"
        refusal = {"message": words, "code": 500}
        self.cluster.answer("PATCH", f"{path}?{query}", refusal, 500)
        self.apps.commit({"b.yaml": text(*config_maps(1, 2, 3))}, NEXT)
        answer = self.ask(branch="next")
        self.assertEqual(
            self.effects(answer),
            {"m001": "unchanged", "m002": "denied", "m003": "create"},
        )
        (found,) = (one for one in answer.objects if one.effect == "denied")
        self.assertIn("put quotes around the value", found.reason)
        self.assertTrue(found.place.startswith("b.yaml:"))

    def test_a_webhook_that_is_down(self) -> None:
        """Only the objects that need it are not previewed."""
        self.apps.commit({"a.yaml": text(*config_maps(1, 2))})
        self.configure({"id": "apps"})
        failed = {"code": 500, "message": "failed calling webhook: refused"}
        path = "/api/v1/namespaces/default/configmaps"
        query = "fieldManager=agentk&force=false&dryRun=All"
        self.cluster.answer("PATCH", f"{path}/m003?{query}", failed, 500)
        self.cluster.answer("GET", f"{path}/m004", failed, 500)
        changed = [object_(f"m00{number}", data={"n": "new"}) for number in (1, 2)]
        take = self.cluster.take

        def failing(request: FakeRequest) -> Any:
            # The plan has listed it; the look after the dry run fails.
            if (request.method, request.path) == ("PATCH", f"{path}/m002?{query}"):
                self.cluster.answer("GET", f"{path}/m002", failed, 500)
            return take(request)

        self.patch(self.cluster, "take", failing)
        self.apps.commit({"b.yaml": text(*changed, *config_maps(3, 4))}, NEXT)
        answer = self.ask(branch="next")
        self.assertEqual(
            self.effects(answer),
            {"m001": "change", "m002": "unknown", "m003": "denied", "m004": "refused"},
        )
        for one in answer.objects[1:]:
            self.assertIn("failed calling webhook", one.reason)

    def test_what_would_be_pruned(self) -> None:
        self.apps.commit({"a.yaml": text(*config_maps(1, 2, 3))})
        self.configure({"id": "apps"})
        commit = self.apps.commit({"a.yaml": text(*config_maps(1, 2))}, NEXT)
        self.assertEqual(self.effects(self.ask(commit=commit))["m003"], "prune")
        self.assertIsNotNone(self.live("m003"))

    def test_a_commit_by_how_it_begins(self) -> None:
        """As the status and the history show it; others have to be whole."""
        commit = self.apps.commit({"a.yaml": text(*config_maps(1))})
        self.configure({"id": "apps"})
        answer = self.ask(commit=commit[:12])
        self.assertEqual(answer.commit, commit)
        other = self.apps.commit({"a.yaml": text(*config_maps(1, 2))}, NEXT)
        for unknown in (other[:12], "main", "-"):
            with self.assertRaises(CallError) as caught:
                self.ask(commit=unknown)
            self.assertEqual(caught.exception.status, Status.INVALID_ARGUMENT)
            self.assertIn("give the full id", caught.exception.message)

    def test_what_the_project_follows(self) -> None:
        """Without a ref."""
        commit = self.apps.commit({"a.yaml": text(*config_maps(1))})
        self.configure({"id": "apps"})
        answer = self.ask()
        self.assertEqual(answer.commit, commit)
        self.assertEqual(self.effects(answer), {"m001": "unchanged"})

    def test_below_a_path(self) -> None:
        """A file, or a folder: what is there, is missing, differs, and left it."""
        self.apps.commit(
            {
                "web/a.yaml": text(*config_maps(1, 2)),
                "web/b.yaml": text(*config_maps(3)),
                "website.yaml": text(*config_maps(4)),
            }
        )
        self.configure({"id": "apps"})
        changed = object_("m001", data={"n": "one"})
        commit = self.apps.commit(
            {
                "web/a.yaml": text(changed, *config_maps(5)),
                "web/b.yaml": text(*config_maps(3)),
                "website.yaml": text(*config_maps(4)),
            },
            NEXT,
        )
        in_a = {"m001": "change", "m002": "prune", "m005": "create"}
        for path, expected in (
            ("web/a.yaml", in_a),
            ("/web/", {**in_a, "m003": "unchanged"}),
            ("website.yaml", {"m004": "unchanged"}),
            ("we", {}),
            ("none", {}),
            ("", {**in_a, "m003": "unchanged", "m004": "unchanged"}),
        ):
            answer = self.ask(commit=commit, path=path)
            self.assertEqual(self.effects(answer), expected, path)

    def test_drift(self) -> None:
        """What others have changed: taken back, left, or in the way."""
        for conflicts, of_new in (("fail", "denied"), ("force", "change")):
            self.apps.commit({"a.yaml": text(*config_maps(1, 2, 3, 4))})
            drift = {"mode": "report"}
            self.configure({"id": "apps", "drift": drift, "conflicts": conflicts})
            # Until the watches have begun.
            self.passes(1)
            for name in ("m001", "m002"):
                live = self.live(name)
                self.cluster.objects.put({**live, "data": {"n": "x"}})
            self.passes(10)
            new = [object_(name, data={"n": "new"}) for name in ("m001", "m004")]
            commit = self.apps.commit({"a.yaml": text(*new, *config_maps(2, 3))}, NEXT)
            answer = self.ask(commit=commit)
            self.assertEqual(
                self.effects(answer),
                {"m001": of_new, "m002": "left", "m003": "unchanged", "m004": "change"},
            )
            for one in answer.objects:
                if one.effect == "denied":
                    self.assertRegex(
                        one.reason, r"written by test \(Update\) at 19\d\d"
                    )
            drifts = {
                one.object.name: [field.path for field in one.drift.fields]
                for one in answer.objects
                if one.HasField("drift")
            }
            self.assertEqual(drifts, {"m001": ["/data/n"], "m002": ["/data/n"]})

    def test_drift_that_is_repaired(self) -> None:
        """It would be taken back, as soon as that is possible."""
        self.apps.commit({"a.yaml": text(*config_maps(1))})
        self.configure({"id": "apps"})
        self.passes(1)
        path = "/api/v1/namespaces/default/configmaps/m001"
        failed = {"kind": "Status", "code": 500, "message": "a webhook is away"}
        self.cluster.answer(
            "PATCH", f"{path}?fieldManager=agentk&force=true", failed, 500
        )
        self.cluster.objects.put({**self.live("m001"), "data": {"n": "x"}})
        self.passes(10)
        (found,) = self.ask().objects
        (field,) = found.fields
        self.assertEqual((found.effect, field.before), ("change", '"x"'))
        self.assertIn("a webhook is away", found.drift.reason)

    def test_a_merge_request(self) -> None:
        self.apps.commit({"a.yaml": text(*config_maps(1))})
        self.configure({"id": "apps"})
        name = "refs/merge-requests/7/head"
        commit = self.apps.commit({"a.yaml": text(*config_maps(1, 2))}, name)
        self.assertEqual(self.ask(name=name).commit, commit)
        with self.assertRaises(CallError) as caught:
            self.ask(name="refs/kas/HEAD")
        self.assertIs(caught.exception.status, Status.INVALID_ARGUMENT)

    def test_a_commit_that_cannot_be_read(self) -> None:
        self.apps.commit({"a.yaml": text(*config_maps(1))})
        self.configure({"id": "apps"})
        self.apps.commit({"a.yaml": "kind: ["}, NEXT)
        answer = self.ask(branch="next")
        self.assertIn("a.yaml:2:1: this is not YAML", answer.problems[0])
        self.assertEqual(list(answer.objects), [])

    def test_secrets_are_masked(self) -> None:
        """Neither what is there nor what would come is in the answer."""
        secret = object_("s")
        secret |= {"kind": "Secret", "data": {"a": "b2xk"}}
        self.apps.commit({"a.yaml": text(secret)})
        self.configure({"id": "apps"})
        secret["data"] = {"a": "bmV3"}
        self.apps.commit({"a.yaml": text(secret)}, NEXT)
        answer = self.ask(branch="next")
        (found,) = answer.objects
        self.assertEqual(found.effect, "change")
        (field,) = found.fields
        self.assertEqual(
            (field.path, field.before, field.after), ("/data", "***", "***")
        )
        self.assertNotIn("b2xk", str(answer))
        self.assertNotIn("bmV3", str(answer))

    def test_guesses_at_a_secret(self) -> None:
        """Right ones and wrong ones look the same, key by key and as a whole."""
        live: dict[str, Any] = {
            **object_("s"),
            "kind": "Secret",
            "data": {"a": "b2xk", "b": "eA=="},
        }
        self.apps.commit({"a.yaml": text(live)})
        for policy, fixed in (("must_match", False), ("adopt_all", True)):
            if fixed:
                # Of others, and the API server refuses what differs.
                theirs = live | {"immutable": True, "metadata": {**live["metadata"]}}
                theirs["metadata"]["namespace"] = "default"
                self.configure()
                self.cluster.objects.remove("v1", "Secret", "s", "default")
                self.cluster.objects.put(theirs)
            ref = {"ref": {"branch": "none"}} if fixed else {}
            self.configure({"id": "apps", "inventory_policy": policy, **ref})
            self.passes(5)
            said: list[str] = []
            guess: Any
            for number, guess in enumerate(
                (
                    {"data": {"a": "b2xk"}},
                    {"data": {"a": "bmV3"}},
                    {
                        "data": {"a": "b2xk", "b": "eA=="},
                        "metadata": {"name": "s", "x": 1},
                    },
                    {"stringData": {"a": "old"}, "data": {}},
                    {"data": {"a": "bmV3", "b": "eQ=="}},
                )
            ):
                branch = f"{policy}-{number}"
                files = {"a.yaml": text({**live, **guess})}
                self.apps.commit(files, f"refs/heads/{branch}")
                requests = len(self.cluster.requests)
                answer = self.ask(branch=branch)
                said.append(str(answer.objects))
                sent = self.cluster.requests[requests:]
                self.assertNotIn("PATCH", [one.method for one in sent])
            self.assertEqual(len(set(said)), 1, said)
            # What Git has already is no guess.
            if not fixed:
                self.apps.commit({"a.yaml": text(live)}, NEXT)
                (found,) = self.ask(branch="next").objects
                self.assertEqual(found.effect, "unchanged")

    def test_guesses_at_an_encrypted_secret(self) -> None:
        """Only what was applied, with its ciphertext, is known to be unchanged."""

        async def decrypt(self: Any, source: Source, *given: Any) -> Source:
            found = [
                attrs.evolve(
                    one,
                    object={
                        name: {"a": "b2xk"} if name == "data" else value
                        for name, value in one.object.items()
                        if name != "sops"
                    },
                    ciphertext=one.object["data"]["a"],
                )
                if one.is_encrypted
                else one
                for one in source.manifests
            ]
            return attrs.evolve(source, manifests=tuple(found))

        self.patch(Decryptor, "decrypt", decrypt)
        secret: dict[str, Any] = {**object_("s"), "kind": "Secret"}
        applied = {**secret, "data": {"a": "Y2lwaGVy"}, "sops": {"mac": "x"}}
        self.apps.commit({"a.yaml": text(applied)})
        decryption = {"secret": "default/keys"}
        self.configure({"id": "apps", "decryption": decryption})
        said: list[str] = []
        for number, guess in enumerate(
            (
                {**secret, "data": {"a": "b2xk"}},
                {**secret, "data": {"a": "bmV3"}},
                {**applied, "data": {"a": "b3RoZXI="}},
            )
        ):
            self.apps.commit({"a.yaml": text(guess)}, f"refs/heads/{number}")
            (found,) = self.ask(branch=f"{number}").objects
            said.append(f"{found.effect} {found.reason} {found.fields}")
        self.assertEqual(len(set(said)), 1, said)
        self.assertTrue(said[0].startswith("change"), said)
        self.apps.commit({"a.yaml": text(applied)}, NEXT)
        (found,) = self.ask(branch="next").objects
        self.assertEqual(found.effect, "unchanged")

    def test_words_about_an_object_of_others(self) -> None:
        """The API server may quote it; only its verdict and the field are shown."""
        words = (
            'PersistentVolume "pv" is invalid: spec.source[0].nfs: Forbidden: '
            "precious: is immutable; spec.precious: Invalid value"
        )
        path = "/api/v1/namespaces/default/configmaps/theirs"
        query = "fieldManager=agentk&force=true&dryRun=All"
        project = {"id": "apps", "ref": {"branch": "none"}}
        self.configure({**project, "inventory_policy": "adopt_all"})
        self.apps.commit({"a.yaml": text(object_("theirs"))}, NEXT)
        for code, said, shown in (
            (422, words, "(INVALID_ARGUMENT) at spec.source[0].nfs;"),
            (422, "precious: it is", "(INVALID_ARGUMENT);"),
            (500, "precious does not support dry run", "(INTERNAL);"),
        ):
            for owner in ({}, {OWNER: "of-others"}):
                live = of_others()
                live["metadata"]["annotations"] = owner
                self.cluster.objects.put(live)
                refusal = {"message": said, "code": code}
                self.cluster.answer("PATCH", f"{path}?{query}", refusal, code)
                answer = self.ask(branch="next")
                self.assertIn(shown, answer.objects[0].reason)
                self.assertNotIn("precious", str(answer))
        refusal = {"message": "precious", "code": 503}
        self.cluster.answer("PATCH", f"{path}?{query}", refusal, 503)
        with self.assertRaises(CallError) as caught:
            self.ask(branch="next")
        self.assertNotIn("precious", str(caught.exception))

    def test_nothing_of_others_is_shown(self) -> None:
        """A commit that names an object of others learns nothing of it."""
        self.cluster.objects.put(of_others())
        for policy in ("must_match", "adopt_all"):
            self.apps.commit({"a.yaml": text(object_("theirs"))}, NEXT)
            self.configure(
                {
                    "id": "apps",
                    "ref": {"branch": "none"},
                    "inventory_policy": policy,
                }
            )
            answer = self.ask(branch="next")
            self.assertNotIn("precious", str(answer))

    def test_so_many_at_a_time(self) -> None:
        self.apps.commit({"a.yaml": text(*config_maps(1))})
        self.configure({"id": "apps"})
        self.cluster.silent = True
        client = self.pair.external(CONTROL)
        request = pb.PreviewRequest(agent="1", project="apps")
        waiting = [
            Deferred.fromCoroutine(client.call("Preview", request, timeout=60))
            for _ in range(MAX_PREVIEWS)
        ]
        self.passes(5)
        with self.assertRaises(CallError) as caught:
            self.ask()
        self.assertIs(caught.exception.status, Status.RESOURCE_EXHAUSTED)
        for one in waiting:
            one.addErrback(lambda failure: None)
            one.cancel()

    def test_an_operator_beside_merge_requests(self) -> None:
        """Whatever they preview, an operator can preview as well."""
        self.apps.commit({"a.yaml": text(*config_maps(1))})
        self.configure({"id": "apps"})
        self.cluster.silent = True
        agents = self.server._api.calls.client(CONTROL, "1")
        request = pb.PreviewRequest(project="apps", merge_request=True)
        waiting = [
            Deferred.fromCoroutine(agents.call("Preview", request, timeout=60))
            for _ in range(MAX_PREVIEWS + 1)
        ]
        self.passes(5)
        self.assertNoResult(waiting[0])
        self.assertEqual(MAX_MERGE_REQUESTS, 1)
        for one in waiting[1:]:
            error = self.failureResultOf(one, CallError).value
            self.assertIs(error.status, Status.RESOURCE_EXHAUSTED)
        self.cluster.silent = False
        self.assertEqual(len(self.ask().objects), 1)
        waiting[0].addErrback(lambda failure: None)
        waiting[0].cancel()
