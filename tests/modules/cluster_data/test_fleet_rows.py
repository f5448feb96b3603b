"""Queries of one kas about the rows that other kas have."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import CancelledError, Deferred

from modules.cluster_data.server import live_queries as live_queries_module
from modules.cluster_data.server.live_queries import QueryResult
from modules.cluster_data.server.module import SWEEP
from modules.cluster_data.server.reader import LATE
from modules.cluster_data.server.sources import peer_rows as peer_rows_module
from modules.cluster_data.server.store.queries import ListScope, RowQuery
from modules.cluster_data.server.store.row_store import Publication
from modules.cluster_data.wire import cluster_data_pb2 as wire
from tests.modules.cluster_data.pair import LivePair, ThreadedClock
from tests.modules.cluster_data.test_rest import RestStand
from tunnel.api import Access, Impersonation
from tunnel.errors import CallError, Status

NEAR, FAR = "tcp://192.0.2.1:8155", "tcp://192.0.2.2:8155"


class FleetStand:
    """
    Two kas, each with the stores of some agents.

    :ivar now: the time of day, which moves with the clock.
    """

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = ThreadedClock()
        monkeypatch.setattr("time.time", lambda: 1000.0 + self.clock.seconds())
        self.near, self.far = (
            RestStand(folder / name, clock=self.clock) for name in ("near", "far")
        )
        self.near.join(self.far, FAR)
        self.far.join(self.near, NEAR)
        self._calls = itertools.count()
        self.publications: dict[tuple[LivePair, str], Publication] = {}

    def publish(
        self,
        kas: LivePair,
        agent: str,
        *names: str,
        view: str = "workloads",
        uid: str = "",
    ) -> None:
        """Let an agent publish its Deployments to a kas."""
        store = kas.server._store
        key = kas, agent
        if key not in self.publications:
            call = b"%d" % next(self._calls)
            self.publications[key] = Publication(agent, f"agent-{agent}", call)
            hello = wire.Hello(epoch=call, cluster_uid=uid or agent, views=[view])
            kas.pair.run(store.welcome(self.publications[key], hello))
        rows = [
            wire.Row(
                key=wire.RowKey(
                    group="apps", kind="Deployment", namespace="shop", name=name
                ),
                resource="deployments",
                columns=json.dumps({"state": name}).encode(),
            )
            for name in names
        ]
        snapshot = wire.Snapshot(
            view=view, sequence=1, first=True, last=True, rows=rows
        )
        kas.pair.run(store.snapshot(self.publications[key], snapshot))
        kas.server._touch(self.publications[key])

    def leave(self, kas: LivePair, agent: str) -> None:
        """Let an agent disconnect from a kas."""
        publication = self.publications.pop((kas, agent))
        kas.pair.run(kas.server._store.ended(publication))

    def run(self, work: Any) -> Any:
        """Return the result of work at one kas that may ask the other."""
        results: list[Any] = []
        Deferred.fromCoroutine(work).addBoth(results.append)
        for _ in range(400):
            self.near._settle()
            if results:
                break
            self.clock.advance(0.25)
        (result,) = results
        if hasattr(result, "raiseException"):
            result.raiseException()
        return result

    def query(self, kas: LivePair, *names: str, **more: Any) -> Any:
        query = RowQuery(view="workloads", **more)
        return self.run(kas.server._reader.rows_of_all(query, names))

    def found(self, kas: LivePair, *names: str, **more: Any) -> list[str]:
        return [
            f"{one.agent_id}/{one.name}" for one in self.query(kas, *names, **more).rows
        ]

    def close(self) -> None:
        self.near.close()
        self.far.close()


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FleetStand]:
    stand = FleetStand(tmp_path, monkeypatch)
    yield stand
    stand.close()


def test_rows_of_both(fleet: FleetStand) -> None:
    fleet.publish(fleet.near, "10", "a", "c")
    fleet.publish(fleet.far, "11", "b")
    for kas in (fleet.near, fleet.far):
        assert fleet.found(kas) == ["10/a", "10/c", "11/b"]
        assert fleet.found(kas, "agent-11") == ["11/b"]
        assert fleet.found(kas, "10", "agent-11") == ["10/a", "10/c", "11/b"]
    answer = fleet.query(fleet.near)
    assert (answer.queried, answer.incomplete, answer.missing_kas) == (2, [], [])
    answer = fleet.query(fleet.near, "agent-11", "agent-12")
    assert [(one.cluster.agent_name, one.state) for one in answer.incomplete] == [
        ("agent-12", "never")
    ]


def test_pages_of_both(fleet: FleetStand) -> None:
    for number in range(10, 16):
        kas = (fleet.near, fleet.far)[number % 2]
        fleet.publish(kas, f"{number}", "a", "b", "c")
    every = fleet.found(fleet.near)
    assert every == [f"{number}/{name}" for number in range(10, 16) for name in "abc"]
    paged: list[str] = []
    page = ""
    for _ in every:
        answer = fleet.query(fleet.near, limit=4, page=page)
        paged += [f"{one.agent_id}/{one.name}" for one in answer.rows]
        page = answer.next_page
        if not page:
            break
    assert paged == every


def test_rows_of_a_moved_agent(fleet: FleetStand) -> None:
    """The store to which the agent publishes now has its rows."""
    fleet.publish(fleet.near, "10", "old")
    fleet.publish(fleet.near, "11", "other")
    fleet.clock.advance(1)
    fleet.leave(fleet.near, "10")
    fleet.publish(fleet.far, "10", "new")
    for kas in (fleet.near, fleet.far):
        assert fleet.found(kas) == ["10/new", "11/other"]
        assert fleet.found(kas, "agent-10") == ["10/new"]
        answer = fleet.query(kas)
        assert (answer.queried, answer.incomplete) == (2, [])
    # The newest rows count if the agent is away from both.
    fleet.clock.advance(1)
    fleet.leave(fleet.far, "10")
    for kas in (fleet.near, fleet.far):
        answer = fleet.query(kas)
        assert [one.name for one in answer.rows] == ["new", "other"]
        assert [one.state for one in answer.incomplete] == ["offline"]
        assert answer.queried == 2


def test_moved_agents_are_forgotten(fleet: FleetStand) -> None:
    fleet.publish(fleet.near, "10", "old")
    fleet.publish(fleet.near, "11", "away")
    for agent in ("10", "11"):
        fleet.leave(fleet.near, agent)
    fleet.publish(fleet.far, "10", "new")
    fleet.near.advance(LATE + SWEEP + 1)
    own = fleet.run(fleet.near.server._fleet._own.clusters(()))
    assert [one.agent_id for one in own.clusters] == ["11"]
    # An agent that has come back in the meantime keeps its rows.
    fleet.publish(fleet.near, "11", "back")
    assert fleet.run(fleet.near.server._store.forget_moved(["11"])) == 0


def test_an_absent_kas(fleet: FleetStand) -> None:
    """The rows of the other kas are present, and the answer says what is missing."""
    fleet.publish(fleet.near, "10", "a")
    fleet.publish(fleet.far, "11", "b")
    fleet.near.pair.peers.unreachable.add(FAR)
    answer = fleet.query(fleet.near)
    assert [one.name for one in answer.rows] == ["a"]
    assert answer.missing_kas == [FAR]
    answer = fleet.query(fleet.near, "agent-11")
    (missing,) = answer.incomplete
    assert "1 kas did not respond" in missing.reason
    clusters = fleet.run(fleet.near.server._reader.clusters_of_all(()))
    assert clusters.missing_kas == [FAR]
    assert [one.cluster.agent_name for one in clusters.clusters] == ["agent-10"]


def test_a_kas_that_leaves_during_a_query(fleet: FleetStand) -> None:
    fleet.publish(fleet.near, "10", "a")
    fleet.publish(fleet.far, "11", "b")
    reader = fleet.near.server._fleet
    located = fleet.run(reader.locate(()))
    fleet.near.pair.peers.unreachable.add(FAR)
    query = RowQuery(view="workloads")
    rows, _ = fleet.run(located.rows(query, None))
    assert [one.name for one in rows] == ["a"]
    assert located.missing == {FAR}


def test_a_store_of_another_kas_that_cannot_be_written(fleet: FleetStand) -> None:
    fleet.publish(fleet.near, "10", "a")
    fleet.publish(fleet.far, "11", "b")
    assert fleet.query(fleet.near).incomplete == []
    fleet.far.server._store.is_failing = True
    for names in ((), ("10", "11")):
        (missing,) = fleet.query(fleet.near, *names).incomplete
        assert (missing.cluster.agent_id, missing.state) == ("11", "late")
        assert missing.reason.endswith("; kas could not store newer rows")


def test_a_kas_without_the_module(fleet: FleetStand) -> None:
    """An older kas has no rows."""
    fleet.publish(fleet.near, "10", "a")
    fleet.far.pair.peers._dispatcher.withdraw("test")
    answer = fleet.query(fleet.near)
    assert [one.name for one in answer.rows] == ["a"]
    assert answer.missing_kas == []


def test_a_worker_has_the_same_store(fleet: FleetStand) -> None:
    fleet.publish(fleet.near, "10", "a")
    fleet.far.join(fleet.near, "unix:///worker", is_worker=True)
    assert len(fleet.far.server._others()) == 1


def test_two_processes_with_one_store(fleet: FleetStand) -> None:
    """Another kas has several workers, and each row counts once."""
    fleet.publish(fleet.far, "11", "b")
    fleet.near.join(fleet.far, "tcp://192.0.2.2:8156")
    assert fleet.found(fleet.near) == ["11/b"]
    assert fleet.query(fleet.near).queried == 1


def test_an_own_store_that_fails(fleet: FleetStand) -> None:
    fleet.publish(fleet.far, "11", "b")

    async def read(query: Any, spent: Any) -> None:
        raise CallError(Status.UNAVAILABLE, "the store of live data: disk I/O error")

    fleet.near.server._store.read = read
    with pytest.raises(CallError) as caught:
        fleet.query(fleet.near)
    assert caught.value.status is Status.UNAVAILABLE


def test_invalid_queries_do_not_look_like_an_absent_kas(fleet: FleetStand) -> None:
    with pytest.raises(CallError) as caught:
        fleet.query(fleet.near, "10", page="x")
    assert caught.value.status is Status.INVALID_ARGUMENT


def test_rights_in_the_other_store(fleet: FleetStand) -> None:
    """A user gets only the permitted rows of another kas."""
    stand = fleet.near
    access = Access("user:alice", "1", "agent-1", impersonation=Impersonation("alice"))
    stand.allowed = {("alice", "apps/deployments@shop")}
    uid = fleet.run(stand.agent._cluster_uid.read())
    fleet.publish(fleet.far, "1", "web", uid=uid)

    async def access_of(name: str) -> Access:
        return access

    for kind, status in (("Deployment", ["web"]), ("StatefulSet", [])):
        query = RowQuery(view="workloads", kind=kind)
        answer = fleet.run(stand.server._reader.rows(query, ["agent-1"], access_of))
        assert [one.name for one in answer.rows] == status
        assert answer.incomplete == []
    stand.allowed = set()
    fleet.clock.advance(61)
    fleet.publish(fleet.far, "1", "web")
    query = RowQuery(view="workloads")
    answer = fleet.run(stand.server._reader.rows(query, ["agent-1"], access_of))
    assert answer.rows == []


def test_many_scopes_and_rows(
    fleet: FleetStand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lists are sent in parts."""
    monkeypatch.setattr(peer_rows_module, "PART", 2)
    names = [f"n{number}" for number in range(7)]
    fleet.publish(fleet.far, "11", *names)
    for number in range(12, 17):
        fleet.publish(fleet.far, f"{number}", "a")
    (peer,) = fleet.near.server._others()
    query = RowQuery(view="workloads", agents=["11", "12", "13", "14"])
    scopes = fleet.run(peer.scopes(query))
    assert {one.agent_id for one in scopes} == {"11", "12", "13", "14"}
    rows, page = fleet.run(peer.rows(query, scopes))
    assert (len(rows), page) == (10, "")
    rows, _ = fleet.run(
        peer.rows(query, {ListScope("12", "apps", "deployments", "shop")})
    )
    assert [one.agent_id for one in rows] == ["12"]
    assert len(fleet.run(peer.clusters(())).clusters) == 6


def test_a_view_in_the_other_store(fleet: FleetStand) -> None:
    """Only the views of the agents in the query count."""
    fleet.publish(fleet.far, "11", "a", view="extra")
    fleet.publish(fleet.far, "12", "a")
    located = fleet.run(fleet.near.server._fleet.locate(["11", "12"]))
    for agents, expected in ((["11"], True), (["12"], False), ([], False)):
        query = RowQuery(view="extra", agents=agents)
        assert fleet.run(located.has_view(query)) is expected
    located = fleet.run(fleet.near.server._fleet.locate(()))
    assert fleet.run(located.has_view(RowQuery(view="extra")))
    assert not fleet.run(located.has_view(RowQuery(view="unknown")))


def test_summaries_of_both(fleet: FleetStand) -> None:
    fleet.publish(fleet.near, "10", "", view="summary")
    fleet.publish(fleet.far, "11", "", view="summary")
    answer = fleet.run(fleet.near.server._reader.clusters_of_all(()))
    assert [(one.cluster.agent_name, len(one.summary)) for one in answer.clusters] == [
        ("agent-10", 1),
        ("agent-11", 1),
    ]


class Listener:
    """A listener that records the results of a query."""

    def __init__(self) -> None:
        self.changes: list[Any] = []

    def changed(self, query: Any, put: Any, deleted: Sequence[str]) -> None:
        self.changes.append((dict(put), list(deleted)))

    def failed(self, error: CallError) -> None:
        self.changes.append(error)


def test_changes_at_another_kas(fleet: FleetStand) -> None:
    """A live query runs after a change at another kas, long before its next turn."""
    fleet.publish(fleet.far, "11", "a")
    near, far = fleet.near.server._queries, fleet.far.server._queries

    async def run() -> QueryResult:
        answer = await fleet.near.server._reader.rows_of_all(
            RowQuery(view="workloads"), ["11"]
        )
        return QueryResult({one.name: one.columns for one in answer.rows}, 1)

    listener = Listener()
    agents, views = frozenset(["11"]), frozenset(["workloads"])
    query = fleet.run(near.follow(("me", 1), agents, views, run, listener))
    fleet.near.advance(0.25)
    assert set(query.rows) == {"a"}
    # The agent sends what a reader of any kas follows at once.
    assert far.views("11") == views
    fleet.publish(fleet.far, "11", "a", "b")
    fleet.near.advance(1)
    assert [set(put) for put, _ in listener.changes] == [{"b"}]
    query.leave(listener)
    fleet.near.advance(0.25)
    assert far.views("11") == frozenset()
    assert not far._remotes


def test_a_kas_that_joins_later(fleet: FleetStand) -> None:
    fleet.near.pair.peers.unreachable.add(FAR)
    fleet.publish(fleet.far, "11", "a")

    async def run() -> QueryResult:
        return QueryResult({}, 0)

    near, far = fleet.near.server._queries, fleet.far.server._queries
    agents, views = frozenset(["11"]), frozenset(["workloads"])
    listener = Listener()
    query = fleet.run(near.follow(("me", 1), agents, views, run, listener))
    assert not far._remotes
    fleet.near.pair.peers.unreachable.clear()
    fleet.near.advance(6)
    assert len(far._remotes) == 1
    query.leave(listener)


def test_followed_queries_are_limited(
    fleet: FleetStand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_queries_module, "MAX_REMOTES", 1)
    queries = fleet.near.server._queries
    changes = [queries.changes(frozenset(["1"]), frozenset()) for _ in range(2)]
    first = Deferred.fromCoroutine(changes[0].__anext__())
    with pytest.raises(CallError) as caught:
        fleet.run(changes[1].__anext__())
    assert caught.value.status is Status.RESOURCE_EXHAUSTED
    first.addErrback(lambda failure: failure.trap(CancelledError))
    first.cancel()


def test_agents_that_are_followed_later(fleet: FleetStand) -> None:
    """A live query follows other agents at another kas as soon as a run says so."""
    agents = frozenset(["11"])

    async def run() -> QueryResult:
        return QueryResult({}, 0, agents)

    near, far = fleet.near.server._queries, fleet.far.server._queries
    views, listener = frozenset(["workloads"]), Listener()
    query = fleet.run(near.follow(("me", 1), frozenset(), views, run, listener))
    fleet.near.advance(0.25)
    assert far.views("11") == views
    agents = frozenset(["12"])
    query.touch()
    fleet.near.advance(1)
    assert (far.views("11"), far.views("12")) == (frozenset(), views)
    query.leave(listener)
    fleet.near.advance(0.25)
    assert not far._remotes
