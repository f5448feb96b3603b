"""The cache, with watches whose events a test sends."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterator
from typing import Any, cast

import msgspec
import pytest
from twisted.internet.defer import CancelledError, Deferred, DeferredQueue
from twisted.internet.task import Clock

from modules.cluster_data.agent.cache import MAX_STATES, ClusterCache
from modules.cluster_data.agent.shapes import Pod, Workload
from modules.cluster_data.agent.views.problems import POD, PROBLEMS
from modules.cluster_data.agent.views.workloads import WORKLOADS
from modules.cluster_data.wire.view_names import KINDS, SUMMARY
from tests.modules.cluster_data.pair import deployment
from tunnel.api import (
    AgentScope,
    KubernetesResource,
    ObjectKind,
    WatchEvent,
    WatchEventType,
)
from tunnel.errors import CallError, Status

DEPLOYMENT = ObjectKind("apps", "v1", "Deployment")


class Watches:
    """
    An `IKubernetes` whose watches yield what a test sends.

    :ivar refusals: errors by kind, in place of a watch.
    :ivar begun: the kinds in the order of their watches.
    """

    def __init__(self) -> None:
        self.refusals: dict[str, CallError] = {}
        self.begun: list[str] = []
        self._events: dict[str, DeferredQueue[Any]] = {}

    def as_agentk(self) -> Watches:
        return self

    async def resource(self, api_version: str, kind: str) -> KubernetesResource:
        if kind in self.refusals:
            raise self.refusals[kind]
        group = api_version.rpartition("/")[0]
        verbs = frozenset(["list", "watch"])
        namespaced = kind != "Node"
        return KubernetesResource(
            group, "v1", kind, f"{kind.lower()}s", namespaced, verbs
        )

    async def follow(
        self, resource: KubernetesResource, namespace: str = "", shape: Any = None
    ) -> AsyncGenerator[WatchEvent, None]:
        where = f"{resource.kind} in {namespace}" if namespace else resource.kind
        self.begun.append(where)
        queue = self._events[where] = DeferredQueue()
        while True:
            event = await queue.get()
            if isinstance(event, Exception):
                raise event
            yield event

    def send(self, kind: str, type_: WatchEventType, found: Any = None) -> None:
        if found is not None:
            is_pod = kind.partition(" ")[0] == "Pod"
            found = msgspec.convert(found, Pod if is_pod else Workload)
        self._events[kind].put(WatchEvent(type_, found))

    def fail(self, kind: str, error: Exception) -> None:
        self._events[kind].put(error)

    def set(self, kind: str, *objects: Any) -> None:
        """Send all objects of a kind, as after its first request."""
        self.send(kind, WatchEventType.RESET)
        for one in objects:
            self.send(kind, WatchEventType.ADDED, one)
        self.send(kind, WatchEventType.SYNCED)


class Stand:
    """A cache, and its watches."""

    def __init__(self, budget: int = 2**20, namespaces: tuple[str, ...] = ()) -> None:
        self.clock = Clock()
        self.watches = Watches()
        self.changed: list[str] = []
        self.cache = ClusterCache(
            cast(Any, self.watches),
            [WORKLOADS, PROBLEMS],
            budget,
            self.clock,
            lambda: 1.0,
            lambda: 1000.0 + self.clock.seconds(),
            self.changed.append,
            AgentScope(namespaces=namespaces),
        )
        self.running = Deferred.fromCoroutine(self.cache.run())
        self.running.addErrback(lambda failure: failure.trap(CancelledError))
        self.clock.advance(0)

    def rows(self, view: str) -> dict[str, Any]:
        return {
            key.name or key.kind: json.loads(row.columns)
            for key, row in self.cache.tables[view].rows.items()
        }

    def finish_scoped(self) -> None:
        """Let every kind be read in each namespace of the scope."""
        done: set[str] = set()
        while rest := [one for one in self.watches.begun if one not in done]:
            for where in rest:
                self.watches.set(where)
                done.add(where)

    def finish_others(self) -> None:
        """Let every kind be read that has not been read."""
        for _ in range(len(self.cache.kinds)):
            for kind in self.watches.begun:
                state = next(
                    one for one in self.cache.kinds.values() if one.kind.kind == kind
                )
                if state.state == "reading":
                    self.watches.set(kind)


@pytest.fixture
def stand() -> Iterator[Stand]:
    stand = Stand()
    yield stand
    stand.running.cancel()


def pod(name: str, phase: str = "Running", ready: bool = True, **more: Any) -> Any:
    status = {
        "phase": phase,
        "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
    }
    metadata = {"name": name, "namespace": "shop", "uid": f"uid-{name}"}
    return {"metadata": metadata | more, "status": status}


def test_two_kinds_are_read_at_a_time(stand: Stand) -> None:
    assert len(stand.watches.begun) == 2
    first = stand.watches.begun[0]
    stand.watches.set(first)
    assert len(stand.watches.begun) == 3
    stand.finish_others()
    assert len(stand.watches.begun) == len(stand.cache.kinds)


def test_rows_stay_while_a_kind_is_read_again(stand: Stand) -> None:
    send = stand.watches.send
    stand.watches.set("Deployment", deployment("a"), deployment("b"))
    assert set(stand.rows("workloads")) == {"a", "b"}
    send("Deployment", WatchEventType.RESET)
    assert set(stand.rows("workloads")) == {"a", "b"}
    send("Deployment", WatchEventType.ADDED, deployment("b"))
    send("Deployment", WatchEventType.ADDED, deployment("c"))
    assert set(stand.rows("workloads")) == {"a", "b", "c"}
    send("Deployment", WatchEventType.SYNCED)
    assert set(stand.rows("workloads")) == {"b", "c"}


def test_counts_by_state(stand: Stand) -> None:
    stand.finish_others()
    assert stand.rows(SUMMARY)["Pod"] == {"total": 0, "states": {}}
    stand.watches.send("Pod", WatchEventType.ADDED, pod("a"))
    stand.watches.send("Pod", WatchEventType.ADDED, pod("b", ready=False))
    assert stand.rows(SUMMARY)["Pod"] == {
        "total": 2,
        "states": {"Running": 1, "NotReady": 1},
    }
    stand.watches.send("Pod", WatchEventType.MODIFIED, pod("b"))
    assert stand.rows(SUMMARY)["Pod"] == {"total": 2, "states": {"Running": 2}}
    stand.watches.send("Pod", WatchEventType.DELETED, pod("a"))
    assert stand.rows(SUMMARY)["Pod"] == {"total": 1, "states": {"Running": 1}}


def test_many_states(stand: Stand) -> None:
    """A cluster that invents them gets one number for most of them."""
    stand.finish_others()
    for count in range(MAX_STATES + 30):
        found = pod(f"pod-{count}")
        found["status"] = {"phase": "Pending", "reason": f"{count}" + "x" * 1000}
        stand.watches.send("Pod", WatchEventType.ADDED, found)
    row = stand.rows(SUMMARY)["Pod"]
    assert row["total"] == MAX_STATES + 30
    assert len(row["states"]) == MAX_STATES + 1
    assert row["states"]["other"] == 30
    assert max(map(len, row["states"])) <= 64


def test_counts_do_not_grow_while_a_kind_is_read(stand: Stand) -> None:
    stand.finish_others()
    stand.watches.set("Pod", pod("a"), pod("b"))
    send = stand.watches.send
    send("Pod", WatchEventType.RESET)
    send("Pod", WatchEventType.ADDED, pod("a"))
    assert stand.rows(SUMMARY)["Pod"]["total"] == 2


def test_an_equal_version_changes_nothing(stand: Stand) -> None:
    stand.finish_others()
    stand.watches.set("Pod", pod("a", ready=False, resourceVersion="7"))
    before = len(stand.changed)
    stand.watches.set("Pod", pod("a", ready=False, resourceVersion="7"))
    assert "problems" not in stand.changed[before:]


def test_a_problem_keeps_its_beginning(stand: Stand) -> None:
    stand.finish_others()
    stand.watches.send("Pod", WatchEventType.ADDED, pod("a", ready=False))
    since = stand.rows("problems")["a"]["since"]
    stand.clock.advance(60)
    labelled = pod("a", ready=False, labels={"x": "y"})
    stand.watches.send("Pod", WatchEventType.MODIFIED, labelled)
    assert stand.rows("problems")["a"]["since"] == since
    stand.watches.send("Pod", WatchEventType.MODIFIED, pod("a"))
    assert not stand.rows("problems")
    # Another pod with the same name.
    stand.watches.send("Pod", WatchEventType.MODIFIED, pod("a", ready=False, uid="2"))
    assert stand.rows("problems")["a"]["since"] == since + 60


def test_a_kind_that_is_refused(stand: Stand) -> None:
    stand.finish_others()
    stand.watches.set("Deployment", deployment("a"))
    refusal = CallError(Status.PERMISSION_DENIED, "deployments is forbidden")
    stand.watches.fail("Deployment", refusal)
    assert not stand.rows("workloads")
    assert "Deployment" not in stand.rows(SUMMARY)
    state = stand.rows(KINDS)["Deployment"]
    assert (state["state"], state["reason"]) == ("absent", "deployments is forbidden")
    # The other kinds are as before, and this one is tried again.
    assert stand.rows(KINDS)["Pod"]["state"] == "synced"
    stand.clock.advance(5)
    stand.watches.set("Deployment", deployment("a"))
    assert set(stand.rows("workloads")) == {"a"}
    assert stand.rows(KINDS)["Deployment"] == {"state": "synced", "version": "v1"}


def test_a_kind_that_does_not_exist() -> None:
    stand = Stand()
    stand.running.cancel()
    missing = CallError(Status.NOT_FOUND, "no such kind")
    stand.watches.refusals["CronJob"] = missing
    stand.watches.begun.clear()
    stand.running = Deferred.fromCoroutine(stand.cache.run())
    stand.running.addErrback(lambda failure: failure.trap(CancelledError))
    stand.finish_others()
    assert stand.rows(KINDS)["CronJob"]["state"] == "absent"
    assert "CronJob" not in stand.watches.begun
    stand.running.cancel()


def test_the_largest_kind_is_only_counted_beyond_the_budget() -> None:
    stand = Stand(budget=6000)
    stand.finish_others()
    for count in range(20):
        found = pod(f"pod-{count}", ready=False)
        stand.watches.send("Pod", WatchEventType.ADDED, found)
    assert stand.cache.kinds[POD].only_counted
    assert not stand.rows("problems")
    assert stand.rows(SUMMARY)["Pod"]["total"] == 20
    state = stand.rows(KINDS)["Pod"]
    assert state["state"] == "count_only"
    assert "no room" in state["reason"]
    # Other kinds keep their rows.
    stand.watches.send("Deployment", WatchEventType.ADDED, deployment("a"))
    assert set(stand.rows("workloads")) == {"a"}
    stand.running.cancel()


def test_memory_returns_to_its_beginning(stand: Stand) -> None:
    """Objects that come and go leave nothing."""
    stand.finish_others()
    before = stand.cache.size
    for count in range(1000):
        found = pod(f"job-{count}", ready=False)
        stand.watches.send("Pod", WatchEventType.ADDED, found)
        stand.watches.send("Pod", WatchEventType.DELETED, found)
    assert stand.cache.size == before
    assert not stand.cache.kinds[POD].objects


def test_an_object_that_fails_does_not_stop_the_others(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand.finish_others()

    def fail(*rest: Any) -> Any:
        raise RuntimeError("broken")

    with monkeypatch.context() as patch:
        patch.setattr("modules.cluster_data.agent.cache.pod_state", fail)
        stand.watches.send("Pod", WatchEventType.ADDED, pod("a"))
    stand.watches.send("Deployment", WatchEventType.ADDED, deployment("a"))
    assert set(stand.rows("workloads")) == {"a"}
    # Its kind is watched again.
    stand.clock.advance(5)
    stand.watches.set("Pod", pod("a"))
    assert stand.rows(SUMMARY)["Pod"]["total"] == 1


@pytest.fixture
def scoped() -> Iterator[Stand]:
    stand = Stand(namespaces=("a", "b"))
    yield stand
    stand.running.cancel()


def in_(namespace: str, name: str) -> Any:
    found = pod(name)
    found["metadata"]["namespace"] = namespace
    return found


def test_a_scope_of_namespaces(scoped: Stand) -> None:
    """Each kind has a watch in each namespace; a kind without namespaces has none."""
    scoped.finish_scoped()
    assert "Pod" not in scoped.watches.begun
    assert {"Pod in a", "Pod in b"} <= set(scoped.watches.begun)
    assert "outside of the agent's scope: a, b" in scoped.rows(KINDS)["Node"]["reason"]
    scoped.watches.send("Pod in a", WatchEventType.ADDED, in_("a", "one"))
    scoped.watches.send("Pod in b", WatchEventType.ADDED, in_("b", "two"))
    assert scoped.rows(SUMMARY)["Pod"]["total"] == 2
    # The pods of the other namespace stay while one is read again.
    scoped.watches.set("Pod in a")
    assert scoped.rows(SUMMARY)["Pod"]["total"] == 1
    with pytest.raises(CallError, match="an agent with a scope has no whole objects"):
        scoped.cache.hold(KubernetesResource("", "v1", "Pod", "pods", True))


def test_a_namespace_of_the_scope_without_rights(scoped: Stand) -> None:
    """It hides no object of the others, and is tried again."""
    scoped.finish_scoped()
    scoped.watches.send("Pod in a", WatchEventType.ADDED, in_("a", "one"))
    scoped.watches.send("Pod in b", WatchEventType.ADDED, in_("b", "two"))
    denied = CallError(Status.PERMISSION_DENIED, "pods is forbidden")
    scoped.watches.fail("Pod in b", denied)
    assert scoped.rows(SUMMARY)["Pod"]["total"] == 1
    assert scoped.rows(KINDS)["Pod"]["reason"] == "b: pods is forbidden"
    scoped.clock.advance(10)
    scoped.watches.set("Pod in b", in_("b", "two"))
    assert scoped.rows(SUMMARY)["Pod"]["total"] == 2
    assert "reason" not in scoped.rows(KINDS)["Pod"]
    for place in "ab":
        scoped.watches.fail(f"Pod in {place}", denied)
    assert scoped.rows(KINDS)["Pod"]["state"] == "absent"
