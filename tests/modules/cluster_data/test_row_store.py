"""The store of rows, in a file and without threads."""

from __future__ import annotations

import sqlite3
from collections.abc import Coroutine, Iterator
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest
from twisted.internet.defer import Deferred
from twisted.logger import capturedLogs

from modules.cluster_data.agent.table import Table, TableKey
from modules.cluster_data.agent.view_registry import OWN_VIEWS
from modules.cluster_data.server.store import row_store, view_rows
from modules.cluster_data.server.store.queries import (
    VIEWS_OF_KINDS,
    FoundRow,
    ListScope,
    RowQuery,
    find_clusters,
    find_rows,
    find_scopes,
)
from modules.cluster_data.server.store.row_store import Publication, RowStore
from modules.cluster_data.wire import cluster_data_pb2 as wire
from tests.modules.cluster_data.pair import ThreadedClock
from tunnel.errors import CallError, Status

_T = TypeVar("_T")

MAIN = Publication("1", "main", b"first")
EPOCH = wire.Hello(epoch=b"e", cluster_uid="u", views=["workloads"])


def row(name: str, columns: bytes = b"{}", **key: str) -> wire.Row:
    parts = {"group": "apps", "kind": "Deployment", "namespace": "shop"} | key
    return wire.Row(
        key=wire.RowKey(**parts, name=name),
        resource=f"{parts['kind'].lower()}s",
        columns=columns,
    )


class StoreStand:
    """A store in a file, and its clock."""

    def __init__(self, path: Path) -> None:
        self.clock = ThreadedClock()
        self.path = path
        self.failures: list[Exception] = []
        self.store = RowStore(
            path,
            self.clock,
            lambda: 1000.0 + self.clock.seconds(),
            self.failures.append,
        )
        self.run(self.store.start())

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        results: list[Any] = []
        Deferred.fromCoroutine(work).addBoth(results.append)
        (result,) = results
        if hasattr(result, "raiseException"):
            result.raiseException()
        found: _T = result
        return found

    def refused(self, work: Coroutine[Any, Any, Any]) -> Status:
        with pytest.raises(CallError) as caught:
            self.run(work)
        return caught.value.status

    def snapshot(self, *rows: wire.Row, sequence: int = 1, **more: Any) -> Any:
        parts: dict[str, Any] = {"view": "workloads", "first": True, "last": True}
        parts |= more
        return self.store.snapshot(
            MAIN,
            wire.Snapshot(sequence=sequence, rows=rows, **parts),
        )

    def delta(self, *put: wire.Row, sequence: int = 2, deleted: Any = ()) -> Any:
        return self.store.delta(
            MAIN,
            wire.Delta(
                view="workloads",
                sequence=sequence,
                put=put,
                deleted=[one.key for one in deleted],
            ),
        )

    def found(self, **query: Any) -> list[FoundRow]:
        asked = RowQuery(view="workloads", **query)
        return self.run(self.store.read(lambda db: find_rows(db, asked, None)))[0]

    def names(self, **query: Any) -> list[str]:
        return [one.name for one in self.found(**query)]


@pytest.fixture
def stand(tmp_path: Path) -> Iterator[StoreStand]:
    stand = StoreStand(tmp_path / "rows.sqlite")
    yield stand
    stand.run(stand.store.stop())


def test_snapshot_and_changes(stand: StoreStand) -> None:
    assert stand.run(stand.store.welcome(MAIN, EPOCH)) == {}
    stand.run(stand.snapshot(row("a"), row("b")))
    stand.run(stand.delta(row("c"), row("a", b'{"x":1}'), deleted=[row("b")]))
    assert [(one.name, one.columns) for one in stand.found()] == [
        ("a", '{"x":1}'),
        ("c", "{}"),
    ]
    # The next call of the same cache goes on there.
    again = Publication("1", "main", b"second")
    assert stand.run(stand.store.welcome(again, EPOCH)) == {"workloads": 2}


def test_rows_stay_until_the_last_part(stand: StoreStand) -> None:
    stand.run(stand.store.welcome(MAIN, EPOCH))
    stand.run(stand.snapshot(row("old")))
    other = wire.Hello(epoch=b"f", cluster_uid="u", views=["workloads"])
    assert stand.run(stand.store.welcome(MAIN, other)) == {}
    stand.run(stand.snapshot(row("a"), last=False))
    assert stand.names() == ["old"]
    stand.run(stand.snapshot(row("b"), first=False))
    assert stand.names() == ["a", "b"]


def test_views_that_an_agent_has_no_longer(stand: StoreStand) -> None:
    stand.run(stand.store.welcome(MAIN, EPOCH))
    stand.run(stand.snapshot(row("old")))
    stand.run(stand.store.welcome(MAIN, wire.Hello(epoch=b"e", cluster_uid="u")))
    assert stand.names() == []


def test_a_snapshot_that_begins_again(stand: StoreStand) -> None:
    stand.run(stand.store.welcome(MAIN, EPOCH))
    stand.run(stand.snapshot(row("lost"), last=False))
    stand.run(stand.snapshot(row("a")))
    assert stand.names() == ["a"]


def test_another_cluster_has_no_old_rows(stand: StoreStand) -> None:
    stand.run(stand.store.welcome(MAIN, EPOCH))
    stand.run(stand.snapshot(row("a")))
    other = wire.Hello(epoch=b"f", cluster_uid="another")
    stand.run(stand.store.welcome(MAIN, other))
    assert stand.names() == []


def test_a_newer_call_replaces_an_older_one(stand: StoreStand) -> None:
    newer = Publication("1", "main", b"second")
    stand.run(stand.store.welcome(MAIN, EPOCH))
    stand.run(stand.store.welcome(newer, EPOCH))
    assert stand.refused(stand.snapshot(row("a"))) is Status.ABORTED
    stand.run(stand.store.ended(MAIN))
    (cluster,) = stand.run(stand.store.read(find_clusters))
    assert cluster.is_publishing
    stand.run(stand.store.ended(newer))
    (cluster,) = stand.run(stand.store.read(find_clusters))
    assert not cluster.is_publishing


def test_changes_before_all_rows_are_refused(stand: StoreStand) -> None:
    stand.run(stand.store.welcome(MAIN, EPOCH))
    assert stand.refused(stand.delta(row("a"))) is Status.FAILED_PRECONDITION


def test_limits(stand: StoreStand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view_rows, "MAX_ROWS", 2)
    stand.run(stand.store.welcome(MAIN, EPOCH))
    rows = [row(name) for name in "abc"]
    assert stand.refused(stand.snapshot(*rows)) is Status.RESOURCE_EXHAUSTED
    stand.run(stand.snapshot(*rows[:2]))
    assert stand.refused(stand.delta(rows[2])) is Status.RESOURCE_EXHAUSTED
    assert stand.names() == ["a", "b"]
    monkeypatch.setattr(view_rows, "MAX_VIEW_SIZE", 100)
    large = row("c", b'{"x":"' + b"x" * 100 + b'"}')
    assert stand.refused(stand.snapshot(large)) is Status.RESOURCE_EXHAUSTED
    long = row("a", b'"' + b"x" * view_rows.MAX_COLUMNS + b'"')
    assert stand.refused(stand.delta(long)) is Status.INVALID_ARGUMENT
    odd = row("a", b"\xff")
    assert stand.refused(stand.delta(odd)) is Status.INVALID_ARGUMENT
    assert [one.columns for one in stand.found()] == ["{}", "{}"]


def test_limits_of_keys_and_messages(
    stand: StoreStand, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand.run(stand.store.welcome(MAIN, EPOCH))
    stand.run(stand.snapshot())
    long = "x" * (view_rows.MAX_NAME + 1)
    for odd in (row(long), row("a", namespace=long), row("a", part=long)):
        assert stand.refused(stand.delta(odd)) is Status.INVALID_ARGUMENT
    many = [row(str(count)) for count in range(row_store.MAX_MESSAGE + 1)]
    assert stand.refused(stand.delta(*many)) is Status.INVALID_ARGUMENT
    assert stand.refused(stand.snapshot(*many)) is Status.INVALID_ARGUMENT
    assert stand.refused(stand.delta(deleted=many)) is Status.INVALID_ARGUMENT
    monkeypatch.setattr(view_rows, "MAX_TERMS", 5)
    labels = row("a", b'{"labels":{"a":"1","b":"2","c":"3","d":"4","e":"5"}}')
    assert stand.refused(stand.delta(labels)) is Status.RESOURCE_EXHAUSTED
    assert stand.names() == []


def test_totals_follow_all_changes(stand: StoreStand) -> None:
    """Otherwise an agent could reach its limits, or pass them, in time."""

    def totals() -> list[Any]:
        def read(database: sqlite3.Connection) -> list[Any]:
            return database.execute(
                "SELECT sum, row_count, size, term_count FROM views"
                " WHERE view = 'workloads' AND staged = 0"
            ).fetchall()

        return stand.run(stand.store.read(read))

    stand.run(stand.store.welcome(MAIN, EPOCH))
    labelled = row("a", b'{"labels":{"a":"1"},"images":["b"]}')
    stand.run(stand.snapshot(labelled, row("b")))
    before = totals()
    assert before[0][1:] == (2, len(labelled.columns) + 2, 4)
    stand.run(stand.delta(row("c"), row("a"), deleted=[row("b")]))
    stand.run(stand.delta(row("b"), labelled, deleted=[row("c")], sequence=3))
    assert totals() == before
    stand.run(stand.snapshot(labelled, last=False, sequence=4))
    stand.run(stand.snapshot(row("b"), first=False, sequence=4))
    assert totals() == before
    everything = [labelled, row("b")]
    stand.run(stand.delta(deleted=everything, sequence=5))
    assert totals() == [(0, 0, 0, 0)]


def test_a_failed_change_is_undone_alone(stand: StoreStand) -> None:
    """Also if it shares a transaction with others."""
    stand.run(stand.store.welcome(MAIN, EPOCH))
    stand.run(stand.snapshot(row("a")))
    pool = stand.clock.getThreadPool()
    pool.pause()
    results: list[Any] = []
    first = Deferred.fromCoroutine(stand.delta(row("b")))
    changes = [stand.delta(row("c"), row("d", b"\xff")), stand.delta(row("e"))]
    others = [Deferred.fromCoroutine(one) for one in changes]
    for one in (first, *others):
        one.addBoth(results.append)
    pool.resume()
    assert len(results) == 3
    assert stand.names() == ["a", "b", "e"]


@pytest.mark.parametrize(
    ("columns", "name"),
    [
        # Half of a character.
        (b'{"labels":{"a":"\\ud800"}}', "d"),
        (b'{"images":["\\udfff"]}', "d"),
        # Numbers that SQLite does not have.
        (b'{"labels":{"a":1e999}}', "d"),
        (b"[]", "d"),
        (b"{", "d"),
    ],
)
def test_odd_values_do_not_disturb_other_agents(
    stand: StoreStand, columns: bytes, name: str
) -> None:
    other = Publication("2", "other", b"other")
    stand.run(stand.store.welcome(MAIN, EPOCH))
    stand.run(stand.store.welcome(other, EPOCH))
    pool = stand.clock.getThreadPool()
    pool.pause()
    odd = Deferred.fromCoroutine(stand.snapshot(row(name, columns)))
    snapshot = wire.Snapshot(
        view="workloads", sequence=1, first=True, last=True, rows=[row("a")]
    )
    good = Deferred.fromCoroutine(stand.store.snapshot(other, snapshot))
    odd.addErrback(lambda failure: failure.trap(CallError))
    pool.resume()
    assert odd.called and good.called
    assert "a" in stand.names()


def test_an_error_in_kas_ends_all_waiting_changes(
    stand: StoreStand, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand.run(stand.store.welcome(MAIN, EPOCH))

    def fail(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(row_store, "ViewRows", fail)
    with capturedLogs() as events:
        assert stand.refused(stand.snapshot(row("a"))) is Status.UNAVAILABLE
    assert len(events) == 1
    monkeypatch.undo()
    stand.run(stand.snapshot(row("a")))
    assert stand.names() == ["a"]


def test_a_cancelled_change_does_not_stop_others(stand: StoreStand) -> None:
    stand.run(stand.store.welcome(MAIN, EPOCH))
    stand.run(stand.snapshot(row("a")))
    pool = stand.clock.getThreadPool()
    pool.pause()
    first = Deferred.fromCoroutine(stand.delta(row("b")))
    second = Deferred.fromCoroutine(stand.delta(row("c")))
    first.addErrback(lambda failure: None)
    first.cancel()
    pool.resume()
    assert second.called
    assert stand.names() == ["a", "b", "c"]


def test_sums(stand: StoreStand) -> None:
    table = Table("workloads")
    for name in "ab":
        key = TableKey("apps", "Deployment", "shop", name)
        table.put(key, "deployments", {"name": name})
    rows = [row(key.name, found.columns) for key, found in table.rows.items()]
    stand.run(stand.store.welcome(MAIN, EPOCH))
    stand.run(stand.snapshot(*rows, sequence=table.sequence))
    beat = wire.Beat()
    beat.sums["workloads"].sequence = table.sequence
    beat.sums["workloads"].sum = table.sum
    assert stand.run(stand.store.beat(MAIN, beat)) == []
    beat.sums["workloads"].sum ^= 1
    assert stand.run(stand.store.beat(MAIN, beat)) == ["workloads"]
    # Changes are on their way.
    beat.sums["workloads"].sequence += 1
    assert stand.run(stand.store.beat(MAIN, beat)) == []
    beat.sums["nodes"].sequence = 1
    assert stand.run(stand.store.beat(MAIN, beat)) == ["nodes"]


def test_old_clusters_are_forgotten(stand: StoreStand) -> None:
    stand.run(stand.store.welcome(MAIN, EPOCH))
    stand.run(stand.snapshot(row("a")))
    assert stand.run(stand.store.forget(1000.0)) == 0
    assert stand.run(stand.store.forget(1000.5)) == 1
    assert stand.names() == []
    assert stand.run(stand.store.read(find_clusters)) == []


def test_the_file_survives_a_restart(stand: StoreStand, tmp_path: Path) -> None:
    stand.run(stand.store.welcome(MAIN, EPOCH))
    stand.run(stand.snapshot(row("a")))
    again = StoreStand(stand.path)
    assert again.names() == ["a"]
    assert stand.path.stat().st_mode & 0o777 == 0o600
    again.run(again.store.stop())


def test_a_file_of_another_version(stand: StoreStand) -> None:
    stand.run(stand.store.welcome(MAIN, EPOCH))
    stand.run(stand.snapshot(row("a")))
    with sqlite3.connect(stand.path) as database:
        database.execute("PRAGMA user_version = 99")
    database.close()
    again = StoreStand(stand.path)
    assert again.names() == []
    again.run(again.store.stop())


def test_a_file_that_is_not_a_database(tmp_path: Path) -> None:
    path = tmp_path / "rows.sqlite"
    path.write_bytes(b"not a database" * 1000)
    with capturedLogs() as events:
        stand = StoreStand(path)
    assert len(events) == 1
    stand.run(stand.store.welcome(MAIN, EPOCH))
    stand.run(stand.snapshot(row("a")))
    assert stand.names() == ["a"]
    stand.run(stand.store.stop())


def test_a_file_that_is_damaged_later(stand: StoreStand) -> None:
    """The module restarts, and begins a new file."""
    stand.run(stand.store.welcome(MAIN, EPOCH))
    stand.run(stand.snapshot(row("a")))

    def damaged(database: sqlite3.Connection) -> None:
        error = sqlite3.DatabaseError("database disk image is malformed")
        error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
        raise error

    assert stand.refused(stand.store.read(damaged)) is Status.UNAVAILABLE
    assert stand.refused(stand.store.read(damaged)) is Status.UNAVAILABLE
    assert len(stand.failures) == 1
    stand.run(stand.store.stop())
    assert not stand.path.exists()
    stand.store.is_damaged = False
    stand.run(stand.store.start())
    assert stand.names() == []


def test_a_query_that_takes_too_long(stand: StoreStand) -> None:
    def query(database: sqlite3.Connection) -> None:
        stand.clock.advance(row_store.QUERY_SECONDS + 1)
        database.execute(
            "WITH RECURSIVE n(x) AS (VALUES(0) UNION ALL SELECT x + 1 FROM n"
            " WHERE x < 1000000) SELECT COUNT(*) FROM n"
        ).fetchone()

    # The time is measured from the beginning, so the clock has to move within.
    assert stand.refused(stand.store.read(query)) is Status.DEADLINE_EXCEEDED
    # The next query has its own time.
    assert stand.names() == []


# Queries


def filled(stand: StoreStand) -> None:
    stand.run(stand.store.welcome(MAIN, EPOCH))
    stand.run(
        stand.snapshot(
            row("web", b'{"images":["registry/web:7"],"labels":{"app":"web"}}'),
            row("api", b'{"images":["registry/api:7"],"labels":{"app":"api"}}'),
            row("web", b"{}", namespace="other"),
            row("job", b"{}", group="batch", kind="Job"),
        )
    )


def test_views_of_kinds() -> None:
    """A kind without a view finds the objects of each view of agentk."""
    views = {one.name for one in OWN_VIEWS}
    # This one has further rows of the same objects.
    assert views - {"problems"} == set(VIEWS_OF_KINDS)


@pytest.mark.parametrize("kind", ["svc", "Service", "services"])
def test_services(stand: StoreStand, kind: str) -> None:
    stand.run(stand.store.welcome(MAIN, EPOCH))
    web = row("web", group="", kind="Service")
    snapshot = wire.Snapshot(view="services", sequence=1, first=True, last=True)
    snapshot.rows.append(web)
    stand.run(stand.store.snapshot(MAIN, snapshot))
    query = RowQuery(view="", kind=kind)
    found = stand.run(stand.store.read(lambda db: find_rows(db, query, None)))[0]
    assert [one.name for one in found] == ["web"]


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ({"kind": "Deployment", "namespace": "shop"}, ["api", "web"]),
        ({"kind": "deployments.apps", "name": "web"}, ["web", "web"]),
        ({"kind": "deploy", "image": "web:7"}, ["web"]),
        ({"kind": "deployments.batch"}, []),
        ({"kind": "job"}, ["job"]),
        ({"label_selector": "app=api"}, ["api"]),
        ({"agents": ["1"], "namespace": "other"}, ["web"]),
        ({"agents": ["2"]}, []),
    ],
)
def test_conditions(stand: StoreStand, query: Any, names: list[str]) -> None:
    filled(stand)
    assert stand.names(**query) == names


@pytest.mark.parametrize(
    "query",
    [
        {"view": "no view"},
        {"view": ""},
        {"view": "workloads", "label_selector": "="},
    ],
)
def test_invalid_queries(query: Any) -> None:
    with pytest.raises(CallError) as caught:
        RowQuery(**query)
    assert caught.value.status is Status.INVALID_ARGUMENT


def test_pages(stand: StoreStand) -> None:
    filled(stand)
    seen: list[str] = []
    page = ""
    for _ in range(4):
        asked = RowQuery(view="workloads", limit=1, page=page)
        read = stand.store.read(partial(find_rows, query=asked, scopes=None))
        rows, page = stand.run(read)
        seen += [f"{one.namespace}/{one.name}" for one in rows]
    assert seen == ["other/web", "shop/api", "shop/web", "shop/job"]
    assert page == ""


@pytest.mark.parametrize("page", ["x", "W10=", "WzEsMiwzLDQsNSw2XQ=="])
def test_a_page_from_elsewhere(page: str) -> None:
    with pytest.raises(CallError) as caught:
        RowQuery(view="workloads", page=page)
    assert caught.value.status is Status.INVALID_ARGUMENT


def test_scopes(stand: StoreStand) -> None:
    filled(stand)
    asked = RowQuery(view="workloads", kind="deploy")
    scopes = stand.run(stand.store.read(lambda db: find_scopes(db, asked)))
    mine = ListScope("1", "apps", "deployments", "shop")
    assert scopes == {mine, mine._replace(namespace="other")}
    rows, _ = stand.run(stand.store.read(lambda db: find_rows(db, asked, {mine})))
    assert [one.namespace for one in rows] == ["shop", "shop"]
    rows, _ = stand.run(stand.store.read(lambda db: find_rows(db, asked, set())))
    assert rows == []


def test_clusters_by_name(stand: StoreStand) -> None:
    for agent in ("main", "other"):
        hello = wire.Hello(epoch=b"e", cluster_uid=agent)
        one = Publication(f"id-{agent}", agent, b"call")
        stand.run(stand.store.welcome(one, hello))

    def named(*names: str) -> list[str]:
        read = stand.store.read(lambda db: find_clusters(db, names))
        return [one.agent_name for one in stand.run(read)]

    assert named() == ["main", "other"]
    assert named("id-main", "other") == ["main", "other"]
    assert named("nobody") == []
