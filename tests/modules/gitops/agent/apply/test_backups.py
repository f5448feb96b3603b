"""What objects were before they were deleted or taken over."""

from __future__ import annotations

import base64
import json
import zlib
from functools import partial
from hashlib import sha256
from typing import Any

from modules.gitops.agent.apply import backups
from modules.gitops.agent.apply.backups import KeptState, KeptStates, Replaced
from modules.gitops.agent.objects.manifests import read_source
from modules.gitops.agent.objects.owner_annotations import OWNER
from modules.gitops.server.control_server import CONTROL, Operators
from modules.gitops.wire import control_pb2 as pb
from tests.modules.gitops.agent.plan.test_recreate import ALLOWED, fixed
from tests.modules.gitops.agent.project.test_reconcile import (
    ReconcileCase,
    config_maps,
    object_,
)
from tests.modules.gitops.halves import HalvesTestCase, text
from tunnel.errors import CallError, Status
from tunnel.testing.objects import Refusal
from tunnel.toolkit.parallel import in_parallel

ID = "kept-tests"


def secret(value: str) -> dict[str, Any]:
    return object_("s", "Secret", data={"password": value})


class KeptTests(ReconcileCase):
    def states(self, what: Any = "without_secrets") -> KeptStates:
        return KeptStates(
            self.client, ID, "default", lambda: self.clock.seconds(), what
        )

    def read(self) -> list[KeptState]:
        found: list[KeptState] = self.pair.run(self.states().read())
        return found

    def names(self) -> set[str]:
        return {one.key.name for one in self.read()}

    def keep(self, *objects: Any, what: Any = "all") -> None:
        self.pair.run(self.states(what).keep(Replaced.PRUNED, objects))

    def secret(self) -> Any:
        return self.live(f"gitops-kept-{ID}", "Secret")

    def test_a_secret_of_another_writer(self) -> None:
        """Nothing of it is shown, and nothing is deleted that could not be kept."""
        self.keep(*config_maps(1))
        there = self.secret()
        changes: list[dict[str, Any]]
        changes = [{"annotations": {OWNER: ID}}, {"labels": {}}]
        for change in changes:
            planted = {**there, "metadata": {**there["metadata"], **change}}
            self.objects.put(planted)
            for run in (self.read, lambda: self.keep(*config_maps(2))):
                with self.assertRaises(CallError) as caught:
                    run()
                self.assertIn("agentk did not write", caught.exception.message)

    def test_a_config_map_of_another_user(self) -> None:
        """Its states are not read: they could name any object."""
        self.keep(*config_maps(1))
        there = self.secret()
        planted = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {**there["metadata"], "name": f"kept-{ID}"},
            "binaryData": {f"9{name}": value for name, value in there["data"].items()},
        }
        self.objects.put(planted)
        self.assertEqual(self.names(), {"m001"})

    def test_a_list(self) -> None:
        """kubectl would apply its items, whose names nothing shows."""
        items: dict[str, Any] = {"items": config_maps(2)}
        for one in (object_("a", "List", **items), object_("b", **items)):
            metadata = {"uid": "u", "resourceVersion": "1", "namespace": "default"}
            one["metadata"] |= metadata
            self.keep(one)
        self.keep(object_("c", "ConfigMapList"), *config_maps(1))
        self.assertEqual(self.names(), {"m001"})

    def test_pruned(self) -> None:
        """As it was in the cluster, and it can be applied again."""
        kept_ = self.states()
        self.commit(*config_maps(1, 2), kept=kept_)
        live = self.live("m002")
        live["data"]["more"] = "by hand"
        self.objects.put(live)
        self.commit(*config_maps(1), kept=kept_)
        self.assertIsNone(self.live("m002"))
        (state,) = self.read()
        self.assertEqual((state.why, state.key.name), ("pruned", "m002"))
        self.assertEqual(state.object["data"], {"n": "2", "more": "by hand"})
        metadata = state.object["metadata"]
        self.assertFalse({"uid", "resourceVersion", "managedFields"} & set(metadata))
        self.assertNotIn(OWNER, metadata.get("annotations", {}))
        self.pair.run(self.client.apply(state.object, field_manager="kubectl"))
        self.assertEqual(self.live("m002")["data"]["more"], "by hand")

    def test_adopted_made_anew_and_repaired(self) -> None:
        kept_ = self.states()
        self.objects.put(object_("theirs", metadata={"namespace": "default"}))
        settings: dict[str, Any] = {"kept": kept_, "policy": "adopt_all"}
        self.commit(fixed("1", **ALLOWED), object_("theirs"), **settings)
        self.commit(fixed("2", **ALLOWED), object_("theirs"), **settings)
        (source,) = (read_source([("a.json", json.dumps(object_("theirs")).encode())]),)
        reconciler = self.reconciler(**settings)
        self.pair.run(reconciler.repair("c2", list(source.manifests)))
        self.assertEqual(
            [(one.why, one.key.name) for one in self.read()],
            [("adopted", "theirs"), ("recreated", "fixed"), ("repaired", "theirs")],
        )

    def test_secrets_only_where_an_operator_wants_them(self) -> None:
        for what, found in (
            ("without_secrets", set()),
            ("none", set()),
            ("all", {"s"}),
        ):
            self.commit(secret("aA=="), *config_maps(1), kept=self.states(what))
            self.commit(*config_maps(1), kept=self.states(what))
            self.assertEqual(self.names(), found, what)

    def test_nothing_goes_that_cannot_be_kept(self) -> None:
        self.commit(*config_maps(1, 2))
        respond = self.objects.respond

        def refuse(method: str, path: str, *rest: Any) -> Any:
            if method != "GET" and b"gitops-kept-kept-tests" in rest[1]:
                raise Refusal(403, "Forbidden", "no Secrets")
            return respond(method, path, *rest)

        self.patch(self.objects, "respond", refuse)
        with self.assertRaises(CallError):
            self.commit(*config_maps(1), kept=self.states())
        self.assertIsNotNone(self.live("m002"))

    def test_many_states_at_the_same_time(self) -> None:
        """They do not conflict with each other."""
        kept_, count = self.states(), 4 * backups.TRIES
        self.commit(*config_maps(*range(count)))
        live = [self.live(f"m{number:03}") for number in range(count)]

        async def keep() -> None:
            await in_parallel(
                partial(kept_.keep, Replaced.PRUNED, [one]) for one in live
            )

        self.pair.run(keep())
        self.assertEqual(len(self.names()), count)

    def test_the_same_state_is_kept_once(self) -> None:
        self.commit(*config_maps(1))
        live = self.live("m001")
        self.keep(live)
        self.clock.advance(60)
        self.keep(live)
        self.assertEqual([one.at for one in self.read()], [0.0])

    def test_limits(self) -> None:
        """The oldest go."""
        self.patch(backups, "MAX_STATES", 3)

        def made(name: str, size: int = 0) -> Any:
            # What cannot be compressed.
            data = "".join(sha256(b"%d" % n).hexdigest() for n in range(size // 64))
            metadata = {"namespace": "default", "uid": name, "resourceVersion": "1"}
            return object_(name, metadata=metadata, data={"a": data})

        for number in range(5):
            self.clock.advance(1)
            self.keep(made(f"m{number}"))
        self.assertEqual(self.names(), {"m2", "m3", "m4"})
        self.patch(backups, "MAX_ONE", 200)
        self.keep(made("large", 1000))
        self.assertEqual(self.names(), {"m2", "m3", "m4"})
        self.clock.advance(backups.MAX_AGE)
        self.keep(made("new"))
        self.assertEqual(self.names(), {"m4", "new"})
        self.patch(backups, "MAX_BYTES", 230)
        self.clock.advance(1)
        self.keep(made("newer"))
        self.assertEqual(self.names(), {"newer"})

    def test_damaged_states(self) -> None:
        """They are left out, and the others are shown."""
        self.commit(*config_maps(1))
        self.keep(self.live("m001"))
        there = self.secret()
        there["data"] |= {"a": "aGk=", "9-b": "aGk=", "8-c": "eJyrAgAAewB7"}
        self.objects.put(there)
        self.assertEqual(self.names(), {"m001"})
        # What is little in there, and much when it is unpacked.
        bomb = base64.b64encode(zlib.compress(b"[" * backups.MAX_READ)).decode()
        there["data"] |= {"9999-d": bomb}
        self.objects.put(there)
        self.assertEqual(self.names(), set())

    def test_a_clock_that_was_ahead(self) -> None:
        """What it wrote keeps nothing else out, and goes first."""
        self.patch(backups, "MAX_STATES", 3)
        now = self.clock.seconds

        def made(*numbers: int) -> list[Any]:
            found = config_maps(*numbers)
            for one in found:
                one["metadata"] = {**one["metadata"], "uid": one["metadata"]["name"]}
            return found

        self.patch(self.clock, "seconds", lambda: now() + 10 * backups.MAX_AGE)
        self.keep(*made(1, 2, 3))
        self.patch(self.clock, "seconds", now)
        for number in (4, 5):
            self.clock.advance(1)
            self.keep(*made(number))
        self.assertEqual(len(self.names()), 3)
        self.assertTrue({"m004", "m005"} <= self.names())

    def test_two_write_at_once(self) -> None:
        """Both are there; without end nobody tries."""
        self.commit(*config_maps(1, 2))
        self.keep(self.live("m001"))
        respond, conflicts = self.objects.respond, [1]

        def refuse(method: str, path: str, *rest: Any) -> Any:
            if method == "PUT" and conflicts:
                conflicts.pop()
                raise Refusal(409, "Conflict", "has been modified")
            return respond(method, path, *rest)

        self.patch(self.objects, "respond", refuse)
        self.keep(self.live("m002"))
        self.assertEqual(self.names(), {"m001", "m002"})
        conflicts += [1] * backups.TRIES
        with self.assertRaises(CallError):
            self.keep(object_("x", metadata={"uid": "x"}))


class GetKeptTests(HalvesTestCase):
    """`GitopsControl.GetKept`."""

    def ask(self, state: str = "") -> Any:
        request = pb.GetKeptRequest(agent="1", project="apps", id=state)
        return self.pair.run(self.pair.external(CONTROL).call("GetKept", request))

    def test_from_git_to_the_manifest(self) -> None:
        self.apps.commit({"a.yaml": text(*config_maps(1, 2))})
        self.configure({"id": "apps"})
        self.assertEqual(list(self.ask().states), [])
        self.apps.commit({"a.yaml": text(*config_maps(1))})
        self.pushed()
        (state,) = self.ask().states
        self.assertEqual((state.why, state.object.name), ("pruned", "m002"))
        self.assertEqual(state.manifest, "")
        (whole,) = self.ask(state.id).states
        self.assertEqual(json.loads(whole.manifest)["data"], {"n": "2"})
        with self.assertRaises(CallError) as caught:
            self.ask("other")
        self.assertIs(caught.exception.status, Status.NOT_FOUND)

    def begin(self) -> None:
        """Delete ``x``, after ``y``, which needs it and stays for the moment."""
        needs = {"config.kubernetes.io/depends-on": "/namespaces/default/ConfigMap/x"}
        x = object_("x", data={"by": "Git"})
        y = object_("y", metadata={"annotations": needs})
        self.apps.commit({"a.yaml": text(*config_maps(*range(4)), x, y)})
        self.configure({"id": "apps"})
        live = self.live("y")
        live["metadata"]["finalizers"] = ["example.org/slow"]
        self.cluster.objects.put(live)
        self.apps.commit({"a.yaml": text(*config_maps(*range(4)))})
        self.pushed()
        self.assertIs(self.agent.projects["apps"].passes.is_busy, True)

    def end(self) -> None:
        self.cluster.objects.remove("v1", "ConfigMap", "y", "default")
        self.passes(60)

    def kept_of_x(self) -> list[Any]:
        kept = self.pair.run(self.agent.projects["apps"].operations.kept())
        return [one.object for one in kept if one.key.name == "x"]

    def test_an_object_that_changes_before_its_delete(self) -> None:
        """The state that was deleted is kept, however long the deletes took."""
        self.begin()
        self.passes(1800)
        live = self.live("x")
        self.cluster.objects.put({**live, "data": {"by": "hand"}})
        self.end()
        self.assertIsNone(self.live("x"))
        kept = [one["data"] for one in self.kept_of_x()]
        self.assertEqual(kept, [{"by": "Git"}, {"by": "hand"}])

    def test_a_status_that_changes_before_the_delete(self) -> None:
        """A backup contains no status, so a second one would be the same."""
        self.begin()
        live = self.live("x")
        self.cluster.objects.put({**live, "status": {"ready": True}})
        self.end()
        self.assertIsNone(self.live("x"))
        self.assertEqual(len(self.kept_of_x()), 1)

    def test_a_change_before_the_delete_that_cannot_be_kept(self) -> None:
        """The object stays until it can."""
        self.begin()
        live = self.live("x")
        self.cluster.objects.put({**live, "data": {"by": "hand"}})
        respond = self.cluster.objects.respond

        def refuse(method: str, path: str, *rest: Any) -> Any:
            if method != "GET" and b"gitops-kept" in rest[1]:
                raise Refusal(403, "Forbidden", "no Secrets")
            return respond(method, path, *rest)

        self.patch(self.cluster.objects, "respond", refuse)
        self.end()
        self.assertIsNotNone(self.live("x"))
        self.patch(self.cluster.objects, "respond", respond)
        self.passes(120)
        self.assertIsNone(self.live("x"))
        self.assertEqual(self.kept_of_x()[-1]["data"], {"by": "hand"})

    def test_an_agent_that_sends_another_state(self) -> None:
        """kas passes on none that was not asked for, nor a list."""
        name = pb.ObjectReference(kind="ConfigMap", namespace="a", name="b")
        manifest = config_maps(1)[0] | {"metadata": {"name": "b", "namespace": "a"}}
        good = pb.KeptState(id="4f0c", object=name, manifest=json.dumps(manifest))
        sent: list[pb.KeptState] = []

        async def answer(*_: Any) -> pb.GetKeptResponse:
            return pb.GetKeptResponse(states=sent)

        self.patch(Operators, "ask", answer)
        sent[:] = [good]
        self.assertEqual(list(self.ask("4f0c").states), [good])
        self.assertEqual(self.ask().states[0].manifest, "")
        other = pb.KeptState(id="4f0c", object=name)
        other.manifest = json.dumps({**manifest, "items": [manifest]})
        renamed = pb.KeptState(id="5f0c", object=name, manifest=good.manifest)
        for states in ([], [good, good], [other], [renamed]):
            sent[:] = states
            with self.assertRaises(CallError) as caught:
                self.ask("4f0c")
            self.assertIs(caught.exception.status, Status.FAILED_PRECONDITION)

    def test_damaged_states(self) -> None:
        """None of them keeps the rest from being shown."""
        self.apps.commit({"a.yaml": text(*config_maps(1, 2))})
        self.configure({"id": "apps"})
        self.apps.commit({"a.yaml": text(*config_maps(1))})
        self.pushed()
        (known,) = self.ask().states
        objects = self.cluster.objects
        (name,) = [
            key[3] for key in objects._stored if key[3].startswith("gitops-kept")
        ]
        there: Any = objects.find("v1", "Secret", name, "default")
        ((_, value),) = there["data"].items()
        packed = json.loads(zlib.decompress(base64.b64decode(value)))
        there["data"]["9" * 19 + "-time"] = value
        named: list[Any] = [{"a": 1}, 7, "\ud800", "x" * 300]
        for number, one in enumerate(named):
            packed["object"]["metadata"]["name"] = one
            data = zlib.compress(json.dumps(packed).encode())
            there["data"][f"5-{number}"] = base64.b64encode(data).decode()
        objects.put(there)
        self.assertEqual({one.id for one in self.ask().states}, {known.id, "time"})
