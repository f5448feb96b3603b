"""Live data for some readers while others ask much, or lose their rights."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock

from modules.cluster_data.agent import cache as cache_module
from modules.cluster_data.agent import reviews as agent_reviews
from modules.cluster_data.server import rest as rest_module
from modules.cluster_data.server import rights as rights_module
from modules.cluster_data.server.known_components import ComponentTable
from modules.cluster_data.server.rights import ReaderRights
from modules.cluster_data.server.sources import own_rows as own_rows_module
from modules.cluster_data.server.sources.own_rows import OwnRows
from modules.cluster_data.server.store.label_selector import MAX_PARTS
from modules.cluster_data.server.store.queries import (
    ListScope,
    RowQuery,
    find_rows,
)
from modules.cluster_data.wire import cluster_data_pb2 as wire
from tests.modules.cluster_data.pair import deployment, node
from tests.modules.cluster_data.test_rest import (
    ALICE,
    DEPLOYMENTS,
    RestStand,
    ReviewingCluster,
)
from tests.modules.cluster_data.test_row_store import EPOCH, MAIN, StoreStand, row
from tunnel.api import Access, Impersonation
from tunnel.errors import CallError, Status


class Calls:
    """`IServerModuleApi.calls` whose reviews a test answers."""

    def __init__(self) -> None:
        self.calls = self
        self.waiting: list[tuple[wire.ReviewRequest, Deferred[Any]]] = []

    def client(self, service: Any, agent_id: str, access: Access) -> Any:
        return self

    def call(self, method: str, request: Any, timeout: float) -> Deferred[Any]:
        answer: Deferred[Any] = Deferred()
        self.waiting.append((request, answer))
        return answer

    def answer(self, allowed: bool, uid: str = "u") -> None:
        request, answer = self.waiting.pop(0)
        count = len(request.lists)
        answer.callback(wire.ReviewResponse(allowed=[allowed] * count, cluster_uid=uid))

    def fail(self, status: Status) -> None:
        _, answer = self.waiting.pop(0)
        answer.errback(CallError(status, "a reason"))


SCOPE = ListScope("1", "apps", "deployments", "")


class RightsStand:
    """The rights of readers, with a clock."""

    def __init__(self, clock: Any) -> None:
        self.clock = clock
        self.calls = Calls()
        api: Any = self.calls
        self.rights = ReaderRights(api, clock)

    def ask(self, access: Access = ALICE, uid: str = "u") -> list[Any]:
        """Return a list that gets the result."""
        results: list[Any] = []
        asking = self.rights.permitted(access, [SCOPE], uid, True)
        Deferred.fromCoroutine(asking).addBoth(results.append)
        return results


@pytest.fixture
def rights() -> RightsStand:
    return RightsStand(Clock())


def test_equal_questions_are_asked_once(rights: RightsStand) -> None:
    """A user who asks much does not keep the cluster busy."""
    asked = [rights.ask() for _ in range(50)]
    assert len(rights.calls.waiting) == 1
    rights.calls.answer(True)
    assert not rights.calls.waiting
    assert all(one[0].scopes == {SCOPE} for one in asked)


def test_another_user_does_not_wait(rights: RightsStand) -> None:
    bob = Access("user:bob", "1", "agent-1", impersonation=Impersonation("bob"))
    rights.ask()
    rights.ask(bob)
    assert len(rights.calls.waiting) == 2


@pytest.mark.parametrize(
    "status",
    [
        Status.DEADLINE_EXCEEDED,
        Status.RESOURCE_EXHAUSTED,
        Status.INTERNAL,
        # A proxy in front of the API server, or a policy that was not read yet.
        Status.UNAVAILABLE,
    ],
)
def test_a_busy_cluster_does_not_prolong_rights(
    rights: RightsStand, status: Status
) -> None:
    """Otherwise a user whose rights were revoked would keep the cluster busy."""
    rights.ask()
    rights.calls.answer(True)
    rights.clock.advance(rights_module.ALLOWED_SECONDS + 1)
    (result,) = _failed(rights, status)
    assert result.scopes == frozenset()
    assert result.reason == "a reason"


def test_an_answer_from_before_a_change(rights: RightsStand) -> None:
    """It may be as old as the question, however late it arrives."""
    rights.ask()
    rights.clock.advance(1)
    rights.rights.changed("1")
    rights.clock.advance(1)
    rights.calls.answer(True)
    again = rights.ask()
    assert rights.calls.waiting and not again
    rights.calls.answer(False)
    assert again[0].scopes == frozenset()


def _failed(rights: RightsStand, status: Status) -> list[Any]:
    result = rights.ask()
    rights.calls.fail(status)
    return result


def test_a_failure_is_remembered_for_a_moment(rights: RightsStand) -> None:
    """Requests that wait do not repeat a call that has just timed out."""
    asked = [rights.ask() for _ in range(50)]
    rights.calls.fail(Status.DEADLINE_EXCEEDED)
    assert not rights.calls.waiting
    assert all(one[0].reason == "a reason" for one in asked)
    rights.clock.advance(rights_module.FAILURE_SECONDS)
    rights.ask()
    assert len(rights.calls.waiting) == 1


def test_rights_of_another_cluster(rights: RightsStand) -> None:
    """The rights in one cluster do not open the rows of another one."""
    rights.ask(uid="old")
    rights.calls.answer(True, "old")
    (result,) = rights.ask(uid="old")
    assert result.scopes == {SCOPE}
    # The agent has moved, and its new rows have arrived.
    asked = rights.ask(uid="new")
    rights.calls.fail(Status.UNAVAILABLE)
    assert asked[0].scopes == frozenset()
    # The agent has moved, and the old rows are still there.
    rights.clock.advance(rights_module.ALLOWED_SECONDS + 1)
    asked = rights.ask(uid="old")
    rights.calls.answer(True, "new")
    assert asked[0].scopes == frozenset()
    assert "moved to another cluster" in asked[0].reason


def test_the_same_list_is_always_reviewed(rights: RightsStand) -> None:
    """An error or a delay does not tell a user whether the store has rows."""
    asking = rights.rights.permitted(ALICE, [], "u", False)
    results: list[Any] = []
    Deferred.fromCoroutine(asking).addBoth(results.append)
    rights.calls.fail(Status.UNAVAILABLE)
    assert results[0].reason == "a reason"


def test_a_user_with_many_namespaces(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They displace no answers for others, and all of them count."""
    monkeypatch.setattr(rights_module, "MAX_ANSWERS", 10)
    stand = RightsStand(Clock())
    stand.ask()
    stand.calls.answer(True)
    scopes = [ListScope("1", "", "pods", f"n{number}") for number in range(50)]
    bob = Access("user:bob", "1", "agent-1", impersonation=Impersonation("bob"))
    results: list[Any] = []
    asking = stand.rights.permitted(bob, scopes, "u", True)
    Deferred.fromCoroutine(asking).addBoth(results.append)
    # Not in the whole cluster, but in each namespace.
    stand.calls.answer(False)
    stand.calls.answer(True)
    assert results[0].scopes == set(scopes)
    (result,) = stand.ask()
    assert result.scopes == {SCOPE}
    assert not stand.calls.waiting


# -- The agent half


def test_reviews_of_agentk_are_limited(rest: RestStand) -> None:
    """One user occupies one place, and all users leave agentk time for its own work."""
    reviews = agent_reviews.Reviews(rest.agent._api, rest.agent._cluster_uid)
    blocked: Deferred[Any] = Deferred()

    async def block(*rest: Any) -> Any:
        await blocked

    class Call:
        def __init__(self, name: str) -> None:
            self.access = Access(
                f"user:{name}", "1", "a", impersonation=Impersonation(name)
            )

    request = wire.ReviewRequest(lists=[wire.ReviewedList(resource="pods")])
    reviews._cluster_uid.read = block  # type: ignore[method-assign]

    def ask(name: str) -> list[Any]:
        results: list[Any] = []
        asking = Deferred.fromCoroutine(reviews.review(request, Call(name)))
        asking.addBoth(results.append)
        return results

    mine = [ask("mallory") for _ in range(agent_reviews.MAX_WAITING + 2)]
    assert reviews._turns.running == 1
    assert mine[-1][0].value.status is Status.RESOURCE_EXHAUSTED
    for name in ("alice", "bob", "carol"):
        ask(name)
    assert reviews._turns.running == agent_reviews.CALLS
    rest.clock.advance(agent_reviews.WAIT_SECONDS)
    assert reviews._turns.waiting == 0
    blocked.errback(CallError(Status.UNAVAILABLE, "the end"))


# -- The store


@pytest.fixture
def rest(tmp_path: Path) -> Iterator[RestStand]:
    stand = RestStand(tmp_path)
    stand.add(deployment("web"), node("a"))
    stand.lead()
    stand.advance(3)
    yield stand
    stand.close()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StoreStand]:
    stand = StoreStand(tmp_path / "rows.sqlite")
    stand.run(stand.store.welcome(MAIN, EPOCH))
    yield stand
    stand.run(stand.store.stop())


def test_readers_take_turns(store: StoreStand) -> None:
    """A reader with many queries delays another one by one query."""
    rows = OwnRows(store.store, store.clock, lambda: 0.0)
    order: list[str] = []
    pool = store.clock.getThreadPool()
    pool.pause()

    def ask(reader: str) -> Deferred[Any]:
        query = RowQuery(view="workloads", reader=reader)
        asked = Deferred.fromCoroutine(rows.rows(query, None))
        return asked.addCallback(lambda _: order.append(reader))

    many = [ask("mallory") for _ in range(own_rows_module.MAX_WAITING + 1)]
    refused: list[Any] = []
    ask("mallory").addErrback(refused.append)
    assert refused[0].value.status is Status.RESOURCE_EXHAUSTED
    ask("alice")
    for _ in range(2):
        pool.step()
    assert sorted(order) == ["alice", "mallory"]
    pool.resume()
    assert len(order) == len(many) + 1


def test_a_reader_who_left_does_not_run(store: StoreStand) -> None:
    rows = OwnRows(store.store, store.clock, lambda: 0.0)
    pool = store.clock.getThreadPool()
    pool.pause()
    query = RowQuery(view="workloads", reader="mallory")
    asked = [Deferred.fromCoroutine(rows.rows(query, None)) for _ in range(3)]
    for one in asked[1:]:
        one.addErrback(lambda failure: failure.trap(CancelledError))
        one.cancel()
    assert rows._turns.waiting == 0
    pool.resume()
    assert rows._turns.running == 0


def test_parts_of_a_selector() -> None:
    """Equal parts count once, and different parts have a limit."""
    query = RowQuery(view="workloads", label_selector="app," * 200 + "app")
    assert query.filters(by_term=True)[0].count("SELECT") == 1
    many = ",".join(f"k{number}" for number in range(MAX_PARTS + 1))
    with pytest.raises(CallError, match="more than 20 parts"):
        RowQuery(view="workloads", label_selector=many)


FILTERS = [
    {"label_selector": "app=web"},
    {"label_selector": "app==web,tier=front"},
    {"label_selector": "app!=web"},
    {"label_selector": "app"},
    {"label_selector": "!app"},
    {"label_selector": "app in (web, api)"},
    {"label_selector": "app notin (web, api)"},
    {"label_selector": "a.b/c-d=x"},
    {"image": "web:1"},
    {"image": "none"},
    {"name": "web"},
    {"name": "none"},
]


@pytest.mark.parametrize("filters", FILTERS, ids=lambda one: str(one))
def test_both_ways_find_the_same(store: StoreStand, filters: Any) -> None:
    """Conditions of an operator's query and of a user's query have one meaning."""
    columns = [
        b'{"labels": {"app": "web", "tier": "front"}, "images": ["x/web:1"]}',
        b'{"labels": {"app": "api"}, "images": ["x/api:1", "x/web:12"]}',
        b'{"labels": {"a.b/c-d": "x"}}',
        b"{}",
    ]
    names = ["web", "api", "dotted", "bare"]
    rows = [row(name, one) for name, one in zip(names, columns, strict=True)]
    store.run(store.snapshot(*rows))
    query = RowQuery(view="workloads", **filters)
    every = {ListScope("1", "apps", "deployments", "shop")}

    def find(scopes: Any) -> list[str]:
        read = store.store.read(partial(find_rows, query=query, scopes=scopes))
        return [one.name for one in store.run(read)[0]]

    assert find(None) == find(every)
    assert find({ListScope("1", "apps", "deployments", "other")}) == []


def test_nothing_is_read_without_rights(store: StoreStand) -> None:
    """The time of a query does not tell whether hidden rows match."""
    store.run(store.snapshot(row("web", b'{"labels": {"app": "web"}}')))
    query = RowQuery(view="workloads", label_selector="app=web")

    class Untouched:
        def execute(self, *rest: Any) -> Any:
            raise sqlite3.ProgrammingError("the store was read")

    database: Any = Untouched()
    assert find_rows(database, query, set()) == ([], "")


def test_only_permitted_rows_are_examined(store: StoreStand) -> None:
    """The filters of a user's query never look at hidden rows."""
    query = RowQuery(view="workloads", label_selector="app=web", image="web", name="a")
    text, _ = query.filters(by_term=False)
    assert "terms" not in text


# -- /api/v1


def test_requests_of_one_token_are_limited(
    rest: RestStand, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked: Deferred[Any] = Deferred()
    reader = rest.server._reader

    async def rows(*more: Any) -> Any:
        await blocked

    monkeypatch.setattr(reader, "rows", rows)
    api = rest_module.RestApi(rest.server._api, reader, ComponentTable())

    def ask(token: str) -> list[Any]:
        class Request:
            args = {b"clusters": [b"agent-1"], b"kind": [b"deploy"]}
            code = 200

            class requestHeaders:
                @staticmethod
                def getRawHeaders(name: str, default: Any) -> Any:
                    return [f"Bearer {token}"]

            def setHeader(self, *more: Any) -> None:
                pass

            def setResponseCode(self, code: int, message: bytes) -> None:
                self.code = code

            def notifyFinish(self) -> Deferred[None]:
                return Deferred()

        request = Request()
        api._answer(request, lambda one: api._rows(one, "")).addBoth(results.append)
        return [request]

    results: list[Any] = []
    every = rest_module.REQUESTS_EACH + rest_module.MAX_WAITING
    requests = [ask("mallory") for _ in range(every + 1)]
    assert requests[-1][0].code == 429
    assert len(results) == 1
    ask("alice")
    assert api._turns.running == rest_module.REQUESTS_EACH + 1
    blocked.errback(CallError(Status.UNAVAILABLE, "the end"))


def test_csv_says_what_is_missing(rest: RestStand) -> None:
    rest.allowed = {("alice", "apps/deployments")}
    rest.add(deployment("api"))
    rest.advance(2)
    path = f"/api/v1/{DEPLOYMENTS},nowhere&format=csv&limit=1"
    answer = rest.pair.visit(path, authorization="Bearer alice", wait=0.25)
    assert answer.fields["txkas-incomplete"] == "nowhere"
    assert answer.fields["txkas-missing-kas"] == "0"
    assert float(answer.fields["txkas-as-of"]) > 0
    assert answer.fields["txkas-continue"]
    rest.clock.advance(1)
    more = f"{path}&continue={answer.fields['txkas-continue']}"
    answer = rest.pair.visit(more, authorization="Bearer alice", wait=0.25)
    assert b"web" in answer.body
    assert answer.fields["txkas-continue"] == ""


# -- The first rows after a restart


def test_rows_stay_until_all_kinds_are_read(rest: RestStand) -> None:
    """Readers never see a cluster that seems to be empty."""
    assert set(rest.rows("workloads")) == {"web"}
    rest.follow()
    assert isinstance(rest.cluster, ReviewingCluster)
    rest.cluster.broken = "/apis/apps/v1/deployments"
    rest.lead()
    rest.advance(10)
    assert set(rest.rows("workloads")) == {"web"}
    assert "Deployment" in rest.rows("summary")
    rest.add(deployment("new"))
    rest.cluster.broken = ""
    rest.advance(30)
    assert set(rest.rows("workloads")) == {"web", "new"}


def test_a_kind_that_cannot_be_read_delays_the_others_for_a_while(
    rest: RestStand,
) -> None:
    rest.follow()
    assert isinstance(rest.cluster, ReviewingCluster)
    rest.cluster.broken = "/apis/apps/v1/deployments"
    rest.lead()
    rest.advance(cache_module.SYNC_PATIENCE + 11)
    assert rest.rows("workloads") == {}
    assert rest.rows("kinds")["Deployment"]["state"] == "reading"
