"""Objects that go from one agent of a cluster to another."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import attrs
from twisted.internet.defer import CancelledError, Deferred

from modules.gitops.agent.apply.applier import TAKEN_MEANWHILE
from modules.gitops.agent.apply.execution import BUSY_TIMES
from modules.gitops.agent.apply.outcome import Outcome
from modules.gitops.agent.apply.ownership_marks import ANNOTATE_TIMES, MARK_SECONDS
from modules.gitops.agent.apply.pruner import CLAIMED_MEANWHILE
from modules.gitops.agent.inventory import claims
from modules.gitops.agent.inventory.claims import (
    OTHERS_SECONDS,
    Claims,
    Waits,
    _may_be_same,
)
from modules.gitops.agent.inventory.inventory import (
    COMMIT,
    LABEL,
    MAX_PARTS,
    PARTS,
    SOURCE,
    WRITER,
)
from modules.gitops.agent.inventory.orders import LastPass, OrderStore
from modules.gitops.agent.inventory.writer import InventoryWriter
from modules.gitops.agent.objects.manifests import read_source
from modules.gitops.agent.objects.owner_annotations import CLAIMED_BY, GIVEN_BY, OWNER
from modules.gitops.agent.plan.plan import MAX_OWNER
from modules.gitops.agent.project.reconcile import Report
from modules.gitops.wire.settings import (
    ManifestPath,
    ManifestProject,
    ManifestRef,
    SourceKind,
)
from tests.modules.gitops.agent.project.test_reconcile import (
    ReconcileCase,
    config_maps,
    object_,
)
from tests.modules.gitops.halves import text
from tunnel.errors import CallError, Status

STAYS, MOVES = object_("stays"), object_("moves")

DEPLOYMENT = "apps/namespaces/default/Deployment/slow"


class _Refused:
    """A client that may patch nothing."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def patch(self, *given: Any, **more: Any) -> Any:
        raise CallError(Status.PERMISSION_DENIED, "forbidden")


class _Patching(_Refused):
    """A client whose patches go another way."""

    def __init__(self, client: Any, patch: Any) -> None:
        super().__init__(client)
        self._patch = patch

    async def patch(self, *given: Any, **more: Any) -> Any:
        return await self._patch(*given, **more)


class _RefusedAtFirst(_Refused):
    """A client whose first claims are refused."""

    def __init__(self, client: Any, status: Status, times: int) -> None:
        super().__init__(client)
        self._status = status
        self._times = times
        self.refusals = 0

    async def patch(self, *given: Any, **more: Any) -> Any:
        if self.refusals < self._times:
            self.refusals += 1
            raise CallError(self._status, "not now")
        return await self._client.patch(*given, **more)


class _Blind(_Refused):
    """A client that may not list ConfigMaps."""

    def __init__(self, client: Any, selector: str) -> None:
        super().__init__(client)
        self._selector = selector

    async def list(self, *given: Any, **more: Any) -> Any:
        if more.get("label_selector", "").startswith(self._selector):
            raise CallError(Status.PERMISSION_DENIED, "forbidden")
        async for page in self._client.list(*given, **more):
            yield page


class _Counting(_Refused):
    """A client that counts listed objects."""

    seen = 0

    async def list(self, *given: Any, **more: Any) -> Any:
        async for page in self._client.list(*given, **more):
            self.seen += len(page)
            yield page


class ClaimsTests(ReconcileCase):
    """Two agents in one cluster, each with an inventory."""

    #: Of the clock of both.
    time = 0.0

    def setUp(self) -> None:
        super().setUp()
        #: Deletes that wait, by agent.
        self.waits = {"one": Waits(), "two": Waits()}

    def apply(
        self, agent: str, *objects: Any, commit: str, source: str = "apps", **given: Any
    ) -> Report:
        """A commit, as one of the agents applies it."""
        selection = given.get("selection", "")
        given.setdefault("claims", self.asked(agent, commit, source, selection).of)
        return self.commit(
            *objects, commit=commit, **self.of_agent(agent, source), **given
        )

    def asked(
        self, agent: str, commit: str, source: str = "apps", selection: str = ""
    ) -> Claims:
        """What looks for claims, for one of the agents."""
        return Claims(
            self.client,
            agent,
            f"{agent}@{agent}/lease",
            "default",
            source,
            commit,
            self.waits[agent],
            self.time,
            selection,
            wrote=partial(self.writer(agent).wrote, namespace="default"),
        )

    def writer(self, agent: str) -> InventoryWriter:
        """One of the agents."""
        lease = f"{agent}/lease"
        return InventoryWriter(self.client, agent, lease, self.clock.seconds)

    def of_agent(self, agent: str, source: str = "apps") -> dict[str, Any]:
        return {
            "inventory_id": agent,
            "agent": agent,
            "lease": f"{agent}/lease",
            "source": source,
        }

    def owner(self) -> str:
        owner: str = self.live("moves")["metadata"]["annotations"].get(OWNER, "")
        return owner

    def deleted(self) -> list[str]:
        return [one.path for one in self.cluster.requests if one.method == "DELETE"]

    def begin(self, **given: Any) -> str:
        """The uid of what moves from one to two."""
        self.apply("one", STAYS, MOVES, commit="c1", **given)
        self.apply("two", *config_maps(1), commit="c1", **given)
        uid: str = self.live("moves")["metadata"]["uid"]
        return uid

    def handed_over(self, uid: str) -> None:
        self.assertEqual(self.live("moves")["metadata"]["uid"], uid)
        self.assertEqual(self.owner(), "two")
        annotations = self.live("moves")["metadata"]["annotations"]
        self.assertNotIn(CLAIMED_BY, annotations)
        self.assertEqual(self.deleted(), [])

    def test_the_second_one_is_first(self) -> None:
        """It is refused the object, and has it once the other has let it go."""
        uid = self.begin()
        report = self.apply("two", *config_maps(1), MOVES, commit="c2")
        self.assertIn("it is owned by the inventory one", report.failed[0].reason)
        report = self.apply("one", STAYS, commit="c2")
        outcomes = self.outcomes(report)
        self.assertEqual(outcomes["moves"], Outcome.DETACHED)
        self.assertEqual(self.owner(), "")
        report = self.apply("two", *config_maps(1), MOVES, commit="c2")
        self.assertEqual(report.failed, [])
        self.handed_over(uid)
        # And it goes once it is out of Git there.
        self.apply("two", *config_maps(1), commit="c3")
        self.time += OTHERS_SECONDS
        self.apply("two", *config_maps(1), commit="c3")
        self.assertIsNone(self.live("moves"))

    def test_one_that_comes_back(self) -> None:
        """Agent 1 has it again at once, if agent 2 has not taken it."""
        uid = self.begin()
        self.apply("two", *config_maps(1), MOVES, commit="c2")
        self.apply("one", STAYS, commit="c2")
        annotations = self.live("moves")["metadata"]["annotations"]
        self.assertEqual((self.owner(), annotations[GIVEN_BY]), ("", "one"))
        self.apply("one", STAYS, commit="c2")
        report = self.apply("one", STAYS, MOVES, commit="c3")
        self.assertEqual((report.failed, self.owner()), ([], "one"))
        annotations = self.live("moves")["metadata"]["annotations"]
        self.assertEqual(annotations.get(CLAIMED_BY), "two")
        self.assertNotIn(GIVEN_BY, annotations)
        # Agent 2, which has not read that commit, asks again, and takes nothing.
        report = self.apply("two", *config_maps(1), MOVES, commit="c2")
        self.assertEqual(len(report.failed), 1)
        self.apply("two", *config_maps(1), commit="c3")
        annotations = self.live("moves")["metadata"]["annotations"]
        self.assertNotIn(CLAIMED_BY, annotations)
        self.apply("one", STAYS, MOVES, commit="c3")
        self.assertEqual(self.live("moves")["metadata"]["uid"], uid)
        self.assertEqual((self.owner(), self.deleted()), ("one", []))

    def test_both_take_it(self) -> None:
        """The first one has it: the other one sees that before it writes."""
        self.begin()
        self.apply("two", *config_maps(1), MOVES, commit="c2")
        self.apply("one", STAYS, commit="c2")
        patch, marks = self.client.patch, list[int]()

        async def overtaken(*given: Any, **more: Any) -> Any:
            if not marks:
                marks.append(1)
                live = self.live("moves")
                live["metadata"]["annotations"][OWNER] = "two"
                self.cluster.objects.put(live)
            return await patch(*given, **more)

        self.client.patch = overtaken
        report = self.apply("one", STAYS, MOVES, commit="c3")
        self.assertEqual(report.failed[0].reason, TAKEN_MEANWHILE)
        self.assertEqual(self.owner(), "two")

    def test_one_that_others_change_while_it_is_taken(self) -> None:
        """Another version of it is not another owner; tries have a limit."""
        self.begin()
        self.apply("two", *config_maps(1), MOVES, commit="c2")
        self.apply("one", STAYS, commit="c2")
        patch, changes = self.client.patch, [2 * BUSY_TIMES]

        async def changed(*given: Any, **more: Any) -> Any:
            if changes[0]:
                changes[0] -= 1
                live = self.live("moves")
                live["data"] = {"n": str(changes[0])}
                self.cluster.objects.put(live)
            return await patch(*given, **more)

        self.client.patch = changed
        report = self.apply("one", STAYS, MOVES, commit="c3")
        self.assertEqual(report.failed[0].reason, TAKEN_MEANWHILE)
        changes[0] = 1
        report = self.apply("one", STAYS, MOVES, commit="c3")
        self.assertEqual((report.failed, self.owner()), ([], "one"))

    def test_the_first_one_is_first(self) -> None:
        """It waits for the other, which follows the same, to have the commit."""
        uid = self.begin()
        report = self.apply("one", STAYS, commit="c2")
        self.assertIn("its inventory two is at another", report.blocked[0].reason)
        self.apply("two", *config_maps(1), MOVES, commit="c2")
        self.apply("one", STAYS, commit="c2")
        self.apply("two", *config_maps(1), MOVES, commit="c2")
        self.handed_over(uid)

    def test_one_that_nobody_claims(self) -> None:
        """It goes once the other has the commit, or has had the time for it."""
        self.begin()
        self.apply("one", STAYS, commit="c2")
        self.assertIsNotNone(self.live("moves"))
        self.time += OTHERS_SECONDS
        self.apply("one", STAYS, commit="c2")
        self.assertIsNone(self.live("moves"))
        self.apply("one", STAYS, MOVES, commit="c3")
        self.apply("two", *config_maps(1), commit="c4")
        self.apply("one", STAYS, commit="c4")
        self.assertIsNone(self.live("moves"))

    def test_a_claim_while_the_plan_is_made(self) -> None:
        """An object that agent 1 had looked at before agent 2 claimed it stays."""
        uid = self.begin()
        asked = self.asked("one", "c2")

        async def late(objects: Any) -> Any:
            # Before it looks, agent 2 is at the same commit, without a claim.
            self.apply("two", *config_maps(1), commit="c2")
            found = await asked.of(objects)
            second = self.reconciler(**self.of_agent("two"))
            files = [("a.yaml", text(*config_maps(1), MOVES).encode())]
            await second.run("c2", read_source(files))
            return found

        report = self.apply("one", STAYS, commit="c2", claims=late)
        self.assertEqual(report.blocked[0].reason, CLAIMED_MEANWHILE)
        report = self.apply("one", STAYS, commit="c2")
        self.assertEqual(self.outcomes(report)["moves"], Outcome.DETACHED)
        self.apply("two", *config_maps(1), MOVES, commit="c2")
        self.handed_over(uid)

    def test_what_is_written_first(self) -> None:
        """The object says that it is claimed before the inventory has the commit."""
        self.begin()
        self.cluster.requests.clear()
        self.apply("two", *config_maps(1), MOVES, commit="c2")
        written = [
            one.path.partition("?")[0].rpartition("/")[2]
            for one in self.cluster.requests
            if one.method in ("PATCH", "PUT")
        ]
        self.assertLess(written.index("moves"), written.index("inventory-two"))

    def late(self) -> tuple[Any, ...]:
        """Objects of a commit in which the moved one waits for another, in vain."""
        broken = {
            "apiVersion": "example.com/v1",
            "kind": "Unknown",
            "metadata": {"name": "broken", "namespace": "default"},
        }
        needs = "example.com/namespaces/default/Unknown/broken"
        annotations = {"config.kubernetes.io/depends-on": needs}
        moves = {**MOVES, "metadata": {**MOVES["metadata"], "annotations": annotations}}
        return (*config_maps(1), broken, moves)

    def test_adopted_late(self) -> None:
        """
        An object that another agent adopts stays while that agent cannot apply it yet.
        """
        uid = self.begin()
        report = self.apply("two", *self.late(), commit="c2", policy="adopt_all")
        self.assertEqual(self.outcomes(report)["moves"], Outcome.SKIPPED)
        report = self.apply("one", STAYS, commit="c2")
        self.assertEqual(self.outcomes(report)["moves"], Outcome.FORGOTTEN)
        self.apply("two", *self.late(), commit="c2", policy="adopt_all")
        self.assertEqual((self.owner(), self.deleted()), ("two", []))
        self.apply("two", *config_maps(1), MOVES, commit="c3", policy="adopt_all")
        self.handed_over(uid)
        self.assertNotIn(GIVEN_BY, self.live("moves")["metadata"]["annotations"])

    def test_taken_late(self) -> None:
        """An object that leaves Git before it was taken goes."""
        uid = self.begin()
        self.apply("two", *self.late(), commit="c2")
        self.apply("one", STAYS, commit="c2")
        for _ in range(2):
            report = self.apply("two", *self.late(), commit="c2")
            self.assertEqual(self.outcomes(report)["moves"], Outcome.SKIPPED)
        self.assertEqual(self.live("moves")["metadata"]["uid"], uid)
        self.apply("two", *config_maps(1), commit="c3")
        self.time += OTHERS_SECONDS
        report = self.apply("two", *config_maps(1), commit="c3")
        self.assertEqual(self.outcomes(report)["moves"], Outcome.PRUNED)

    def test_repaired_before_it_was_planned(self) -> None:
        """A repair does not tell the owner that a commit was planned."""
        uid = self.begin()
        second = self.reconciler(**self.of_agent("two"))
        objects = read_source([("a.yaml", text(*config_maps(1)).encode())])
        self.pair.run(second.repair("c2", objects.manifests))
        self.apply("one", STAYS, commit="c2")
        self.apply("two", *config_maps(1), MOVES, commit="c2")
        self.apply("one", STAYS, commit="c2")
        self.apply("two", *config_maps(1), MOVES, commit="c2")
        self.handed_over(uid)

    def test_adopted_at_once(self) -> None:
        """An adopted object keeps no claim."""
        uid = self.begin()
        self.apply("two", *config_maps(1), MOVES, commit="c2", policy="adopt_all")
        self.assertEqual((self.owner(), self.deleted()), ("two", []))
        self.apply("one", STAYS, commit="c2")
        self.handed_over(uid)

    def test_undo_of_the_former_owner(self) -> None:
        """It takes the object back for a while, and gives it away again after that."""
        uid = self.begin()
        for policy in ("adopt_all", "must_match"):
            self.apply("two", *config_maps(1), MOVES, commit="c2", policy="adopt_all")
            self.apply("one", STAYS, commit="c2")
            self.apply("one", STAYS, MOVES, commit="c1", policy="adopt_all")
            self.assertEqual(self.owner(), "one")
            report = self.apply("one", STAYS, commit="c2")
            self.assertEqual(self.outcomes(report)["moves"], Outcome.DETACHED)
            self.assertEqual(self.owner(), "")
            self.apply("two", *config_maps(1), MOVES, commit="c2", policy=policy)
            self.handed_over(uid)
        # The object left Git while it was away.
        self.apply("one", STAYS, MOVES, commit="c1", policy="adopt_all")
        self.apply("two", *config_maps(1), commit="c3")
        report = self.apply("one", STAYS, commit="c3")
        self.assertEqual(self.outcomes(report)["moves"], Outcome.PRUNED)

    def test_undo_while_the_other_one_waits(self) -> None:
        """The claim stays, because the other agent repeats it in its next pass only."""
        uid = self.begin()
        slow = object_("slow", "Deployment", "apps/v1")
        needs = {"config.kubernetes.io/depends-on": DEPLOYMENT}
        late = object_("late", metadata={"annotations": needs})
        waiting = self.waiting("two", *config_maps(1), slow, late, MOVES, commit="c2")
        self.apply("one", STAYS, commit="c2")
        self.assertEqual(self.owner(), "")
        self.apply("one", STAYS, MOVES, commit="c1")
        self.assertEqual(self.owner(), "one")
        for _ in range(2):
            self.apply("one", STAYS, commit="c2")
            self.time += OTHERS_SECONDS
        self.assertEqual((self.owner(), self.deleted()), ("", []))
        waiting.cancel()
        self.apply("two", *config_maps(1), slow, MOVES, commit="c2")
        self.handed_over(uid)

    def test_settings_that_move_an_object(self) -> None:
        """The commit of another inventory does not show that its agent has them."""
        uid = self.begin(selection="s1")
        for _ in range(2):
            report = self.apply("one", STAYS, commit="c1", selection="s2")
            self.assertIn("may be at other settings", report.blocked[0].reason)
            # Another agentk leads now.
            self.waits["one"] = Waits()
        # The former settings return, and change again.
        self.apply("one", STAYS, MOVES, object_("other"), commit="c1", selection="s2")
        self.apply("one", STAYS, MOVES, object_("other"), commit="c2", selection="s2")
        report = self.apply("one", STAYS, object_("other"), commit="c2", selection="s1")
        self.assertEqual(len(report.blocked), 1)
        report = self.apply("one", STAYS, commit="c2", selection="s2")
        self.assertEqual(len(report.blocked), 2)
        self.apply("two", *config_maps(1), MOVES, commit="c2", selection="s2")
        report = self.apply("one", STAYS, commit="c2", selection="s2")
        self.assertEqual(self.outcomes(report)["moves"], Outcome.DETACHED)
        self.apply("two", *config_maps(1), MOVES, commit="c2", selection="s2")
        self.handed_over(uid)

    def test_settings_and_the_next_deletes(self) -> None:
        """Deletes wait once after the settings changed, also with a new commit."""
        self.begin(selection="s1")
        self.apply("two", *config_maps(1), commit="c2", selection="s1")
        for _ in range(2):
            report = self.apply("one", STAYS, commit="c2", selection="s2")
            self.assertEqual(len(report.blocked), 1)
            self.time += OTHERS_SECONDS / 2
        self.apply("one", STAYS, commit="c2", selection="s2")
        self.assertIsNone(self.live("moves"))
        self.apply("two", *config_maps(1), commit="c3", selection="s1")
        self.apply("one", MOVES, commit="c3", selection="s2")
        self.assertIsNone(self.live("stays"))

    def test_settings_without_others(self) -> None:
        """Deletes wait for no one, if no other agent follows the source."""
        self.apply("one", STAYS, MOVES, commit="c1", selection="s1")
        self.apply("one", STAYS, commit="c1", selection="s2")
        self.assertIsNone(self.live("moves"))

    def test_out_of_git_everywhere(self) -> None:
        """An object that leaves both agents is not given back, but deleted."""
        self.begin()
        self.apply("two", *config_maps(1), MOVES, commit="c2", policy="adopt_all")
        self.assertEqual(
            self.live("moves")["metadata"]["annotations"][CLAIMED_BY], "one"
        )
        # Agent 1 reads the commit without the object, and waits in a wave.
        slow = object_("slow", "Deployment", "apps/v1")
        needs = {"config.kubernetes.io/depends-on": DEPLOYMENT}
        late = object_("late", metadata={"annotations": needs})
        waiting = self.waiting("one", slow, late, commit="c3")
        self.assertIs(self.entry("one").get("leaves"), True)
        report = self.apply("two", *config_maps(1), commit="c3")
        self.assertEqual(self.outcomes(report)["moves"], Outcome.PRUNED)
        self.assertIsNone(self.live("moves"))
        waiting.cancel()
        # The entry says nothing of the kind if the object is in Git again.
        self.apply("two", *config_maps(1), MOVES, commit="c4")
        self.apply("one", STAYS, MOVES, commit="c4")
        self.assertNotIn("leaves", self.entry("one"))

    def test_given_back_and_out_of_git(self) -> None:
        """An agent that gets an object back deletes it, if Git does not have it."""
        self.begin()
        self.apply("two", *config_maps(1), MOVES, commit="c2", policy="adopt_all")
        # As an earlier version, which does not mark entries, gives it.
        live = self.live("moves")
        live["metadata"]["annotations"] |= {GIVEN_BY: "two"}
        del live["metadata"]["annotations"][OWNER]
        self.objects.put(live)
        self.apply("two", *config_maps(1), commit="c3")
        report = self.apply("one", STAYS, commit="c3")
        self.assertEqual(self.outcomes(report)["moves"], Outcome.PRUNED)
        self.assertIsNone(self.live("moves"))

    def entry(self, agent: str) -> dict[str, Any]:
        """What an inventory says about the moved object."""
        data = self.live(f"inventory-{agent}")["data"]
        found: dict[str, Any] = json.loads(data["default_moves__ConfigMap"])
        return found

    def waiting(self, agent: str, *objects: Any, commit: str) -> Deferred[Any]:
        """A commit that waits in a wave."""
        given = {"claims": self.asked(agent, commit).of, **self.of_agent(agent)}
        source = read_source([("a.yaml", text(*objects).encode())])
        running = Deferred.fromCoroutine(self.reconciler(**given).run(commit, source))
        self.clock.pump([0.1] * 10)
        self.assertFalse(running.called)
        running.addErrback(lambda failure: failure.trap(CancelledError))
        return running

    def test_another_source(self) -> None:
        """There is no commit to wait for; what is claimed is handed over."""
        uid = self.begin(source="x")
        self.apply("two", *config_maps(1), MOVES, commit="d2", source="y")
        self.apply("one", STAYS, commit="c2", source="x")
        self.apply("two", *config_maps(1), MOVES, commit="d2", source="y")
        self.handed_over(uid)

    def test_a_claim_that_anyone_wrote(self) -> None:
        """Who may write ConfigMaps, and not the object, keeps nothing."""
        self.begin()
        self.plant("x", "x", data={"default_moves__ConfigMap": '{"claimed": "one"}'})
        self.apply("one", STAYS, commit="c2")
        self.time += OTHERS_SECONDS
        report = self.apply("one", STAYS, commit="c2")
        self.assertEqual(self.outcomes(report)["moves"], Outcome.PRUNED)
        self.assertIsNone(self.live("moves"))

    def test_a_delay_that_anyone_wrote(self) -> None:
        """It holds each delete once, however many commits come meanwhile."""
        self.apply("one", STAYS, MOVES, commit="c1")
        annotations = {SOURCE: "apps", PARTS: "1", WRITER: "x@a/lease"}
        self.plant("x", "x", annotations=annotations)
        for number in range(2, 6):
            self.assertIsNotNone(self.live("moves"))
            report = self.apply("one", STAYS, commit=f"c{number}")
            self.assertIn("may still claim it", report.blocked[0].reason)
            self.time += OTHERS_SECONDS / 4
        report = self.apply("one", STAYS, commit="c6")
        self.assertEqual(self.outcomes(report)["moves"], Outcome.PRUNED)
        self.assertIsNone(self.live("moves"))

    def test_the_next_delete_waits_anew(self) -> None:
        """An object that came back, or for which no one was behind, waits again."""
        self.apply("one", *config_maps(1), STAYS, MOVES, commit="c1")
        annotations = {SOURCE: "apps", PARTS: "1"}
        self.plant("x", "x", annotations=annotations)
        self.apply("one", *config_maps(1), STAYS, commit="c2")
        self.assertEqual(len(self.waits["one"].begun), 1)
        self.apply("one", *config_maps(1), STAYS, MOVES, commit="c3")
        self.assertEqual(self.waits["one"].begun, {})
        self.time += OTHERS_SECONDS
        self.apply("one", *config_maps(1), STAYS, commit="c4")
        self.assertIsNotNone(self.live("moves"))
        # Another object that leaves has a wait of its own.
        self.time += OTHERS_SECONDS / 2
        self.apply("one", *config_maps(1), commit="c5")
        self.time += OTHERS_SECONDS / 2
        self.apply("one", *config_maps(1), commit="c5")
        self.assertIsNone(self.live("moves"))
        self.assertIsNotNone(self.live("stays"))
        self.plant("x", "x", annotations={**annotations, COMMIT: "c5"})
        self.apply("one", *config_maps(1), commit="c5", prune=False)
        self.assertEqual(self.waits["one"].begun, {})

    def plant(self, name: str, of: str, **more: Any) -> None:
        """A ConfigMap of a user with a namespace of its own."""
        metadata: dict[str, Any] = {
            "name": name,
            "namespace": "a",
            "labels": {LABEL: of},
        }
        metadata["annotations"] = more.pop("annotations", {})
        planted = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
        self.objects.put({**planted, **more})

    def test_large_ones_that_anyone_wrote(self) -> None:
        """Who may write ConfigMaps stops no agent with them."""
        uid = self.begin()
        self.apply("two", *config_maps(1), MOVES, commit="c2")
        for number in range(20):
            self.plant(f"x{number}", "x", data={"a": "x" * 1_000_000})
        # This one says that agent 2 is agent 1 as well.
        self.plant("y", "two", annotations={WRITER: "one@one/lease"})
        self.apply("one", STAYS, commit="c2")
        self.apply("two", *config_maps(1), MOVES, commit="c2")
        self.handed_over(uid)

    def test_a_slow_agent_delays_each_commit_once(self) -> None:
        """After the wait, further deletes of the same commit do not wait."""
        more, most = object_("more"), object_("most")
        self.apply("one", STAYS, MOVES, more, most, commit="c1")
        self.apply("two", *config_maps(1), commit="c1")
        self.apply("one", STAYS, more, most, commit="c2")
        self.time += OTHERS_SECONDS
        self.apply("one", STAYS, more, most, commit="c2")
        self.assertIsNone(self.live("moves"))
        self.apply("one", STAYS, most, commit="c2")
        self.assertIsNone(self.live("more"))
        self.apply("one", STAYS, commit="c3")
        self.assertIsNotNone(self.live("most"))
        self.time += OTHERS_SECONDS
        self.apply("one", STAYS, commit="c3")
        self.assertIsNone(self.live("most"))

    def test_a_slow_agent_that_is_mended_by_the_commit_of_a_move(self) -> None:
        """An agent that failed at a commit takes the objects of the next one."""
        more = object_("more")
        uid = self.begin()
        self.apply("one", STAYS, MOVES, more, commit="c1")
        self.apply("two", *config_maps(1), commit="c1")
        self.apply("one", STAYS, MOVES, commit="c2")
        self.time += OTHERS_SECONDS
        self.apply("one", STAYS, MOVES, commit="c2")
        self.assertIsNone(self.live("more"))
        self.time += 10 * OTHERS_SECONDS
        self.apply("one", STAYS, commit="c3")
        self.assertIsNotNone(self.live("moves"))
        self.apply("two", *config_maps(1), MOVES, commit="c3")
        self.apply("one", STAYS, commit="c3")
        self.apply("two", *config_maps(1), MOVES, commit="c3")
        self.assertEqual(self.live("moves")["metadata"]["uid"], uid)
        self.assertEqual(self.owner(), "two")

    def test_a_wait_that_did_not_end(self) -> None:
        """It does not show that an agent is slow, however long ago it began."""
        self.begin()
        self.apply("one", STAYS, commit="c2")
        self.apply("one", STAYS, MOVES, commit="c1")
        self.time += 10 * OTHERS_SECONDS
        self.apply("one", STAYS, commit="c3")
        self.assertIsNotNone(self.live("moves"))

    def test_a_claim_among_many(self) -> None:
        """It is found by its name, and what is not seen may come to claim the rest."""
        self.patch(claims, "MAX_SEEN", claims.PAGE)
        uid, stays = self.begin(), object_("stays-too")
        self.apply("one", STAYS, MOVES, stays, commit="c1")
        self.apply("two", *config_maps(1), MOVES, commit="c2")
        for number in range(claims.PAGE):
            self.plant(f"x{number}", "x")
        self.apply("one", stays, commit="c2")
        self.assertIsNotNone(self.live("stays"))
        self.assertEqual(self.owner(), "")
        report = self.apply("one", stays, commit="c2")
        self.assertIn("have the label of inventories", report.blocked[0].reason)
        self.apply("two", *config_maps(1), MOVES, commit="c2")
        self.handed_over(uid)
        self.time += OTHERS_SECONDS
        self.apply("one", stays, commit="c2")
        self.assertIsNone(self.live("stays"))

    def test_a_claim_of_an_own_inventory_among_many(self) -> None:
        """What a project of before has left claims nothing, seen or not."""
        self.patch(claims, "MAX_SEEN", claims.PAGE)
        self.begin()
        self.apply("two", *config_maps(1), MOVES, commit="c2")
        inventory = self.live("inventory-two")
        inventory["metadata"]["annotations"][WRITER] = "one@one/lease"
        self.objects.put(inventory)
        last = LastPass("one@one/lease", "default", "default")
        orders = OrderStore(self.client, "two", "default")
        self.pair.run(orders.change(lambda one: attrs.evolve(one, last=last)))
        for number in range(claims.PAGE):
            self.plant(f"x{number}", "x")
        self.apply("one", STAYS, commit="c2")
        self.time += OTHERS_SECONDS
        self.apply("one", STAYS, commit="c2")
        self.assertIsNone(self.live("moves"))

    def marked(self, name: str) -> None:
        """A ConfigMap with the id of agent two and the mark of agent one."""
        metadata = {
            "namespace": "default",
            "labels": {LABEL: "two"},
            "annotations": {WRITER: "one@one/lease"},
        }
        self.objects.put(object_(name, metadata=metadata))

    def test_a_mark_that_anyone_wrote(self) -> None:
        """It hides neither the claim of the other agent, nor that it is behind."""
        self.begin()
        self.marked("x")
        report = self.apply("one", STAYS, commit="c2")
        self.assertIn("waits up to 2 minutes", report.blocked[0].reason)
        self.apply("two", *config_maps(1), MOVES, commit="c2")
        self.time += OTHERS_SECONDS
        report = self.apply("one", STAYS, commit="c2")
        self.assertEqual(self.outcomes(report)["moves"], Outcome.DETACHED)

    def test_a_mark_in_the_namespace_of_this_agent(self) -> None:
        """The inventory of the other agent is in another namespace."""
        self.begin()
        self.apply("two", *config_maps(1), MOVES, commit="c2")
        inventory = self.live("inventory-two")
        inventory["metadata"]["namespace"] = "two"
        self.objects.put(inventory)
        self.remove("inventory-two")
        self.marked("inventory-two")
        report = self.apply("one", STAYS, commit="c2")
        self.assertEqual(self.outcomes(report)["moves"], Outcome.DETACHED)

    def test_many_marks(self) -> None:
        """agentk reads few Secrets for them, and none for ids that do not matter."""
        read: list[str] = []

        async def wrote(inventory: str) -> bool:
            read.append(inventory)
            return True

        asked = attrs.evolve(self.asked("one", "c2"), wrote=wrote, siblings=["x0"])
        found = self.pair.run(asked._own([f"x{n}" for n in range(200)]))
        self.assertEqual(len(read), claims.MAX_MARKED)
        self.assertEqual(found, {"one", "x0", *read})
        read.clear()
        for name in ("x", "y"):
            annotations = {WRITER: "one@one/lease"}
            metadata = {"labels": {LABEL: name}, "annotations": annotations}
            self.objects.put(
                object_(name, metadata={"namespace": "default", **metadata})
            )
        self.begin()
        self.apply("one", STAYS, commit="c2", claims=asked.of)
        self.assertEqual(read, [])

    def test_a_claim_that_may_not_be_read(self) -> None:
        """The object stays; objects that name no inventory go after the wait."""
        self.begin()
        stays = object_("stays-too")
        self.apply("one", STAYS, MOVES, stays, commit="c1")
        self.apply("two", *config_maps(1), MOVES, commit="c2")
        client: Any = _Blind(self.client, LABEL)
        asked = attrs.evolve(self.asked("one", "c2"), client=client)
        report = self.apply("one", stays, commit="c2", claims=asked.of)
        reasons = {one.key.name: one.reason for one in report.blocked}
        self.assertIn("agentk may not list ConfigMaps", reasons["stays"])
        self.time += OTHERS_SECONDS
        asked = attrs.evolve(self.asked("one", "c2"), client=client)
        report = self.apply("one", stays, commit="c2", claims=asked.of)
        (blocked,) = report.blocked
        self.assertEqual(blocked.key.name, "moves")
        self.assertIn(f"remove the annotation {CLAIMED_BY}", blocked.reason)
        self.assertIsNone(self.live("stays"))

    def test_a_mark_that_is_no_inventory(self) -> None:
        """Text that cannot be a label names nothing."""
        self.begin(source="")
        live = self.live("moves")
        live["metadata"]["annotations"][CLAIMED_BY] = "a,b"
        self.objects.put(live)
        self.apply("one", STAYS, commit="c2", source="")
        self.assertIsNone(self.live("moves"))

    def test_long_texts_that_anyone_wrote(self) -> None:
        """Agentk keeps the beginning of each alone."""
        self.plant("x", "x", annotations={SOURCE: "y" * claims.MAX_FACT * 2})
        found = self.cluster.objects.find("v1", "ConfigMap", "x", "a")
        assert found is not None
        said = claims._said(found)
        self.assertEqual(len(said[SOURCE]), claims.MAX_FACT)
        asked = self.asked("one", "c2")
        long = {COMMIT: "c" * 5000, WRITER: "w" * 5000, PARTS: "1"}
        self.plant("y", "y", annotations={SOURCE: asked._source, **long})
        facts = claims._Facts()
        self.pair.run(asked._read(facts))
        limit = claims.MAX_ID
        self.assertEqual(facts.behind["y"], ("c" * limit, "w" * limit))

    def test_many_that_anyone_wrote(self) -> None:
        """A user of one Namespace hides no claim, whatever ConfigMaps are there."""
        uid = self.begin()
        self.apply("two", *config_maps(1), MOVES, commit="c2")
        for number in range(3 * MAX_PARTS):
            self.plant(f"x{number}", "two", annotations={SOURCE: "apps", PARTS: "1"})
        self.plant("inventory-two", "two", annotations={SOURCE: "apps", PARTS: "1"})
        report = self.apply("one", STAYS, commit="c2")
        self.assertIn("waits up to 2 minutes", report.blocked[0].reason)
        self.time += OTHERS_SECONDS
        self.apply("one", STAYS, commit="c2")
        self.apply("two", *config_maps(1), MOVES, commit="c2")
        self.handed_over(uid)

    def test_inventories_in_many_namespaces(self) -> None:
        """Where they hide which one claims an object, it stays."""
        self.patch(claims, "MAX_CLAIMANTS", 0)
        self.begin()
        self.apply("two", *config_maps(1), MOVES, commit="c2")
        report = self.apply("one", STAYS, commit="c2")
        self.assertIn("too many namespaces", report.blocked[0].reason)

    def test_a_claim_of_a_former_project(self) -> None:
        """A released inventory claims nothing: the object goes."""
        self.begin()
        self.apply("two", *config_maps(1), MOVES, commit="c2")
        inventory = self.live("inventory-two")
        del inventory["metadata"]["annotations"][SOURCE]
        self.objects.put(inventory)
        report = self.apply("one", STAYS, commit="c3")
        self.assertEqual(self.outcomes(report)["moves"], Outcome.PRUNED)

    def test_a_claim_that_takes_long(self) -> None:
        """A silent webhook of one object does not delay the others."""
        self.begin()
        silent = Deferred[Any]()
        client: Any = _Patching(self.client, lambda *given, **more: silent)
        second = self.reconciler(client=client, **self.of_agent("two"))
        files = [("a.yaml", text(*config_maps(1, 2), MOVES).encode())]
        reports: list[Report] = []
        running = Deferred.fromCoroutine(second.run("c2", read_source(files)))
        running.addCallback(reports.append)
        self.clock.pump([0.1] * 10)
        self.assertEqual(reports, [])
        self.clock.pump([0.1] * 10 * int(MARK_SECONDS))
        (report,) = reports
        self.assertEqual(self.outcomes(report)["m002"], Outcome.CREATED)
        self.assertEqual(self.outcomes(report)["moves"], Outcome.FAILED)

    def begun(self, client: Any, *objects: Any, **settings: Any) -> Deferred[Any]:
        """A pass of agent 2 that goes on with the clock."""
        second = self.reconciler(client=client, **self.of_agent("two"), **settings)
        files = [("a.yaml", text(*objects).encode())]
        running = Deferred.fromCoroutine(second.run("c2", read_source(files)))
        running.addErrback(lambda failure: failure.trap(CancelledError))
        return running

    def test_refused_while_another_object_is_slow(self) -> None:
        """Claims and takes are repeated during the waves of the same pass."""
        slow = {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "slow", "namespace": "default", "generation": 2},
        }
        for policy, mark in (("must_match", CLAIMED_BY), ("adopt_all", OWNER)):
            with self.subTest(policy):
                self.setUp()
                self.begin()
                needs = {"config.kubernetes.io/depends-on": DEPLOYMENT}
                metadata = {**MOVES["metadata"], "annotations": needs}
                moves = {**MOVES, "metadata": metadata}
                client: Any = _RefusedAtFirst(self.client, Status.INTERNAL, 6)
                running = self.begun(client, slow, moves, policy=policy)
                self.clock.pump([0.5] * 60)
                self.assertFalse(running.called)
                annotations = self.live("moves")["metadata"]["annotations"]
                self.assertEqual(annotations[mark], "two")
                running.cancel()

    def test_a_newer_commit_after_a_take(self) -> None:
        """An object that was taken, and not applied, is in the inventory."""
        uid = self.begin()
        silent = Deferred[Any]()

        def patch(resource: Any, name: str, *given: Any, **more: Any) -> Any:
            if name == "silent":
                return silent
            return self.client.patch(resource, name, *given, **more)

        others = object_("silent")
        self.apply("one", STAYS, MOVES, others, commit="c1")
        client: Any = _Patching(self.client, patch)
        running = self.begun(client, *config_maps(1), MOVES, others, policy="adopt_all")
        self.clock.pump([0.1] * 10)
        self.assertFalse(running.called)
        self.assertEqual(self.owner(), "two")
        running.cancel()
        inventory = self.live("inventory-two")
        self.assertEqual(inventory["metadata"]["annotations"][COMMIT], "c1")
        self.assertIn("default_moves__ConfigMap", inventory["data"])
        # It left Git.
        self.apply("one", STAYS, commit="c3")
        self.assertEqual(self.live("moves")["metadata"]["uid"], uid)
        report = self.apply("two", *config_maps(1), commit="c3")
        self.assertEqual(self.outcomes(report)["moves"], Outcome.PRUNED)

    def test_one_that_comes_back_late(self) -> None:
        """Agent 1 has it again before its turn comes in a later wave."""
        uid = self.begin()
        self.apply("two", *config_maps(1), MOVES, commit="c2")
        self.apply("one", STAYS, commit="c2")
        stays, broken, moves = self.late()
        report = self.apply("one", STAYS, broken, moves, commit="c3")
        self.assertEqual(self.outcomes(report)["moves"], Outcome.SKIPPED)
        self.time += OTHERS_SECONDS
        self.apply("two", stays, commit="c3")
        self.assertEqual(self.live("moves")["metadata"]["uid"], uid)
        self.assertEqual((self.owner(), self.deleted()), ("one", []))

    def test_one_that_comes_back_and_may_not_be_taken(self) -> None:
        """Agent 2, to which it was given, keeps it for some time."""
        uid = self.begin()
        self.apply("two", *config_maps(1), MOVES, commit="c2")
        self.apply("one", STAYS, commit="c2")
        client: Any = _RefusedAtFirst(self.client, Status.INTERNAL, 1000)
        self.apply("one", STAYS, MOVES, commit="c3", client=client)
        report = self.apply("two", *config_maps(1), commit="c3")
        self.assertIn("may still claim it", report.blocked[0].reason)
        self.apply("one", STAYS, MOVES, commit="c3")
        self.assertEqual(self.live("moves")["metadata"]["uid"], uid)
        self.assertEqual(self.owner(), "one")

    def test_an_inventory_that_anyone_wrote(self) -> None:
        """It gives no object away that is of no inventory, or of a program's."""
        self.apply("two", *config_maps(1), commit="c1")
        live = self.objects.put(
            {**MOVES, "metadata": {"name": "moves", "namespace": "default"}}
        )
        inventory = self.live("inventory-two")
        claimed = {"uid": live["metadata"]["uid"], "claimed": "x"}
        inventory["data"]["default_moves__ConfigMap"] = json.dumps(claimed)
        self.objects.put(inventory)
        report = self.apply("two", *config_maps(1), MOVES, commit="c2")
        self.assertIn("it is of no inventory", report.failed[0].reason)

    def test_a_claim_that_may_not_be_made(self) -> None:
        """One who may not change the object for some time is not handed it."""
        self.begin()
        client = _Refused(self.client)
        self.apply("two", *config_maps(1), MOVES, commit="c2", client=client)
        report = self.apply("one", STAYS, commit="c2")
        self.assertIn("may still claim it", report.blocked[0].reason)
        self.time += OTHERS_SECONDS
        self.apply("one", STAYS, commit="c2")
        self.assertIsNone(self.live("moves"))

    def test_a_claim_that_is_refused_for_a_moment(self) -> None:
        """An overloaded API server, or a permission that comes a moment later."""
        for status in (
            Status.RESOURCE_EXHAUSTED,
            Status.PERMISSION_DENIED,
            Status.ABORTED,
        ):
            uid = self.begin()
            client: Any = _RefusedAtFirst(self.client, status, 1)
            self.apply("two", *config_maps(1), MOVES, commit="c2", client=client)
            self.assertEqual(client.refusals, 1)
            self.apply("one", STAYS, commit="c2")
            self.apply("two", *config_maps(1), MOVES, commit="c2")
            self.handed_over(uid)
            self.tearDown()
            self.setUp()

    def test_a_claim_while_the_api_server_is_overloaded(self) -> None:
        """The object stays, and others are applied."""
        self.begin()
        times = ANNOTATE_TIMES
        client: Any = _RefusedAtFirst(self.client, Status.RESOURCE_EXHAUSTED, times)
        self.apply("two", *config_maps(1, 2), MOVES, commit="c2", client=client)
        self.assertEqual(client.refusals, times)
        self.assertIsNotNone(self.live("m002"))
        report = self.apply("one", STAYS, commit="c2")
        self.assertIn("may still claim it", report.blocked[0].reason)
        self.assertIsNotNone(self.live("moves"))

    def test_out_of_git_before_it_was_taken(self) -> None:
        """The agent that it was given to deletes it."""
        self.begin()
        self.apply("two", *config_maps(1), MOVES, commit="c2")
        self.apply("one", STAYS, commit="c2")
        self.assertEqual(self.owner(), "")
        self.apply("one", STAYS, commit="c3")
        report = self.apply("two", *config_maps(1), commit="c3")
        self.assertEqual(self.outcomes(report)["moves"], Outcome.PRUNED)
        self.assertIsNone(self.live("moves"))

    def test_to_a_third_agent_before_it_was_taken(self) -> None:
        """The third one claims it, and takes it once the second one lets it go."""
        self.waits["three"] = Waits()
        uid = self.begin()
        self.apply("three", *config_maps(2), commit="c1")
        self.apply("two", *config_maps(1), MOVES, commit="c2")
        self.apply("one", STAYS, commit="c2")
        report = self.apply("three", *config_maps(2), MOVES, commit="c3")
        self.assertEqual(len(report.failed), 1)
        self.apply("one", STAYS, commit="c3")
        self.apply("two", *config_maps(1), commit="c3")
        self.apply("three", *config_maps(2), MOVES, commit="c3")
        self.assertEqual(self.live("moves")["metadata"]["uid"], uid)
        self.assertEqual((self.owner(), self.deleted()), ("three", []))

    def test_claims_that_overwrite_each_other(self) -> None:
        """The second one waits for the third one, whose inventory has the claim."""
        self.waits["three"] = Waits()
        uid = self.begin()
        self.apply("three", *config_maps(2), commit="c1")
        self.apply("two", *config_maps(1), MOVES, commit="c2")
        self.apply("one", STAYS, commit="c2")
        self.apply("three", *config_maps(2), MOVES, commit="c3")
        live = self.live("moves")
        live["metadata"]["annotations"][CLAIMED_BY] = "two"
        self.objects.put(live)
        self.apply("one", STAYS, commit="c3")
        report = self.apply("two", *config_maps(1), commit="c3")
        self.assertEqual(self.outcomes(report)["moves"], Outcome.BLOCKED)
        self.apply("three", *config_maps(2), MOVES, commit="c3")
        report = self.apply("two", *config_maps(1), commit="c3")
        self.assertEqual(self.outcomes(report)["moves"], Outcome.FORGOTTEN)
        self.apply("three", *config_maps(2), MOVES, commit="c3")
        self.assertEqual(self.live("moves")["metadata"]["uid"], uid)
        self.assertEqual((self.owner(), self.deleted()), ("three", []))

    def test_a_webhook_that_is_away(self) -> None:
        """Other objects are applied, and the owner waits for the annotation."""
        uid = self.begin()
        client: Any = _RefusedAtFirst(self.client, Status.INTERNAL, ANNOTATE_TIMES)
        changed = object_("m001", data={"new": "1"})
        self.apply("two", changed, MOVES, commit="c2", client=client)
        self.assertEqual(client.refusals, ANNOTATE_TIMES)
        self.assertEqual(self.live("m001")["data"], {"new": "1"})
        report = self.apply("one", STAYS, commit="c2")
        self.assertIn("may still claim it", report.blocked[0].reason)
        self.apply("two", changed, MOVES, commit="c2")
        self.apply("one", STAYS, commit="c2")
        self.apply("two", changed, MOVES, commit="c2")
        self.handed_over(uid)

    def test_a_claim_among_many_at_the_same_commit(self) -> None:
        """Inventories that are too many to be read delay the delete once."""
        self.patch(claims, "MAX_WANTING", 2)
        uid = self.begin()
        client: Any = _RefusedAtFirst(self.client, Status.INTERNAL, ANNOTATE_TIMES)
        self.apply("two", *config_maps(1), MOVES, commit="c2", client=client)
        said = {PARTS: "1", SOURCE: "apps", COMMIT: "c2"}
        for number in range(3):
            self.plant(f"{number}", f"a{number}", annotations=said)
        report = self.apply("one", STAYS, commit="c2")
        self.assertIn("may still claim it", report.blocked[0].reason)
        self.apply("two", *config_maps(1), MOVES, commit="c2")
        self.apply("one", STAYS, commit="c2")
        self.apply("two", *config_maps(1), MOVES, commit="c2")
        self.handed_over(uid)

    def test_many_parts_at_the_same_commit(self) -> None:
        """Agentk stops reading them, and waits once."""
        self.patch(claims, "MAX_WANTING", 4)
        self.begin()
        for number in range(20):
            self.plant(f"{number}", "a")
        client: Any = _Counting(self.client)
        asked = attrs.evolve(self.asked("one", "c2"), client=client)
        self.assertEqual(self.pair.run(asked._wanting(["a", "b"], {})), {"a", "b"})
        self.assertEqual(client.seen, 3 * claims.WHOLE_PAGE)

    def test_a_claim_that_is_dropped(self) -> None:
        """The object says so: its owner may have planned to give it away."""
        self.begin()
        self.apply("two", *config_maps(1), MOVES, commit="c2")
        before = self.live("moves")["metadata"]["resourceVersion"]
        self.apply("two", *config_maps(1), commit="c3")
        live = self.live("moves")["metadata"]
        self.assertNotIn(CLAIMED_BY, live["annotations"])
        self.assertNotEqual(live["resourceVersion"], before)

    def test_given_while_the_claim_is_dropped(self) -> None:
        """The object has changed: the next pass deletes it."""
        self.begin()
        self.apply("two", *config_maps(1), MOVES, commit="c2")
        patch, gave = self.client.patch, list[int]()

        async def overtaken(*given: Any, **more: Any) -> Any:
            if not gave:
                gave.append(1)
                live = self.live("moves")
                live["metadata"]["annotations"] |= {GIVEN_BY: "one"}
                del live["metadata"]["annotations"][OWNER]
                self.cluster.objects.put(live)
            return await patch(*given, **more)

        client: Any = _Patching(self.client, overtaken)
        report = self.apply("two", *config_maps(1), commit="c3", client=client)
        self.assertEqual(self.outcomes(report)["moves"], Outcome.BLOCKED)
        self.apply("one", STAYS, commit="c3")
        self.apply("two", *config_maps(1), commit="c3")
        self.assertIsNone(self.live("moves"))

    def test_given_by_another_one(self) -> None:
        """An object that the former owner did not give is not deleted."""
        self.begin()
        self.apply("two", *config_maps(1), MOVES, commit="c2")
        live = self.live("moves")
        live["metadata"]["annotations"] |= {OWNER: "", GIVEN_BY: "three"}
        self.objects.put(live)
        self.apply("one", STAYS, commit="c3")
        report = self.apply("two", *config_maps(1), commit="c3")
        self.assertEqual(self.outcomes(report)["moves"], Outcome.FORGOTTEN)
        self.assertIsNotNone(self.live("moves"))

    def test_a_claim_of_the_commit_before(self) -> None:
        """It counts once its agent has read this commit, or after the wait."""
        self.begin()
        self.apply("two", *config_maps(1), MOVES, commit="c2")
        report = self.apply("one", STAYS, commit="c3")
        self.assertIn("may still claim it", report.blocked[0].reason)
        self.assertEqual(self.owner(), "one")
        self.apply("two", *config_maps(1), commit="c3")
        self.apply("one", STAYS, commit="c3")
        self.assertIsNone(self.live("moves"))

    def test_a_claim_of_an_agent_that_stays_behind(self) -> None:
        """After the wait, the object is handed over."""
        uid = self.begin()
        self.apply("two", *config_maps(1), MOVES, commit="c2")
        self.apply("one", STAYS, commit="c3")
        self.time += OTHERS_SECONDS
        self.apply("one", STAYS, commit="c3")
        self.apply("two", *config_maps(1), MOVES, commit="c2")
        self.handed_over(uid)

    def test_what_was_not_handed_over(self) -> None:
        """An object that lost its mark otherwise, or is another one, stays as it is."""
        self.begin()
        live = self.live("moves")
        del live["metadata"]["annotations"][OWNER]
        self.objects.put(live)
        report = self.apply("two", *config_maps(1), MOVES, commit="c2")
        self.assertIn("it is of no inventory", report.failed[0].reason)
        self.objects.remove("v1", "ConfigMap", "moves", "default")
        live["metadata"].pop("uid")
        live["metadata"]["annotations"][OWNER] = "x" * (MAX_OWNER + 1)
        self.objects.put(live)
        self.apply("two", *config_maps(1), MOVES, commit="c2")
        live["metadata"]["annotations"].pop(OWNER)
        self.objects.put(live)
        report = self.apply("two", *config_maps(1), MOVES, commit="c2")
        self.assertIn("it is of no inventory", report.failed[0].reason)


def test_selections() -> None:
    """Settings that do not select objects do not count."""
    one = ManifestProject(id="apps")
    for same in (attrs.evolve(one, prune=False), attrs.evolve(one, name="other")):
        assert same.selection == one.selection
    for other in (
        attrs.evolve(one, paths=(ManifestPath(glob="/a/*.yaml"),)),
        attrs.evolve(one, ref=ManifestRef(branch="m")),
        attrs.evolve(one, default_namespace="here"),
        attrs.evolve(one, source=SourceKind(kind="kustomize")),
    ):
        assert other.selection != one.selection


def test_sources() -> None:
    """Each ref has one name, and a repository one id, or what cannot be compared."""
    main, production = "refs/heads/main", "refs/heads/production"
    for theirs, ours, same in (
        (f"url:1 {main} apps", f"url:1 {main} other-name", True),
        (f"url:1 {main} apps", f"url:1 {production} apps", False),
        (f"url:1 {main} apps", f"url:2 {main} apps", False),
        (f"url:1 {main} a/apps", f"gitaly:2 {main} a/apps", True),
        (f"url:1 {main} apps", f"gitaly:2 {main} other", False),
        # The Git server does not say which branch that is.
        ("url:1 HEAD apps", f"url:1 {main} apps", True),
        ("url:1 HEAD apps", "url:1 refs/tags/v1 apps", False),
        ("", f"url:1 {main} apps", False),
    ):
        assert _may_be_same(theirs, ours) is same, (theirs, ours)
        assert _may_be_same(ours, theirs) is same or not theirs
