"""Rows and rights of an agent that moves between clusters, also of unknown ones."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.task import Clock

from modules.cluster_data.server.rights import ReaderRights
from modules.cluster_data.server.store.queries import (
    ListScope,
    RowQuery,
    cluster_identity,
    find_clusters,
    find_rows,
    find_scopes,
    find_summaries,
)
from modules.cluster_data.server.store.row_store import Publication
from modules.cluster_data.wire import cluster_data_pb2 as wire
from tests.modules.cluster_data.pair import deployment, node
from tests.modules.cluster_data.test_fair_reads import RightsStand
from tests.modules.cluster_data.test_rest import DEPLOYMENTS, RestStand
from tests.modules.cluster_data.test_row_store import MAIN, StoreStand, row

REVIEW = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
FORBIDDEN = {"kind": "Status", "code": 403, "message": "forbidden"}
SCOPES = {ListScope("1", "apps", "deployments", "shop")}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StoreStand]:
    stand = StoreStand(tmp_path / "rows.sqlite")
    yield stand
    stand.run(stand.store.stop())


@pytest.fixture
def rest(tmp_path: Path) -> Iterator[RestStand]:
    stand = RestStand(tmp_path)
    stand.add(deployment("web"), node("a"))
    yield stand
    stand.close()


def hello(epoch: bytes, uid: str = "") -> wire.Hello:
    return wire.Hello(epoch=epoch, cluster_uid=uid, views=["workloads", "summary"])


def identity(store: StoreStand) -> str:
    (found,) = store.run(store.store.read(find_clusters))
    return found.identity


@pytest.mark.parametrize(
    ("uid", "epoch", "expected"),
    [("u", b"e", "u"), ("u", b"", "u"), ("", b"\xab", "epoch AB"), ("", b"", "")],
)
def test_identities(uid: str, epoch: bytes, expected: str) -> None:
    assert cluster_identity(uid, epoch) == expected


def test_the_store_has_the_same_identities(store: StoreStand) -> None:
    store.run(store.store.welcome(MAIN, hello(b"\xab\x01")))
    assert identity(store) == cluster_identity("", b"\xab\x01")
    store.run(store.store.welcome(MAIN, hello(b"\xab\x01", "u")))
    assert identity(store) == "u"
    # Such an epoch equals nothing.
    store.run(store.store.welcome(MAIN, hello(b"")))
    assert identity(store) != cluster_identity("", b"")


def test_two_unknown_clusters_are_not_the_same(store: StoreStand) -> None:
    """The rows of one are not shown as those of the other."""
    store.run(store.store.welcome(MAIN, hello(b"e")))
    store.run(store.snapshot(row("web")))
    # The same cache goes on.
    store.run(store.store.welcome(MAIN, hello(b"e")))
    assert store.names() == ["web"]
    store.run(store.store.welcome(MAIN, hello(b"f")))
    assert store.names() == []


@pytest.mark.parametrize("uid", ["u", ""], ids=["known", "unknown"])
def test_statements_compare_the_cluster(store: StoreStand, uid: str) -> None:
    """An agent may move between a review and the statement that reads its rows."""
    store.run(store.store.welcome(MAIN, hello(b"e", uid)))
    store.run(store.snapshot(row("web")))
    store.run(store.snapshot(row("web"), view="summary"))

    def found(expected: str) -> list[bool]:
        identities = {"1": expected}
        query = RowQuery(view="workloads", agents=["1"], identities=identities)
        read = store.store.read
        rows, _ = store.run(read(partial(find_rows, query=query, scopes=SCOPES)))
        scopes = store.run(read(partial(find_scopes, query=query)))
        summaries = store.run(
            read(partial(find_summaries, agents=["1"], identities=identities))
        )
        return [bool(one) for one in (rows, scopes, summaries)]

    assert found(identity(store)) == [True] * 3
    assert found("another") == [False] * 3
    assert found("") == [False] * 3


@pytest.mark.parametrize(
    ("epoch", "is_believed"),
    [(b"e", True), (b"f", False), (b"", False)],
    ids=["the same cache", "another cache", "no cache"],
)
def test_rights_in_an_unknown_cluster(epoch: bytes, is_believed: bool) -> None:
    """An agentk that cannot read the uid answers only for its own rows."""
    stand = RightsStand(Clock())
    asked = stand.ask(uid=cluster_identity("", b"e"))
    request, answer = stand.calls.waiting.pop()
    allowed = [True] * len(request.lists)
    answer.callback(wire.ReviewResponse(allowed=allowed, epoch=epoch))
    assert bool(asked[0].scopes) is is_believed
    assert bool(asked[0].reason) is not is_believed


def test_a_user_of_an_unknown_cluster(rest: RestStand) -> None:
    rest.cluster.answer("GET", "/api/v1/namespaces/kube-system", FORBIDDEN, 403)
    rest.cluster.answer("POST", REVIEW, FORBIDDEN, 403)
    rest.lead()
    rest.advance(3)
    rest.allowed = {("alice", "apps/deployments")}
    assert rest.names(DEPLOYMENTS) == {"web"}
    (cluster,) = rest.get("clusters?clusters=agent-1")["clusters"]
    assert set(cluster["summary"]) == {"deployments"}


@pytest.mark.parametrize(
    ("user", "expected"),
    [
        ({"username": "system:serviceaccount:a:b", "uid": "7"}, "account:7"),
        ({"username": "system:serviceaccount:a:b"}, ""),
        # The uid of another user may be the same in each cluster.
        ({"username": "admin", "uid": "7"}, ""),
    ],
    ids=["account", "no uid", "another user"],
)
def test_the_uid_of_the_account(
    rest: RestStand, user: dict[str, str], expected: str
) -> None:
    """An agentk with rights in some namespaces knows the uid of its account."""
    rest.cluster.answer("GET", "/api/v1/namespaces/kube-system", FORBIDDEN, 403)
    rest.cluster.answer("POST", REVIEW, {"status": {"userInfo": user}}, 201)
    assert rest.pair.run(rest.agent._cluster_uid.read()) == expected


def test_an_agent_that_moves_during_a_query(
    rest: RestStand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rights in one cluster do not open the rows of the next one."""
    rest.lead()
    rest.advance(3)
    rest.allowed = {("alice", "apps/deployments")}
    assert rest.names(DEPLOYMENTS) == {"web"}
    store = rest.server._store
    permitted = ReaderRights.permitted
    moved = Publication("1", "agent-1", b"moved")

    async def move(rights: ReaderRights, *rest: Any) -> Any:
        result = await permitted(rights, *rest)
        await store.welcome(moved, hello(b"f", "another"))
        snapshot = wire.Snapshot(
            view="workloads", sequence=1, first=True, last=True, rows=[row("secret")]
        )
        await store.snapshot(moved, snapshot)
        return result

    monkeypatch.setattr(ReaderRights, "permitted", move)
    assert rest.names(DEPLOYMENTS) == set()
    assert "secret" in rest.rows("workloads")
