"""Searches in the audit logs of all kas."""

from __future__ import annotations

import gzip
import os
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock

from kas.audit import search
from kas.audit.search import AuditQuery, Newest, ObjectPattern, newest
from kas.audit.service import AUDIT_LOG, PEER_AUDIT_LOG, AuditSearches
from kas.pb import audit_pb2
from tests.kas.audit.test_search import CHANGED, DENIED, EXEC, OLD, encoded
from tunnel.api import OPERATOR, AuditEvent
from tunnel.errors import CallError, Status
from tunnel.testing.peers import FakePeers


class _Call:
    def __init__(self, **metadata: str) -> None:
        self.metadata = metadata


class SearchingKas:
    """A kas with a log."""

    def __init__(self, clock: Clock, file: Path | None) -> None:
        self.peers = FakePeers(clock)
        self.recorded: list[AuditEvent] = []
        self.searches = AuditSearches(
            file, self.peers, self.newest, self.recorded.append
        )
        self.peers.handle(PEER_AUDIT_LOG, self.searches)
        self.waiting: Deferred[Newest] | None = None

    def newest(self, path: Path, query: AuditQuery, limit: int) -> Deferred[Newest]:
        if self.waiting is not None:
            return self.waiting
        return succeed(newest(path, query, limit, lambda: 0.0))


class SearchedFleet:
    """Three kas, of which the first one asks the others."""

    def __init__(self, folder: Path, *events: list[dict[str, Any]]) -> None:
        self.clock = Clock()
        self.kas = []
        for number, found in enumerate(events):
            file = folder / f"log{number}"
            file.write_bytes(b"".join(map(encoded, found)))
            self.kas.append(SearchingKas(self.clock, file))
        self.first = self.kas[0]
        for number, other in enumerate(self.kas[1:], 1):
            self.first.peers.join(other.peers, f"kas{number}")

    def search(self, **request: Any) -> audit_pb2.SearchResponse:
        message = audit_pb2.SearchRequest(**request)
        call = _Call(**{OPERATOR: "root"})
        result = Deferred.fromCoroutine(self.first.searches.search(message, call))
        found: list[Any] = []
        result.addBoth(found.append)
        for _ in range(100):
            self.first.peers.flush()
            self.clock.advance(0.1)
        assert found
        if not isinstance(found[0], audit_pb2.SearchResponse):
            found[0].raiseException()
        response: audit_pb2.SearchResponse = found[0]
        return response


def text(event: dict[str, Any]) -> str:
    return encoded(event).decode().rstrip()


@pytest.fixture
def fleet(tmp_path: Path) -> SearchedFleet:
    return SearchedFleet(tmp_path, [DENIED], [OLD, CHANGED], [EXEC])


def test_all_kas(fleet: SearchedFleet) -> None:
    """In the order of the times."""
    response = fleet.search()
    assert list(response.lines) == [text(one) for one in (OLD, EXEC, DENIED, CHANGED)]
    assert not response.is_partial
    assert not response.silent
    response = fleet.search(object="pods/exec:prod/web-0", agent="edge")
    assert list(response.lines) == [text(EXEC)]


def test_the_newest_events(fleet: SearchedFleet) -> None:
    response = fleet.search(limit=2)
    assert list(response.lines) == [text(one) for one in (DENIED, CHANGED)]
    assert response.is_partial


def test_kas_that_do_not_respond(fleet: SearchedFleet) -> None:
    fleet.first.peers.unreachable.add("kas1")
    fleet.kas[2].searches.file = None
    response = fleet.search()
    assert list(response.lines) == [text(DENIED)]
    assert [(one.address, one.reason) for one in response.silent] == [
        ("kas1", "cannot be reached"),
        ("kas2", "it has no audit log"),
    ]


def test_a_kas_that_hangs(fleet: SearchedFleet) -> None:
    fleet.kas[1].waiting = Deferred()
    message = audit_pb2.SearchRequest()
    searching = Deferred.fromCoroutine(fleet.first.searches.search(message, _Call()))
    found: list[Any] = []
    searching.addCallback(found.append)
    for _ in range(300):
        fleet.first.peers.flush()
        fleet.clock.advance(0.1)
    (response,) = found
    assert [one.address for one in response.silent] == ["kas1"]
    assert len(response.lines) == 2


def test_the_log_of_this_kas_cannot_be_read(fleet: SearchedFleet) -> None:
    def fail(path: Path, query: AuditQuery, limit: int) -> Deferred[Newest]:
        raise PermissionError(13, "Permission denied")

    fleet.first.searches.newest = fail
    response = fleet.search()
    assert [(one.address, one.reason) for one in response.silent] == [
        ("this kas", "the audit log cannot be read (Permission denied)")
    ]


def test_workers_share_a_log(fleet: SearchedFleet, tmp_path: Path) -> None:
    """Workers of this kas are not asked; workers of another kas have the same lines."""
    worker = SearchingKas(fleet.clock, tmp_path / "log0")
    fleet.first.peers.join(worker.peers, "worker", is_worker=True)
    other = SearchingKas(fleet.clock, tmp_path / "log1")
    fleet.first.peers.join(other.peers, "kas1b")
    worker.waiting = Deferred()
    assert len(fleet.search().lines) == 4


def test_a_search_is_an_event(fleet: SearchedFleet) -> None:
    fleet.search(user="alice", denied=True)
    (event,) = fleet.first.recorded
    assert event.action == "audit.search"
    assert event.details == {
        "query_user": "alice",
        "query_denied": True,
        "operator": "root",
    }


def test_one_search_at_a_time(fleet: SearchedFleet) -> None:
    """It takes a whole core."""
    find = fleet.first.searches.find
    waiting: Deferred[Newest] = Deferred()
    fleet.first.waiting = waiting
    first = Deferred.fromCoroutine(find(audit_pb2.SearchRequest(), None))
    with pytest.raises(CallError, match="another search is running") as raised:
        find(audit_pb2.SearchRequest(), None).send(None)
    assert raised.value.status is Status.RESOURCE_EXHAUSTED
    # The thread goes on after its caller has left.
    first.addErrback(lambda _: None)
    first.cancel()
    assert fleet.search().silent[0].reason == "another search is running"
    waiting.callback(Newest([], False))
    fleet.first.waiting = None
    assert len(fleet.search().lines) == 4


def test_an_invalid_object(fleet: SearchedFleet) -> None:
    with pytest.raises(CallError, match="is not RESOURCE") as raised:
        fleet.search(object="a/b/c")
    assert raised.value.status is Status.INVALID_ARGUMENT


def test_names_of_the_services() -> None:
    assert AUDIT_LOG.full_name == "txkas.audit.v1.AuditLog"


# The files of one kas.


def times(result: Newest) -> list[str]:
    return [one.event["time"] for one in result.found]


def numbered(first: int, count: int) -> bytes:
    events = (
        {**EXEC, "time": f"{number:04}"} for number in range(first, first + count)
    )
    return b"".join(map(encoded, events))


def test_rotated_files(tmp_path: Path) -> None:
    path = tmp_path / "a[1].jsonl"
    path.write_bytes(numbered(20, 10))
    (tmp_path / "a[1].jsonl.1").write_bytes(numbered(10, 10))
    (tmp_path / "a[1].jsonl.2").write_bytes(numbered(0, 10))
    (tmp_path / "a1.jsonl").write_bytes(numbered(100, 10))
    result = newest(path, AuditQuery(), 30, lambda: 0.0)
    assert times(result) == [f"{number:04}" for number in range(30)]
    assert not result.is_partial
    result = newest(path, AuditQuery(), 15, lambda: 0.0)
    assert times(result) == [f"{number:04}" for number in range(15, 30)]
    assert result.is_partial


def test_limits_of_bytes_and_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log"
    path.write_bytes(numbered(0, 5000))
    monkeypatch.setattr(search, "MAX_BYTES", 1000)
    result = newest(path, AuditQuery(), 10_000, lambda: 0.0)
    assert 0 < sum(len(one.line) for one in result.found) <= 1000
    assert (times(result)[-1], result.is_partial) == ("4999", True)
    seconds = iter(range(100))
    result = newest(path, AuditQuery(), 10_000, lambda: 5.0 * next(seconds))
    assert result.is_partial
    assert times(result)[-1] < "4999"


@pytest.mark.parametrize("text", ["pods", "pods/exec:a/b", ":b", "/exec", "x:b"])
def test_the_text_of_an_object(text: str) -> None:
    assert str(ObjectPattern.parse(text)) == text


def test_files_that_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others are searched, and the result says that events may be missing."""
    path = tmp_path / "log"
    path.write_bytes(encoded(EXEC))
    (tmp_path / "log.d").mkdir()
    assert newest(path, AuditQuery(), 10, lambda: 0.0) == Newest(
        newest(path, AuditQuery(), 10, lambda: 0.0).found, False
    )
    (tmp_path / "log.1.gz").write_bytes(gzip.compress(encoded(OLD) * 10)[:-9])
    (tmp_path / "log.2.zst").write_bytes(b"\x28\xb5\x2f\xfd")
    result = newest(path, AuditQuery(), 100, lambda: 0.0)
    assert (result.found[-1].event, result.is_partial) == (EXEC, True)
    path.unlink()
    with pytest.raises(FileNotFoundError):
        newest(path, AuditQuery(), 100, lambda: 0.0)


def test_a_limited_number_of_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newest ones."""
    monkeypatch.setattr(search, "MAX_FILES", 2)
    path = tmp_path / "log"
    for number, event in enumerate((EXEC, OLD, DENIED)):
        one = tmp_path / f"log.{number}" if number else path
        one.write_bytes(encoded(event))
        os.utime(one, (100 - number, 100 - number))
    result = newest(path, AuditQuery(), 100, lambda: 0.0)
    assert [one.event for one in result.found] == [OLD, EXEC]
    assert result.is_partial
