"""Channels with the rows of clusters, for clients with rights."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
from twisted.internet.defer import Deferred

from modules.cluster_data.agent.publisher import BEAT
from modules.cluster_data.agent.rights_watch import AGAIN, BETWEEN, SOON
from modules.cluster_data.server import live_queries as live_queries_module
from modules.cluster_data.server import rights as rights_module
from modules.cluster_data.server.channels import RowsChannel
from modules.cluster_data.server.live_queries import (
    KIB_PAUSE,
    MAX_KIB_EACH,
    PAUSE,
    REFRESH,
    QueryResult,
)
from modules.cluster_data.server.sources.own_rows import OwnRows
from modules.cluster_data.server.store.queries import RowQuery
from modules.cluster_data.server.store.row_store import Publication
from tests.modules.cluster_data.pair import deployment, node
from tests.modules.cluster_data.test_rest import ALICE, BOB, RestStand
from tunnel.errors import CallError, Status
from tunnel.testing import FakeCableSubscription

WEB = "1/apps/Deployment/shop/web/"


class ChannelStand(RestStand):
    """A pair with clients of channels."""

    def channel(self, name: str) -> RowsChannel:
        found: RowsChannel = next(
            one for one in self.server._channels if one.name == name
        )
        return found

    def subscribe(
        self, name: str, user: Any = ALICE, **params: Any
    ) -> FakeCableSubscription:
        """Subscribe, and send the first snapshot."""
        accesses = {"1": user, "agent-1": user}
        made = FakeCableSubscription(name, params, accesses)
        self.pair.run(self.channel(name).subscribe(made))
        self.pair.run(self.channel(name).send_snapshot(made))
        return made

    def refused(self, name: str, **params: Any) -> CallError:
        with pytest.raises(CallError) as caught:
            self.subscribe(name, **params)
        return caught.value


@pytest.fixture
def stand(tmp_path: Path) -> Iterator[ChannelStand]:
    stand = ChannelStand(tmp_path)
    stand.add(deployment("web", ready=0), node("a"))
    stand.lead()
    stand.advance(3)
    stand.allowed = {("alice", "apps/deployments"), ("alice", "/nodes")}
    yield stand
    stand.close()


def test_a_snapshot_and_changes(stand: ChannelStand) -> None:
    made = stand.subscribe("ClusterChannel", cluster="agent-1")
    ((first, _),) = made.sent
    assert first["snapshot"][WEB]["ready"] == 0
    made.sent.clear()
    stand.add(deployment("web"), deployment("api"))
    stand.advance(2)
    put = [message["put"] for message, _ in made.sent]
    rows = {key: row for one in put for key, row in one.items()}
    assert rows[WEB]["ready"] == 1
    assert {message["e"] for message, _ in made.sent} == {first["e"]}
    numbers = [message["s"] for message, _ in made.sent]
    assert numbers == list(range(first["s"] + 1, first["s"] + 1 + len(numbers)))
    made.sent.clear()
    stand.objects.remove("apps/v1", "Deployment", "web", "shop")
    stand.advance(2)
    ((last, _),) = made.sent
    assert (last["put"], last["delete"]) == ({}, [WEB])


def test_changes_of_a_followed_view_come_at_once(stand: ChannelStand) -> None:
    made = stand.subscribe("ClusterChannel", cluster="agent-1")
    # The next beat tells agentk that somebody follows the view.
    stand.advance(BEAT)
    for count in range(4):
        made.sent.clear()
        stand.add(deployment("web", labels={"count": str(count)}))
        stand.advance(0.5)
        (put,) = [message["put"] for message, _ in made.sent]
        assert put[WEB]["labels"] == {"count": str(count)}
    stand.channel("ClusterChannel").unsubscribe(made)
    stand.advance(BEAT)
    assert stand.server._queries.views("1") == frozenset()


def test_nothing_is_sent_without_a_change(stand: ChannelStand) -> None:
    made = stand.subscribe("ClusterChannel", cluster="agent-1")
    made.sent.clear()
    stand.advance(3 * REFRESH)
    assert made.sent == []


def test_each_client_has_own_rights(stand: ChannelStand) -> None:
    """Also if these change while the client is subscribed."""
    bob = stand.subscribe("ClusterChannel", BOB, cluster="agent-1")
    ((first, _),) = bob.sent
    assert WEB not in first["snapshot"]
    alice = stand.subscribe("ClusterChannel", cluster="agent-1")
    alice.sent.clear()
    stand.allowed = {("bob", "apps/deployments")}
    stand.advance(rights_module.ALLOWED_SECONDS + 2 * REFRESH)
    assert WEB in bob.sent[-1][0]["put"]
    assert alice.sent[-1][0]["delete"] == [WEB]


def test_rights_that_change(stand: ChannelStand) -> None:
    """A change of RBAC shows soon after agentk has seen it."""
    alice = stand.subscribe("ClusterChannel", cluster="agent-1")
    bob = stand.subscribe("ClusterChannel", BOB, cluster="agent-1")
    stand.advance(BETWEEN)
    for who, rest in (("bob", alice), ("alice", bob)):
        alice.sent.clear()
        bob.sent.clear()
        stand.allowed = {(who, "apps/deployments")}
        stand.add(role(f"of-{who}"))
        stand.advance(SOON + 1.0)
        assert WEB in {"bob": bob, "alice": alice}[who].sent[-1][0]["put"]
        assert WEB in rest.sent[-1][0]["delete"]
        stand.advance(BETWEEN)


def test_an_authorizer_that_is_late(stand: ChannelStand) -> None:
    """kas asks once more, because the API server may decide by the earlier state."""
    alice = stand.subscribe("ClusterChannel", cluster="agent-1")
    stand.add(role("a"))
    stand.advance(1.0)
    alice.sent.clear()
    stand.allowed = set()
    stand.advance(AGAIN + 0.5)
    assert WEB in alice.sent[-1][0]["delete"]


def test_many_changes_of_rights(stand: ChannelStand) -> None:
    """They do not make kas repeat its reviews all the time."""
    stand.subscribe("ClusterChannel", cluster="agent-1")
    stand.advance(BETWEEN)
    before = len(reviews(stand))
    stand.advance(10.0)
    at_rest = len(reviews(stand)) - before
    before = len(reviews(stand))
    for number in range(100):
        stand.add(role(f"r{number}"))
        stand.advance(0.1)
    each = len(reviews(stand)) - before
    assert each <= 3 * max(at_rest, 10)


def reviews(stand: ChannelStand) -> list[Any]:
    """Return the access reviews so far."""
    return [one for one in stand.cluster.requests if "accessreviews" in one.path]


def role(name: str) -> Any:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": name, "namespace": "shop"},
    }


def test_the_fleet(stand: ChannelStand) -> None:
    made = stand.subscribe("FleetChannel", clusters=["agent-1"])
    ((first, _),) = made.sent
    state = first["snapshot"]["cluster/1"]
    assert state["state"] == "live"
    assert state["summary"]["nodes"]["total"] == 1
    made.sent.clear()
    stand.add(node("b"))
    stand.advance(2)
    counts = made.sent[-1][0]["put"]["cluster/1"]["summary"]["nodes"]
    assert counts["total"] == 2
    stand.follow()
    assert made.sent[-1][0]["put"]["cluster/1"]["state"] == "offline"


def test_all_clusters_of_the_user(stand: ChannelStand) -> None:
    """`*` follows the clusters that the credential gives access to, also later."""
    made = stand.subscribe("FleetChannel", clusters=["*"])
    assert made.sent[0][0]["snapshot"]["cluster/1"]["state"] == "live"
    objects = stand.subscribe("ObjectsChannel", clusters=["*"], kind="deployments")
    assert WEB in objects.sent[0][0]["snapshot"]
    made.sent.clear()
    # The user gets access to another cluster.
    made.caller.accesses["2"] = attrs.evolve(ALICE, agent_id="2", agent_name="new")
    stand.advance(REFRESH + 1)
    put = {key for message, _ in made.sent for key in message["put"]}
    assert put == {"cluster/2"}
    assert stand.refused("FleetChannel", clusters=["*", "agent-1"]).status is (
        Status.INVALID_ARGUMENT
    )


def test_objects_and_events(stand: ChannelStand) -> None:
    made = stand.subscribe(
        "ObjectsChannel", clusters=["agent-1"], kind="deploy", labelSelector="app=web"
    )
    ((first, _),) = made.sent
    assert set(first["snapshot"]) == {WEB}
    made = stand.subscribe("EventsChannel", clusters=["agent-1"], namespace="shop")
    ((first, _),) = made.sent
    assert first["snapshot"] == {}


def test_resume(stand: ChannelStand) -> None:
    made = stand.subscribe("ClusterChannel", cluster="agent-1")
    ((first, _),) = made.sent
    channel = stand.channel("ClusterChannel")
    stand.pair.run(channel.resume(made, {"e": first["e"], "s": first["s"]}))
    assert made.sent[-1][0] == {
        "e": first["e"],
        "s": first["s"],
        "put": {},
        "delete": [],
    }
    stand.pair.run(channel.resume(made, {"e": "another", "s": first["s"]}))
    assert "snapshot" in made.sent[-1][0]


def test_subscriptions_of_one_client_share_a_query(stand: ChannelStand) -> None:
    made = stand.subscribe("ClusterChannel", cluster="agent-1")
    second = FakeCableSubscription("ClusterChannel", made.params)
    second.caller = made.caller
    channel = stand.channel("ClusterChannel")
    stand.pair.run(channel.subscribe(second))
    queries = stand.server._queries
    assert len(queries) == 1
    # One that leaves does not end the other.
    channel.unsubscribe(made)
    made.sent.clear()
    stand.add(deployment("web"))
    stand.advance(2)
    assert WEB in second.sent[-1][0]["put"]
    assert made.sent == []
    channel.unsubscribe(second)
    assert len(queries) == 0
    assert not [
        call for call in stand.clock.getDelayedCalls() if "LiveQuery" in str(call)
    ]


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("ClusterChannel", {}),
        ("ClusterChannel", {"cluster": "agent-1", "view": "no view"}),
        ("ClusterChannel", {"cluster": "agent-1", "view": 5}),
        ("FleetChannel", {}),
        ("FleetChannel", {"clusters": "agent-1"}),
        ("FleetChannel", {"clusters": [5]}),
        ("FleetChannel", {"clusters": ["x"] * 51}),
        ("FleetChannel", {"clusters": ["agent-1", "\ud800"]}),
        ("ObjectsChannel", {"clusters": ["agent-1"]}),
        ("ObjectsChannel", {"clusters": ["agent-1"], "kind": "deploy", "image": []}),
        (
            "ObjectsChannel",
            {"clusters": ["agent-1"], "kind": "deploy", "labelSelector": "="},
        ),
        ("EventsChannel", {"clusters": ["agent-1"], "namespace": "x" * 2000}),
    ],
)
def test_invalid_parameters(
    stand: ChannelStand, name: str, params: dict[str, Any]
) -> None:
    assert stand.refused(name, **params).status is Status.INVALID_ARGUMENT
    assert len(stand.server._queries) == 0


def test_a_cluster_without_access(stand: ChannelStand) -> None:
    error = stand.refused("ClusterChannel", cluster="another")
    assert error.status is Status.PERMISSION_DENIED
    # One with access suffices, and the other has no rows.
    made = stand.subscribe("FleetChannel", clusters=["agent-1", "another"])
    ((first, _),) = made.sent
    assert first["snapshot"]["cluster/another"]["state"] == "denied"


def test_only_clusters_of_the_user_are_followed(stand: ChannelStand) -> None:
    """Changes of others cost no work, until the user gets rights there."""
    other = Publication("2", "another", b"call")
    made = stand.subscribe("FleetChannel", clusters=["agent-1", "another"])
    (query,) = stand.server._queries._queries.values()
    run, runs = query._run, []

    def counting() -> Any:
        runs.append(1)
        return run()

    query._run = counting
    assert query.agents == {"1"}
    assert stand.server._queries.views("2") == frozenset()
    for _ in range(10):
        stand.server._touch(other)
        stand.clock.advance(PAUSE)
    assert not runs
    made.caller.accesses["another"] = attrs.evolve(
        ALICE, agent_id="2", agent_name="another"
    )
    stand.advance(REFRESH)
    assert stand.server._queries.views("2") == {"summary"}
    before = len(runs)
    stand.server._touch(other)
    stand.clock.advance(2 * PAUSE)
    assert len(runs) == before + 1
    # Rights may end, too.
    del made.caller.accesses["another"]
    stand.advance(REFRESH)
    assert stand.server._queries.views("2") == frozenset()


def test_an_agent_with_the_id_of_another_as_its_name(stand: ChannelStand) -> None:
    """It is not followed in its place."""
    stand.subscribe("ClusterChannel", cluster="1")
    assert stand.server._queries.views("1") == {"workloads"}
    (query,) = stand.server._queries._queries.values()
    due = query._next.getTime()
    stand.server._touch(Publication("9", "1", b"call"))
    assert query._next.getTime() == due


def test_limits(stand: ChannelStand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_queries_module, "MAX_QUERIES_EACH", 2)
    for view in ("workloads", "nodes"):
        stand.subscribe("ClusterChannel", cluster="agent-1", view=view)
    error = stand.refused("ClusterChannel", cluster="agent-1", view="problems")
    assert error.status is Status.RESOURCE_EXHAUSTED
    # Another user has own ones.
    stand.subscribe("ClusterChannel", BOB, cluster="agent-1")
    monkeypatch.setattr(live_queries_module, "MAX_QUERIES", 3)
    error = stand.refused("ClusterChannel", user=BOB, cluster="agent-1", view="nodes")
    assert error.status is Status.RESOURCE_EXHAUSTED


def test_a_store_that_fails_for_a_moment(stand: ChannelStand) -> None:
    """The query runs again, and the client notices nothing."""
    made = stand.subscribe("ClusterChannel", cluster="agent-1")
    made.sent.clear()
    stand.add(deployment("web"))
    stand.fail_write()
    stand.advance(REFRESH + 10)
    assert made.sent[-1][0]["put"][WEB]["ready"] == 1
    assert not made.closed


def test_a_store_that_is_busy(stand: ChannelStand) -> None:
    """Many other readers do not end a subscription."""
    made = stand.subscribe("FleetChannel", clusters=["agent-1"])
    made.sent.clear()
    (query,) = stand.server._queries._queries.values()
    run, busy = query._run, [CallError(Status.RESOURCE_EXHAUSTED, "busy")]

    async def refused_once() -> Any:
        if busy:
            raise busy.pop()
        return await run()

    query._run = refused_once
    stand.add(deployment("web"))
    stand.advance(REFRESH + 10)
    assert not busy and made.sent
    assert not made.closed


def test_old_rows_say_that_they_are_old(
    stand: ChannelStand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the store cannot be read, a client learns the time of its rows."""
    made = stand.subscribe("ClusterChannel", cluster="agent-1")
    (query,) = stand.server._queries._queries.values()
    made.sent.clear()
    with monkeypatch.context() as broken:
        broken.setattr(OwnRows, "rows", _fail)
        stand.advance(3 * REFRESH)
    ((message, _),) = made.sent
    assert message["put"] == {"asOf": query.as_of}
    assert message["delete"] == []
    # A client that comes now learns it, too.
    stand.pair.run(stand.channel("ClusterChannel").send_snapshot(made))
    snapshot = made.sent[-1][0]["snapshot"]
    assert snapshot["asOf"] == query.as_of and WEB in snapshot
    made.sent.clear()
    stand.advance(2 * REFRESH)
    assert made.sent[0][0]["delete"] == ["asOf"]
    assert not made.closed


async def _fail(*rest: Any, **more: Any) -> Any:
    raise CallError(Status.UNAVAILABLE, "the store of live data: disk I/O error")


def test_a_store_that_cannot_be_written(stand: ChannelStand) -> None:
    """No cluster is live while new rows cannot be stored."""
    made = stand.subscribe("ClusterChannel", cluster="agent-1")
    made.sent.clear()
    store: Any = stand.server._store
    transaction = store._transaction

    def fail(changes: Any) -> Any:
        raise sqlite3.OperationalError("disk I/O error")

    store._transaction = fail
    stand.add(deployment("web"))
    stand.advance(2)
    stated = [one for message, _ in made.sent for one in message["put"].values()]
    assert stated[-1]["state"] in ("late", "offline")
    (cluster,) = stand.get("clusters?clusters=agent-1")["clusters"]
    assert cluster["state"] in ("late", "offline")
    assert "kas could not store newer rows" in cluster["reason"]
    # Operators see it, who ask only for clusters that are not live.
    (state,) = stand.ask("Query", view="workloads").incomplete
    assert "kas could not store newer rows" in state.reason
    store._transaction = transaction
    stand.advance(REFRESH + 10)
    (cluster,) = stand.get("clusters?clusters=agent-1")["clusters"]
    assert (cluster["state"], cluster.get("reason")) == ("live", None)


def test_turns_of_clusters_are_by_user(
    stand: ChannelStand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The followers of one cluster do not share one turn."""
    readers: list[str] = []
    scopes = OwnRows.scopes

    def noting(rows: OwnRows, query: RowQuery) -> Any:
        readers.append(query.reader)
        return scopes(rows, query)

    monkeypatch.setattr(OwnRows, "scopes", noting)
    for user in (ALICE, BOB):
        stand.subscribe("FleetChannel", user, clusters=["agent-1"])
    assert {ALICE.owner, BOB.owner} == {*readers}


def test_a_query_that_is_slow(stand: ChannelStand) -> None:
    """Changes in the meantime make it run once more, and not at the same time."""
    made = stand.subscribe("ClusterChannel", cluster="agent-1")
    (query,) = stand.server._queries._queries.values()
    waiting: list[Deferred[Any]] = []

    def slow() -> Deferred[Any]:
        waiting.append(Deferred())
        return waiting[-1]

    query._run = slow
    query.touch()
    stand.clock.advance(2 * PAUSE)
    assert len(waiting) == 1
    query.touch()
    query.touch()
    stand.clock.advance(2 * PAUSE)
    assert len(waiting) == 1
    waiting[0].callback(QueryResult({"a": 1}, 1))
    stand.clock.advance(2 * PAUSE)
    assert len(waiting) == 2
    assert made.sent[-1][0]["put"] == {"a": 1}


def test_a_large_result_is_read_less_often(stand: ChannelStand) -> None:
    stand.subscribe("ClusterChannel", cluster="agent-1")
    (query,) = stand.server._queries._queries.values()
    runs: list[int] = []

    async def large() -> Any:
        runs.append(1)
        return QueryResult({str(count): count for count in range(5000)}, 5000)

    query._run = large
    for _ in range(100):
        query.touch()
        stand.clock.advance(0.1)
    # Two seconds for 5,000 rows.
    assert len(runs) <= 6


def test_results_of_one_user_are_limited(stand: ChannelStand) -> None:
    """All queries of a user together determine their pauses, and have a limit."""
    first = stand.subscribe("ClusterChannel", cluster="agent-1")
    second = stand.subscribe("ClusterChannel", cluster="agent-1", view="problems")
    one, two = stand.server._queries._queries.values()
    assert one.owner == two.owner
    sizes = [3000, MAX_KIB_EACH - 3000]

    def result(number: int) -> Any:
        async def run() -> QueryResult:
            return QueryResult({"a": sizes[number]}, sizes[number])

        return run

    one._run, two._run = result(0), result(1)
    stand.clock.advance(REFRESH)
    assert one._pause() == two._pause() == PAUSE + MAX_KIB_EACH * KIB_PAUSE
    sizes[1] += 1
    stand.clock.advance(2 * REFRESH)
    assert second.closed and not first.closed
    assert len(stand.server._queries) == 1


def test_the_module_stops(stand: ChannelStand) -> None:
    stand.subscribe("ClusterChannel", cluster="agent-1")
    stand.pair.run(stand.server.stop())
    assert len(stand.server._queries) == 0
